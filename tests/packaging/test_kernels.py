"""Test the built CPU kernels: symbols end in their level, and elementwise loops are vectorised at every level."""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest

from isokern.backend import Unavailable
from isokern.backend.discovery import backends, device
from isokern.backend.native import NativeLibrary
from isokern.cabi.generate import generate
from isokern.expr import stack_code
from isokern.expr.tree import Expr
from isokern.ops import find
from isokern.settings import table
from isokern.status import InvalidArgument

CPU = Path(__file__).parents[2] / "plugins" / "cpu"
CC = os.environ.get("CC", "cc")


@pytest.fixture(scope="module")
def setup():
    """Return the names of plugins/cpu/kernel_build.py, and as `built` its list of sources for all levels."""
    names = runpy.run_path(str(CPU / "kernel_build.py"))
    return {**names, "built": names["sources"]()}


def installed_levels() -> set[str]:
    """Return the levels and features of the installed library."""
    native = import_module("isokern_cpu._native")
    count = native.ffi.new("uint32_t *")
    rows = native.lib.ik_variant_list(count)
    return {native.ffi.string(rows[i].level).decode() for i in range(count[0])}


def built_symbols() -> set[str]:
    """Return every global symbol that the installed library defines."""
    if shutil.which("nm") is None:
        pytest.skip("no nm on this machine")
    library = Path(find_spec("isokern_cpu").origin).with_name("libisokern_cpu.so")
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in text.splitlines()}


def declared(setup, folder: Path) -> set[str]:
    """Return the functions and tables that isokern.h, isokern_native.h and runtime.h declare."""
    generate(folder)
    headers = (folder / "isokern.h", folder / "isokern_native.h", CPU / setup["NATIVE"] / "runtime.h")
    text = "".join(path.read_text() for path in headers)
    return set(re.findall(r"\b(ik_\w+)(?:\(|\[\]|;)", text))


def strays(symbols: set[str], built, interface: set[str]) -> set[str]:
    """Return the symbols that belong neither to the interface nor to a kernel at a level it was built for."""
    own = {
        f"{path.stem}{role}__{level}"
        for level, _, path, _ in built
        for role in ("", "_supported", "_workspace", "_packed_layout", "_pack")
    }
    return symbols - own - interface


def test_every_kernel_symbol_ends_in_its_level_and_no_other_global_is_defined(setup, tmp_path):
    symbols, built = built_symbols(), setup["sources"](installed_levels())
    assert built and {f"{path.stem}__{level}" for level, _, path, _ in built} <= symbols
    assert strays(symbols, built, declared(setup, tmp_path)) == set()


@pytest.mark.parametrize(
    "stray", ["elementwise", "elementwise__sse9", "helper", "ik_helper", "elementwise_helper__portable"]
)
def test_a_stray_symbol_is_seen(setup, tmp_path, stray):
    assert strays({stray, "ik_op_call"}, setup["built"], declared(setup, tmp_path)) == {stray}


def loops(header: str) -> dict[int, str]:
    """Return line of the loop → `operator_type`, for every row or function of a tile."""
    found, name = {}, ""
    for number, line in enumerate(header.splitlines(), 1):
        if head := re.match(r"IK_(?:ROW void row|TILE void ik_tile)_(\w+)\(", line):
            name = head.group(1)
        elif line.strip().startswith("for ("):
            found[number] = name
    return found


def tree_of(name: str) -> Expr:
    """Return the expression of an elementwise operator, or of an opcode."""
    if name not in stack_code.OPCODES:
        return find(name).expression
    return stack_code.node(name, tuple(Expr("name", c) for c in "abc"[: stack_code.TAKES.get(name, 2)]))


def exception(name: str, level: str) -> str | None:
    """Return why gcc cannot vectorise a row at a level; None where it must."""
    operator, _, compute = name.rpartition("_")
    tree = tree_of(operator)
    calls = {node.value for node in tree.walk() if node.kind == "call"}
    if compute not in ("i64", "u64"):
        return "the number of its steps depends on its operands" if calls & {"fmod", "remainder"} else None
    if calls & {"quotient", "fmod", "remainder"}:
        return "no instruction set of x86-64 divides integers in vectors"
    if level == "portable" and any(map(needs_sse4, tree.walk())):
        return "SSE2 neither compares, multiplies nor shifts 64-bit integers each by itself in vectors"
    return None


def needs_sse4(node: Expr) -> bool:
    compares = node.kind in ("compare", "and", "or", "not", "select")
    return (
        compares
        or node.value == "*"
        or (node.kind == "call" and node.value in ("abs", "sign", "minimum", "maximum", "shift_left", "shift_right"))
    )


