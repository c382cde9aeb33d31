"""Streams, events and recordings: work that the host enqueues, and waits for later."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ClassVar

from isokern.backend import Device, Event, RecordedCalls, Stream, own_lock
from isokern.status import DeviceNotAvailable, InternalError, InvalidArgument, IsokernError

Call = Callable[[], None]


class Worker:
    """A queue of the device, in which work runs in order; it outlives its stream until its work is done.

    `workers` are those of the device, from which it removes itself at its end. Where the vendor's library has queues of
    its own, a stream holds one of these instead, and all of this class goes.
    """

    def __init__(self, workers: set[Worker]) -> None:
        self.tasks: SimpleQueue[Call | None] = SimpleQueue()
        self.process = os.getpid()
        self._error: IsokernError | None = None
        self._lock = own_lock(self, "_lock")
        self._workers = workers
        workers.add(self)
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None:
            try:
                task()
            except IsokernError as error:
                self._keep(error)
            except Exception as error:  # a mistake in a kernel: without this the thread would end, and all else wait
                self._keep(InternalError("kernel", f"{type(error).__name__}: {error}"))
            del task  # it holds memory
        if self._error is None:
            self._workers.discard(self)

    def _keep(self, error: IsokernError) -> None:
        """Keep the first error until somebody waits."""
        with self._lock:
            self._error = self._error or error

    def put(self, task: Call) -> None:
        """Append work."""
        self.check_process()
        self.tasks.put(task)

    def check_process(self) -> None:
        """Raise DeviceNotAvailable in a forked child, where the parent's threads (and most drivers) do not work."""
        if os.getpid() != self.process:
            raise DeviceNotAvailable(
                "fork",
                "the device was opened before this process was forked",
                hint="start processes by multiprocessing's spawn or forkserver",
            )

    def finish(self) -> None:
        """Wait for all work."""
        done = threading.Event()
        self.put(done.set)
        while not done.wait(0.05) and self.thread.is_alive():
            pass

    def raise_error(self) -> None:
        """Raise the error that the work met since the last call, if it met one."""
        with self._lock:
            error, self._error = self._error, None
        if not self.thread.is_alive():
            self._workers.discard(self)
        if error is not None:
            raise error


class AcmeEvent(Event):
    """A point in a stream's work."""

    def __init__(self, worker: Worker) -> None:
        self.past = threading.Event()
        self._worker = worker

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        self._worker.check_process()
        self.past.wait()  # Acme: wait for the event

    def query(self) -> bool:
        """Return whether the work before the event is done."""
        return self.past.is_set()  # Acme: query the event


class AcmeStream(Stream):
    """Work in order, which the device does while the host goes on."""

    event: ClassVar[type[AcmeEvent]] = AcmeEvent

    def __init__(self, device: Device, workers: set[Worker]) -> None:
        super().__init__(device)
        self.worker = Worker(workers)  # Acme: make a stream
        self.tasks = self.worker.tasks
        # Acme: destroy the stream when the work that is enqueued is done
        weakref.finalize(self, self.tasks.put, None).atexit = False

    def enqueue(self, task: Call) -> None:
        """Append work that is not being recorded."""
        self.worker.put(task)

    def synchronize(self) -> None:
        """Wait for all work of the stream, and raise the error that it met."""
        self.worker.finish()  # Acme: wait for the stream
        self.worker.raise_error()

    def record(self) -> Event:
        """Return an event after all that is enqueued so far."""
        event = self.event(self.worker)
        self.worker.put(event.past.set)  # Acme: record the event on the stream
        return event

    def wait(self, event: Event) -> None:
        """Let work that is enqueued from now on start after `event`; the host does not wait."""
        if not isinstance(event, Event):
            raise InvalidArgument("wait", f"event is a {type(event).__name__}", allowed="an event: stream.record()")
        # Acme: make the stream wait for the event. One of another backend is waited for by the host:
        # `event.synchronize()`
        self.worker.put(event.synchronize)

    def begin_capture(self) -> RecordedCalls[Call]:
        """Return a recording, to which `launch` adds its calls."""
        return AcmeRecording(self.device)

    def end_capture(self, recording: Any) -> None:
        """Close the recording."""
        recording.close()  # Acme: where the vendor's library has graphs, one can be made of `recording.calls` here


class AcmeRecording(RecordedCalls[Call]):
    """The calls that a thread made while it captured a stream; each holds its memory."""

    def run(self, stream: Stream) -> None:
        """Enqueue the calls."""
        assert isinstance(stream, AcmeStream)
        for call in self.calls:
            stream.enqueue(call)
