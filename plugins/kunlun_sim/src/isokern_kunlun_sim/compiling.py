"""Compiling for the emulator: the runtime library, and kernel sources as shared libraries, fast and checked.

Stands alone: the build of the plug-in uses it before `isokern` is there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .rewriting import rewrite

HERE = Path(__file__).parent
# Large frames are touched page by page, so that a stack that runs over meets the guard below it; vectors are passed within a file only, so it
# does not matter how; kernels read the bytes of a tile as one type and then as another
WARNINGS = ["-Wall", "-Wextra", "-Wno-attributes", "-Wno-psabi"]
COMMON = [
    "-fPIC",
    *WARNINGS,
    "-pthread",
    "-fstack-clash-protection",
    "-fno-strict-aliasing",
    f"-ffile-prefix-map={HERE}={HERE.name}",
]
NUMERICS = ["-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-fwrapv"]
LINES = [
    "-gdwarf-4",
    "-g1",
]  # where an instruction comes from and no more; of DWARF 5 binutils 2.40 misreads file names
# The passes that -O2 has beyond these take as long again, and kernels are run for what they compute, not for their speed
FAST = ["-O1", "-ftree-loop-vectorize", "-fvect-cost-model=very-cheap", *NUMERICS]
# Every load and store calls the emulator (that is what -fsanitize=thread inserts; its own runtime is not linked), those of local arrays that no
# one else seems to see too (-fno-tree-pta); no load or store is made that the source does not have; and the emulator can tell where a function's
# frame is
ANNOUNCED = [
    "-fsanitize=thread",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-fno-tree-loop-im",
    "-fno-tree-cselim",
    "-fno-tree-pta",
]
CHECKED = ["-O1", *ANNOUNCED, "-fno-omit-frame-pointer", "-DXPUSIM_CHECKED", *NUMERICS]
LINK = [
    "-shared",
    "-pthread",
    "-Wl,-z,now",
]  # functions are bound at once: doing that at their first call would use a core's stack
# Calls that the linker sends to the emulator: in both modes those that would end the host's process, in checked mode those that touch memory
ENDS, TOUCHES = (
    [f"-Wl,--wrap={name}" for name in names] for names in (("exit", "_exit"), ("memcpy", "memmove", "memset"))
)
MODES = {"fast": FAST, "checked": CHECKED}


_HEADING = re.compile(r"(\S.*):(?:\[\+\+\])?$")  # of the rows of one file
_ROW = re.compile(r"(\S+)\s+(\d+)\s+0x([0-9a-f]+)")
_SHARED = re.compile(r"([0-9a-f]+) .{7} \.t(?:bss|data)\s+([0-9a-f]+)\s+(?:\.hidden )?(.*)")


class CompileError(Exception):
    """The compiler's words, with the author's own file and line numbers."""


def compiler() -> str | None:
    """The C++ compiler: `CXX`, else g++ where there is one."""
    return os.environ.get("CXX") or shutil.which("g++")


def run(command: Sequence[str | Path]) -> str:
    """What a compiler's command prints; CompileError if it fails."""
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompileError(
            f"{command[0]}: {error.strerror}; g++, or the one compiler that CXX names, has to run"
        ) from None
    if done.returncode != 0:
        raise CompileError(done.stderr or done.stdout)
    return done.stdout


def library(cxx: str, target: Path, objects: Sequence[Path], mode: str = "fast") -> None:
    """Link objects to a library of kernels; a checked one gets its table of source lines beside it, `<library>.lines`."""
    run(link_command(cxx, target, objects, mode))
    if mode == "checked":
        Path(f"{target}.lines").write_text(lines(target), encoding="utf-8")
        strip(target)


def link_command(cxx: str, target: Path, objects: Sequence[Path], mode: str) -> list[str | Path]:
    """What links objects to a library of kernels; `lines` reads where the instructions of a checked one come from, then `strip` may be called."""
    return [cxx, *LINK, *objects, *ENDS, *(TOUCHES if mode == "checked" else []), "-o", target]


def strip(target: Path) -> None:
    """Take out what was for debuggers."""
    run(["strip", "--strip-debug", target])


