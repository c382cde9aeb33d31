"""Devices of the runtime."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cffi import FFI

from isokern.backend import own_lock
from isokern.backend.native import NativeLibrary

from .memory import RETIRED, XpuMemory
from .place import XpuPlace
from .runtime import CLUSTERS, L3_CAPACITY, MAIN_CAPACITY, MODEL, Runtime, take_all
from .streams import XpuStream


class XpuDevice(XpuPlace):
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
        self._lock = own_lock(self, "_lock")  # of the streams; reentrant, because a garbage collection may call in here
        self._retired: deque[object] = deque()
        model = runtime.attribute(MODEL, index)
        properties = {
            "model": f"KUNLUN{model}" if model in (1, 2, 3) else model,
            "clusters": runtime.attribute(CLUSTERS, index),
            "cores": 64,
            "memory_bytes": runtime.attribute(MAIN_CAPACITY, index),
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
        retired = take_all(self._retired)  # before listing the streams: other threads go on retiring
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
