"""Devices on the runtime's C interface (xpu/runtime.h), through cffi.

The runtime is the vendor's library or the emulator; nothing of the emulator's internals is used.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from cffi import FFI

from isokern.backend import Address, Buffer, Event, Mapping, Memory
from isokern.backend.native import NativeDevice, NativeLibrary, NativeStream
from isokern.dtypes import DType
from isokern.status import DeviceNotAvailable, InternalError, InvalidArgument, OutOfMemory

T = TypeVar("T")

API = """
typedef void *XPUStream;
typedef void *XPUEvent;
int xpu_device_count(int *count);
int xpu_set_device(int devid);
int xpu_device_get_attr(uint64_t *value, int attr, int devid);
int xpu_malloc(void **pointer, uint64_t bytes, int kind);
int xpu_free(void *pointer);
int xpu_memcpy(void *to, const void *from, uint64_t bytes, int kind);
int xpu_stream_wait_event(XPUStream stream, XPUEvent event);
int xpu_event_create(XPUEvent *event);
int xpu_event_record(XPUEvent event, XPUStream stream);
int xpu_event_wait(XPUEvent event);
int xpu_event_query(XPUEvent event);
int xpu_event_destroy(XPUEvent event);
int xpu_wait(XPUStream stream);
const char *xpu_strerror(int error);
"""
MODEL, MAIN_CAPACITY, L3_CAPACITY, CLUSTERS = 4, 5, 6, 7
NO_MEMORY, ABNORMAL, BUSY = (705, 706), 713, 716
TO_HOST, TO_DEVICE = 0, 1
KINDS = {"default": 0, "l3": 1}
RETIRED = 64  # buffers that may wait to be freed; then the device is waited for
# Bytes that are allocated before the buffers that wait are freed: large buffers should be reused while they are in the
# caches
FRESH = 16 << 20
ZEROS = np.zeros(1 << 20, np.uint8)  # copied to clear memory: the runtime has no memset


class Runtime:
    """The functions of a runtime library, with typed errors."""

    def __init__(self, path: Path | str) -> None:
        self.ffi = cast(Any, FFI())
        self.ffi.cdef(API)
        self.path = str(path)
        self.lib: Any = self.ffi.dlopen(self.path, self.ffi.RTLD_GLOBAL | self.ffi.RTLD_NOW)
        for name in dir(self.lib):
            if not hasattr(self.lib, name):
                raise OSError(f"it has no {name}")

    def check(self, code: int, what: str) -> None:
        """Raise the typed error of a runtime's code, the same one as ik_xpu_status in the kernels' library."""
        if code == 0:
            return
        told = self.lib.xpu_strerror(code)
        text = f"{self.ffi.string(told).decode(errors='replace') if told else 'an error without a name'} ({code})"
        if abs(code) in NO_MEMORY:
            raise OutOfMemory(what, text)
        if abs(code) == ABNORMAL:
            hint = "after a kernel exception the device has to be reset: start a new process"
            raise DeviceNotAvailable(what, text, hint=hint)
        if abs(code) in (701, 702, 703, 711):
            raise DeviceNotAvailable(what, text)
        if abs(code) == 707:
            raise InvalidArgument(what, text)
        raise InternalError(what, text)

    def device_count(self) -> int:
        """Return the number of devices."""
        count = self.ffi.new("int *")
        self.check(self.lib.xpu_device_count(count), "xpu_device_count")
        return int(count[0])

    def attribute(self, attribute: int, index: int) -> int:
        """Return an attribute of a device."""
        value = self.ffi.new("uint64_t *")
        self.check(self.lib.xpu_device_get_attr(value, attribute, index), "xpu_device_get_attr")
        return int(value[0])


class XpuBuffer(Buffer):
    """Device memory; the CPU sees it through a copy while it is mapped."""

    memory: XpuMemory

    def __init__(self, memory: XpuMemory, nbytes: int, element: DType, kind: str, handle: Address) -> None:
        super().__init__(memory, nbytes, element, kind, int(handle), handle)
        self._mapped: np.ndarray[Any, np.dtype[np.uint8]] | None = None

    @property
    def is_mapped(self) -> bool:
        """Whether the buffer is between `map_for_cpu` and `unmap_for_gpu`."""
        return self._mapped is not None

    def map_for_cpu(self) -> Mapping:
        """Copy the memory to the host; `unmap_for_gpu` copies it back."""
        self._check("map_for_cpu")
        if self._mapped is None:
            self._mapped = self.read()
        return Mapping(self, self._mapped)

    def unmap_for_gpu(self) -> None:
        """Copy what the CPU wrote to the device."""
        self._check("unmap_for_gpu")
        if self._mapped is not None:
            mapped, self._mapped = self._mapped, None
            self.write(mapped)

    def _read(self, offset: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        found = np.empty(nbytes, np.uint8)
        self.memory.copy(found.ctypes.data, self.address + offset, nbytes, TO_HOST)
        return found

    def _write(self, offset: int, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        self.memory.copy(self.address + offset, data.ctypes.data, data.size, TO_DEVICE)


def _take(queue: deque[T]) -> list[T]:
    """Remove everything that is in a queue now and return it; no other thread gets it."""
    found: list[T] = []
    for _ in range(len(queue)):
        try:
            found.append(queue.popleft())
        except IndexError:  # another thread has taken the rest
            break
    return found


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
    def device(self) -> XpuDevice:
        """The device that has this memory."""
        found = super().device
        assert isinstance(found, XpuDevice)
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
        garbage = _take(self._garbage)
        try:
            yield
        except BaseException:
            self._garbage.extend(garbage)
            raise
        self._fresh = 0
        for address in garbage:
            self.runtime.lib.xpu_free(self.runtime.ffi.cast("void *", address))

    def _allocate(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
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
            buffer._write(at, ZEROS[: nbytes - at])
        return buffer


class XpuEvent(Event):
    """An event of the runtime."""

    def __init__(self, runtime: Runtime, stream: XpuStream) -> None:
        event = runtime.ffi.new("XPUEvent *")
        runtime.check(runtime.lib.xpu_event_create(event), "xpu_event_create")
        self.runtime = runtime
        self.handle = runtime.ffi.gc(event[0], runtime.lib.xpu_event_destroy)
        runtime.check(runtime.lib.xpu_event_record(self.handle, stream.xpu), "xpu_event_record")

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        self.runtime.check(self.runtime.lib.xpu_event_wait(self.handle), "xpu_event_wait")

    def query(self) -> bool:
        """Return whether the work before the event is done."""
        code = self.runtime.lib.xpu_event_query(self.handle)
        if abs(code) != BUSY:
            self.runtime.check(code, "xpu_event_query")
        return bool(code == 0)


class XpuStream(NativeStream):
    """A stream of the runtime, in the record that the kernels' host wrappers use."""

    def __init__(self, device: XpuDevice, library: NativeLibrary) -> None:
        runtime = device.runtime
        runtime.check(runtime.lib.xpu_set_device(device.index), "xpu_set_device")
        super().__init__(device, library)
        self.runtime, self.index = runtime, device.index
        self.xpu = runtime.ffi.cast(
            "XPUStream", library.ffi.cast("uintptr_t", library.lib.ik_xpu_stream_of(self.pointer))
        )

    @property
    def native(self) -> int:
        """The XPUStream, for launches of the host's own (in C: ik_xpu_stream_of of the handle)."""
        return int(self.runtime.ffi.cast("uintptr_t", self.xpu))

    def record(self) -> Event:
        """Return an event after everything that is enqueued so far."""
        self.runtime.check(self.runtime.lib.xpu_set_device(self.index), "xpu_set_device")
        return XpuEvent(self.runtime, self)

    def wait(self, event: Event) -> None:
        """Let work that is enqueued from now on start after `event`."""
        if not isinstance(event, XpuEvent):
            super().wait(event)
            return
        self.runtime.check(self.runtime.lib.xpu_stream_wait_event(self.xpu, event.handle), "xpu_stream_wait_event")