def lines(target: Path) -> str:
    """The source lines of a library's instructions (L address file line), their files (F path) and its shared arrays (S offset bytes name)."""
    files: dict[str, int] = {}
    rows, path = [], ""
    decoded = _objdump("--dwarf=decodedline", target)
    headings = [heading[1] for text in decoded if (heading := _HEADING.match(text))]
    compiled = {
        Path(name).name: name for name in headings if "/" in name
    }  # what is compiled comes first without its folder
    for text in decoded:
        if heading := _HEADING.match(text):
            path = heading[1] if "/" in heading[1] else compiled.get(heading[1], heading[1])
        elif found := _ROW.match(text):
            rows.append((int(found[3], 16), files.setdefault(path, len(files)), int(found[2])))
    out = [f"F {os.path.normpath(path)}" for path in files]
    before = None
    for address, file, line in sorted(rows, key=lambda row: row[0]):
        if (file, line) != before:
            out.append(f"L {address:x} {file} {line}")
            before = (file, line)
    for text in _objdump("-tC", target):
        if found := _SHARED.match(text):
            out.append(f"S {found[1]} {found[2]} {found[3].split('::')[-1]}")
    return "\n".join(out) + "\n"


def _objdump(option: str, target: Path) -> list[str]:
    done = subprocess.run(["objdump", option, str(target)], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def read(source: Path) -> str:
    """A kernel file, without the mark that some editors begin one with; what is no UTF-8 is written for the compiler as it was."""
    return source.read_text(encoding="utf-8-sig", errors="surrogateescape")


def kernel_object(cxx: str, source: Path, mode: str, folder: Path, include: Sequence[Path], behind: str = "") -> Path:
    """One `.xpu` file as an object of a mode; `behind` is C++ that is compiled after it."""
    written = kernel_source(source, folder / mode, behind)
    target = written.with_suffix(".o")
    run([cxx, *kernel_flags(source, mode, include), "-c", written, "-o", target])
    return target


def kernel_source(source: Path, folder: Path, behind: str = "") -> Path:
    """The C++ of a `.xpu` file in a folder; where it is there already, it is left alone."""
    try:
        text = rewrite(read(source), str(source)) + behind
    except ValueError as error:
        raise CompileError(str(error)) from None
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{source.stem}.cpp"
    write_changed(written, text)
    return written


def write_changed(path: Path, text: str) -> None:
    """Leave a file that is right alone, so that nothing is compiled again for it."""
    content = text.encode("utf-8", errors="surrogateescape")
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def kernel_flags(source: Path, mode: str, include: Sequence[Path]) -> list[str]:
    """How the C++ of a `.xpu` file is compiled."""
    return ["-std=c++17", *COMMON, *LINES, *MODES[mode], *_includes(source, include)]


def headers(cxx: str, source: Path, mode: str) -> list[Path]:
    """The files that `kernel_object` would read for a `.xpu` file, those of the system aside."""
    command: list[str | Path] = [
        cxx,
        "-std=c++17",
        *MODES[mode],
        *_includes(source, []),
        "-include",
        "xpusim/run.h",
        "-x",
        "c++",
        "-MM",
        source,
    ]
    _, _, found = run(command).replace("\\\n", " ").partition(":")
    return [Path(re.sub(r"\\(.)", r"\1", name)) for name in re.findall(r"(?:\\.|\S)+", found)]


def _includes(source: Path, include: Sequence[Path]) -> list[str]:
    """Those of `include` first: an editable install leaves a copy of generated headers in the package, and it may be older."""
    return [f"-I{p}" for p in (*include, HERE / "include", source.parent)]


RUNTIME = ["-std=c++17", *COMMON, "-O2", "-Werror", f"-I{HERE / 'include'}"]


def runtime_units(folder: Path) -> list[Path]:
    """The sources of the emulated runtime library in few files: each of its own would compile the standard library's headers again, which takes
    more time than what it has. The hooks stand alone: they run on a core's stack, so nothing of the checks is to be inlined into them."""
    folder.mkdir(parents=True, exist_ok=True)
    hooks = HERE / "xpurt" / "check_hooks.cpp"
    sources = [s for s in sorted(hooks.parent.glob("*.cpp")) if s != hooks]
    checks = [s for s in sources if s.stem.startswith("check")]
    units = {"checks": checks, "emulator": [s for s in sources if s not in checks]}
    for name, parts in units.items():
        write_changed(folder / f"{name}.cpp", "".join(f'#include "{part}"\n' for part in parts))
    return [*(folder / f"{name}.cpp" for name in units), hooks]


def runtime(cxx: str, folder: Path, generated: Path) -> Path:
    """The emulated runtime library; `generated` has the headers of core."""
    objects = []
    for unit in runtime_units(folder):
        objects.append(folder / f"{unit.stem}.o")
        run([cxx, *RUNTIME, f"-I{generated}", f"-I{generated / 'emulation'}", "-c", unit, "-o", objects[-1]])
    run([cxx, *LINK, *objects, "-o", folder / "libxpurt.so"])
    return folder / "libxpurt.so"
