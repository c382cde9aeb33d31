"""Compiling: a kernel's source and the emulator to one program, which is kept in the disk cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from isokern.cabi.generate import EMULATION, STATIC
from isokern.disk_cache import user_cache
from isokern.status import InvalidArgument

from .rewriting import Source, rewrite

HERE = Path(__file__).parent
INCLUDE = [part for p in (HERE / "include", EMULATION, STATIC) for part in ("-isystem", str(p))]
WARNINGS = [
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-attributes",
    "-Wno-unused",
    "-Wno-class-memaccess",
    "-Wno-sign-compare",
    "-Wno-maybe-uninitialized",  # where it happens, the checks say so
]
# Addresses in the program are those in its debug information; frame pointers and clash protection make an overflow of
# a thread's stack meet the guard page
COMMON = [
    "-std=c++17",
    "-O1",
    "-gdwarf-4",  # binutils 2.40 misreads file names of DWARF 5
    "-g1",
    "-fno-pie",
    "-fstack-clash-protection",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-fwrapv",
]
# -fsanitize inserts the calls at loads, stores, indices and basic blocks that check.cpp has; gcc's runtime libraries
# stay out. The others keep gcc from adding or moving loads and stores, and from giving one place to two variables
CHECKED = [
    "-fsanitize=thread,bounds,integer-divide-by-zero",
    "-fsanitize-coverage=trace-pc",
    "--param=tsan-distinguish-volatile=1",
    "-fno-tree-loop-distribute-patterns",
    "-fno-tree-loop-im",
    "-fno-tree-cselim",
    "-fstack-reuse=none",
]
SHARED = ("cuda_gemm.h", "cuda_operations.h", "library_types.h")  # of the headers: what the emulator includes, too
_MISSING = re.compile(r"fatal error: (\S+): No such file or directory")
_SYMBOL = re.compile(r"([0-9a-f]+) .{7} \.t(?:bss|data)\S*\s+([0-9a-f]+)\s+(?:\.hidden )?(.*)")


class CompileError(Exception):
    """A compiler's messages, with the author's own file and line numbers."""


def compiler() -> str:
    """Return the C++ compiler: `CXX`, else g++."""
    found = os.environ.get("CXX") or shutil.which("g++")
    if found is None:
        raise InvalidArgument("isokern-gpu", "there is no C++ compiler", hint="install g++, or name one in CXX")
    return found


def call(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a compiler's command; raise CompileError if it fails."""
    try:
        done = subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, errors="surrogateescape", check=False
        )
    except OSError as error:
        raise CompileError(f"{command[0]}: {error.strerror}; install g++, or name it in CXX") from None
    if done.returncode != 0:
        raise CompileError(done.stderr or done.stdout)
    return done


def parse(source: Path, options: Sequence[str]) -> Source:
    """Return a source behind the preprocessor; `options` are for the compiler (-D, -I)."""
    # -x c++: g++ takes a .cu file for the linker's
    given = [*COMMON, *options, *INCLUDE, "-E", "-include", "cuda_entry.h", "-x", "c++"]
    command: list[str | Path] = [compiler(), *given, source]
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        while True:
            try:
                return Source(call(command).stdout, tuple(missing))
            except CompileError as error:
                found = _MISSING.search(str(error))
                if found is None or found[1] in missing or Path(found[1]).is_absolute() or ".." in found[1]:
                    raise
                missing.append(found[1])
                stand_in = Path(folder, found[1])
                stand_in.parent.mkdir(parents=True, exist_ok=True)
                stand_in.touch()
                command = [*command[:-1], "-idirafter", folder, source]


def build(source: Source, entry: str, check: bool, folder: Path) -> tuple[Path, Path, str]:
    """Return a program, the list of its `__shared__` variables, and the compiler's warnings.

    `entry` is the kernel that the program launches, or empty for a source that has a `main`. Both files are in
    `folder`.
    """
    cxx = compiler()
    try:
        text = rewrite(source, check, program=not entry)
    except ValueError as error:
        raise CompileError(str(error)) from None
    if entry:
        text += f'\n# 1 "isokern-gpu"\nint main(int, char **argv) {{ return ::cuda_emulator::run(&{entry}, argv); }}\n'
    flags = [*COMMON, *(CHECKED if check else []), *WARNINGS]
    version = call([cxx, "--version"]).stdout
    emulator, emulators_key = _emulator(cxx, version, folder)
    key = hashlib.sha256(
        "\0".join([version, *flags, text.replace(str(folder), ""), emulators_key]).encode(errors="surrogateescape")
    ).hexdigest()
    cache = user_cache("cuda")
    program, symbols = folder / "program", folder / "symbols"
    kept = [cache.get(f"{key}.{part}") for part in ("program", "symbols", "warnings")]
    if kept[0] is None or kept[1] is None or kept[2] is None:
        preprocessed = folder / "source.ii"
        preprocessed.write_text(text, encoding="utf-8", errors="surrogateescape")
        warnings = call([cxx, *flags, "-c", preprocessed, "-o", folder / "source.o"]).stderr
        call([cxx, "-no-pie", "-pthread", emulator, folder / "source.o", "-o", program])
        symbols.write_text(shared_variables(program), encoding="utf-8")
        for part, content in (
            ("program", program.read_bytes()),
            ("symbols", symbols.read_bytes()),
            ("warnings", warnings.encode(errors="surrogateescape")),
        ):
            cache.put(f"{key}.{part}", content)
        return program, symbols, warnings
    program.write_bytes(kept[0])
    program.chmod(0o700)
    symbols.write_bytes(kept[1])
    return program, symbols, kept[2].decode(errors="replace")


def _emulator(cxx: str, version: str, folder: Path) -> tuple[Path, str]:
    """Return the emulator's object and its key."""
    command = [cxx, "-std=c++17", "-O2", "-fno-pie", "-fno-omit-frame-pointer", *INCLUDE]
    shared = [HERE / "include" / name for name in SHARED]
    sources = [*sorted(HERE.glob("*.cpp")), *sorted(HERE.glob("*.h")), *shared, *sorted(EMULATION.glob("*.h"))]
    parts = [version, *command, *(p.read_text(encoding="utf-8") for p in sources)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    target = folder / "emulator.o"
    cache = user_cache("cuda")
    made = cache.get(f"{key}.o")
    if made is None:
        call([*command, "-c", HERE / "emulator.cpp", "-o", target])
        cache.put(f"{key}.o", target.read_bytes())
    else:
        target.write_bytes(made)
    return target, key


def shared_variables(program: Path) -> str:
    """Return lines "offset bytes name" of the `__shared__` variables, which are the program's thread-local ones."""
    rows = []
    for line in call(["objdump", "-tC", program]).stdout.splitlines():
        if (found := _SYMBOL.match(line)) and "::running()" not in found[3]:
            # The compiler's mark that an array of a class with constructors was initialised, which here needs nothing
            name = "guard variable" if found[3].startswith("guard variable") else found[3].split("::")[-1]
            rows.append(f"{int(found[1], 16)} {int(found[2], 16)} {name}\n")
    return "".join(rows)
