"""Programs built once, cached in memory by source and on disk by all that they depend on."""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from .. import debug
from ..disk_cache import DiskCache
from ..process.forks import own_lock
from .kernel import Launch

Program = TypeVar("Program")
KEPT = 256  # programs cached in addition to those that descriptors use: a driver may take a megabyte for each


class Unusable(Exception):
    """Raised by `load` for a binary that is no program of the device."""


class Programs(ABC, Generic[Program]):
    """The programs of one device; `driver` identifies whatever a binary depends on apart from its source.

    `hits` counts the programs found on disk, `misses` those that were built, and `disk_cache.damaged` the files on disk
    that were no program of the device: those are rebuilt and overwritten.
    """

    def __init__(self, name: str, driver: str, disk_cache: DiskCache) -> None:
        self.name, self.driver, self.disk_cache = name, driver, disk_cache
        self.hits = self.misses = 0
        self._held: dict[str, Program] = {}
        self._lock = own_lock(self, "_lock", threading.Lock)

    @abstractmethod
    def load(self, binary: bytes, launch: Launch) -> Program:
        """Return the program of a binary that `build` produced in any process; raise `Unusable` where it is none."""

    @abstractmethod
    def build(self, launch: Launch) -> tuple[Program, bytes | None]:
        """Build the program of a launch from source, and return it with its binary where the driver gives one."""

    def get(self, launch: Launch) -> Program:
        """Return the program of a launch."""
        key = hashlib.sha256(f"{self.driver}\0{launch.digest}".encode()).hexdigest()
        if key in self._held:  # without the lock, so it does not wait for other threads' builds
            return self._held[key]
        with self._lock:
            if key not in self._held:
                start, hits = time.perf_counter(), self.hits
                self._held[key] = self._load_from_disk(key, launch) or self._build(key, launch)
                if debug.LEVEL >= 1:
                    how = "found" if self.hits > hits else "built"
                    debug.say(
                        f"{self.name} {launch.entry} {how} in {time.perf_counter() - start:.3f} s"
                        f" (programs: {self.hits} found, {self.misses} built, {self.disk_cache.damaged} damaged)"
                    )
                if debug.LEVEL >= 4:
                    debug.say(f"source of {launch.entry}\n{launch.source}")
            program = self._held[key] = self._held.pop(key)  # the most recently used program is last
            if len(self._held) > KEPT:
                del self._held[next(iter(self._held))]
            return program

    def _load_from_disk(self, key: str, launch: Launch) -> Program | None:
        """Return the program on disk, where it is intact and the driver accepts it."""
        binary = self.disk_cache.get(key)
        if binary is None:
            return None
        try:
            program = self.load(binary, launch)
        except Unusable:
            self.disk_cache.damaged += 1
            return None
        self.hits += 1
        return program

    def _build(self, key: str, launch: Launch) -> Program:
        self.misses += 1
        program, binary = self.build(launch)
        if binary is not None:
            self.disk_cache.put(key, binary)
        return program
