"""Test the disk cache of the emulated GPU, also for users without a home; it is off where other users can write."""

import ctypes
import os

import pytest

from isokern_cuda.sim import PROGRAM

CODE = """
import isokern, sys
device = isokern.device("cuda_sim:0")
assert (isokern.square([1.0, 2.0, 3.0], device=device).numpy() == [1, 4, 9]).all()
print(device.programs.hits > 0, device.programs.misses > 0)
"""
SETTINGS = {"ISOKERN_PLUGINS": "cuda", "ISOKERN_SIMT_SELFTEST": "0"}


@pytest.fixture(autouse=True)
def compiler(driver):
    """Skip without a compiler, which the emulation needs for its kernels."""


def test_a_cache_that_others_can_write_to(run, tmp_path):
    """Nothing in such a cache is executed, whoever owns it, and nothing is added."""
    given = {**SETTINGS, "ISOKERN_CACHE": str(tmp_path)}
    assert run(CODE, **given) == (0, "False True\n")
    assert run(CODE, **given) == (0, "True False\n")
    tmp_path.chmod(0o777)
    files = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*")}
    status, text = run(CODE, **given)
    assert (status, text.splitlines()[0]) == (0, "False True"), text
    assert text.count("RuntimeWarning") == 1
    assert f"others can write to {tmp_path} (mode 0777)" in text
    assert {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*")} == files


@pytest.mark.quick("unknown")
@pytest.mark.parametrize("home", [None, "/nonexistent"], ids=["unknown", "gone"])
def test_a_user_without_a_home_computes(stranger, home):
    given = SETTINGS if home is None else {**SETTINGS, "HOME": home}
    assert stranger(CODE, **given) == (0, "False True\n")
    assert stranger(CODE, **given) == (0, "True False\n")
    assert os.listdir(stranger.folder) == [f"isokern-{stranger.user}"]


def test_a_library_that_stays_for_a_sanitizer_is_whole(driver, tmp_path, monkeypatch):
    """A library's file is written again where its content has changed."""
    monkeypatch.setenv("ISOKERN_CACHE", str(tmp_path))
    made = driver()
    made.sanitize = True  # has an effect only on where libraries lie
    binary = made._compile('extern "C" int seven() { return 7; }', *PROGRAM)
    before = set(tmp_path.rglob("*.so"))
    assert made._library(binary, ctypes.RTLD_LOCAL).seven() == 7
    (kept,) = set(tmp_path.rglob("*.so")) - before
    whole = kept.read_bytes()
    assert whole.startswith(binary)
    kept.unlink()
    kept.write_bytes(made._compile('extern "C" int seven() { return 8; }', *PROGRAM))
    made._library(binary, ctypes.RTLD_LOCAL)
    assert kept.read_bytes() == whole
