"""Streams, events, and captured calls as graphs."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isokern.backend import BufferView, Event, RecordedCalls, Recording, Stream, Timer, Workspace, own_lock
from isokern.ops import by_kind

from .driver import CudaError, Driver
from .memory import Held
from .place import CudaPlace

if TYPE_CHECKING:
    from isokern.backend import Buffer


WORDS = 24  # bytes: kind, place and value of the first bad value that a kernel met


class CudaEvent(Event):
    """A point in a stream's work."""

    def __init__(self, stream: CudaStream, timed: bool = False) -> None:
        self.device = stream.device
        driver = self.device.driver
        self.raw = self.device.ask("record", driver.record, stream.raw, timed)
        weakref.finalize(self, _forget, driver.end_event, self.raw).atexit = False

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        self.device.ask("synchronize", self.device.driver.synchronize_event, self.raw)

    def query(self) -> bool:
        """Return whether the work before the event is done."""
        return bool(self.device.ask("query", self.device.driver.has_passed, self.raw))


class CudaTimer(Timer):
    """The time between two events of a stream."""

    def __init__(self, stream: CudaStream) -> None:
        self.stream = stream
        self._begin = self._end = CudaEvent(stream, timed=True)

    def start(self) -> None:
        """Record the first event."""
        self._begin = CudaEvent(self.stream, timed=True)

    def stop(self) -> None:
        """Record the second event."""
        self._end = CudaEvent(self.stream, timed=True)

    def seconds(self) -> float:
        """Wait for the second event, and return the time."""
        self._end.synchronize()
        device = self.stream.device
        return device.ask("timer", device.driver.seconds_between, self._begin.raw, self._end.raw)


@dataclass(frozen=True)
class Call:
    """One launch on the stream that it is given.

    `owned` is what its arguments point to, `workspace` the part of that which is the call's own, and `reports` the
    stream to whose words it writes errors of the data.
    """

    enqueue: Callable[[int], None]
    reports: CudaStream | None
    owned: Any
    workspace: Any = None


class CudaRecording(RecordedCalls[Call]):
    """Recorded calls that become a graph when the capture ends.

    Until then nothing runs, and CUDA is not called. So allocations, reads and waits in the `with` block are harmless,
    and the graph has launches and the copies of copy engines alone.
    """

    device: CudaPlace

    def __init__(self, device: CudaPlace) -> None:
        super().__init__(device)
        self.graph = 0

    def close(self) -> None:
        """End the capture: CUDA captures the launches, on a stream that no other thread knows."""
        super().close()
        if not self.calls:
            return
        device, driver = self.device, self.device.driver
        raw = device.ask("capture", driver.stream)
        try:
            device.ask("capture", driver.begin_capture, raw)
            try:
                for call in self.calls:
                    device.ask("capture", call.enqueue, raw)
            except BaseException:
                with contextlib.suppress(CudaError):  # a capture that failed usually has no graph
                    driver.end_graph(driver.end_capture(raw))
                raise
            self.graph = device.ask("capture", driver.end_capture, raw)
            weakref.finalize(self, _forget, driver.end_graph, self.graph).atexit = False
        finally:
            _forget(driver.end_stream, raw)

    def run(self, stream: Stream) -> None:
        """Enqueue the graph."""
        assert isinstance(stream, CudaStream)
        if self.calls:
            stream.reports |= {call.reports for call in self.calls if call.reports is not None}
            self.device.ask("replay", self.device.driver.replay, self.graph, stream.raw)
            self.device.deferred.pending.add(stream.key)


