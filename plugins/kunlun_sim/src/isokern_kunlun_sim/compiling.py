"""Compiling for the emulator: the runtime library, and kernel sources as shared libraries, fast and checked.

Stands alone: the build of the plug-in uses it before `isokern` is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .rewriting import rewrite

HERE = Path(__file__).parent
# Large frames are touched page by page, so that a stack that runs over meets the guard below it; of DWARF 5 binutils 2.40 misreads file names;
# vectors are passed within a file only, so it does not matter how
WARNINGS = ["-Wall", "-Wextra", "-Wno-attributes", "-Wno-psabi"]
COMMON = ["-fPIC", "-gdwarf-4", *WARNINGS, "-pthread", "-fstack-clash-protection"]
NUMERICS = ["-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-fwrapv"]
FAST = ["-O2", "-ftree-vectorize", *NUMERICS]
# Every load and store calls the emulator (that is what -fsanitize=thread inserts; its own runtime is not linked), and no loop becomes a memset
CHECKED = [
    "-O1",
    "-fsanitize=thread",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-DXPUSIM_CHECKED",
    *NUMERICS,
]
MODES = {"fast": FAST, "checked": CHECKED}


class CompileError(Exception):
    """The compiler's words, with the author's own file and line numbers."""


def compiler() -> str | None:
    """The C++ compiler: `CXX`, else g++ where there is one."""
    return os.environ.get("CXX") or shutil.which("g++")


def run(command: Sequence[str | Path]) -> None:
    """A compiler's command; CompileError if it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(done.stderr or done.stdout)


def library(cxx: str, target: Path, objects: Sequence[Path]) -> None:
    """Link objects to a shared library."""
    run([cxx, "-shared", "-pthread", *objects, "-o", target])


def kernel_object(cxx: str, source: Path, mode: str, folder: Path, include: Sequence[Path], behind: str = "") -> Path:
    """One `.xpu` file as an object of a mode; `behind` is C++ that is compiled after it."""
    try:
        text = rewrite(source.read_text(encoding="utf-8"), str(source)) + behind
    except ValueError as error:
        raise CompileError(str(error)) from None
    written = folder / mode / f"{source.stem}.cpp"
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(text, encoding="utf-8")
    target = written.with_suffix(".o")
    includes = [f"-I{p}" for p in (HERE / "include", source.parent, *include)]
    run([cxx, "-std=c++17", *COMMON, *MODES[mode], *includes, "-c", written, "-o", target])
    return target


def runtime(cxx: str, folder: Path, emulation: Path) -> Path:
    """The emulated runtime library."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = sorted((HERE / "xpurt").glob("*.cpp"))

    def build(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        run(
            [
                cxx,
                "-std=c++17",
                *COMMON,
                "-O2",
                "-Werror",
                f"-I{HERE / 'include'}",
                f"-I{emulation}",
                "-c",
                source,
                "-o",
                target,
            ]
        )
        return target

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(build, jobs))
    library(cxx, folder / "libxpurt.so", objects)
    return folder / "libxpurt.so"
