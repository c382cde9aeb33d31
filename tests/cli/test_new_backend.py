"""Test isokern new-backend: the packages that it writes, and the names and folders that it refuses."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import isokern
from isokern.backend.discovery import backends
from isokern.scaffold import EVERY_KIND, HERE, KINDS, write_package

LONG = "x" * 41


@pytest.fixture(scope="module", params=KINDS)
def package(request, tmp_path_factory):
    """Return a folder with the package of each kind, for a backend called my_chip."""
    folder = tmp_path_factory.mktemp(request.param) / "new"
    write_package(request.param, "my_chip", folder)
    return folder


def test_every_kind_is_a_folder_and_nothing_else_is_one():
    folders = {p.name for p in HERE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders == {*KINDS, EVERY_KIND}


def test_a_package_is_whole_and_names_the_backend_alone(package):
    files = {str(p.relative_to(package)): p.read_text() for p in package.rglob("*") if p.is_file()}
    wanted = {".gitignore", ".github/workflows/test.yml", "README.md", "pyproject.toml", "tox.ini"}
    assert wanted | {"tests/test_conformance.py", "tests/test_my_chip.py"} <= set(files)
    assert {"isokern_my_chip/__init__.py", "src/isokern_my_chip/__init__.py"} & set(files)
    assert [name for name, text in files.items() if re.search("acme", name + text, re.I)] == []
    for name, text in files.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
    assert 'name = "isokern-my_chip"' in files["pyproject.toml"]
    assert 'my_chip = "isokern_my_chip"' in files["pyproject.toml"]
    assert 'license = "Apache-2.0"' in files["pyproject.toml"]
    assert any("MyChip" in text for name, text in files.items() if name.endswith(".py"))


@pytest.mark.parametrize("kind", ["python", "async"])
def test_a_package_is_found_and_passes(tmp_path, kind):
    """The package is not installed: a folder on the path has what an installation would say of it."""
    write_package(kind, "my_chip", tmp_path / "new")
    info = tmp_path / "new" / "isokern_my_chip-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: isokern-my_chip\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[isokern]\nmy_chip = isokern_my_chip\n")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ISOKERN_")}
    path = os.pathsep.join([str(tmp_path / "new"), *filter(None, sys.path)])
    cases = ["--case", "neg/F32/*/drawn", "--case", "runtime/streams/makes_a_stream_wait"]
    done = subprocess.run(
        [sys.executable, "-m", "isokern", "check", "--device", "my_chip:0", "--claimed", "--json", *cases],
        env={**inherited, "PYTHONPATH": path, "ISOKERN_PLUGINS": "my_chip"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout)["summary"]["my_chip:0"]
    assert counts == {**dict.fromkeys(counts, 0), "pass": counts["pass"]}
    assert counts["pass"] > 20


def test_the_next_commands_are_printed(isokern_here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = isokern_here("new-backend", "my_chip", "--python")
    assert done.code == 0, done.err
    assert [line.strip() for line in done.out.splitlines()[-3:]] == [
        "pip install './isokern-my_chip[test]'",
        "isokern check --device my_chip:0 --claimed",
        "pytest ./isokern-my_chip",
    ]
    assert (tmp_path / "isokern-my_chip" / "pyproject.toml").exists()


def test_a_native_one_is_built_with_the_core_that_is_installed(isokern_here, tmp_path):
    """A build in isolation would look for `isokern[build]` in an index, where a clone is not."""
    done = isokern_here("new-backend", "my_chip", "--native", "--into", tmp_path / "a", "--json")
    assert done.document["commands"][:2] == [
        "pip install 'isokern[build]'",
        f"pip install --no-build-isolation '{tmp_path / 'a'}[test]'",
    ]


def test_another_folder_and_a_document(isokern_here, tmp_path):
    folder = tmp_path / "a b" / "c"
    folder.mkdir(parents=True)  # an empty folder will do
    done = isokern_here("new-backend", "my_chip", "--async", "--into", folder, "--json")
    assert done.document["folder"] == str(folder)
    assert all(Path(name).is_file() for name in done.document["files"])
    assert shlex.split(done.document["commands"][0]) == ["pip", "install", f"{folder}[test]"]
    assert shlex.split(done.document["commands"][2]) == ["pytest", str(folder)]


def test_the_help_has_a_line_for_each_kind(isokern_here):
    told = " ".join(isokern_here("new-backend", "--help").out.replace("│", " ").split())
    for kind, line in KINDS.items():
        assert re.search(rf"--{kind}\b", told)
        assert line.partition(":")[0] in told


@pytest.mark.parametrize(
    "name", ["", "1chip", "My", "a-b", "a__b", "_a", "a_", "é", "a b", "../a", "a.b", "a\n", "isokern", "class", LONG]
)
def test_a_name_that_cannot_be_is_refused(isokern_here, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    done = isokern_here("new-backend", "--python", "--", name)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("new-backend: ")
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_plug_in_is_refused(isokern_here, tmp_path):
    if not backends():
        pytest.skip("no plug-in is installed")
    name = backends()[0].name
    done = isokern_here("new-backend", name, "--python", "--into", tmp_path / "new")
    assert done.code == 2
    assert f"a plug-in that is installed here is called '{name}'; choose another name" in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("kinds", "given"), [([], "no kind"), (["--python", "--async"], "--python and --async"), (["--rust"], "--rust")]
)
def test_exactly_one_kind_is_chosen(isokern_here, tmp_path, kinds, given):
    done = isokern_here("new-backend", "my_chip", *kinds, "--into", tmp_path / "new")
    assert done.code == 2
    assert given in done.err
    assert not (tmp_path / "new").exists()


def test_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(isokern.InvalidArgument, match="the kind is 'every_kind'; allowed: python, "):
        write_package(EVERY_KIND, "my_chip", tmp_path)


def test_a_folder_that_cannot_be_written_to_is_refused(isokern_here, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.py").write_text("x = 1\n")
    cases = {
        tmp_path / "full": f"{tmp_path / 'full'} is not empty; name a new folder by --into",
        tmp_path / "full" / "mine.py": "File exists; allowed: a folder that can be written to, new or empty",
        tmp_path / "full" / "mine.py" / "below": "Not a directory; allowed: a folder",
        Path("/proc/new"): "allowed: a folder",
        tmp_path / ("y" * 300): "File name too long; allowed: a folder",
    }
    for folder, told in cases.items():
        done = isokern_here("new-backend", "my_chip", "--python", "--into", folder)
        assert (done.code, done.out) == (2, "")
        assert told in done.err
        assert done.err.count("\n") == 1
    assert [p.name for p in tmp_path.rglob("*")] == ["full", "mine.py"]
