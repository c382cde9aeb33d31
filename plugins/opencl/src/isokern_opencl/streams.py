"""Streams over in-order queues, events, and recorded lists of calls."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from isokern.backend import Event, RecordedCalls, Recording, Stream, own_lock
from isokern.ops import by_kind
from isokern.status import InternalError, InvalidArgument

from .command_buffers import CommandBuffer
from .errors import fork_error, typed_error
from .exits import waiting
from .place import ClPlace

ZEROS = np.zeros(3, np.int64)


class ClEvent(Event):
    """A marker in a queue."""

    def __init__(self, stream: ClStream) -> None:
        self.device = stream.device
        try:
            self.event = cl.enqueue_marker(stream.queue)
            stream.queue.flush()
        except (cl.Error, TypeError, AttributeError) as error:
            raise typed_error("record", self.device.name, error) from None

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        self._ask("synchronize", self._wait)

    def _wait(self) -> None:
        with waiting:
            self.event.wait()

    def query(self) -> bool:
        """Return whether the work before the event is done."""
        status = self._ask("query", lambda: self.event.command_execution_status)
        return bool(status <= cl.command_execution_status.COMPLETE)

    def _ask(self, where: str, question: Callable[[], Any]) -> Any:
        if self.device.context is None:
            raise fork_error(where, self.device.name)
        try:
            return question()
        except cl.Error as error:
            raise typed_error(where, self.device.name, error) from None


@dataclass(frozen=True)
class Recorded:
    """One launch of a list: a kernel object with its arguments, and how to enqueue it on a stream.

    A kernel that reports errors of the data writes them to the words of the stream `reports`.
    """

    kernel: cl.Kernel
    size: tuple[int]
    local: tuple[int]
    reports: ClStream | None
    run: Callable[[ClStream], None]


class ClRecording(RecordedCalls[Recorded]):
    """Recorded calls that run one after the other, or as one object of the driver."""

    device: ClPlace

    def __init__(self, stream: ClStream) -> None:
        super().__init__(stream.device)
        self.stream = stream
        self.whole: CommandBuffer | None = None

    def run(self, stream: Stream) -> None:
        """Enqueue the calls."""
        assert isinstance(stream, ClStream)
        if self.whole is not None and stream is self.stream and stream.queue is not None:
            stream.may_fail |= any(call.reports is not None for call in self.calls)
            if error := self.whole.enqueue():
                raise InternalError("replay", f"{self.device.name}: clEnqueueCommandBufferKHR gives {error}")
            self.device.deferred.pending.add(stream.key)
            return
        for call in self.calls:
            call.run(stream)

    def close(self) -> None:
        """End the capture: build one object of the driver from the list, where it supports that."""
        super().close()
        functions = self.device.command_buffers
        foreign = any(
            call.reports not in (None, self.stream) for call in self.calls
        )  # of a list that was recorded elsewhere
        if functions is not None and len(self.calls) > 1 and not foreign:
            launches = [(call.kernel, call.size, call.local) for call in self.calls]
            made = CommandBuffer(functions, self.stream.queue, launches)
            self.whole = None if made.error else made


class ClStream(Stream):
    """An in-order queue, whose address is the handle.

    Three 64-bit words of device memory hold the first bad value that a kernel met: kind, place, value.
    """

    device: ClPlace

    def __init__(self, device: ClPlace, theirs: cl.CommandQueue | None = None) -> None:
        """Create the stream; `theirs` is a queue that the host created."""
        try:
            queue = cl.CommandQueue(device.context, device.cl_device) if theirs is None else theirs
            self.words = ZEROS.copy()
            self.error = cl.Buffer(
                device.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=self.words
            )
        except (cl.Error, TypeError) as error:
            raise typed_error("stream", device.name, error) from None
        self.queue = queue
        self.key, self.foreign = object(), theirs is not None
        self.may_fail = False
        self._lock = own_lock(self, "_lock")
        super().__init__(device, queue.int_ptr)
        weakref.finalize(self, _end, queue, device.deferred.pending, self.key).atexit = False

    def synchronize(self) -> None:
        """Wait for all enqueued work, and raise the typed error of whatever failed in it."""
        try:
            self.finish()
        except (cl.Error, AttributeError) as error:
            raise typed_error("synchronize", self.device.name, error) from None
        if self.may_fail:
            self._raise()

    def finish(self) -> None:
        """Wait for all enqueued work; an error of OpenCL is raised as it is."""
        self.device.deferred.wait_for(self.key, self._finish)

    def _finish(self) -> None:
        with waiting:
            self.queue.finish()

    def _raise(self) -> None:
        """Return the error that the words describe, and clear them."""
        with self._lock:
            self.may_fail = False
            try:
                with waiting:
                    cl.enqueue_copy(self.queue, self.words, self.error, is_blocking=True)
                    kind, at, value = (int(w) for w in self.words)
                    if kind:
                        cl.enqueue_copy(self.queue, self.error, ZEROS, is_blocking=True)
            except cl.Error as error:
                raise typed_error("synchronize", self.device.name, error) from None
        if kind:
            raise by_kind(kind).value_error(at, value)

    def record(self) -> Event:
        """Return an event after all work enqueued so far."""
        return ClEvent(self)

    def wait(self, event: Event) -> None:
        """Make work enqueued from now on start after `event`."""
        if isinstance(event, ClEvent) and event.device.context == self.device.context:
            try:
                cl.enqueue_barrier(self.queue, wait_for=[event.event])
            except (cl.Error, TypeError) as error:
                raise typed_error("wait", self.device.name, error) from None
        else:
            super().wait(event)

    def begin_capture(self) -> Recording:
        """Return a recording, to which launches are added."""
        return ClRecording(self)

    def end_capture(self, recording: Recording) -> None:
        """Make a command buffer of the recording, where the driver has them."""
        assert isinstance(recording, ClRecording)
        recording.close()


def queue_at(address: int, device: ClPlace) -> cl.CommandQueue:
    """Return the host's queue at an address.

    Raises InvalidArgument where there is none that calls of the device can use.
    """
    allowed = f"the address of an in-order cl_command_queue of the context and device of {device.name}"
    found_by_icd = "cl_khr_icd" in device.cl_device.platform.extensions
    if found_by_icd and first_word(address) != first_word(device.transfers.int_ptr):
        given = f"handle {address}: no object of {device.name}'s driver is there"
        raise InvalidArgument("stream", given, allowed=allowed)
    try:
        queue = cl.CommandQueue.from_int_ptr(address)
        ordered = not queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        context, of = queue.context, queue.device
    except (cl.Error, TypeError) as error:
        raise InvalidArgument("stream", f"handle {address}: {error}", allowed=allowed) from None
    for wrong, told in (
        (context != device.context, "a queue of another context"),
        (of != device.cl_device, f"a queue of {of.name}"),
        (not ordered, "a queue whose commands run in any order"),
    ):
        if wrong:
            raise InvalidArgument("stream", f"handle {address} is {told}", allowed=allowed)
    return queue


def first_word(address: int) -> bytes | None:
    """Return the 8 bytes at an address.

    They are empty where there are none, and None where the system has no way to look without a fault. Those of a driver
    object that cl_khr_icd finds are the address of the driver's table of functions.
    """
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.pread(memory, 8, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(memory)


def _end(queue: Any, pending: set[object], key: object) -> None:
    """Wait for the work of a stream that is being dropped, as nobody else can."""
    with contextlib.suppress(cl.Error), waiting:
        queue.finish()
    pending.discard(key)
