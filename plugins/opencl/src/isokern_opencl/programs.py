"""Programs built once: in memory by source, on disk by what they depend on."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from pathlib import Path

import pyopencl as cl

from isokern import settings
from isokern.status import InternalError, OutOfMemory


class Programs:
    """The programs of one device. `hits` and `misses` count those that were found on disk, and those that were not."""

    def __init__(self, context: cl.Context, device: cl.Device, options: list[str]) -> None:
        self.context, self.device, self.options = context, device, options
        self.hits = self.misses = 0
        self._built: dict[str, cl.Program] = {}
        self._lock = threading.Lock()
        driver = [device.platform.name, device.platform.version, device.name, device.version, device.driver_version]
        self._driver = "\n".join([*driver, *options])
        root = settings.get("ISOKERN_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.folder = Path(root) / "isokern" / "opencl"

    def get(self, source: str) -> cl.Program:
        """The program of a source, built for the device."""
        key = hashlib.sha256(f"{self._driver}\0{source}".encode()).hexdigest()
        with self._lock:
            if key not in self._built:
                self._built[key] = self._load(key) or self._build(key, source)
            return self._built[key]

    def _load(self, key: str) -> cl.Program | None:
        try:
            kept = (self.folder / key).read_bytes()
        except OSError:
            return None
        digest, binary = kept[:32], kept[32:]
        if hashlib.sha256(binary).digest() != digest:
            return None
        try:
            program = cl.Program(self.context, [self.device], [binary]).build(self.options, [self.device])
        except cl.Error:
            return None
        self.hits += 1
        return program

    def _build(self, key: str, source: str) -> cl.Program:
        self.misses += 1
        try:
            program = cl.Program(self.context, source).build(self.options, [self.device], cache_dir=False)
        except cl.MemoryError as error:
            raise OutOfMemory("compile", str(error)) from None
        except cl.Error as error:
            raise InternalError("compile", f"{self.device.name} cannot build a kernel: {error}") from None
        self._keep(key, program)
        return program

    def _keep(self, key: str, program: cl.Program) -> None:
        (binary,) = program.get_info(cl.program_info.BINARIES)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(hashlib.sha256(binary).digest() + binary)
            os.replace(file.name, self.folder / key)  # whole or not at all, also with several processes
        except OSError:
            pass  # a cache that cannot be written costs time, nothing else
