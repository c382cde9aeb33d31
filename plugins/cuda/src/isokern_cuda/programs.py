"""Programs of a GPU: binaries of the driver's compiler."""

from __future__ import annotations

from typing import Any

from isokern.disk_cache import DiskCache
from isokern.simt import Launch, Programs, Unusable
from isokern.status import InternalError

from .driver import BuildFailed, CudaError, Driver

Loaded = tuple[Any, int]


class CudaPrograms(Programs[Loaded]):
    """Kernels, each with the most threads of a block."""

    def __init__(self, name: str, driver: Driver, disk_cache: DiskCache) -> None:
        self._cuda = driver
        super().__init__(name, driver.identity, disk_cache)

    def load(self, binary: bytes, launch: Launch) -> Loaded:
        """Load a binary that an earlier build produced."""
        try:
            return self._cuda.load(binary, launch.entry)
        except CudaError:
            raise Unusable from None

    def build(self, launch: Launch) -> tuple[Loaded, bytes | None]:
        """Build with the driver's compiler."""
        try:
            binary = self._cuda.build(launch.source, launch.entry)
        except BuildFailed as error:
            name = launch.origin[1].name
            raise InternalError("compile", f"{self.name} cannot build {launch.entry} of {name}:\n{error}") from None
        return self._cuda.load(binary, launch.entry), binary
