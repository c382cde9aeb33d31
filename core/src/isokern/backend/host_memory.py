"""Memory of the host process, for devices that compute there, and arrays over memory that something else owns."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar
from weakref import ref

import numpy as np

from ..dtypes import U8, DType
from ..status import OutOfMemory
from .memory import ALIGNMENT, Buffer, Bytes, Mapping, Memory

POOLED = 1 << 12  # bytes up to which memory of the outputs of repeated calls comes from pools
KEPT = 64  # free blocks that a pool keeps
POOLS = 64  # pools after which all are emptied: 16 MiB at most
SLAB = 1 << 25  # bytes of a mapping for several constants


class Address(int):
    """The address of host memory, with the object that keeps the memory alive."""

    def __new__(cls, address: int, owner: Any) -> Address:
        """Return `address` as an integer that keeps `owner`, and so the memory, alive."""
        self = super().__new__(cls, address)
        self.owner = owner
        return self

    owner: Any


class _Pool:
    """Blocks of one size: `made` exist, of which those in `free` are not in use. It needs no lock but to make some."""

    __slots__ = ("free", "made", "memory", "nbytes")

    def __init__(self, memory: HostMemory, nbytes: int) -> None:
        self.memory, self.nbytes = memory, nbytes
        self.made = 0
        self.free: list[_Block] = []

    def make(self) -> _Block:
        """Return a new block."""
        raw, start = _allocate_aligned(self.nbytes, ALIGNMENT)
        with self.memory._lock:
            self.made += 1
            self.memory._pooled_most += self.nbytes
            self.memory._note_peak()
        return _Block(self, raw, raw.__array_interface__["data"][0] + start)

    def shrink(self, kept: int) -> None:
        """Free blocks that are not in use, but for so many."""
        with self.memory._lock:
            while len(self.free) > kept:
                try:
                    self.free.pop()
                except IndexError:  # another thread was faster
                    break
                self.made -= 1
                self.memory._pooled_most -= self.nbytes


class _Block:
    """Memory of a pool, which is that of an array."""

    __slots__ = ("address", "array", "free", "pool")

    def __init__(self, pool: _Pool, array: Bytes, address: int) -> None:
        self.pool, self.free, self.array, self.address = pool, pool.free, array, address


class _PooledAddress(Address):
    """The address of a block, which goes back to its pool when this object is collected.

    Whatever uses the memory has it: the buffer, arrays over the buffer (`view`), bound calls and recordings.
    """

    owner: _Block

    def __del__(self) -> None:
        block = self.owner
        block.free.append(block)
        if len(block.free) > KEPT:
            block.pool.shrink(KEPT)


def _allocate_aligned(nbytes: int, alignment: int, zeros: bool = False) -> tuple[Bytes, int]:
    """Return new memory, and from where in it `nbytes` bytes are aligned; raise OutOfMemory."""
    try:
        raw = (np.zeros if zeros else np.empty)(nbytes + alignment, np.uint8)
    except (MemoryError, ValueError):
        raise OutOfMemory("alloc", f"{nbytes} bytes of host memory") from None
    return raw, -raw.__array_interface__["data"][0] % alignment


def _map(nbytes: int) -> Bytes:
    """Return new memory of whole pages of the usual size; raise OutOfMemory."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        return np.frombuffer(mmap.mmap(-1, nbytes, **private), np.uint8)
    except (OSError, ValueError, OverflowError):
        raise OutOfMemory("alloc", f"{nbytes} bytes of host memory") from None


