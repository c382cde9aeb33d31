"""The emulated GPU with every access of its kernels watched: each launch is a program of `isokern-gpu check`."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isokern.simt import Traits

from .driver import Arguments, BuildFailed, Wrong
from .emulator.compiling import CompileError, build, parse, shared_variables
from .sim import SimDriver

LIMIT = 300  # seconds after which a kernel is endless


@dataclass(frozen=True)
class CheckedKernel:
    """A program that launches one kernel, and the list of its `__shared__` variables."""

    program: Path
    symbols: Path
    entry: str


class CheckedDriver(SimDriver):
    """An emulated driver whose launches are processes of their own; what a kernel breaks is an error of its launch.

    The device offers no tensor cores, because those are not watched.
    """

    def __init__(self, compiler: str, seed: int, threads: int = 64) -> None:
        super().__init__(compiler, seed, threads=threads)
        self.traits = Traits(kind="gpu", group=threads, items=threads, units=4)
        self.properties = {**self.properties, "checked": True}
        self.identity += "\0checked"
        self._programs = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self._programs, ignore_errors=True)

    def build(self, source: str, entry: str) -> bytes:
        """Build a program that launches the kernel."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = Path(folder) / f"{entry}.cu"
                path.write_text(f'#include "cuda_kernels.h"\n#line 1 "{entry}"\n{source}', encoding="utf-8")
                program, _, _ = build(parse(path, []), entry, True, Path(folder))
            except CompileError as error:
                raise BuildFailed(str(error)) from None
            return program.read_bytes()

    def load(self, binary: bytes, entry: str) -> tuple[Any, int]:
        """Return the program in a file."""
        folder = Path(tempfile.mkdtemp(dir=self._programs))
        kernel = CheckedKernel(folder / "program", folder / "symbols", entry)
        kernel.program.write_bytes(binary)
        kernel.program.chmod(0o700)
        kernel.symbols.write_text(shared_variables(kernel.program), encoding="utf-8")
        return kernel, self.traits.group

    def _run(self, kernel: Any, blocks: int, threads: int, arguments: Arguments) -> None:
        """Run the program on copies of the memory to which the arguments point, and bring back what it wrote."""
        if not isinstance(kernel, CheckedKernel):
            super()._run(kernel, blocks, threads, arguments)
            return
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            memories: dict[int, Path] = {}  # address → file, in the order of the description
            lines = []
            for number, pointer in enumerate(arguments.pointers):
                base = next((a for a, n in self._memory.items() if a <= pointer < a + max(1, n)), None)
                if base is None:
                    lines.append(f"null\targument {number + 1}")
                    continue
                if base not in memories:
                    memories[base] = folder / f"memory{len(memories)}"
                    memories[base].write_bytes(ctypes.string_at(base, self._memory[base]))
                lines.append(f"pointer\targument {number + 1}\t{[*memories].index(base)}\t{pointer - base}")
            (folder / "record").write_bytes(arguments.record)
            lines.append(f"record\tthe record\t{folder / 'record'}")
            described = [f"memory\t\t{path}\t\t1\t1\tbuffer {i}" for i, path in enumerate(memories.values())]
            launch = [f"grid\t{blocks}\t1\t1", f"block\t{threads}\t1\t1", f"seeds\t{self.seed}\t1", "check\t1"]
            launch += [f"limit\t{LIMIT}", f"kernel\t{kernel.entry}", *described, *lines, ""]
            (folder / "launch").write_text("\n".join(launch), encoding="utf-8")
            command = [kernel.program, folder / "launch", kernel.symbols]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, errors="replace", timeout=LIMIT + 30, check=False
                )
            except subprocess.TimeoutExpired:
                raise Wrong(f"the kernel did not end within {LIMIT + 30} seconds, nor did its time limit") from None
            if done.returncode:
                raise Wrong(done.stderr.strip() or f"the kernel ended its process with status {done.returncode}")
            for address, path in memories.items():
                ctypes.memmove(address, path.read_bytes(), self._memory[address])
