"""The device's memory: the host reaches it by copies alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import numpy as np

from isokern.backend import Buffer, Memory
from isokern.dtypes import DType
from isokern.status import OutOfMemory

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
TOTAL = 1 << 34  # bytes of memory that the device has
FIRST = 1 << 52  # addresses of the device begin here, so that none of them is one of the host's


class AcmePointer:
    """A run of the device's memory, which is freed when nothing holds the pointer any more.

    A buffer holds it, and so does each call in flight: memory that the user drops is freed when the work is done.
    """

    def __init__(self, nbytes: int, alignment: int) -> None:
        # Acme: allocate device memory, and free it by `weakref.finalize(self, …)`
        whole = np.empty(nbytes + alignment, np.uint8)
        start = -whole.ctypes.data % alignment
        self.bytes: Bytes = whole[start : start + nbytes]
        self.address = FIRST + whole.ctypes.data + start


class AcmeBuffer(Buffer):
    """Memory of the device; `handle` is its AcmePointer.

    Before these methods are called the device's work is done, since `Buffer.read` and `Buffer.write` wait for it.
    """

    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        """Copy a part of the memory to the host."""
        # Acme: copy from the device at `self.address + offset` to a new array of the host, and wait for the copy
        found: Bytes = self.handle.bytes[offset : offset + nbytes].copy()
        return found

    def write_bytes(self, offset: int, data: Bytes) -> None:
        """Copy `data` to the device."""
        # Acme: copy `data` to the device at `self.address + offset`, and wait: the caller may change `data` afterwards
        self.handle.bytes[offset : offset + data.size] = data


class AcmeMemory(Memory):
    """The memory that the device's buffers come from."""

    buffer: ClassVar[type[AcmeBuffer]] = AcmeBuffer

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return memory of the device; raise OutOfMemory where it has not so much."""
        pointer = None
        if self.live + nbytes <= TOTAL:  # Acme: where the vendor's library says that memory is exhausted
            with suppress(MemoryError):
                pointer = self.make_pointer(nbytes, alignment)
        if pointer is None:
            raise OutOfMemory("alloc", f"{nbytes} bytes of {kind} memory on {self.device.name}")
        if not empty:
            pointer.bytes[...] = 0  # Acme: fill the memory with zeroes, and wait
        return self.buffer(self, nbytes, element, kind, pointer.address, pointer)

    def make_pointer(self, nbytes: int, alignment: int) -> AcmePointer:
        """Allocate."""
        return AcmePointer(nbytes, alignment)
