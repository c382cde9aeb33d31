"""Test the content of the distributions, and that each builds from its sdist, isolated and without `isokern`."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"core": ROOT / "core", **{p.name: p for p in sorted((ROOT / "plugins").iterdir()) if p.is_dir()}}
PLUGINS = [name for name in FOLDERS if name != "core"]
NATIVE = [name for name in PLUGINS if (FOLDERS[name] / "setup.py").exists()]
MADE = {"__pycache__", "build", "dist", "generated"}  # folders of what a build makes


def run(*command: str, folder: Path, **environment: str) -> str:
    """Return the output of a command, which must succeed; this checkout is not on its path."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    if "ISOKERN_PLUGINS" in environment:  # a setting of a plug-in that is not loaded is an error
        inherited = {k: v for k, v in inherited.items() if not k.startswith("ISOKERN_")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(request, tmp_path_factory) -> tuple[str, Path]:
    """Return (name, folder with an sdist and the wheel built from it)."""
    folder = tmp_path_factory.mktemp(request.param)
    quick = "-O0"  # the kernels' results are not tested here
    run("-m", "build", "--outdir", str(folder), str(FOLDERS[request.param]), folder=folder, ISOKERN_CPU_CFLAGS=quick)
    return request.param, folder


def find_missing(packed: Path, folder: Path) -> list[str]:
    """Return the files that a build of a distribution's folder needs, and its sdist lacks."""
    suffixes = (".c", ".cpp", ".cu", ".h", ".hpp", ".json", ".py", ".toml", ".tsv", ".txt", ".typed", ".xpu")
    wanted = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.name.endswith(suffixes)}
    wanted = {p for p in wanted if not any(part in MADE or part.endswith(".egg-info") for part in p.parts)}
    assert len(wanted) > 10
    with tarfile.open(packed) as archive:
        held = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    return sorted(str(p) for p in wanted - held if p.name not in ("editable.json",))


@pytest.mark.parametrize("name", FOLDERS)
def test_sdist_has_every_file(name, tmp_path):
    """Its wheel is built, isolated, in full runs."""
    command = [
        "-m",
        "build",
        "--no-isolation",
        "--skip-dependency-check",
        "--sdist",
        "--outdir",
        str(tmp_path),
        str(FOLDERS[name]),
    ]
    run(*command, folder=tmp_path)
    (packed,) = tmp_path.glob("*.tar.gz")
    assert find_missing(packed, FOLDERS[name]) == []


def test_a_file_that_an_sdist_lacks_is_seen(tmp_path):
    files = [tmp_path / "new" / f"{n}.py" for n in range(12)]
    files[0].parent.mkdir()
    for file in files:
        file.touch()
    with tarfile.open(tmp_path / "new.tar.gz", "w:gz") as archive:
        for file in files[1:]:
            archive.add(file, f"new-1.0/{file.name}")
    assert find_missing(tmp_path / "new.tar.gz", tmp_path / "new") == ["0.py"]


def wheel_of(folder: Path) -> zipfile.ZipFile:
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def metadata(wheel: zipfile.ZipFile, file: str) -> email.message.Message:
    (name,) = (n for n in wheel.namelist() if n.endswith(f".dist-info/{file}"))
    return email.message_from_bytes(wheel.read(name))


@pytest.mark.full
@pytest.mark.parametrize("built", FOLDERS, indirect=True)
def test_wheel_from_sdist_holds_what_it_must(built):
    name, folder = built
    wheel = wheel_of(folder)
    files = wheel.namelist()
    package = "isokern" if name == "core" else f"isokern_{name}"
    top = {f.split("/")[0] for f in files}
    assert {t for t in top if not t.endswith(".dist-info")} == {package}
    assert f"{package}/py.typed" in files
    assert any(f.endswith("/licenses/LICENSE") for f in files)
    assert metadata(wheel, "METADATA")["License-Expression"] == "Apache-2.0"
    source = FOLDERS[name] / "src"
    assert {str(p.relative_to(source)) for p in source.rglob("*.py")} <= set(files)
    if name == "core":
        headers = ("cabi/include/isokern_math.h", "cabi/include/isokern_native.h", "cabi/include/isokern_native.c")
        for needed in (*headers, "demo/data/digits.npz", "demo/data/README.md", "cabi/build_plugin.py"):
            assert f"isokern/{needed}" in files
        compiled = [*source.rglob("simt/kernels/*"), *source.rglob("emulation/*.h")]
        compiled += [p for p in source.rglob("scaffold/**/*") if p.is_file() and "__pycache__" not in p.parts]
        assert {str(p.relative_to(source)) for p in compiled} <= set(files)
    if name not in NATIVE:
        assert metadata(wheel, "WHEEL")["Tag"] == "py3-none-any"
        assert {
            str(p.relative_to(source)) for s in (".c", ".h") for p in (source / package).rglob(f"kernels/**/*{s}")
        } <= set(files)


