"""Streams and events of the runtime."""

from __future__ import annotations

from isokern.backend import Event
from isokern.backend.native import NativeLibrary, NativeStream

from .place import XpuPlace
from .runtime import BUSY, Runtime


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

    def __init__(self, device: XpuPlace, library: NativeLibrary) -> None:
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
