"""Streams over in-order queues, events, and recorded lists of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from isokern.backend import Event, Recording, Stream, check_stream, current_stream
from isokern.ops import by_kind
from isokern.status import InternalError, InvalidArgument

if TYPE_CHECKING:
    from .devices import ClDevice


class ClEvent(Event):
    """A marker in a queue."""

    def __init__(self, event: cl.Event, queue: cl.CommandQueue) -> None:
        self.event = event
        queue.flush()

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        self.event.wait()

    def query(self) -> bool:
        """Whether it is done."""
        return bool(self.event.command_execution_status <= cl.command_execution_status.COMPLETE)


class ClRecording(Recording):
    """Calls that are run one after the other."""

    def __init__(self, stream: ClStream) -> None:
        super().__init__()
        self.stream = stream
        self.calls: list[Callable[[ClStream], None]] = []
        self.open = True

    def __len__(self) -> int:
        return len(self.calls)

    def replay(self, stream: Stream | None = None) -> None:
        """Run the list on `stream`, the thread's current one by default."""
        if self.open:
            raise InvalidArgument("replay", "the list is still being captured", hint="replay it after the `with` block")
        device = self.stream.device
        target = current_stream(device) if stream is None else stream
        check_stream("replay", target, device)
        assert isinstance(target, ClStream)
        for call in self.calls:
            call(target)


class ClStream(Stream):
    """An in-order queue. Three 64-bit words of device memory hold the first bad value that a kernel met: kind, place, value."""

    recording: ClRecording | None

    def __init__(self, device: ClDevice) -> None:
        super().__init__(device, cl.CommandQueue(device.context, device.cl_device))
        self.queue: cl.CommandQueue = self.handle
        self.words = np.zeros(3, np.int64)
        self.error = cl.Buffer(device.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=self.words)
        self.may_fail = False

    def synchronize(self) -> None:
        """Wait for all enqueued work, and raise the typed error of whatever failed in it."""
        try:
            self.queue.finish()
        except cl.Error as error:
            raise InternalError("synchronize", f"{self.device.name}: {error}") from None
        if self.may_fail:
            self.may_fail = False
            cl.enqueue_copy(self.queue, self.words, self.error, is_blocking=True)
            kind, at, value = (int(w) for w in self.words)
            if kind:
                cl.enqueue_copy(self.queue, self.error, np.zeros(3, np.int64), is_blocking=True)
                operator = by_kind(kind)
                raise InvalidArgument(operator.name, operator.device_error.format(at=at, value=value))

    def record(self) -> Event:
        """An event after all that is enqueued so far."""
        return ClEvent(cl.enqueue_marker(self.queue), self.queue)

    def wait(self, event: Event) -> None:
        """Work enqueued from now on starts after `event`."""
        if isinstance(event, ClEvent):
            cl.enqueue_barrier(self.queue, wait_for=[event.event])
        else:
            event.synchronize()

    def _begin_capture(self) -> Recording:
        return ClRecording(self)

    def _end_capture(self, recording: Recording) -> None:
        assert isinstance(recording, ClRecording)
        recording.open = False
