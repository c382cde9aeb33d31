"""Buffers, and the memories that allocate them and count what is in use."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, ClassVar

import numpy as np

from ..arguments import is_integer
from ..dtypes import U8, DType, dtype
from ..process.forks import own_lock
from ..status import DeviceNotAvailable, InvalidArgument, quote

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
ALIGNMENT = 64
BASE_ALIGNMENT = 256  # bytes; the base addresses of device memory, from which offsets count, are multiples of it


@dataclass(frozen=True)
class Workspace:
    """The scratch memory that a call needs: exact bytes, alignment of its address, and kind of memory.

    The kind is a wish for what is fastest: a kernel that is a part of another call gets memory of the default kind.
    """

    size: int = 0
    alignment: int = ALIGNMENT
    kind: str = "default"


class Place(ABC):
    """The part of a device that memory and streams know: its name, and how to wait for it.

    `dlpack_device` is DLPack's (device type, index) of memory that is not the host's; `asynchronous` says whether a
    call may return before its work is done.
    """

    name: str
    memory: Memory
    default_stream: Any  # a Stream; the streams by their handles are in _by_handle
    _by_handle: weakref.WeakValueDictionary[int, Any]
    asynchronous: ClassVar[bool] = False
    dlpack_device: ClassVar[tuple[int, int] | None] = None

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for everything enqueued on any stream, and raise the typed error of whatever failed in it."""


class Buffer(ABC):
    """A run of device memory, freed when closed or collected.

    `handle` is the backend's own object (for host memory an address) and keeps the memory alive: a call that has it may
    run to its end even if the buffer is closed. `address` is an integer by which overlap of buffers of one device is
    found: if the device's memory has addresses, that of the first byte. `native` is the memory's handle in the device's
    own API. `kind` is the kind of memory, `writable` whether a call may write to it, and `library` the package that
    owns the memory if another library does ("torch"). `view` is all bytes of the buffer if the CPU can use them
    whenever the device's work is done, None if it has to map or copy. `when_packed` is called when a constant in this
    memory was converted to a packed layout, and so may not be read again.
    """

    view: Bytes | None = None
    library = ""
    kind = "default"
    alive = writable = True
    when_packed: Callable[[], None] | None = None
    _mapped: Bytes | None = None
    _in_use: _InUse | None = None

    def __init__(
        self, memory: Memory, nbytes: int, element: DType, kind: str, address: int, handle: Any, writable: bool = True
    ) -> None:
        self.memory, self.nbytes, self.dtype, self.kind = memory, nbytes, element, kind
        self.address, self.handle, self.writable = address, handle, writable

    @property
    def device(self) -> Place:
        """The device whose memory this is."""
        return self.memory.device

    @property
    def native(self) -> int:
        """The memory's handle in the device's own API, for the host's own kernels; it does not keep the buffer."""
        self._check("native")
        return self.address

    @property
    def is_mapped(self) -> bool:
        """Whether the CPU may touch the memory now: between `map_for_cpu` and `unmap_for_gpu`."""
        return self._mapped is not None

    def map_for_cpu(self) -> Mapping:
        """Let the CPU touch the memory: `with buffer.map_for_cpu() as bytes_: …`.

        There is no copy if the device allows that; else it is a copy, which is written back at the end.
        """
        self._check("map_for_cpu")
        self.sync_device()
        if self._mapped is None:
            self._mapped = self.map_bytes()
        return Mapping(self, self._mapped[: self.nbytes])

    def unmap_for_gpu(self) -> None:
        """Give the memory back to the device."""
        self._check("unmap_for_gpu")
        if self._mapped is not None:
            mapped, self._mapped = self._mapped, None
            self.unmap_bytes(mapped)

    def map_bytes(self) -> Bytes:
        """Return the bytes that the CPU may touch: by default a copy; a backend that needs none overrides it."""
        self.memory.count_copy(self.nbytes)
        return self.read_bytes(0, self.nbytes)

    def unmap_bytes(self, mapped: Any) -> None:
        """Give what `map_bytes` returned back to the device: by default it is written."""
        self.sync_device()
        self.write_bytes(0, mapped)
        self.memory.count_copy(self.nbytes)

    def sync_device(self) -> None:
        """Wait for the device's work on the buffer, and raise the errors that it found."""
        self.device.synchronize()

    def read(self, offset: int = 0, nbytes: int | None = None) -> Bytes:
        """Return a copy of `nbytes` bytes from `offset` (by default all the rest), after the device's work."""
        self._check("read")
        self._check_range("read", offset, 0 if nbytes is None else nbytes)
        count = self.nbytes - offset if nbytes is None else nbytes
        self.sync_device()
        self.memory.count_copy(count)
        return self.read_bytes(offset, count)

    def write(self, data: Any, offset: int = 0) -> None:
        """Copy `data` (bytes, or an array as its raw memory) to `offset`, after the device's work."""
        self._check("write")
        if not self.writable:
            raise InvalidArgument("write", "the buffer is read-only", hint="copy it first")
        raw = _bytes(data)
        self._check_range("write", offset, raw.size)
        self.sync_device()
        self.memory.count_copy(raw.size)
        self.write_bytes(offset, raw)

    @abstractmethod
    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        """Return a copy of a part of the memory, now; a backend implements it.

        Users call `read`, which checks the range, waits for the device's work and counts the copy.
        """

    @abstractmethod
    def write_bytes(self, offset: int, data: Bytes) -> None:
        """Copy `data`, which is contiguous, to `offset`, now; a backend implements it.

        The caller may change `data` when this returns. Users call `write`, which checks, waits and counts.
        """

    def _check(self, what: str) -> None:
        if not self.alive:
            raise InvalidArgument(what, "the buffer is closed", hint="allocate a new one")

    def _check_range(self, what: str, offset: Any, count: Any) -> None:
        if not hasattr(offset, "__index__") or not hasattr(count, "__index__"):
            raise InvalidArgument(what, f"offset={quote(offset)} and nbytes={quote(count)}", allowed="integers")
        if offset < 0 or count < 0 or offset + count > self.nbytes:
            raise InvalidArgument(what, f"bytes {quote(offset)}..{quote(offset + count)}", allowed=f"0..{self.nbytes}")

    def close(self) -> None:
        """Free the memory, now or when the calls that have it (running, bound or recorded) are gone.

        A mapping ends before. Any later use of the buffer is an error.
        """
        if self.alive and self._mapped is not None:
            self.unmap_for_gpu()
        self.alive = False
        with suppress(AttributeError):
            del self.handle  # a call that meets a closed buffer fails on the missing handle
        if self._in_use is not None:
            self._in_use.end()

    def __repr__(self) -> str:
        state = "" if self.alive else " closed"
        return f"<buffer {self.nbytes} bytes of {self.dtype} on {self.device.name}{state}>"


