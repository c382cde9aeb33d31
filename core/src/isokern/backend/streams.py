"""Streams: work in order, events in it, and lists of calls that are captured from it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ..status import InvalidArgument
from .buffer_view import BufferView
from .memory import BASE_ALIGNMENT, Buffer, Memory, Place, Workspace


class Event:
    """A point in a stream's work."""

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""

    def query(self) -> bool:
        """Return whether the work before the event is done."""
        return True


class Scratch:
    """Scratch memory for calls that run one after the other: a buffer for each kind of memory, which only grows.

    A buffer that a larger one replaces is freed when the work that uses it is done, as any buffer that is dropped.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Buffer] = {}

    def get(self, need: Workspace, memory: Memory) -> Buffer:
        """Return a buffer of at least the size that is needed; the next call that asks may get the same."""
        found = self._buffers.get(need.kind)
        if found is not None and found.nbytes >= need.size and found.address % need.alignment == 0:
            return found
        size = need.size if found is None else max(need.size, found.nbytes)
        alignment = max(need.alignment, BASE_ALIGNMENT)
        found = None
        self._buffers.pop(need.kind, None)  # freed first, to make the larger one fit
        made = self._buffers[need.kind] = memory.alloc(size, kind=need.kind, alignment=alignment, empty=True)
        return made


Places = Sequence[Any]  # the backend's own


class Recording(ABC):
    """A captured list of calls. It owns the plans and buffers that it names; `scratch` is its calls' scratch memory."""

    def __init__(self) -> None:
        self.owned: list[Any] = []
        self.scratch = Scratch()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def replay(self, stream: Stream | None = None) -> None:
        """Run the list again with what the same buffers hold now."""

    def find(self, buffer: Buffer) -> Places | None:
        """Return the places of a buffer among the calls, None where calls cannot have other memory in its place."""
        return None

    def redirect(self, places: Places, address: int) -> None:
        """Let the next replays have memory at an address in these places; the caller keeps it as long as that lasts."""
        raise InvalidArgument("redirect", "these calls have the memory that was recorded", hint="ask `find` before")


class Stream(ABC):
    """Work in order; `with stream:` makes it the thread's current one for its device.

    `handle` is an integer by which `Device.stream_of` finds the stream: the address of the backend's object for it, or
    a number of the stream's own if there is none.
    """

    def __init__(self, device: Place, handle: int | None = None) -> None:
        self.device, self.handle = device, id(self) if handle is None else handle
        self._of_thread = threading.local()
        device._by_handle[self.handle] = self

    @property
    def native(self) -> int:
        """The stream's handle in the device's own API, for the host's own kernels; valid as long as the stream is."""
        return self.handle

    @property
    def recording(self) -> Recording | None:
        """The recording into which this thread captures the stream, or None; calls of other threads run meanwhile."""
        return self._of_thread.__dict__.get("recording")

    def scratch(self, need: Workspace) -> Buffer | None:
        """Return scratch memory for a call that this thread makes on the stream now; None if the call needs none.

        It is shared with no other thread: the launches of two threads on one stream may alternate, and where calls run
        in the caller's thread they run at once. It is freed with the stream, or with the thread. A recording has
        scratch memory of its own.
        """
        if need.size == 0:
            return None
        of_thread = self._of_thread.__dict__
        recording: Recording | None = of_thread.get("recording")
        if recording is not None:
            return recording.scratch.get(need, self.device.memory)
        pool: Scratch | None = of_thread.get("scratch")
        if pool is None:
            pool = of_thread["scratch"] = Scratch()
        return pool.get(need, self.device.memory)

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all enqueued work, and raise the typed error of whatever failed in it."""

    @abstractmethod
    def record(self) -> Event:
        """Return an event after all that is enqueued so far."""

    def wait(self, event: Event) -> None:
        """Make work enqueued from now on start after `event`, of this device or of another.

        By default the host waits for the event.
        """
        if not isinstance(event, Event):
            raise InvalidArgument("wait", f"event is a {type(event).__name__}", allowed="an event: stream.record()")
        event.synchronize()

    def copy_by_engine(self, target: BufferView, source: BufferView) -> bool:
        """Enqueue a copy on an engine that works while kernels run; False if the device has none for these two.

        `source` and `target` are of one shape and dtype, both in memory that the device reaches: its own, or pinned
        memory of the host.
        """
        return False

    @abstractmethod
    def begin_capture(self) -> Recording:
        """Return a recording that will collect this thread's calls; a backend implements it.

        Users write `with stream.capture() as recording:`. Until `end_capture`, `stream.recording` is this object in
        this thread, and a kernel's `launch` adds to it instead of running.
        """

    @abstractmethod
    def end_capture(self, recording: Recording) -> None:
        """End what `begin_capture` began, also when the block raised: `recording` is complete now."""

    @contextmanager
    def capture(self) -> Iterator[Recording]:
        """Record this thread's calls on the stream instead of running them; `recording.replay()` runs them.

        Other threads may capture the stream at the same time.
        """
        if self.recording is not None:
            raise InvalidArgument(
                "capture",
                f"this thread captures the stream of {self.device.name} already",
                hint="end that capture first",
            )
        of_thread = self._of_thread.__dict__
        of_thread["recording"] = recording = self.begin_capture()
        _current.__dict__["captured"] = True
        try:
            yield recording
        finally:
            if self.recording is not recording:
                raise InvalidArgument(
                    "capture",
                    "the `with` block ends in a different thread from the one that it began in",
                    hint="leave it where it began",
                )
            del of_thread["recording"]
            self.end_capture(recording)

    def __enter__(self) -> Stream:
        _stack(self.device).append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _stack(self.device).pop()


_current = threading.local()  # empty in threads that never made a stream current, or captured one


def _stack(device: Place) -> list[Stream]:
    stacks: dict[Place, list[Stream]] = _current.__dict__.setdefault("stacks", {})
    return stacks.setdefault(device, [])


def check_stream(where: str, stream: Any, device: Place) -> None:
    """Raise InvalidArgument unless `stream` is one of the device's."""
    if not isinstance(stream, Stream) or stream.device is not device:
        given = f"of {stream.device.name}" if isinstance(stream, Stream) else f"a {type(stream).__name__}"
        raise InvalidArgument(where, f"the stream is {given}", allowed=f"a stream of {device.name}")


def current_stream(device: Place) -> Stream:
    """Return the innermost `with stream:` of this thread, else the device's default stream."""
    stacks: dict[Place, list[Stream]] | None = _current.__dict__.get("stacks")
    if stacks:
        stack = stacks.get(device)
        if stack:
            return stack[-1]
    default: Stream = device.default_stream
    return default


def running_stream(device: Place) -> Stream | None:
    """Return the thread's current stream, or None if the thread captures it."""
    if not _current.__dict__:
        default: Stream = device.default_stream
        return default
    stream = current_stream(device)
    return stream if stream.recording is None else None