class XpuDevice(NativeDevice):
    """One device of the runtime."""

    asynchronous = True
    memory: XpuMemory

    def __init__(
        self, name: str, index: int, runtime: Runtime, library: NativeLibrary, emulated: bool, mode: str
    ) -> None:
        self.runtime, self.index = runtime, index
        # By number: the stream and its native stream, which outlives it until its error has been read
        self._streams: dict[int, tuple[weakref.ref[XpuStream], Any]] = {}
        self._made = 0
        self._left: Exception | None = None  # the first error of streams that are gone
        self._lock = threading.RLock()  # of the streams; reentrant, because a garbage collection may call in here
        self._retired: deque[object] = deque()
        model = runtime.attribute(MODEL, index)
        properties = {
            "model": f"KUNLUN{model}" if model in (1, 2, 3) else model,
            "clusters": runtime.attribute(CLUSTERS, index),
            "cores": 64,
            "hbm_bytes": runtime.attribute(MAIN_CAPACITY, index),
            "l3_bytes": runtime.attribute(L3_CAPACITY, index),
            "emulated": emulated,
            "mode": mode,
        }
        super().__init__(name, properties, XpuMemory(runtime, index), library, lambda level: None)

    def stream(self) -> XpuStream:
        """Return a new stream."""
        if len(self._streams) > RETIRED:
            self._end()
        made = XpuStream(self, self.library)
        with self._lock:
            self._made += 1
            self._streams[self._made] = (weakref.ref(made), made.pointer)
        return made

    def retire(self, owned: object) -> None:
        """Keep an object until the device has been waited for."""
        self._retired.append(owned)

    def synchronize(self) -> None:
        """Wait for every stream, then raise the first error."""
        error = self._wait(XpuStream.synchronize)
        if error is None:
            with self._lock:
                error, self._left = self._left, None
        if error is not None:
            raise error

    def drain(self) -> None:
        """Wait for every stream and free what was retired; errors are left for `synchronize` to raise."""
        self._wait(lambda stream: stream.record().synchronize())

    def _wait(self, wait: Callable[[XpuStream], None]) -> Exception | None:
        """Wait for each stream that is still referenced, and drop what was retired before; return the first error."""
        error: Exception | None = None
        retired = _take(self._retired)  # before listing the streams: other threads go on retiring
        try:
            with self.memory.collect_garbage():
                with self._lock:
                    streams = [stream for known, _ in self._streams.values() if (stream := known()) is not None]
                self._end()
                for stream in streams:
                    try:
                        wait(stream)
                    except Exception as found:  # still wait for the other streams
                        error = error or found
        except BaseException:
            self._retired.extend(retired)
            raise
        return error

    def _end(self) -> None:
        """Wait for the streams that nobody references any more, and drop them; errors are left for `synchronize`."""
        with self._lock:
            ended = [(number, pointer) for number, (known, pointer) in self._streams.items() if known() is None]
        for number, pointer in ended:
            try:
                if status := self.library.lib.ik_stream_synchronize(pointer):
                    self.library.fail(status)
            except Exception as found:  # as above
                with self._lock:
                    self._left = self._left or found
            with self._lock:
                self._streams.pop(number, None)


def native_library(path: Path, cdef: str) -> NativeLibrary:
    """Load the host wrappers and tables of one library of kernels."""
    ffi = FFI()
    ffi.cdef("typedef void *XPUStream;\nXPUStream ik_xpu_stream_of(void *stream);\n" + cdef)
    return NativeLibrary(ffi, ffi.dlopen(str(path)))
