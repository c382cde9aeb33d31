"""Compiling for the emulator: the runtime library, and kernel sources as shared libraries, fast and checked.

This module does not import `isokern`, because the build of the plug-in uses it before `isokern` is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .rewriting import rewrite

HERE = Path(__file__).parent
# -fstack-clash-protection touches large frames page by page, so that a stack overflow hits the guard page below;
# -Wno-psabi: vectors are passed only within a file, so their ABI does not matter. -fno-strict-aliasing: kernels read
# the bytes of a tile as one type and then as another
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
# Debug information only for the lines of instructions; binutils 2.40 misreads file names of DWARF 5
LINES = [
    "-gdwarf-4",
    "-g1",
]
# The further passes of -O2 would double the compile time, and emulated kernels run for their results, not for speed
FAST = ["-O1", "-ftree-loop-vectorize", "-fvect-cost-model=very-cheap", *NUMERICS]
# Every load and store calls the emulator: -fsanitize=thread inserts the calls (its own runtime is not linked), with
# -fno-tree-pta also for local arrays that do not escape. -fsanitize=bounds,object-size calls it for an index or a
# pointer that leaves its array, and takes the address of arrays that are only indexed, without which -fsanitize=thread
# leaves them out. The other options keep gcc from adding loads and stores that the source does not have. Frame pointers
# let the emulator find a function's frame
ANNOUNCED = [
    "-fsanitize=thread",
    "-fsanitize=bounds,object-size",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-fno-tree-loop-im",
    "-fno-aggressive-loop-optimizations",
    "-fno-tree-cselim",
    "-fno-tree-pta",
]
# With -fsanitize, gcc takes more for perhaps uninitialised than it does without
CHECKED = [
    "-O1",
    *ANNOUNCED,
    "-Wno-maybe-uninitialized",
    "-fno-omit-frame-pointer",
    "-DXPUSIM_CHECKED",
    *NUMERICS,
]
SECTIONS = ["-ffunction-sections", "-fdata-sections"]  # which the linker leaves out one by one
# -z now binds functions when the library is loaded: binding at the first call would use a core's stack
LINK = [
    "-shared",
    "-pthread",
    "-Wl,-z,now",
]
# Functions that the linker redirects to the emulator: in both modes those that would end the host's process, in checked
# mode also those that access or free memory, among them the eight forms of operator delete
_DELETES = [f"_Zd{one}Pv{size}{align}" for one in "la" for size in ("", "m") for align in ("", "St11align_val_t")]
ENDS, TOUCHES = (
    [f"-Wl,--wrap={name}" for name in names]
    for names in (("exit", "_exit"), ("memcpy", "memmove", "memset", "free", "realloc", *_DELETES))
)
# A function of the standard library that is compiled with a host program, such as a string's destructor, must not be
# replaced by the one of libstdc++, whose calls nothing redirects; nor must the compiler rely on that one, which the
# declaration says
OWN_FUNCTIONS, OF_LIBSTDCXX = "-Wl,-Bsymbolic-functions", "extern template class basic_string<char>;"
MODES = {"fast": FAST, "checked": CHECKED}


_HEADING = re.compile(r"(\S.*):(?:\[\+\+\])?$")  # precedes the rows of one file
_ROW = re.compile(r"(\S+)\s+(\d+)\s+0x([0-9a-f]+)")
_SHARED = re.compile(r"([0-9a-f]+) .{7} \.t(?:bss|data)\s+([0-9a-f]+)\s+(?:\.hidden )?(.*)")


class CompileError(Exception):
    """A compiler's messages, with the author's own file and line numbers."""


def compiler() -> str | None:
    """Return the C++ compiler: `CXX`, else g++ if it is installed."""
    return os.environ.get("CXX") or shutil.which("g++")


def run(command: Sequence[str | Path]) -> str:
    """Run a compiler's command and return what it prints; pass its warnings on.

    Raise CompileError if it fails. Bytes of the output that are not UTF-8 are kept as `read` keeps them.
    """
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, check=False)
    except OSError as error:
        raise CompileError(
            f"{command[0]}: {error.strerror}; g++, or the one compiler that CXX names, has to run"
        ) from None
    if done.returncode != 0:
        raise CompileError((done.stderr or done.stdout).decode(errors="replace"))
    sys.stderr.write(done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="surrogateescape")


def library(cxx: str, target: Path, objects: Sequence[Path], mode: str = "fast", entry: str = "") -> None:
    """Link objects to a library of kernels; a checked one gets its table of source lines, `<library>.lines`, too.

    With `entry`, the library has only that function and what it uses: a kernel's file may also have functions of the
    host that need other libraries.
    """
    command = link_command(cxx, target, objects, mode)
    if entry:
        exports = target.with_suffix(".exports")
        exports.write_text(f"{{ global: {entry}; local: *; }};\n")
        command += ["-Wl,--gc-sections", f"-Wl,--version-script={exports}"]
    run(command)
    if mode == "checked":
        Path(f"{target}.lines").write_text(lines(target), encoding="utf-8")
        strip(target)


def link_command(
    cxx: str, target: Path, objects: Sequence[Path], mode: str, needed: Sequence[Path] = ()
) -> list[str | Path]:
    """Return the command that links objects to a library of kernels, which finds those that it needs in its own folder.

    For a checked library, call `lines` to get its table of source lines before `strip`.
    """
    beside: list[str | Path] = ["-Wl,--no-as-needed", *needed, "-Wl,-rpath,$ORIGIN"] if needed else []
    watched: list[str | Path] = [*TOUCHES, OWN_FUNCTIONS] if mode == "checked" else []
    return [cxx, *LINK, *objects, *ENDS, *watched, *beside, "-o", target]


def strip(target: Path) -> None:
    """Remove debug information."""
    run(["strip", "--strip-debug", target])


def lines(target: Path) -> str:
    """Return a library's table of source lines, as text.

    It has the files (F path), the source lines of instructions (L address file line) and the shared arrays (S offset
    bytes name).
    """
    files: dict[str, int] = {}
    rows, path = [], ""
    decoded = _objdump("--dwarf=decodedline", target)
    headings = [heading[1] for text in decoded if (heading := _HEADING.match(text))]
    # The compiled file's first heading lacks its folder
    compiled = {Path(name).name: name for name in headings if "/" in name}
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
    """Return the text of a kernel file, without a byte-order mark; other bytes reach the compiler unchanged."""
    return source.read_text(encoding="utf-8-sig", errors="surrogateescape")


def preprocess(cxx: str, source: Path, mode: str, include: Sequence[Path], options: Sequence[str] = ()) -> str:
    """Return what the preprocessor makes of a `.xpu` file for a mode: all headers and macros expanded.

    `options` are the author's, such as -D and -I.
    """
    flags = [*options, *kernel_flags(source, mode, include), "-DXPUSIM_MARKED", "-include", "xpusim/run.h"]
    text = run([cxx, *flags, "-E", "-x", "c++", source])
    return text.replace(OF_LIBSTDCXX, "") if mode == "checked" else text


def kernel_object(cxx: str, source: Path, mode: str, folder: Path, include: Sequence[Path], behind: str = "") -> Path:
    """Compile one `.xpu` file for a mode and return the object; `behind` is C++ that is compiled after it."""
    return expanded_object(cxx, source, mode, folder, preprocess(cxx, source, mode, include) + behind)


def expanded_object(cxx: str, source: Path, mode: str, folder: Path, text: str) -> Path:
    """Compile the preprocessed `text` of a `.xpu` file for a mode and return the object."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{source.stem}.{mode}.ii"
    # As a file of its own, so that the author's has its folder in the debug information, as all others do
    write_changed(written, f'# 1 "{written.name}"\n{rewritten(text, source, mode)}')
    target = written.with_suffix(".o")
    run([cxx, *kernel_flags(source, mode, []), *SECTIONS, "-c", written, "-o", target])
    return target


