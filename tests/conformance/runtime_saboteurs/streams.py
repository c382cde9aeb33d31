"""Faults of streams and events: order, waiting, and the errors that come later."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from threaded_device import ThreadedDevice, ThreadedEvent, ThreadedStream

from isokern.status import InvalidArgument, OutOfMemory

from .plant import KEPT, device, stream


@stream("streams/queries_events_truthfully")
class PastAtOnce(ThreadedStream):
    """An event is past when it is recorded."""

    def record(self) -> Any:
        event = super().record()
        event.past.set()
        return event


class _NeverPastEvent(ThreadedEvent):
    def query(self) -> bool:
        return False


@stream("streams/synchronizes_events")
class NeverPast(ThreadedStream):
    """`query` is always false."""

    event = _NeverPastEvent


class _QueryIsTrueEvent(ThreadedEvent):
    def query(self) -> bool:
        return True


@stream("streams/queries_events_truthfully")
class QueryIsTrue(ThreadedStream):
    """`query` is always true."""

    event = _QueryIsTrueEvent


class _EventsDoNotWaitEvent(ThreadedEvent):
    def synchronize(self) -> None:
        pass


@stream("streams/synchronizes_events")
class EventsDoNotWait(ThreadedStream):
    """`event.synchronize` returns at once."""

    event = _EventsDoNotWaitEvent


@stream("streams/makes_a_stream_wait")
class WaitDoesNothing(ThreadedStream):
    """`wait` does nothing."""

    def wait(self, event: Any) -> None:
        if not isinstance(event, ThreadedEvent):
            super().wait(event)


@stream("streams/takes_only_its_own_events_and_streams")
class WaitTakesAnything(ThreadedStream):
    """`wait` accepts what is no event."""

    def wait(self, event: Any) -> None:
        if isinstance(event, ThreadedEvent):
            super().wait(event)


class _EventsForTheWorkAfterEvent(ThreadedEvent):
    stream: Any = None

    def query(self) -> bool:
        return self.past.is_set() and self.stream.tasks.empty()


@stream("streams/records_events_for_the_work_before")
class EventsForTheWorkAfter(ThreadedStream):
    """An event becomes past only when the stream is idle."""

    event = _EventsForTheWorkAfterEvent

    def record(self) -> Any:
        event = super().record()
        event.stream = self
        return event


@stream("streams/synchronizes_streams")
class SynchronizeDoesNothing(ThreadedStream):
    """`stream.synchronize` returns at once."""

    def synchronize(self) -> None:
        pass


@stream("streams/runs_a_stream_in_order")
class OutOfOrder(ThreadedStream):
    """Each call runs in a thread of its own, every other one a little later."""

    later = 0.0

    def enqueue(self, task: Callable[[], None]) -> None:
        self.later = 0.01 - self.later
        super().enqueue(threading.Timer(self.later, task).start)


@stream("streams/runs_a_stream_in_order")
class LastFirst(ThreadedStream):
    """Every fourth call is delayed past the next one."""

    def enqueue(self, task: Callable[[], None]) -> None:
        held = self.__dict__.setdefault("held", [])
        self.__dict__["count"] = self.__dict__.get("count", 0) + 1
        if self.__dict__["count"] % 4 == 0 and not held:
            held.append(task)
            return
        super().enqueue(task)
        while held:
            super().enqueue(held.pop())

    def synchronize(self) -> None:
        for task in self.__dict__.pop("held", []):
            super().enqueue(task)
        super().synchronize()


@stream("streams/reports_an_error_once_to_its_caller")
class SwallowsErrors(ThreadedStream):
    """An error that the device finds is lost."""

    def enqueue(self, task: Callable[[], None]) -> None:
        def run() -> None:
            with contextlib.suppress(InvalidArgument):
                task()

        super().enqueue(run)


@stream("streams/reports_an_error_once_to_its_caller")
class RepeatsErrors(ThreadedStream):
    """An error is raised at every synchronize from then on."""

    def enqueue(self, task: Callable[[], None]) -> None:
        def run() -> None:
            try:
                task()
            except InvalidArgument as error:
                self.__dict__["sticky"] = error

        super().enqueue(run)

    def synchronize(self) -> None:
        super().synchronize()
        if "sticky" in self.__dict__:
            raise self.__dict__["sticky"]


@stream("streams/reports_an_error_to_its_own_stream")
class RaisesErrorsOfOthers(ThreadedStream):
    """Waiting for a stream raises the errors of all."""

    def synchronize(self) -> None:
        self.device.synchronize()


@stream("streams/reports_an_error_to_its_own_stream")
class DropsErrorsOfOthers(ThreadedStream):
    """Waiting for a stream clears the one error word of the device."""

    def synchronize(self) -> None:
        for worker in list(self.device.workers):
            worker.finish()
            if worker is not self.worker:
                worker.errors.clear()
        super().synchronize()


@stream("streams/finds_streams_by_handle")
class OneHandle(ThreadedStream):
    """All streams have one handle."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        device._by_handle.pop(self.handle)
        self.handle = 12345
        device._by_handle[self.handle] = self


@stream("streams/makes_many_streams")
class FewStreams(ThreadedStream):
    """There are seven streams at most, with the default one."""

    def __init__(self, device: Any) -> None:
        if len(device.live_streams()) > 6:
            raise OutOfMemory("stream", "there are seven already")
        super().__init__(device)


@stream("streams/makes_many_streams")
class KeepsStreams(ThreadedStream):
    """A dropped stream stays."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        KEPT.append(self)


@device("streams/synchronizes_the_device")
class DoesNotSynchronize(ThreadedDevice):
    """The device waits for its default stream alone, as the base class does."""

    def synchronize(self) -> None:
        self.default_stream.synchronize()


@device("streams/says_when_calls_return_early")
class SaysItIsSynchronous(ThreadedDevice):
    """`asynchronous` is false, and calls return before they are done."""

    asynchronous = False