def _bytes(data: Any) -> Bytes:
    """Return the raw memory of `data`, in row-major order."""
    try:
        array = np.frombuffer(data, np.uint8) if isinstance(data, (bytes, bytearray)) else np.asarray(data)
        if not array.dtype.hasobject and not isinstance(data, str):
            raw: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            return raw
    except (TypeError, ValueError, BufferError):
        pass
    raise InvalidArgument("write", f"data is a {type(data).__name__}", allowed="bytes or an array of numbers")


class Mapping:
    """A buffer that the CPU may touch: as a context manager it gives the bytes, and unmaps at the end."""

    def __init__(self, buffer: Buffer, view: Bytes) -> None:
        self.buffer, self.bytes = buffer, view

    def __enter__(self) -> Bytes:
        return self.bytes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.buffer.unmap_for_gpu()


class _InUse:
    """Bytes that count as in use until the buffer that has this object is closed or collected."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.memory, self.nbytes = memory, nbytes
        with memory._lock:
            memory._live += nbytes
            memory._allocations += 1
            memory._note_peak()

    def end(self) -> None:
        """Count the bytes as free, once."""
        with self.memory._lock:
            nbytes, self.nbytes = self.nbytes, -1
            if nbytes >= 0:
                self.memory._count_free(nbytes)

    __del__ = end


class Memory(ABC):
    """The memory that a device's buffers come from, with counts of what is in use.

    `live` and `peak` are bytes of this memory's own allocations (wrapped arrays belong to their owners); `copied`
    counts all bytes that reads, writes and mappings had to copy so far; `kinds` are the kinds of memory it has.
    """

    kinds: tuple[str, ...] = ("default",)
    wraps = False  # whether `wrap` takes host memory in place

    def __init__(self) -> None:
        self._live = self._peak = self._allocations = self.copied = 0
        self._pooled_most = 0  # bytes of all blocks of pools, in use or not
        self._lock = own_lock(self, "_lock")  # re-entrant: a garbage collection inside it may free a buffer
        self._device: weakref.ref[Place] | None = None

    @property
    def device(self) -> Place:
        """The device this memory belongs to."""
        device = self._device() if self._device is not None else None
        if device is None:
            raise DeviceNotAvailable("memory", "its device is gone")
        return device

    def attach(self, device: Place) -> None:
        """Set the device that this memory belongs to; the device calls this once, when it is made."""
        self._device = weakref.ref(device)

    def alloc(
        self, nbytes: int, element: object = U8, *, kind: str = "default", alignment: int = 64, empty: bool = False
    ) -> Buffer:
        """Return a buffer of `nbytes` bytes, zeroed unless `empty`, at an address that is a multiple of `alignment`."""
        if not is_integer(nbytes) or not 0 <= nbytes < 2**63:
            raise InvalidArgument("alloc", f"nbytes={quote(nbytes)}", allowed="an integer from 0")
        if kind not in self.kinds:
            raise InvalidArgument("alloc", f"kind={quote(kind)} on {self.device.name}", allowed=", ".join(self.kinds))
        if not is_integer(alignment) or not 0 < alignment < 2**63 or alignment & (alignment - 1):
            raise InvalidArgument("alloc", f"alignment={quote(alignment)}", allowed="a power of two")
        return self._count(self.allocate_buffer(int(nbytes), dtype(element), kind, alignment, empty))

    def _count(self, buffer: Buffer) -> Buffer:
        """Return a new buffer, which counts as in use from now on."""
        buffer._in_use = _InUse(self, buffer.nbytes)
        return buffer

    def alloc_lasting(self, nbytes: int) -> Buffer:
        """Return a buffer, not cleared, for a constant that stays, and is filled at once: a packed one."""
        return self.alloc(nbytes, empty=True)

    def allocator(self, nbytes: int, element: DType) -> Callable[[], Buffer]:
        """Return a function that allocates a buffer of that size, without clearing it: for calls that are repeated."""
        return partial(self.alloc, nbytes, element, empty=True)

    @property
    def live(self) -> int:
        """The bytes that are in use."""
        return self._live + self._count_pooled()[0]

    @property
    def allocations(self) -> int:
        """The number of buffers that are in use."""
        return self._allocations + self._count_pooled()[1]

    @property
    def peak(self) -> int:
        """The most bytes that were in use at once; where pools give memory, it may miss what they kept meanwhile."""
        with self._lock:
            self._note_peak()
            return self._peak

    def _note_peak(self) -> None:
        if self._live + self._pooled_most <= self._peak:
            return  # without counting what the pools gave
        live = self.live
        if live > self._peak:
            self._peak = live

    def _count_pooled(self) -> tuple[int, int]:
        """Return the bytes and the number of buffers in use that pools gave."""
        return 0, 0

    def _count_free(self, nbytes: int) -> None:
        with self._lock:
            self._live -= nbytes
            self._allocations -= 1

    def count_copy(self, nbytes: int) -> None:
        """Add `nbytes` to `copied`."""
        with self._lock:
            self.copied += nbytes

    def reset_peak(self) -> None:
        """Restart `peak` from the bytes that are live now."""
        with self._lock:
            self._peak = self.live
            self._note_peak()

    def copy_from(self, target: Buffer, offset: int, source: Buffer, source_offset: int, nbytes: int) -> bool:
        """Copy bytes from a buffer of another device into one of this memory, without the host; False if it cannot.

        The copy is made after the work of both devices.
        """
        return False

    @abstractmethod
    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return a new buffer; a backend implements it. Users call `alloc`, which checks the arguments and counts.

        `nbytes` may be 0, `kind` is one of `kinds`, and `alignment` is a power of two. The bytes are zero unless
        `empty`. If there is not so much memory, raise OutOfMemory, and leave nothing allocated. The buffer frees its
        memory when its `handle` is collected, and no earlier: a call in flight holds the handle.
        """

    def wrap(self, array: np.ndarray[Any, Any], element: DType) -> Buffer:
        """Return a buffer over an array's own memory, if the device can use it; blocks come as bytes."""
        copy = "tensor(array, device=…)"
        if element.block > 1:
            shape = (*array.shape[:-1], array.shape[-1] // element.itemsize * element.block)
            copy = f'x = empty({shape}, "{element}", device=…); x.raw.copy_from(array)'
        raise InvalidArgument("wrap", f"{self.device.name} cannot use host memory in place", hint=f"copy: {copy}")

    @property
    def parts(self) -> bool:
        """Whether `part` makes a buffer of a part of one."""
        return False

    def part(self, buffer: Buffer, offset: int, nbytes: int) -> Buffer:
        """Return a buffer over a part of another one, which keeps its memory; only if `parts` says so."""
        raise InvalidArgument("part", f"{self.device.name} has no buffers over parts of others", hint="use an offset")

    def adopt(
        self,
        address: int,
        nbytes: int,
        element: DType,
        owner: Any,
        writable: bool,
        release: Callable[[], None] | None = None,
    ) -> Buffer:
        """Return a buffer over memory of the device that another library allocated.

        `owner` keeps the memory; `release` is called when no object and no work in flight uses it.
        """
        raise InvalidArgument(
            "from_dlpack", f"{self.device.name} does not take memory of others", hint="copy: tensor(array, device=…)"
        )
