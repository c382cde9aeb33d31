"""The runtime's C interface (xpu/runtime.h), through cffi.

The runtime is the vendor's library or the emulator; nothing of the emulator's internals is used.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, TypeVar, cast

from cffi import FFI

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


def take_all(queue: deque[T]) -> list[T]:
    """Remove everything that is in a queue now and return it; no other thread gets it."""
    found: list[T] = []
    for _ in range(len(queue)):
        try:
            found.append(queue.popleft())
        except IndexError:  # another thread has taken the rest
            break
    return found