class _Memory:
    """The object that NumPy makes an array of, and keeps as long as there is an array over the same memory."""

    __slots__ = ("__array_interface__", "__weakref__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__, self.owner = interface, owner


def array_at(
    address: int,
    shape: tuple[int, ...],
    typestr: str = "|u1",
    *,
    owner: Any,
    strides: tuple[int, ...] | None = None,
    writable: bool = True,
) -> np.ndarray[Any, Any]:
    """Return an array over memory at an address; it and all its views keep `owner`, whose memory that is.

    `strides` are in bytes.
    """
    interface = {"data": (address, not writable), "shape": shape, "strides": strides, "typestr": typestr, "version": 3}
    return np.asarray(_Memory(interface, owner))


class HostBuffer(Buffer):
    """Memory of the host process, which `view` and every array over it keep alive."""

    def _make_view(self) -> Bytes:
        return array_at(self.address, (self.nbytes,), owner=self.handle, writable=self.writable)

    view = cached_property(_make_view)  # when first asked for, unless it existed before

    def __init__(
        self, memory: Memory, view: Bytes, element: DType, kind: str = "default", address: int | None = None
    ) -> None:
        if address is None:
            address = view.__array_interface__["data"][0]
        writable = bool(view.flags.writeable)
        super().__init__(memory, view.size, element, kind, address, Address(address, view), writable)
        self.view = view

    @property
    def is_mapped(self) -> bool:
        """Whether the CPU may touch the memory: until it is closed, since the CPU is the device."""
        return self.alive

    def map_for_cpu(self) -> Mapping:
        """Return the memory itself, without a copy."""
        self._check("map_for_cpu")
        self.sync_device()
        return Mapping(self, self.view)

    def unmap_for_gpu(self) -> None:
        """Do nothing."""
        self._check("unmap_for_gpu")

    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        """Return a copy of a part of the memory."""
        taken: Bytes = self.view[offset : offset + nbytes].copy()
        return taken

    def write_bytes(self, offset: int, data: Bytes) -> None:
        """Copy `data` to `offset`."""
        self.view[offset : offset + data.size] = data

    def close(self) -> None:
        """Close the buffer; arrays over its memory keep the memory alive."""
        super().close()
        self.view = np.empty(0, np.uint8)


class PooledBuffer(HostBuffer):
    """Memory of a heap; slots take half the time of a dict to be filled."""

    __slots__ = ("address", "dtype", "handle", "memory", "nbytes")


class HostMemory(Memory):
    """Memory of the host process, for devices that compute there; its buffers are of the class `buffer`.

    Outputs of repeated calls come from pools, or from a heap in C if the device's library has one: `heap_class`
    makes it of a function that it calls when more than `heap.limit` bytes are in use.
    """

    wraps = True
    buffer: ClassVar[type[HostBuffer]] = HostBuffer
    heap: Any = None

    @property
    def parts(self) -> bool:
        """Whether `part` makes a buffer of a part of one: not where buffers are more than their memory."""
        return self.buffer is HostBuffer

    def part(self, buffer: Buffer, offset: int, nbytes: int) -> Buffer:
        """Return a buffer over a part of another one, which keeps its memory."""
        if not self.parts or buffer.view is None:
            return super().part(buffer, offset, nbytes)
        return HostBuffer(self, buffer.view[offset : offset + nbytes], buffer.dtype, buffer.kind)

    def __init__(self, heap_class: Callable[[Callable[[], None]], Any] | None = None) -> None:
        super().__init__()
        if heap_class is not None:  # a strong reference would keep a memory that has a buffer of its heap for good
            self.heap = heap_class(partial(_note_heap, ref(self)))
        self._pools: dict[int, _Pool] = {}  # by the size of their blocks
        self._slab: Callable[[], Bytes | None] = lambda: None  # a weak reference
        self._begin = 0  # the first free byte in it

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return memory of the process; raise OutOfMemory if there is not enough."""
        raw, start = _allocate_aligned(nbytes, alignment, not empty)
        address = raw.__array_interface__["data"][0] + start
        return self.buffer(self, raw[start : start + nbytes], element, kind, address)

    def alloc_lasting(self, nbytes: int) -> Buffer:
        """Return a buffer, not cleared, for a constant that stays.

        One mapping holds many, and is free when all of them are. The unused rest of a mapping takes no memory.
        NumPy asks for huge pages: reading these is some 5 % faster, and on a virtual machine
        they took so long to be had that a first token of a language model came 1.0 to 1.7 times as late.
        """
        if self.buffer is not HostBuffer or type(self).allocate_buffer is not _PLAIN or not 0 < nbytes <= SLAB:
            return super().alloc_lasting(nbytes)
        with self._lock:
            slab, begin = self._slab(), self._begin
            if slab is None or begin + nbytes > slab.size:
                slab, begin = _map(SLAB), 0
                self._slab = ref(slab)
            self._begin = begin + -(-nbytes // ALIGNMENT) * ALIGNMENT
        address = slab.__array_interface__["data"][0] + begin
        return self._count(HostBuffer(self, array_at(address, (nbytes,), owner=slab), U8))

    def allocator(self, nbytes: int, element: DType) -> Callable[[], Buffer]:
        """Return a function that allocates without clearing; small memory comes from a pool, or from the heap."""
        if self.is_of_heap(nbytes):
            return partial(self._take, nbytes, element)
        if nbytes > POOLED or self.buffer is not HostBuffer or type(self).allocate_buffer is not _PLAIN:
            return super().allocator(nbytes, element)
        pool = self._pool(nbytes)
        free, make, new_buffer, new_address = pool.free, pool.make, object.__new__, int.__new__

        def allocate() -> Buffer:
            try:
                block = free.pop()
            except IndexError:
                block = make()
            # The steps of HostBuffer's __init__, with known values
            buffer = new_buffer(HostBuffer)
            buffer.memory, buffer.nbytes, buffer.dtype = self, nbytes, element
            buffer.address = block.address
            buffer.handle = handle = new_address(_PooledAddress, block.address)
            handle.owner = block
            return buffer

        return allocate

    def is_of_heap(self, nbytes: int) -> bool:
        """Return whether memory of that size is the heap's: what that can keep for the next call."""
        plain = self.buffer is HostBuffer and type(self).allocate_buffer is _PLAIN
        return plain and self.heap is not None and nbytes <= int(self.heap.largest)

    def _take(self, nbytes: int, element: DType, zero: bool = False) -> Buffer:
        """Return memory of the heap."""
        try:
            handle = self.heap.take(nbytes, zero)
        except MemoryError:
            raise OutOfMemory("alloc", f"{nbytes} bytes of host memory") from None
        buffer = object.__new__(PooledBuffer)
        buffer.memory, buffer.nbytes, buffer.dtype = self, nbytes, element
        buffer.address, buffer.handle = handle.address, handle
        return buffer

    def alloc(
        self, nbytes: int, element: object = U8, *, kind: str = "default", alignment: int = 64, empty: bool = False
    ) -> Buffer:
        """Return a buffer, from the heap if it has one; see `Memory.alloc`."""
        usual = type(nbytes) is int and nbytes >= 0 and kind == "default" and alignment == ALIGNMENT
        if usual and isinstance(element, DType) and self.is_of_heap(nbytes):
            return self._take(nbytes, element, not empty)
        return super().alloc(nbytes, element, kind=kind, alignment=alignment, empty=empty)

    def _note_peak(self) -> None:
        if self.heap is None:
            super()._note_peak()
            return
        self._peak = max(self._peak, self._live + self.heap.live)
        self.heap.limit = self._peak - self._live  # what may be in use there without a new peak

    def _pool(self, nbytes: int) -> _Pool:
        """Return the pool for a size; what the others keep is freed when there are many."""
        with self._lock:
            found = self._pools.get(nbytes)
            if found is None:
                found = self._pools[nbytes] = _Pool(self, nbytes)
                if len(self._pools) % POOLS == 0:
                    for pool in self._pools.values():
                        pool.shrink(0)
            return found

    def _count_pooled(self) -> tuple[int, int]:
        """Return the bytes and the number of pooled buffers in use."""
        if self.heap is not None:
            return self.heap.live, self.heap.used
        with self._lock:
            used = [(pool.nbytes, pool.made - len(pool.free)) for pool in self._pools.values()]
        return sum(nbytes * n for nbytes, n in used), sum(n for _, n in used)

    def wrap(self, array: np.ndarray[Any, Any], element: DType) -> Buffer:
        """Return a buffer over the smallest run of bytes that holds every element of `array`, without a copy."""
        if self.buffer is HostBuffer and array.flags.c_contiguous and array.size:
            made, address = object.__new__(HostBuffer), array.__array_interface__["data"][0]
            made.memory, made.nbytes, made.dtype, made.writable = self, array.nbytes, element, array.flags.writeable
            made.address, made.handle = address, Address(address, array)
            return made
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
        if high == low:
            view = np.empty(0, np.uint8)
        else:
            view = array_at(low, (high - low,), owner=array, writable=array.flags.writeable)
        return self.buffer(self, view, element)


def _note_heap(of: ref[HostMemory]) -> None:
    memory = of()
    if memory is not None:
        with memory._lock:
            memory._note_peak()


_PLAIN = HostMemory.allocate_buffer  # a class with another allocates nothing in a pool
