"""Follow docs/cpu.md: build the override that it shows, run its commands, and look up the names that it mentions."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from isokern.build import list_sources, variant_table
from isokern.cabi.generate import generate

ROOT = Path(__file__).parents[2]
CPU = ROOT / "plugins" / "cpu"
PAGE = (ROOT / "docs" / "cpu.md").read_text(encoding="utf-8")
WALK = PAGE.partition("## Override a kernel")[2]
(FILE,) = re.findall(r"^`plugins/cpu/(\S+\.c)`$", WALK, re.M)
(KERNEL,) = re.findall(r"^```c\n(.*?)^```$", WALK, re.S | re.M)
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.S | re.M)[0].splitlines()
SOURCES = [
    path
    for folder in (CPU / "src", ROOT / "core" / "src" / "isokern" / "cabi" / "include")
    for path in folder.rglob("*.[ch]")
]


def build(folder: Path, kernel: str, objects: Path) -> Path:
    """Return the parent of a copy of the installed plug-in whose library has one kernel: the page's, at all levels.

    `objects` has the objects of the other sources, from an earlier call or after this one.
    """
    sources = folder / "cpu"
    for name in ("kernel_build.py", "src/isokern_cpu/kernels/fill.c"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CPU / name, sources / name)
    (sources / FILE).parent.mkdir()
    (sources / FILE).write_text(kernel, encoding="utf-8")
    names = runpy.run_path(str(sources / "kernel_build.py"))
    built = [(level, priority, sources / path, flags) for level, priority, path, flags in names["sources"]()]
    assert sum(path == sources / FILE for _, _, path, _ in built) == 2  # x86_v3 and above
    generate(folder / "generated")
    (folder / "variants.c").write_text(variant_table(row[:3] for row in built), encoding="utf-8")
    include = [f"-I{d}" for d in (CPU / names["KERNELS"], CPU / names["NATIVE"], folder / "generated")]
    generated = folder / "generated"
    native = [*(CPU / names["NATIVE"]).glob("*.c"), *list_sources(generated), generated / "host_device.c"]
    compile_to = [*names["compiler"](), "-fPIC", *names["FLAGS"], *include, "-c"]
    linked = []
    for level, path, flags in [
        *(("", path, []) for path in [*native, folder / "variants.c"]),
        *((level, path, [*flags, f"-DIK_LEVEL={level}"]) for level, _, path, flags in built),
    ]:
        linked.append((folder if path == sources / FILE else objects) / f"{level}.{path.stem}.o")
        if not linked[-1].exists():
            subprocess.run([*compile_to, *flags, path, "-o", linked[-1]], check=True)
    package = Path(str(find_spec("isokern_cpu").origin)).parent
    copy = folder / "site" / "isokern_cpu"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("editable.json", "kernels", "native", "__pycache__"))
    link = [*names["compiler"](), "-shared", "-pthread", *linked]
    subprocess.run([*link, "-o", copy / "libisokern_cpu.so"], check=True)
    return copy.parent


def run(command: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ISOKERN_")}
    if site is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, sys.path)])
    words = re.sub(r"\bisokern (?=[a-z]+ )", f"{sys.executable} -m isokern ", command, count=1)
    return subprocess.run(words, shell=True, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def builder(tmp_path_factory) -> Callable[[str], Path]:
    """Return a function that builds the plug-in with a text of the override."""
    pytest.importorskip("isokern_cpu", reason="the cpu backend is not installed")
    names = runpy.run_path(str(CPU / "kernel_build.py"))
    if names["MACHINE"] != "x86_64" or "x86_v3" not in names["OWN_LEVELS"]:
        pytest.skip("the override is for x86-64")
    if "portable" in names["native_levels"]():
        pytest.skip("this machine lacks x86_v3")
    objects = tmp_path_factory.mktemp("objects")
    return lambda kernel: build(tmp_path_factory.mktemp("cpu_page"), kernel, objects)


@pytest.fixture(scope="module")
def site(builder) -> Path:
    return builder(KERNEL)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_walk(site, command):
    done = run(command, site)
    assert done.returncode == 0, done.stdout + done.stderr
    if " check " in command:
        assert re.search(r"cpu:0: \d{3,} pass", done.stdout), done.stdout


@pytest.mark.full
def test_the_suite_runs_the_override(builder):
    """Half of a line is not written, and found: so the override was judged, not the file that it replaces."""
    site = builder(KERNEL.replace("at < LINE;", "at < LINE / 2;"))
    done = run("isokern check --device cpu:0 --op fill --quick --json", site)
    assert done.returncode == 1, done.stdout + done.stderr
    assert {f["verdict"] for f in json.loads(done.stdout)["failures"]} == {"fail-value"}


def unknown(page: str) -> set[str]:
    """Return the C names and the files that a page mentions and the sources do not have."""
    words = {word for path in SOURCES for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    files = {path.name for path in SOURCES} | {"tile_functions.h"}  # which is generated
    return ({*re.findall(r"`((?:ik|IK)_\w+)", page)} - words) | ({*re.findall(r"`(?:\w+/)*(\w+\.[ch])`", page)} - files)


def test_names_on_the_page_exist():
    assert unknown(PAGE) == set()
    assert unknown("`ik_parallel_fro`, `IK_SUPPORTED(stem)`, `kernels.h`, `native/levels.c`") == {
        "ik_parallel_fro",
        "kernels.h",
    }