def kernel_source(source: Path, folder: Path) -> Path:
    """Write the C++ of a `.xpu` file to a folder, unless it is there unchanged, and return its path.

    Its headers are not rewritten, so that they can be precompiled: launches are in the file itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{source.stem}.cpp"
    write_changed(written, f'#include "xpusim/launch.h"\n#line 1 "{source}"\n{rewritten(read(source), source)}')
    return written


def rewritten(text: str, source: Path, mode: str = "fast") -> str:
    """Return a source's text as C++ for a mode; raise CompileError for what is not modelled."""
    try:
        return rewrite(text, str(source), mode == "checked")
    except ValueError as error:
        raise CompileError(str(error)) from None


def write_changed(path: Path, text: str) -> None:
    """Write a file only if its content changes, so that nothing is compiled again for it."""
    content = text.encode("utf-8", errors="surrogateescape")
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def kernel_flags(source: Path, mode: str, include: Sequence[Path]) -> list[str]:
    """Return the compiler's flags for the C++ of a `.xpu` file."""
    return ["-std=c++17", *COMMON, *LINES, *MODES[mode], *_includes(source, include)]


def _includes(source: Path, include: Sequence[Path]) -> list[str]:
    """Return -I options, with `include` first: an editable install's copy of generated headers may be older."""
    return [f"-I{p}" for p in (*include, HERE / "include", source.parent)]


RUNTIME = ["-std=c++17", *COMMON, "-O2", "-Werror", f"-I{HERE / 'include'}"]


def runtime_units(folder: Path) -> list[Path]:
    """Write the emulated runtime library's sources as few translation units and return those.

    Compiling each source by itself would take longer for the standard library's headers than for the source. The hooks
    are a unit of their own: they run on a core's stack, so nothing of the checks must be inlined into them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hooks = HERE / "xpurt" / "check_hooks.cpp"
    sources = [s for s in sorted(hooks.parent.glob("*.cpp")) if s != hooks]
    checks = [s for s in sources if s.stem.startswith("check")]
    units = {"checks": checks, "emulator": [s for s in sources if s not in checks]}
    for name, parts in units.items():
        write_changed(folder / f"{name}.cpp", "".join(f'#include "{part}"\n' for part in parts))
    return [*(folder / f"{name}.cpp" for name in units), hooks]


def runtime(cxx: str, folder: Path, generated: Path) -> Path:
    """Compile the emulated runtime library and return its path; `generated` has the headers of core."""
    objects = []
    for unit in runtime_units(folder):
        objects.append(folder / f"{unit.stem}.o")
        run([cxx, *RUNTIME, f"-I{generated}", f"-I{generated / 'emulation'}", "-c", unit, "-o", objects[-1]])
    run(runtime_command(cxx, folder / "libxpurt.so", objects))
    return folder / "libxpurt.so"


def runtime_command(cxx: str, target: Path, objects: Sequence[Path]) -> list[str | Path]:
    """Return the command that links the runtime library, which exports its interface alone.

    A function of the standard library, such as a vector's, would else stand for the host's own.
    """
    exports = target.with_suffix(".exports")
    write_changed(exports, "{ global: xpu_*; xpusim_*; __tsan_*; __ubsan_*; __wrap_*; local: *; };\n")
    hidden = f"-Wl,--version-script={exports}"
    return [cxx, *LINK, hidden, "-Wl,-soname,libxpurt.so", *objects, "-o", target]
