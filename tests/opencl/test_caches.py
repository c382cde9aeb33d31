"""Test where pyopencl and PoCL cache programs: never where other users can write, also for users without a home."""

import os
import stat
from pathlib import Path

import pyopencl
import pytest

from isokern_opencl.caches import private_caches

NAMES = ("POCL_CACHE_DIR", "PYOPENCL_NO_CACHE")


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Return a function that gives the variables set for them where the user's caches are below `tmp_path`."""
    for name in (*NAMES, "ISOKERN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def ask(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, str(value))
        before = dict(os.environ)
        with private_caches():
            told = {name: os.environ[name] for name in NAMES if name not in before and name in os.environ}
        assert dict(os.environ) == before
        return told

    return ask


def test_folders_that_are_the_users_are_left_alone(given, tmp_path):
    assert given() == {}
    assert given(XDG_CACHE_HOME=tmp_path / "xdg") == {}
    assert not (tmp_path / "home").exists()


def test_a_folder_that_others_can_write_to_is_replaced(given, tmp_path):
    (tmp_path / "xdg").mkdir()
    (tmp_path / "xdg").chmod(0o777)
    told = given(XDG_CACHE_HOME=tmp_path / "xdg", ISOKERN_CACHE=tmp_path / "own")
    assert told == {"POCL_CACHE_DIR": str(tmp_path / "own" / "isokern" / "pocl"), "PYOPENCL_NO_CACHE": "1"}
    assert Path(told["POCL_CACHE_DIR"]).stat().st_mode & 0o777 == 0o700


def test_where_no_folder_is_the_users_the_process_has_its_own(given, tmp_path):
    (tmp_path / "xdg").mkdir()
    (tmp_path / "xdg").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others can write to"):
        told = given(XDG_CACHE_HOME=tmp_path / "xdg")
    assert tmp_path not in Path(told["POCL_CACHE_DIR"]).parents
    assert Path(told["POCL_CACHE_DIR"]).stat().st_mode & 0o777 == 0o700


def test_without_home_pocl_would_take_a_folder_in_tmp(given, tmp_path, monkeypatch):
    """PoCL does not look up the home in the user database."""
    monkeypatch.delenv("HOME")
    assert given(ISOKERN_CACHE=tmp_path)["POCL_CACHE_DIR"] == str(tmp_path / "isokern" / "pocl")


def test_what_the_user_chose_stays(given, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    assert given(POCL_CACHE_DIR=tmp_path, PYOPENCL_NO_CACHE="0") == {}


@pytest.fixture
def stranger_with_pocl(stranger):
    """Return a stranger who can reach PoCL's files, which PoCL checks by the real user's rights, not the process's."""
    home = Path(pyopencl.__file__).resolve().parent
    closed = [p for p in (home, *home.parents) if not p.stat().st_mode & stat.S_IXOTH]
    if closed:
        pytest.skip(f"another user cannot go below {closed[-1]}, where PoCL is")
    return stranger


CODE = """
import isokern, os, warnings
warnings.simplefilter("error")
assert (isokern.square([1.0, 2.0, 3.0], device="opencl:0").numpy() == [1, 4, 9]).all()
print(isokern.device("opencl:0").programs.hits > 0, sorted(os.listdir()))
"""
PLUGIN = {"ISOKERN_PLUGINS": "opencl", "ISOKERN_OPENCL_DEVICES": "pocl", "ISOKERN_SIMT_SELFTEST": "0"}


@pytest.mark.quick("unknown", "read-only")
@pytest.mark.parametrize("home", [None, "/nonexistent", "/proc"], ids=["unknown", "gone", "read-only"])
def test_a_user_without_a_home_computes(stranger_with_pocl, home):
    """Programs are found again in the user's own temporary folder, and the working folder stays empty."""
    stranger = stranger_with_pocl
    given = PLUGIN if home is None else {**PLUGIN, "HOME": home}
    own = f"isokern-{stranger.user}"
    assert stranger(CODE, **given) == (0, f"False ['{own}']\n")
    assert stranger(CODE, **given) == (0, f"True ['{own}']\n")
    assert sorted(os.listdir(stranger.folder / own / "isokern")) == ["opencl", "pocl"]


def test_a_home_that_is_read_only_is_not_the_fault_of_pocl(stranger_with_pocl):
    stranger = stranger_with_pocl
    """Neither is PoCL said to be missing where it is told to use a folder that it cannot write to."""
    home = stranger.folder / "home"
    (home / ".cache").mkdir(parents=True)  # belongs to root
    status, text = stranger(CODE, HOME=str(home), **PLUGIN)
    assert status == 0, text
    code = "import isokern; print([(b.status, b.reason) for b in isokern.backends()])"
    status, text = stranger(code, POCL_CACHE_DIR=str(home / "pocl"), **PLUGIN)
    assert (status, "'unavailable'" in text, "pip install" in text) == (0, True, False), text
    assert "PoCL is installed" in text
