"""Memory of a GPU, and pinned memory of the host that it reads and writes in place."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from isokern.backend import BASE_ALIGNMENT, Address, Buffer, HostBuffer, Memory, array_at
from isokern.dtypes import DType
from isokern.simt import DeferredRelease
from isokern.status import OutOfMemory

from .driver import CudaError, Driver
from .place import CudaPlace

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Last:
    """Calls a function when it is collected.

    It is created when the memory is released, and not before: a garbage collection calls the finalizers of all objects
    that it finds, whether one of these refers to others or not.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # at exit the process frees its memory itself
            with contextlib.suppress(CudaError):  # the device is lost, and its memory with it
                self.function()


class Held:
    """Memory with owners; when nobody owns it, it is freed as soon as no work in flight uses it."""

    def __init__(self, driver: Driver, deferred: DeferredRelease, nbytes: int, pinned: bool = False) -> None:
        self.deferred, self.nbytes = deferred, nbytes
        self.address = driver.alloc(nbytes, pinned)
        # Keys of the streams of other libraries that were handed the memory: their work may still use it
        self.users: set[object] = set()
        self._free = partial(driver.free, self.address, pinned)

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            self.deferred.pending.update(self.users)
            self.deferred.retire(_Last(self._free), self.nbytes)


class Adopted:
    """Memory of another library, which gets it back as soon as nobody owns it and no work in flight uses it."""

    def __init__(
        self, deferred: DeferredRelease, address: int, nbytes: int, owner: Any, release: Callable[[], None] | None
    ) -> None:
        self.deferred, self.address, self.nbytes, self._owner, self._release = deferred, address, nbytes, owner, release

    def __del__(self) -> None:
        self.deferred.retire((self._owner, self._release and _Last(self._release)), self.nbytes)


class CudaBuffer(Buffer):
    """Memory of the device. `address` is CUDA's."""

    memory: CudaMemory

    def __init__(
        self,
        memory: CudaMemory,
        nbytes: int,
        element: DType,
        held: Held | Adopted,
        address: int,
        writable: bool = True,
    ) -> None:
        super().__init__(memory, nbytes, element, "default", address, Address(address, held), writable)

    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        """Copy a part of the memory to the host."""
        found = np.empty(nbytes, np.uint8)
        if nbytes:
            device = self.memory.device
            device.ask("read", device.driver.copy, found.ctypes.data, self.address + offset, nbytes)
        return found

    def write_bytes(self, offset: int, data: Bytes) -> None:
        """Copy `data` to the device."""
        if data.size:
            device = self.memory.device
            device.ask("write", device.driver.copy, self.address + offset, data.ctypes.data, data.size)


class PinnedBuffer(HostBuffer):
    """Memory of the host at an address that the device uses too."""

    def __init__(self, memory: Memory, nbytes: int, element: DType, held: Held, address: int) -> None:
        view = array_at(address, (nbytes,), owner=held) if nbytes else np.empty(0, np.uint8)
        super().__init__(memory, view, element, "pinned")
        self.address, self.handle = address, Address(address, held)


class CudaMemory(Memory):
    """The memory that a device allocates: its own, and pinned memory of the host."""

    kinds = ("default", "pinned")

    @property
    def device(self) -> CudaPlace:
        """The device whose memory this is."""
        found: Any = super().device
        return found  # type: ignore[no-any-return]  # only such devices have this memory

    def copy_from(self, target: Buffer, offset: int, source: Buffer, source_offset: int, nbytes: int) -> bool:
        """Copy between GPUs, by the driver."""
        of = source.memory
        if not isinstance(of, CudaMemory) or type(of.device.driver) is not type(self.device.driver):
            return False
        source.sync_device()
        target.sync_device()
        if nbytes:
            device = self.device
            device.ask("copy_from", device.driver.copy, target.address + offset, source.address + source_offset, nbytes)
        return True

    def adopt(
        self,
        address: int,
        nbytes: int,
        element: DType,
        owner: Any,
        writable: bool,
        release: Callable[[], None] | None = None,
    ) -> Buffer:
        """Return a buffer over memory of another library on this GPU."""
        adopted = Adopted(self.device.deferred, address, nbytes, owner, release)
        return CudaBuffer(self, nbytes, element, adopted, address, writable)

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return memory of the device, from its pool; raise OutOfMemory beyond its size."""
        device = self.device
        if kind == "default" and nbytes > device.driver.limit:
            raise OutOfMemory("alloc", f"{nbytes} bytes on {device.name}", allowed=f"{device.driver.limit} in all")
        if device.deferred.full:
            device.finish()
        size = max(1, nbytes) + (alignment if alignment > BASE_ALIGNMENT else 0)
        try:
            held = device.ask("alloc", Held, device.driver, device.deferred, size, kind == "pinned")
        except OutOfMemory:
            if not device.deferred.retired:
                raise
            device.finish()
            held = device.ask("alloc", Held, device.driver, device.deferred, size, kind == "pinned")
        address = -(-held.address // alignment) * alignment
        if not empty:
            device.ask("alloc", device.driver.zero, address, nbytes)
        made = PinnedBuffer if kind == "pinned" else CudaBuffer
        return made(self, nbytes, element, held, address)
