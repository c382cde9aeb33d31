"""Memory of an OpenCL device: the host's own where the device computes in it, else buffers of the context.

A kernel's pointers are aligned as their elements are and no more: arrays are wrapped in place. A kernel that reads
several elements at once through a pointer to a vector says so in the vector's type (`__attribute__((aligned(4)))`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from isokern.backend import Buffer, HostBuffer, HostMemory, Memory, own_lock
from isokern.dtypes import DType
from isokern.status import OutOfMemory

from .errors import typed_error
from .exits import waiting
from .place import ClPlace

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Array = np.ndarray[Any, Any]
GAP = 1 << 12
_flags = cl.mem_flags


class Handle(cl.Buffer):  # type: ignore[misc]  # pyopencl is not typed
    """A cl_mem; `start` and `end` are the addresses by which overlap is detected."""

    start: int
    end: int

    def span(self, start: int, nbytes: int) -> Handle:
        """Set the addresses, and return the handle itself."""
        self.start, self.end = start, start + nbytes
        return self


class HostHandle(Handle):
    """A cl_mem over host memory.

    The memory is `owned` until the work in flight is done, whoever drops the handle meanwhile.
    """

    device: ClPlace
    owned: Any

    def __del__(self) -> None:
        if hasattr(self, "owned"):
            self.device.deferred.retire(self.owned, self.end - self.start)


def computes_in_host_memory(context: cl.Context, device: cl.Device) -> bool:
    """Return whether the device and the host use one array at once.

    This is tried, by writing to an array on both sides without a mapping.
    """
    if not device.type & cl.device_type.CPU or not device.host_unified_memory:
        return False
    array = np.zeros(260, np.uint8)[4:]  # aligned as elements are, and no more
    try:
        queue = cl.CommandQueue(context, device)
        buffer = cl.Buffer(context, _flags.READ_WRITE | _flags.USE_HOST_PTR, hostbuf=array)
        cl.enqueue_fill_buffer(queue, buffer, np.full(1, 0x5A, np.uint8), 0, 128)
        queue.finish()
        seen = bool((array[:128] == 0x5A).all())
        array[:64] = 0xC3
        cl.enqueue_copy(queue, buffer, buffer, byte_count=128, src_offset=0, dst_offset=128)
        queue.finish()
    except cl.Error:
        return False
    return seen and bool((array[128:192] == 0xC3).all() and (array[192:] == 0x5A).all())


def copy_between(target: Buffer, offset: int, source: Buffer, source_offset: int, nbytes: int) -> bool:
    """Copy within a context; return False where the buffers are of two contexts, or of another backend."""
    to, of = target.memory, source.memory
    known = (ClMemory, ClHostMemory)
    if not isinstance(to, known) or not isinstance(of, known) or to.context != of.context:
        return False
    source.sync_device()
    target.sync_device()
    device: Any = to.device
    try:
        if nbytes:
            with waiting:
                cl.enqueue_copy(
                    device.transfers,
                    target.handle,
                    source.handle,
                    byte_count=nbytes,
                    src_offset=source_offset,
                    dst_offset=offset,
                ).wait()
    except (cl.Error, TypeError) as error:
        raise typed_error("copy_from", device.name, error) from None
    return True


class ClHostBuffer(HostBuffer):
    """Memory of the host, and the cl_mem over it. `address` is the host's."""

    @property
    def native(self) -> int:
        """The address of the cl_mem."""
        self._check("native")
        return int(self.handle.int_ptr)


class ClHostMemory(HostMemory):
    """The host's memory, for a device that computes in it: nothing is copied, and arrays are wrapped in place."""

    buffer = ClHostBuffer

    def __init__(self, context: cl.Context, device: cl.Device) -> None:
        super().__init__()
        self.context = context
        self.room = Room(self, device)

    def copy_from(self, target: Buffer, offset: int, source: Buffer, source_offset: int, nbytes: int) -> bool:
        """Copy between devices of one context without the host."""
        return copy_between(target, offset, source, source_offset, nbytes)

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return memory of the device; raise OutOfMemory beyond what it may take."""
        self.room.check("alloc", nbytes)
        device: Any = self.device
        if device.deferred.full:
            device.finish()
        return self._place(super().allocate_buffer(nbytes, element, kind, alignment, empty))

    def wrap(self, array: Array, element: DType) -> Buffer:
        """Return a buffer over an array's own memory.

        The array may change again when the work on it has been waited for.
        """
        buffer = super().wrap(array, element)
        self.room.check("wrap", buffer.nbytes)
        return self._place(buffer)

    def _place(self, buffer: Any) -> Buffer:
        device: Any = self.device
        view = buffer.view if buffer.nbytes else np.zeros(1, np.uint8)  # a cl_mem has at least one byte
        flags = _flags.READ_WRITE if view.flags.writeable else _flags.READ_ONLY
        try:
            handle = HostHandle(self.context, flags | _flags.USE_HOST_PTR, hostbuf=view)
        except (cl.Error, TypeError) as error:
            raise typed_error("alloc", device.name, error) from None
        handle.span(buffer.address, buffer.nbytes)
        handle.device, handle.owned = device, view
        buffer.handle = handle
        return buffer  # type: ignore[no-any-return]  # Any, for its handle is replaced


class Room:
    """The limits of a device's memory: per buffer, and in all."""

    def __init__(self, memory: Memory, device: cl.Device) -> None:
        self.memory = memory
        self.largest, self.total = device.max_mem_alloc_size, device.global_mem_size

    def check(self, where: str, nbytes: int) -> None:
        """Raise OutOfMemory where `nbytes` more are too much."""
        name = self.memory.device.name
        if nbytes > self.largest:
            raise OutOfMemory(where, f"{nbytes} bytes on {name}", allowed=f"up to {self.largest} a buffer")
        if self.memory.live + nbytes > self.total:
            raise OutOfMemory(
                where, f"{nbytes} bytes on {name}, where {self.memory.live} are in use", allowed=f"{self.total} in all"
            )