class CudaStream(Stream):
    """A stream that waits for no other.

    Kernels write the first bad value that they meet to its `words`, in device memory. `reports` are the streams whose
    words work on this one may have written to.
    """

    device: CudaPlace

    def __init__(self, device: CudaPlace, raw: int | None = None) -> None:
        """Create the stream; `raw` is a stream that somebody else created, and that outlives this object."""
        driver = device.driver
        self.raw: int = device.ask("stream", driver.stream) if raw is None else raw
        self.key, self.foreign = object(), raw is not None
        self._words: Held | None = None
        self.reports: set[CudaStream] = set()
        self._lock = own_lock(self, "_lock")
        super().__init__(device, self.raw)
        weakref.finalize(self, _end, driver, self.raw, raw is None, device.deferred.pending, self.key).atexit = False

    @property
    def words(self) -> Held:
        """The stream's error words.

        They are allocated for the first call that may write to them, as nothing may be allocated while another library
        captures.
        """
        if self._words is None:
            device = self.device
            with self._lock:
                if self._words is None:
                    made = device.ask("calculate", Held, device.driver, device.deferred, WORDS)
                    device.ask("calculate", device.driver.zero, made.address, WORDS)
                    self._words = made
        return self._words

    @property
    def captures(self) -> bool:
        """Whether calls of this thread are recorded, by us or by another library."""
        return self.recording is not None or (
            self.foreign and self.device.ask("calculate", self.device.driver.captures, self.raw)
        )

    def take(self, call: Call) -> None:
        """Enqueue a call, or record it."""
        recording = self.recording
        if recording is not None:
            assert isinstance(recording, CudaRecording)
            recording.add(call)
            return
        device = self.device
        if self.foreign and device.ask("calculate", device.driver.captures, self.raw):
            device.graphs_of_others.append((self, call.workspace))  # nobody reports when such a graph is destroyed
        if call.reports is not None:
            self.reports.add(call.reports)
        device.ask("calculate", call.enqueue, self.raw)
        device.deferred.pending.add(self.key)  # only now: until here the caller holds the memory

    def scratch(self, need: Workspace) -> Buffer | None:
        """Return scratch memory as any stream does.

        A graph that another library captures keeps it: calls after the capture get other memory.
        """
        if self.foreign and need.size and self.recording is None:
            captures = self.device.ask("calculate", self.device.driver.captures, self.raw)
            of_thread = self._of_thread.__dict__
            if of_thread.get("captured") and not captures:
                of_thread.pop("scratch", None)
            of_thread["captured"] = captures
        return super().scratch(need)

    def copy_by_engine(self, target: BufferView, source: BufferView) -> bool:
        """Copy by a copy engine where both are dense and not in one buffer; return whether it did."""
        to, of = target.buffer, source.buffer
        low, high = target.desc.byte_range
        if (
            not (target.desc.is_contiguous and source.desc.is_contiguous)
            or not (to.alive and of.alive and to.writable)
            or not (to.memory is of.memory is self.device.memory)
            or to is of
            or high == low
        ):
            return False
        addresses = to.address + low, of.address + source.desc.byte_range[0]
        enqueue = partial(self.device.driver.enqueue_copy, *addresses, high - low)
        self.take(Call(enqueue, None, (to.handle, of.handle)))
        return True

    def synchronize(self) -> None:
        """Wait for all enqueued work, and raise the typed error of whatever failed in it."""
        self.finish()
        if self.reports:
            self._raise()

    def finish(self) -> None:
        """Wait for all enqueued work, whatever errors it found in the data.

        A stream of another library may have ended since it was waited for.
        """
        device = self.device
        if self.foreign and self.key not in device.deferred.pending:
            return
        device.deferred.wait_for(self.key, lambda: device.ask("synchronize", device.driver.synchronize, self.raw))

    def _raise(self) -> None:
        """Return the first error of the words, and clear them."""
        device, found = self.device, None
        with self._lock:
            reports, self.reports = self.reports, set()
        for stream in reports:
            words = np.zeros(3, np.int64)
            device.ask("synchronize", device.driver.copy, words.ctypes.data, stream.words.address, WORDS)
            if words[0]:
                device.ask("synchronize", device.driver.zero, stream.words.address, WORDS)
                found = found or [int(w) for w in words]
        if found is not None:
            kind, at, value = found
            raise by_kind(kind).value_error(at, value)

    def record(self) -> Event:
        """Return an event after all work enqueued so far."""
        return CudaEvent(self)

    def wait(self, event: Event) -> None:
        """Make work enqueued from now on start after `event`."""
        if isinstance(event, CudaEvent) and type(event.device.driver) is type(self.device.driver):
            self.device.ask("wait", self.device.driver.wait, self.raw, event.raw)
        else:
            super().wait(event)

    def begin_capture(self) -> Recording:
        """Return a recording, to which launches are added."""
        return CudaRecording(self.device)

    def end_capture(self, recording: Recording) -> None:
        """Make a CUDA graph of the recording."""
        assert isinstance(recording, CudaRecording)
        recording.close()


def _forget(end: Any, handle: int) -> None:
    with contextlib.suppress(CudaError):
        end(handle)


def _end(driver: Driver, raw: int, ours: bool, pending: set[object], key: object) -> None:
    """Wait for the work of a stream that is being dropped, as nobody else can."""
    with contextlib.suppress(CudaError):
        if ours or key in pending:  # another library's stream may have ended since it was waited for
            driver.synchronize(raw)
        if ours:
            driver.end_stream(raw)
    pending.discard(key)
