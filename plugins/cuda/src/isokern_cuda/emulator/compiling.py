"""Compiling: a kernel's source and the emulator to one program, which is kept in the disk cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from isokern.cabi.generate import EMULATION, STATIC
from isokern.disk_cache import user_cache
from isokern.status import InvalidArgument

from .rewriting import rewrite

HERE = Path(__file__).parent
INCLUDE = [f"-I{p}" for p in (HERE / "include", EMULATION, STATIC)]
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
_ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b")
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
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompileError(f"{command[0]}: {error.strerror}; install g++, or name it in CXX") from None
    if done.returncode != 0:
        raise CompileError(done.stderr or done.stdout)
    return done


def read(source: Path) -> str:
    """Return the text of a source, without a byte-order mark; other bytes reach the compiler unchanged."""
    return source.read_text(encoding="utf-8-sig", errors="surrogateescape")


def build(source: Path, kernel: str, check: bool, options: Sequence[str], folder: Path) -> tuple[Path, Path, str]:
    """Return a program that launches the kernel, the list of its `__shared__` variables, and the compiler's warnings.

    Both files are in `folder`; `options` are for the compiler (-D, -I).
    """
    for header in _local_headers(source):
        copy = folder / header.relative_to(source.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        _write(copy, _rewrite(read(header), str(header), check))
    # A main of the file's own is kept out of the way
    text = "#define main cuda_file_main\n" + _rewrite(read(source), str(source), check) + "\n#undef main\n"
    return build_text(text, kernel, check, [*options, f"-I{source.parent}"], folder)


def build_text(text: str, kernel: str, check: bool, options: Sequence[str], folder: Path) -> tuple[Path, Path, str]:
    """Return what `build` returns, for the text of a source that needs no rewriting."""
    cxx = compiler()
    source = folder / "kernel.cpp"
    entry = f"int main(int, char **argv) {{ return ::cuda_emulator::run(&{kernel}, argv); }}\n"
    _write(source, f'{text}\n#line 1 "isokern-gpu"\n{entry}')
    flags = [*COMMON, *(CHECKED if check else []), *WARNINGS, *options, *INCLUDE]
    parsed = call([cxx, *flags, "-E", source]).stdout
    _refuse_assembly(parsed)
    version = call([cxx, "--version"]).stdout
    emulator, emulators_key = _emulator(cxx, version, folder)
    key = hashlib.sha256(
        "\0".join([version, *flags, parsed.replace(str(folder), ""), emulators_key]).encode(errors="surrogateescape")
    ).hexdigest()
    cache = user_cache("cuda")
    program, symbols = folder / "program", folder / "symbols"
    kept = [cache.get(f"{key}.{part}") for part in ("program", "symbols", "warnings")]
    if kept[0] is None or kept[1] is None or kept[2] is None:
        warnings = call([cxx, *flags, "-c", source, "-o", folder / "kernel.o"]).stderr
        call([cxx, "-no-pie", "-pthread", folder / "kernel.o", emulator, "-o", program])
        symbols.write_text(shared_variables(program), encoding="utf-8")
        for part, content in (
            ("program", program.read_bytes()),
            ("symbols", symbols.read_bytes()),
            ("warnings", warnings.encode()),
        ):
            cache.put(f"{key}.{part}", content)
        return program, symbols, warnings
    program.write_bytes(kept[0])
    program.chmod(0o700)
    symbols.write_bytes(kept[1])
    return program, symbols, kept[2].decode()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _rewrite(text: str, name: str, check: bool) -> str:
    try:
        return rewrite(text, name, check)
    except ValueError as error:
        raise CompileError(str(error)) from None


def _refuse_assembly(parsed: str) -> None:
    """Raise CompileError for inline assembly in preprocessed text, except in the system's headers."""
    name, number = "", 1
    for line in parsed.splitlines():
        if mark := re.match(r'# (\d+) "([^"]*)"', line):
            name, number = mark[2], int(mark[1])
            continue
        if _ASSEMBLY.search(line) and not name.startswith("/usr/"):
            why = "inline PTX is not emulated; use the intrinsic, or plain C++ where __CUDA_ARCH__ is not defined"
            raise CompileError(f"{name}:{number}: {why}")
        number += 1


def _local_headers(source: Path) -> list[Path]:
    """Return the headers below the source's folder that it includes by name in quotes, and they in turn."""
    found: dict[Path, None] = {}
    todo = [source]
    while todo:
        path = todo.pop()
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', read(path), re.M):
            for base in (path.parent, source.parent):
                header = Path(os.path.normpath(base / name))
                if header.is_file() and header.is_relative_to(source.parent) and header not in found:
                    found[header] = None
                    todo.append(header)
    return list(found)


def _emulator(cxx: str, version: str, folder: Path) -> tuple[Path, str]:
    """Return the emulator's object and its key."""
    command = [cxx, "-std=c++17", "-O2", "-fno-pie", "-fno-omit-frame-pointer", *INCLUDE]
    sources = [*sorted(HERE.glob("*.cpp")), *sorted(HERE.glob("**/*.h")), *sorted(EMULATION.glob("*.h"))]
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