class ClBuffer(Buffer):
    """A cl_mem. OpenCL has no addresses: `address` is a number that only this memory uses, and no kernel."""

    memory: ClMemory

    def __init__(self, memory: ClMemory, nbytes: int, element: DType, handle: Handle) -> None:
        super().__init__(memory, nbytes, element, "default", handle.start, handle)

    @property
    def native(self) -> int:
        """The address of the cl_mem."""
        self._check("native")
        return int(self.handle.int_ptr)

    def map_bytes(self) -> Bytes:
        """Return the memory itself where the device shares the host's, else a copy that is written back at the end."""
        queue = self.memory.device.transfers
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        mapped: Bytes
        try:
            with waiting:
                mapped, _ = cl.enqueue_map_buffer(queue, self.handle, flags, 0, (max(1, self.nbytes),), np.uint8)
        except (cl.Error, TypeError) as error:
            raise typed_error("map_for_cpu", self.memory.device.name, error) from None
        self.memory.count_mapping(self.nbytes)
        return mapped

    def unmap_bytes(self, mapped: Any) -> None:
        """Unmap the memory, and wait until the device has it."""
        try:
            with waiting:
                mapped.base.release(self.memory.device.transfers).wait()
        except (cl.Error, TypeError) as error:
            raise typed_error("unmap_for_gpu", self.memory.device.name, error) from None
        self.memory.count_mapping(self.nbytes)

    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        """Copy a part of the memory to the host."""
        found = np.empty(nbytes, np.uint8)
        if nbytes:
            self._copy("read", found, self.handle, src_offset=offset)
        return found

    def write_bytes(self, offset: int, data: Bytes) -> None:
        """Copy `data` to the device."""
        if data.size:
            self._copy("write", self.handle, data, dst_offset=offset)

    def _copy(self, where: str, to: Any, of: Any, **offset: int) -> None:
        device = self.memory.device
        try:
            with waiting:
                cl.enqueue_copy(device.transfers, to, of, is_blocking=True, **offset)
        except (cl.Error, TypeError) as error:
            raise typed_error(where, device.name, error) from None


class ClMemory(Memory):
    """Buffers of the context.

    `unified` says that the host's memory and the device's are one, so a mapping copies nothing.
    """

    def __init__(self, context: cl.Context, device: cl.Device) -> None:
        super().__init__()
        self.context = context
        self.unified = bool(device.host_unified_memory)
        self.room = Room(self, device)
        self._next = GAP
        self._ranges = own_lock(self, "_ranges")

    @property
    def device(self) -> ClPlace:
        """The device whose memory this is."""
        found: Any = super().device
        return found  # type: ignore[no-any-return]  # only such devices have this memory

    def count_mapping(self, nbytes: int) -> None:
        """Count one direction of a mapping as a copy, where it is one."""
        if not self.unified:
            self.count_copy(nbytes)

    def copy_from(self, target: Buffer, offset: int, source: Buffer, source_offset: int, nbytes: int) -> bool:
        """Copy between devices of one context without the host."""
        return copy_between(target, offset, source, source_offset, nbytes)

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return memory of the device; raise OutOfMemory beyond what it may take."""
        self.room.check("alloc", nbytes)
        size = max(1, nbytes)
        flags = _flags.READ_WRITE | (_flags.ALLOC_HOST_PTR if self.unified else 0)
        queue = self.device.transfers
        try:
            handle = Handle(self.context, flags, size)
            # Some drivers allocate at first use: make that happen here, where the error belongs
            with waiting:
                if empty:
                    cl.enqueue_migrate_mem_objects(queue, [handle], cl.mem_migration_flags.CONTENT_UNDEFINED).wait()
                else:
                    cl.enqueue_fill_buffer(queue, handle, np.zeros(1, np.uint8), 0, size).wait()
        except (cl.Error, TypeError) as error:
            raise typed_error("alloc", self.device.name, error) from None
        with self._ranges:
            address = -(-self._next // alignment) * alignment
            self._next = address + size + GAP
        return ClBuffer(self, nbytes, element, handle.span(address, nbytes))