@pytest.mark.full
@pytest.mark.parametrize("built", NATIVE, indirect=True)
def test_native_wheel_is_one_for_every_python(built):
    name, folder = built
    wheel = wheel_of(folder)
    libraries = [f for f in wheel.namelist() if f.endswith(".so")]
    assert libraries
    extensions = [f for f in libraries if f.endswith(".abi3.so")]
    assert metadata(wheel, "WHEEL")["Tag"].startswith("cp310-abi3-" if extensions else "py3-none-")
    wheel.extractall(folder / "unpacked")
    for extension in extensions:  # it finds the library of kernels in its own folder
        command = ["readelf", "-d", str(folder / "unpacked" / extension)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert re.search(r"R(UN)?PATH.*\$ORIGIN", found), found
    script = "import isokern; print(*[b.status for b in isokern.backends() if b.name == '" + name + "'])"
    shown = run("-c", script, folder=folder, PYTHONPATH=str(folder / "unpacked"), ISOKERN_PLUGINS=name)
    assert shown.strip() == "available"


@pytest.mark.full
@pytest.mark.parametrize("built", FOLDERS, indirect=True)
def test_both_are_released_together(built):
    name, folder = built
    message = metadata(wheel_of(folder), "METADATA")
    core = re.search(r'^version = "(.*)"', (ROOT / "core" / "pyproject.toml").read_text(), re.M).group(1)
    assert message["Version"] == core
    if name != "core":
        assert f"isokern=={core}" in message.get_all("Requires-Dist")


@pytest.mark.full
@pytest.mark.parametrize("built", PLUGINS, indirect=True)
def test_sdist_of_a_plugin_asks_for_no_isokern_to_build(built):
    _, folder = built
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    inside = folder / packed.name.removesuffix(".tar.gz")
    assert (inside / "generated" / "isokern.h").exists()
    hooks = "import sys; sys.path.insert(0, '.'); import build_backend as b; print(b.get_requires_for_build_wheel())"
    assert run("-c", hooks, folder=inside).strip() == "[]"
    assert "isokern" not in re.search(r"^requires = (.*)$", (inside / "pyproject.toml").read_text(), re.M).group(1)


@pytest.mark.full
def test_a_deleted_module_is_not_in_the_next_wheel(tmp_path):
    """setuptools alone would find the module in `build` and pack it again."""
    ignored = shutil.ignore_patterns("*.egg-info", "build", "__pycache__")
    shutil.copytree(ROOT / "core", tmp_path / "core", ignore=ignored)
    gone = tmp_path / "core" / "src" / "isokern" / "gone.py"
    gone.touch()
    names = []
    for turn in ("before", "after"):
        run("-m", "build", "--no-isolation", "--wheel", "--outdir", turn, "core", folder=tmp_path)
        names.append("isokern/gone.py" in wheel_of(tmp_path / turn).namelist())
        gone.unlink(missing_ok=True)
    assert names == [True, False]
    assert not (tmp_path / "core" / "build").exists()


@pytest.mark.full
def test_editable_install_works_and_sees_edits(tmp_path):
    ignored = shutil.ignore_patterns("*.egg-info", "build", "generated", "__pycache__", "*.so", ".tox")
    for part in ("core", "plugins"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignored)
    run("-m", "venv", "venv", folder=tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python]
    for part in ("core", "cpu"):
        install += ["-e", f"./{FOLDERS[part].relative_to(ROOT)}"]
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    environment = {**inherited, "ISOKERN_CPU_CFLAGS": "-O0"}
    done = subprocess.run(install, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    core, cpu = tmp_path / "core" / "src" / "isokern", tmp_path / "plugins" / "cpu"

    def shown(script: str) -> str:
        command = [python, "-c", f"import isokern as ik; x = ik.tensor([-1.0, 2.0]); print({script})"]
        done = subprocess.run(command, cwd=tmp_path, env=inherited, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def replace(path: Path, old: str, new: str) -> None:
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path}: {old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def compiled() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in cpu.glob("build/editable/*/*.o")}

    def name(path: Path) -> str:
        return path.name.partition(".")[0]  # also for elementwise.1.o

    assert shown("ik.relu(x).numpy().tolist()") == "[0.0, 2.0]"
    first = compiled()

    with open(core / "__init__.py", "a", encoding="utf-8") as module:
        module.write("\nedited = True\n")
    assert shown("ik.edited, ik.relu(x).numpy().tolist()") == "True [0.0, 2.0]"
    assert compiled() == first

    replace(cpu / "src" / "isokern_cpu" / "kernels" / "iota.c", "t, attrs->start,", "t, attrs->start + 7,")
    assert shown("ik.iota(shape=(3,), device='cpu', dtype='F32').numpy().tolist()") == "[7.0, 8.0, 9.0]"
    second = compiled()
    assert {name(path) for path in first if second[path] != first[path]} == {"iota"}

    rows = core / "ops" / "elementwise.py"
    new = 'unary("plus_one", "PLUS", "x + 1", lambda x: x + 1, doc="x + 1.")\n\n'
    replace(rows, 'unary("square", "SQUA", "x * x"', f'{new}unary("square", "SQUA", "x * x + 1"')
    assert shown("ik.square(x).numpy().tolist(), ik.plus_one(x).numpy().tolist()") == "[2.0, 5.0] [0.0, 3.0]"
    third = compiled()
    tables = {"isokern_native", "isokern_inference", "isokern_attributes"}  # these have the tables of all operators
    assert {name(path) for path in second if third[path] != second[path]} == {"elementwise", *tables}
