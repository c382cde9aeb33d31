"""Programs built once: in memory by source, on disk by what they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
import warnings
from pathlib import Path

import pyopencl as cl

from isokern import debug, settings
from isokern.simt import Launch, Store
from isokern.status import InternalError

from .errors import FULL, LOST, typed
from .pocl import log_of

KEPT = 256  # programs held beside those that descriptors hold: a driver may take a megabyte for each


class Programs:
    """The programs of one device.

    `hits` counts those that were found on disk, `misses` those that were built, `store.damaged` the files on disk that were no program of
    the device: those are built again and written over.
    """

    def __init__(self, name: str, context: cl.Context, device: cl.Device, options: list[str], processor: str) -> None:
        self.name, self.context, self.device, self.options = name, context, device, options
        self.hits = self.misses = 0
        self._built: dict[str, cl.Program] = {}
        self._lock = threading.Lock()
        platform = device.platform
        self.driver = "\n".join(
            [platform.name, platform.version, device.name, device.version, device.driver_version, processor, *options]
        )
        root = settings.get("ISOKERN_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.store = Store(Path(root) / "isokern" / "opencl")

    def get(self, launch: Launch) -> cl.Program:
        """The program of a launch, built for the device."""
        key = hashlib.sha256(f"{self.driver}\0{launch.digest}".encode()).hexdigest()
        if key in self._built:  # which does not wait for what others build
            return self._built[key]
        with self._lock:
            if key not in self._built:
                start = time.perf_counter()
                hits = self.hits
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", cl.CompilerWarning)  # that a compiler said something
                    self._built[key] = self._load(key) or self._build(key, launch)
                if debug.LEVEL >= 1:
                    how = "found" if self.hits > hits else "built"
                    print(
                        f"isokern: {self.name} {launch.entry} {how} in {time.perf_counter() - start:.3f} s"
                        f" (programs: {self.hits} found, {self.misses} built, {self.store.damaged} damaged)",
                        file=sys.stderr,
                    )
            program = self._built[key] = self._built.pop(key)  # the one used last stands last
            if len(self._built) > KEPT:
                del self._built[next(iter(self._built))]
            return program

    def _load(self, key: str) -> cl.Program | None:
        """What is on disk, where it is whole and the driver takes it."""
        binary = self.store.get(key)
        if binary is None:
            return None
        try:
            program = cl.Program(self.context, [self.device], [binary]).build(self.options, [self.device])
        except cl.Error:
            self.store.damaged += 1
            return None
        self.hits += 1
        return program

    def _build(self, key: str, launch: Launch) -> cl.Program:
        self.misses += 1
        try:
            program = cl.Program(self.context, launch.source).build(self.options, [self.device], cache_dir=False)
        except cl.Error as error:
            if getattr(error, "code", None) in FULL | LOST:
                raise typed("compile", self.name, error) from None
            name = launch.origin[1].name
            raise InternalError(
                "compile", f"{self.name} cannot build {launch.entry} of {name}:\n{log_of(error)}"
            ) from None
        with contextlib.suppress(cl.Error):  # a driver without binaries
            binaries = program.get_info(cl.program_info.BINARIES)  # one for each device that it might be built for
            at = program.get_info(cl.program_info.DEVICES).index(self.device) if len(binaries) > 1 else 0
            self.store.put(key, binaries[at])
        return program
