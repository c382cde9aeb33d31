"""Device memory, and what is freed when work that may use it is done."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from isokern.backend import Address, Buffer, Memory
from isokern.dtypes import DType
from isokern.status import OutOfMemory

from .place import XpuPlace
from .runtime import NO_MEMORY, Runtime, take_all

TO_HOST, TO_DEVICE = 0, 1
KINDS = {"default": 0, "l3": 1}
RETIRED = 64  # buffers that may wait to be freed; then the device is waited for
# Bytes that are allocated before the buffers that wait are freed: large buffers should be reused while they are in the
# caches
FRESH = 16 << 20
ZEROS = np.zeros(1 << 20, np.uint8)  # copied to clear memory: the runtime has no memset


class XpuBuffer(Buffer):
    """Device memory; the CPU sees it through a copy while it is mapped."""

    memory: XpuMemory

    def __init__(self, memory: XpuMemory, nbytes: int, element: DType, kind: str, handle: Address) -> None:
        super().__init__(memory, nbytes, element, kind, int(handle), handle)

    def read_bytes(self, offset: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Copy a part of the memory to the host."""
        found = np.empty(nbytes, np.uint8)
        self.memory.copy(found.ctypes.data, self.address + offset, nbytes, TO_HOST)
        return found

    def write_bytes(self, offset: int, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Copy `data` to the device."""
        self.memory.copy(self.address + offset, data.ctypes.data, data.size, TO_DEVICE)


class Owned:
    """The owner of an allocation, which is freed some time after the last reference to the owner is gone."""


class XpuMemory(Memory):
    """The HBM ("default") and the L3 ("l3") of one device."""

    kinds = tuple(KINDS)

    def __init__(self, runtime: Runtime, index: int) -> None:
        super().__init__()
        self.runtime, self.index = runtime, index
        self._garbage: deque[int] = deque()  # freed once the device's work is done, which may still use them
        self._fresh = 0  # bytes allocated since the last collection

    def copy(self, to: int, of: int, nbytes: int, kind: int) -> None:
        """Copy with xpu_memcpy; all enqueued work has to be done."""
        cast = self.runtime.ffi.cast
        self.runtime.check(self.runtime.lib.xpu_set_device(self.index), "xpu_set_device")
        self.runtime.check(
            self.runtime.lib.xpu_memcpy(cast("void *", to), cast("void *", of), nbytes, kind), "xpu_memcpy"
        )

    @property
    def device(self) -> XpuPlace:
        """The device that has this memory."""
        found = super().device
        assert isinstance(found, XpuPlace)
        return found

    @property
    def retired(self) -> int:
        """The number of allocations that wait to be freed."""
        return len(self._garbage)

    @contextmanager
    def collect_garbage(self) -> Iterator[None]:
        """Free, at the end of the block, what is retired at its start; the block has to wait for the device's work.

        If the block raises, nothing is freed.
        """
        garbage = take_all(self._garbage)
        try:
            yield
        except BaseException:
            self._garbage.extend(garbage)
            raise
        self._fresh = 0
        for address in garbage:
            self.runtime.lib.xpu_free(self.runtime.ffi.cast("void *", address))

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return memory of the device; raise OutOfMemory where it has not so much."""
        self._fresh += nbytes
        if len(self._garbage) > RETIRED or (self._garbage and self._fresh > FRESH):
            self.device.drain()
        lib, pointer = self.runtime.lib, self.runtime.ffi.new("void **")
        self.runtime.check(lib.xpu_set_device(self.index), "xpu_set_device")
        room = max(1, nbytes) + (alignment if alignment > 256 else 0)
        code = lib.xpu_malloc(pointer, room, KINDS[kind])
        if abs(code) in NO_MEMORY and self._garbage:
            self.device.drain()
            code = lib.xpu_malloc(pointer, room, KINDS[kind])
        if abs(code) in NO_MEMORY:
            raise OutOfMemory("alloc", f"{nbytes} bytes of {kind} memory on {self.device.name}: {self.live} are in use")
        self.runtime.check(code, "xpu_malloc")
        raw = int(self.runtime.ffi.cast("uintptr_t", pointer[0]))
        owner = Owned()
        weakref.finalize(owner, self._garbage.append, raw).atexit = False
        handle = Address(raw + -raw % alignment, owner)
        buffer = XpuBuffer(self, nbytes, element, kind, handle)
        for at in range(0, 0 if empty else nbytes, ZEROS.size):
            buffer.write_bytes(at, ZEROS[: nbytes - at])
        return buffer