def vectorised(
    setup, level: str, folder: Path, kernel: str = "elementwise", header: str = "elementwise_rows.h"
) -> tuple[dict[int, str], set[int]]:
    """Return (all loops of a generated header, the lines of those that gcc vectorises).

    gcc compiles the kernel that includes the header, at `level`.
    """
    version = subprocess.run([CC, "--version"], capture_output=True, text=True, check=False).stdout
    if setup["MACHINE"] != "x86_64" or "Free Software Foundation" not in version:
        pytest.skip(f"the levels are x86-64's and -fopt-info-vec is gcc's; this is {platform.machine()} with {CC}")
    generate(folder)
    source, flags = next((path, flags) for at, _, path, flags in setup["built"] if (at, path.stem) == (level, kernel))
    # -fno-ipa-icf: rows with equal code would be merged to one function, which is reported once
    command = [
        CC,
        *setup["FLAGS"],
        *flags,
        "-fno-ipa-icf",
        "-fopt-info-vec-optimized",
        f"-DIK_LEVEL={level}",
    ]
    command += [f"-I{d}" for d in (CPU / setup["KERNELS"], CPU / setup["NATIVE"], folder)]
    done = subprocess.run(
        [*command, "-c", str(CPU / source), "-o", "/dev/null"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = re.findall(rf"{re.escape(header)}:(\d+):\d+: optimized: loop vectorized", done.stderr)
    return loops((folder / header).read_text()), {int(line) for line in lines}


@pytest.mark.quick("x86_v3")
@pytest.mark.parametrize("level", ["portable", "x86_v3", "x86_v4"])
def test_every_row_is_vectorised(setup, tmp_path, level):
    rows, lines = vectorised(setup, level, tmp_path)
    assert len(rows) >= 45
    assert {name for line, name in rows.items() if line not in lines and exception(name, level) is None} == set()


@pytest.mark.full  # of the same scalar functions as the rows
@pytest.mark.parametrize("level", ["portable", "x86_v3", "x86_v4"])
def test_every_function_of_a_tile_is_vectorised(setup, tmp_path, level):
    functions, lines = vectorised(setup, level, tmp_path, "generic", "tile_functions.h")
    assert {name.rpartition("_")[0] for name in functions.values()} == set(stack_code.OPCODES) - {
        "const",
        "input",
        "keep",
        "again",
    }
    assert {name for line, name in functions.items() if line not in lines and exception(name, level) is None} == set()


@pytest.mark.full
def test_a_row_that_is_not_vectorised_is_seen(setup, tmp_path):
    """The rows are compiled with -fno-tree-vectorize and without -fno-trapping-math."""
    plain = {
        **setup,
        "FLAGS": [f for f in setup["FLAGS"] if f != "-fno-trapping-math"] + ["-fno-tree-vectorize"],
    }
    rows, lines = vectorised(plain, "x86_v3", tmp_path)
    assert set(rows) - lines


def test_levels_tested_are_the_levels_built(setup):
    assert list(setup["LEVELS"]["x86_64"]) == ["portable", "x86_v3", "x86_v4"]


def test_readme_has_every_level_and_feature(setup):
    rows = re.findall(r"^\| `(\w+)` \| (\w+|`\w+`)", (CPU / "README.md").read_text(), re.M)
    every = [name for group in (setup["LEVELS"], setup["FEATURES"]) for part in group.values() for name in part]
    assert {name for name, _ in rows} == set(every)
    assert {name for name, kernels in rows if kernels != "all"} == {
        n for part in setup["FEATURES"].values() for n in part
    }


def test_variables_that_the_build_and_the_runtime_read_are_declared():
    """A command fails on an undeclared variable, and some are set in tests, as by `tox -e conformance-cpu-sanitize`."""
    read = {
        name
        for path in (CPU / "setup.py", CPU / "kernel_build.py", *CPU.rglob("native/*.c"))
        for name in re.findall(r"\bISOKERN_\w+", path.read_text())
    }
    assert read
    backends()
    assert read <= table().keys()


@pytest.mark.parametrize("threads", ["0", "many", "-1", "2.5", "", "257", "9" * 20])
def test_a_number_of_threads_that_is_none_is_told(monkeypatch, threads):
    backends()  # adds its settings to the table
    devices, native = import_module("isokern_cpu.devices"), import_module("isokern_cpu._native")
    monkeypatch.setenv("ISOKERN_NUM_THREADS", threads)
    with pytest.raises(InvalidArgument, match=r"ISOKERN_NUM_THREADS=.*from 1 to 256"):
        devices.open_device(NativeLibrary(native.ffi, native.lib))


def test_extension_needs_no_python_headers(tmp_path):
    """Debian's python3-venv and gcc lack Python.h; plugins/cpu/stable_abi stands in for it, and the extension runs."""
    generate(tmp_path / "generated")
    emit = "import runpy; runpy.run_path('ffi.py')['builder'].emit_c_code('_native.c')"
    shutil.copy(CPU / "ffi.py", tmp_path)
    subprocess.run([sys.executable, "-c", emit], cwd=tmp_path, check=True, capture_output=True)
    installed = Path(find_spec("isokern_cpu").origin).parent
    shutil.copytree(installed, tmp_path / "isokern_cpu")
    target = tmp_path / "isokern_cpu" / "_native.abi3.so"
    target.unlink()
    folders = [CPU / "stable_abi", CPU / "src/isokern_cpu/native", tmp_path / "generated"]
    flags = [
        "-shared",
        "-fPIC",
        "-Wl,-rpath,$ORIGIN",
        "-DPy_LIMITED_API=0x030a0000",
        "-Werror=implicit-function-declaration",
    ]
    flags += [f"-I{folder}" for folder in folders]
    library = tmp_path / "isokern_cpu" / "libisokern_cpu.so"
    subprocess.run([CC, *flags, str(tmp_path / "_native.c"), str(library), "-o", str(target)], check=True)
    calls = [*map(str, CPU.glob("src/isokern_cpu/calls/*.c"))]
    subprocess.run([CC, *flags, *calls, "-o", str(target.with_name("_calls.abi3.so"))], check=True)
    script = (
        "import isokern, isokern_cpu; print(isokern_cpu.__file__); x = isokern.tensor([1.0, 2.0], device='cpu');"
        " print(*[isokern.concat([isokern.cumsum(x, axis=0), x]).numpy() for _ in range(3)][2])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = [str(tmp_path / "isokern_cpu" / "__init__.py"), "1.0 3.0 1.0 2.0"]
    assert done.stdout.splitlines() == said, done.stderr


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("x86_v5", "no level is called 'x86_v5'; allowed are all, native"),
        ("portable,x86-64-v3", "no level is called 'x86-64-v3'"),
        ("ALL", "no level is called 'ALL'"),
    ],
)
def test_levels_that_there_are_not_are_told_in_one_line(setup, monkeypatch, asked, said):
    monkeypatch.setenv("ISOKERN_CPU_LEVELS", asked)
    with pytest.raises(SystemExit) as stopped:
        setup["check"]()
    text = str(stopped.value)
    assert text.startswith(f"ISOKERN_CPU_LEVELS={asked}: ") and said in text and "portable" in text and "\n" not in text


def test_features_alone_are_no_library(setup, monkeypatch):
    if not setup["OWN_FEATURES"]:
        pytest.skip(f"{setup['MACHINE']} has no features")
    monkeypatch.setenv("ISOKERN_CPU_LEVELS", ",".join(setup["OWN_FEATURES"]))
    with pytest.raises(SystemExit, match="add one of portable"):
        setup["check"]()


@pytest.mark.parametrize("asked", [None, "native", "portable", "portable,native", "all"])
def test_levels_that_are_built(setup, monkeypatch, tmp_path, asked):
    """native/levels.c says which level runs best, at build time as at run time."""
    generate(tmp_path)
    monkeypatch.setitem(setup["native_levels"].__globals__, "GENERATED", tmp_path)
    monkeypatch.delenv("ISOKERN_CPU_LEVELS", raising=False)
    if asked is not None:
        monkeypatch.setenv("ISOKERN_CPU_LEVELS", asked)
    native = import_module("isokern_cpu._native")
    levels, features = list(setup["OWN_LEVELS"]), list(setup["OWN_FEATURES"])
    has = [n for n in [*levels, *features] if native.lib.ik_level_missing(n.encode()) == native.ffi.NULL]
    best = [[n for n in has if n in levels][-1], *(n for n in has if n in features)]
    every = [*levels, *features]
    expected = {
        "all": every,
        "portable": ["portable"],
        "portable,native": [n for n in every if n in ("portable", *best)],
    }
    assert setup["levels_to_build"]() == expected.get(asked, best)


def test_a_machine_without_a_c_compiler_is_told_what_to_install(setup, monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"no C compiler `cc` is found: install one .*gcc.*or set CC"):
        setup["check"]()
    monkeypatch.setenv("CC", "gcc-of-mine --verbose")
    with pytest.raises(SystemExit, match="no C compiler `gcc-of-mine`"):
        setup["compiler"]()


class NoLevelHere(NativeLibrary):
    """The installed library on a machine that can run none of its levels."""

    def __init__(self, ffi, lib):
        super().__init__(ffi, lib)
        reason = ffi.new("char[]", b"the processor lacks everything")
        self.lib = mock.Mock(wraps=lib, ik_level_missing=lambda level: reason)


def test_a_library_without_a_level_for_this_machine_says_what_to_do():
    backends()
    devices, native = import_module("isokern_cpu.devices"), import_module("isokern_cpu._native")
    with pytest.raises(Unavailable, match=r"is built, but the processor lacks everything.*ISOKERN_CPU_LEVELS=portable"):
        devices.open_device(NoLevelHere(native.ffi, native.lib))


def test_a_level_that_is_not_built_is_told(monkeypatch):
    backends()
    devices, native = import_module("isokern_cpu.devices"), import_module("isokern_cpu._native")
    monkeypatch.setenv("ISOKERN_CPU_LEVEL", "x86_v9")
    with pytest.raises(
        InvalidArgument, match=r"=x86_v9: no such level is built \(see ISOKERN_CPU_LEVELS\); allowed: \w"
    ):
        devices.open_device(NativeLibrary(native.ffi, native.lib))


def test_devices_tell_what_is_built():
    properties = device("cpu").properties
    assert {text.partition(" ")[0] for text in properties["built"]} == installed_levels()
    assert set(properties["levels"]) <= set(properties["built"])
