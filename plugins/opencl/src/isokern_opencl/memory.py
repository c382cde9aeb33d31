"""Buffers of an OpenCL context."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from isokern.buffer import Buffer, Mapping, Memory
from isokern.dtypes import DType
from isokern.status import OutOfMemory

if TYPE_CHECKING:
    from .devices import ClDevice

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
GAP = 1 << 12


class ClBuffer(Buffer):
    """A cl_mem. OpenCL has no addresses: `address` is a number of the memory's own, by which overlap is told."""

    memory: ClMemory

    def __init__(self, memory: ClMemory, nbytes: int, element: DType, address: int, handle: cl.Buffer) -> None:
        super().__init__(memory, nbytes, element, "default", address, handle)
        self._mapped: Any = None

    @property
    def is_mapped(self) -> bool:
        """Between `map_for_cpu` and `unmap_for_gpu`."""
        return self._mapped is not None

    def map_for_cpu(self) -> Mapping:
        """The memory itself where the device shares the host's."""
        self._check("map_for_cpu")
        self.sync_device()
        if self._mapped is None:
            queue = self.memory.device.transfers
            flags = cl.map_flags.READ | cl.map_flags.WRITE
            self._mapped, _ = cl.enqueue_map_buffer(queue, self.handle, flags, 0, (self.nbytes,), np.uint8)
        return Mapping(self, self._mapped)

    def unmap_for_gpu(self) -> None:
        """Give it back."""
        self._check("unmap_for_gpu")
        if self._mapped is not None:
            mapped, self._mapped = self._mapped, None
            mapped.base.release(self.memory.device.transfers).wait()

    def _read(self, offset: int, nbytes: int) -> Bytes:
        found = np.empty(nbytes, np.uint8)
        if nbytes:
            cl.enqueue_copy(self.memory.device.transfers, found, self.handle, src_offset=offset, is_blocking=True)
        return found

    def _write(self, offset: int, data: Bytes) -> None:
        if data.size:
            cl.enqueue_copy(self.memory.device.transfers, self.handle, data, dst_offset=offset, is_blocking=True)


class ClMemory(Memory):
    """The memory of one device."""

    def __init__(self, context: cl.Context) -> None:
        super().__init__()
        self.context = context
        self._next = GAP
        self._ranges = threading.Lock()

    @property
    def device(self) -> ClDevice:
        """The device whose memory this is."""
        found: Any = super().device
        return found  # type: ignore[no-any-return]

    def _allocate(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        size = max(1, nbytes)
        limit = self.device.cl_device.max_mem_alloc_size
        if size > limit:
            raise OutOfMemory("alloc", f"{nbytes} bytes on {self.device.name}", allowed=f"up to {limit} a buffer")
        try:
            handle = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
            queue = self.device.transfers
            if empty:
                cl.enqueue_migrate_mem_objects(queue, [handle]).wait()
            else:
                cl.enqueue_fill_buffer(queue, handle, np.zeros(1, np.uint8), 0, size).wait()
        except (cl.MemoryError, cl.RuntimeError) as error:
            raise OutOfMemory(
                "alloc", f"{nbytes} bytes on {self.device.name}: {self.live} are in use ({error})"
            ) from None
        with self._ranges:
            address = -(-self._next // alignment) * alignment
            self._next = address + size + GAP
        return ClBuffer(self, nbytes, element, address, handle)
