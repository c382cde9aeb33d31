"""Devices with one fault each in their runtime, which the runtime's checks must find.

Each is the device of `threaded_device.py` with one part replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import platform
import threading
import time
import types
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from threaded_device import (
    Block,
    ThreadedBuffer,
    ThreadedDevice,
    ThreadedEvent,
    ThreadedKernel,
    ThreadedMemory,
    ThreadedRecording,
    ThreadedStream,
)

from isokern.backend import Buffer, Declined, KernelVariant, PackedLayout, Stream, Workspace, array_at
from isokern.status import InvalidArgument, OutOfMemory

Device = type[ThreadedDevice]
SABOTEURS: dict[str, tuple[Device, str]] = {}  # name → the class of its device, and the requirement that finds it
KEPT: list[Any] = []  # what a leak keeps


def _plant(name: str, by: str, doc: str | None, **parts: Any) -> None:
    """Register a device that has other parts than the sound one."""
    SABOTEURS[name.lower()] = type(name, (ThreadedDevice,), {**parts, "__doc__": doc}), f"runtime/{by}"


def device(by: str) -> Callable[[Device], Device]:
    """Register a device class, and the requirement that finds it."""

    def register(cls: Device) -> Device:
        SABOTEURS[cls.__name__.lower()] = cls, f"runtime/{by}"
        return cls

    return register


def kernel(by: str) -> Callable[[type[ThreadedKernel]], type[ThreadedKernel]]:
    """Register a device with another class of kernels."""

    def register(cls: type[ThreadedKernel]) -> type[ThreadedKernel]:
        _plant(cls.__name__, by, cls.__doc__, kernel=cls)
        return cls

    return register


def stream(by: str) -> Callable[[type[ThreadedStream]], type[ThreadedStream]]:
    """Register a device with another class of streams."""

    def register(cls: type[ThreadedStream]) -> type[ThreadedStream]:
        _plant(cls.__name__, by, cls.__doc__, stream_type=cls)
        return cls

    return register


def memory(by: str) -> Callable[[type[ThreadedMemory]], type[ThreadedMemory]]:
    """Register a device with another class of memory."""

    def register(cls: type[ThreadedMemory]) -> type[ThreadedMemory]:
        _plant(cls.__name__, by, cls.__doc__, memory_type=cls)
        return cls

    return register


def buffer(by: str) -> Callable[[type[ThreadedBuffer]], type[ThreadedBuffer]]:
    """Register a device with another class of buffers."""

    def register(cls: type[ThreadedBuffer]) -> type[ThreadedBuffer]:
        memory(by)(type(cls.__name__, (ThreadedMemory,), {"buffer": cls, "__doc__": cls.__doc__}))
        return cls

    return register


# Memory


@memory("memory/zeroes_what_it_allocates")
class NotZeroed(ThreadedMemory):
    """`alloc` does not zero."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        block = super().make_block(nbytes, alignment)
        block.bytes[...] = 0x11
        return block

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        return super().allocate_buffer(nbytes, element, kind, alignment, True)


@memory("memory/zeroes_what_it_allocates")
class ZeroesTheStartOnly(ThreadedMemory):
    """`alloc` zeroes whole words alone."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        made = super().allocate_buffer(nbytes, element, kind, alignment, True)
        made.handle.bytes[...] = 0x77
        made.handle.bytes[: nbytes // 4 * 4] = 0
        return made


@memory("memory/aligns_what_it_allocates")
class Misaligned(ThreadedMemory):
    """`alloc` aligns to 64 bytes, whatever it is asked for."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        block = Block(nbytes + 64, max(alignment, 128))
        block.bytes, block.address = block.bytes[64:], block.address + 64
        return block


@memory("memory/allocates_nothing_at_all")
class NoEmptyBuffers(ThreadedMemory):
    """Size 0 is refused."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes == 0:
            raise OutOfMemory("alloc", "0 bytes")
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


@memory("memory/says_when_memory_is_exhausted")
class NeverExhausted(ThreadedMemory):
    """An allocation that is too large gives a small buffer."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        made = super().allocate_buffer(min(nbytes, 1 << 26), element, kind, alignment, empty)
        made.nbytes = nbytes
        return made


@memory("memory/says_when_memory_is_exhausted")
class ExhaustedByAnotherError(ThreadedMemory):
    """An allocation that is too large raises MemoryError."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes > 1 << 40:
            raise MemoryError
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


@memory("memory/says_when_memory_is_exhausted")
class CountsFailures(ThreadedMemory):
    """A failed allocation counts as live."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes > 1 << 40:
            self.live += 4096
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


@memory("memory/gives_memory_back")
class LeaksMemory(ThreadedMemory):
    """Freed memory is never given back."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        block = super().make_block(nbytes, alignment)
        if nbytes >= 1 << 24 and len(KEPT) < 8:
            KEPT.append(block)
        return block


@memory("memory/counts_what_lives")
class ForgetsCloses(ThreadedMemory):
    """`live` does not fall."""

    def _count_free(self, nbytes: int) -> None:
        pass


@memory("memory/counts_what_lives")
class CountsTwice(ThreadedMemory):
    """A buffer counts twice when it is freed."""

    def _count_free(self, nbytes: int) -> None:
        super()._count_free(nbytes)
        self.live -= nbytes


@memory("memory/counts_what_lives")
class ForgetsThePeak(ThreadedMemory):
    """`peak` stays where it was reset to."""

    @property
    def peak(self) -> int:
        return 0

    @peak.setter
    def peak(self, value: int) -> None:
        pass


@memory("memory/gives_every_buffer_its_own_bytes")
class SharesBlocks(ThreadedMemory):
    """Small buffers of one size share memory."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        if nbytes != 4096:
            return super().make_block(nbytes, alignment)
        shared = self.__dict__.setdefault("shared", {})
        return shared.setdefault((nbytes, alignment), Block(nbytes, alignment))


@memory("memory/keeps_memory_of_pending_work")
class FreesTooEarly(ThreadedMemory):
    """Memory is used again while work in flight reads it."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        made = super().allocate_buffer(nbytes, element, kind, alignment, empty)
        free = self.__dict__.setdefault("free", [])
        reused = next((b for b in reversed(free) if b.bytes.size == nbytes and b.address % alignment == 0), None)
        if reused is not None and nbytes > 4096:
            free.remove(reused)
            made = self.buffer(self, nbytes, element, kind, reused.address, reused)
            if not empty:
                reused.bytes[...] = 0
        weakref.finalize(made, free.append, made.handle).atexit = False
        return made


@memory("claims/knows_its_kinds_of_memory")
class LiesAboutItsKinds(ThreadedMemory):
    """A kind of memory is listed that cannot be allocated."""

    kinds = ("default", "near", "far")

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if kind == "far":
            raise InvalidArgument("alloc", "no far memory")
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


@memory("claims/knows_its_kinds_of_memory")
class MixesItsKinds(ThreadedMemory):
    """Near memory is given as default memory."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        return super().allocate_buffer(nbytes, element, "default", alignment, empty)


@memory("memory/shares_host_memory_where_it_says_so")
class WrapsCopies(ThreadedMemory):
    """`wrap` copies the array."""

    wraps = True

    def wrap(self, array: Any, element: Any) -> Buffer:
        made = self.alloc(array.nbytes, element)
        made.write(array)
        return made


@memory("threads/allocates_in_threads")
class RacyPool(ThreadedMemory):
    """Freed blocks are kept in a list that no lock guards."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes > 4096:
            return super().allocate_buffer(nbytes, element, kind, alignment, empty)
        pool = self.__dict__.setdefault("pool", [])
        whole = pool[-1] if pool else Block(4096, 4096)
        time.sleep(0)
        with contextlib.suppress(ValueError):
            pool.remove(whole)
        block = Block(0, 1)
        block.bytes, block.address = whole.bytes[:nbytes], whole.address
        if not empty:
            block.bytes[...] = 0
        weakref.finalize(block, pool.append, whole).atexit = False
        return self.buffer(self, nbytes, element, kind, block.address, block)


# Memory of others


class AdoptingMemory(ThreadedMemory):
    """Memory that takes that of others, as it must."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        """Have memory given back when no buffer and no work in flight has it."""
        weakref.finalize(block, release).atexit = False

    def adopt(self, address: int, nbytes: int, element: Any, owner: Any, writable: bool, release: Any = None) -> Buffer:
        block = Block(0, 1)
        block.bytes, block.address = array_at(address, (nbytes,), owner=owner), address
        made = self.buffer(self, nbytes, element, "default", address, block, writable)
        self.own(block, made, release or (lambda: None))
        return made


@memory("memory/adopts_memory_in_place")
class AdoptsCopies(AdoptingMemory):
    """Adopted memory is copied."""

    def adopt(self, *args: Any) -> Buffer:
        made = super().adopt(*args)
        made.handle.bytes = made.handle.bytes.copy()
        return made


@memory("memory/adopts_memory_in_place")
class GivesBackEarly(AdoptingMemory):
    """Adopted memory is given back with its buffer, whatever work uses it."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        weakref.finalize(made, release).atexit = False


@memory("memory/adopts_memory_in_place")
class GivesBackTwice(AdoptingMemory):
    """Adopted memory is given back with its buffer, and with its handle."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        super().own(block, made, release)
        super().own(block, made, release)


@memory("memory/adopts_memory_in_place")
class NeverGivesBack(AdoptingMemory):
    """Adopted memory is kept."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        pass


@memory("memory/adopts_memory_in_place")
class AdoptsForWriting(AdoptingMemory):
    """Memory that may not be written is."""

    def adopt(self, address: int, nbytes: int, element: Any, owner: Any, writable: bool, release: Any = None) -> Buffer:
        return super().adopt(address, nbytes, element, owner, True, release)


# Buffers


class _OpenFile:
    """A file that is closed when nobody holds it."""

    def __init__(self) -> None:
        self.descriptor = os.open(os.devnull, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.descriptor)


@buffer("threads/gives_back_threads_and_files")
class KeepsFiles(ThreadedBuffer):
    """Each buffer opens a file and does not close it."""

    def __init__(self, *args: Any, **facts: Any) -> None:
        super().__init__(*args, **facts)
        KEPT.append(_OpenFile())


@buffer("memory/reads_and_writes_parts")
class IgnoresTheOffsetOfWrites(ThreadedBuffer):
    """`write_bytes` ignores its offset."""

    def write_bytes(self, offset: int, data: Any) -> None:
        super().write_bytes(0, data)


@buffer("memory/reads_and_writes_parts")
class IgnoresTheOffsetOfReads(ThreadedBuffer):
    """`read_bytes` ignores its offset."""

    def read_bytes(self, offset: int, nbytes: int) -> Any:
        return super().read_bytes(0, nbytes)


@buffer("memory/reads_and_writes_parts")
class WritesWholeLines(ThreadedBuffer):
    """A write clears the rest of its last line of 64 bytes."""

    def write_bytes(self, offset: int, data: Any) -> None:
        super().write_bytes(offset, data)
        end = offset + data.size
        self.handle.bytes[end : (end + 63) // 64 * 64] = 0


@buffer("memory/reads_copies")
class ReadsLive(ThreadedBuffer):
    """`read_bytes` returns a view."""

    def read_bytes(self, offset: int, nbytes: int) -> Any:
        return self.handle.bytes[offset : offset + nbytes]


@buffer("memory/writes_copies")
class WritesLater(ThreadedBuffer):
    """A large write is not done with the caller's memory when it returns."""

    def write_bytes(self, offset: int, data: Any) -> None:
        if data.size < 1 << 17:
            super().write_bytes(offset, data)
        else:
            to = self.handle.bytes

            def later() -> None:
                time.sleep(0.02)
                to[offset : offset + data.size] = data

            self.device.default_stream.enqueue(later)


@buffer("memory/maps_for_the_host")
class MapsRubbish(ThreadedBuffer):
    """A mapping does not show what the buffer holds."""

    def map_for_cpu(self) -> Any:
        mapping = super().map_for_cpu()
        mapping.bytes[...] = 0
        return mapping


@buffer("memory/maps_for_the_host")
class LosesMappings(ThreadedBuffer):
    """What the host writes into a mapping is lost."""

    def unmap_bytes(self, mapped: Any) -> None:
        pass


@buffer("memory/maps_for_the_host")
class NeverMapped(ThreadedBuffer):
    """`is_mapped` is always false."""

    is_mapped = False  # type: ignore[assignment]


@buffer("memory/refuses_closed_buffers")
class OutlivesItsClose(ThreadedBuffer):
    """A closed buffer can be read."""

    def close(self) -> None:
        block = self.handle
        super().close()
        self.alive, self.handle = True, block


@buffer("memory/waits_before_a_read")
class DoesNotWaitToRead(ThreadedBuffer):
    """Reads do not wait for the device."""

    def sync_device(self) -> None:
        pass


@buffer("memory/waits_before_a_write")
class WritesBehindWork(ThreadedBuffer):
    """Writes do not wait for the device."""

    def write(self, data: Any, offset: int = 0) -> None:
        wait, self.sync_device = self.sync_device, lambda: None  # type: ignore[method-assign]
        try:
            super().write(data, offset)
        finally:
            self.sync_device = wait  # type: ignore[method-assign]


# Streams and events


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


@stream("memory/waits_before_a_read")
class LosesWork(ThreadedStream):
    """The work of a stream that is dropped is lost."""

    def __del__(self) -> None:
        while not self.tasks.empty():
            self.tasks.get()


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
    """There is no more than one stream beside the default one and those of tests."""

    def __init__(self, device: Any) -> None:
        if len(device.live_streams()) > 6:
            raise OutOfMemory("stream", "there are six already")
        super().__init__(device)


@stream("streams/makes_many_streams")
class KeepsStreams(ThreadedStream):
    """A dropped stream stays."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        KEPT.append(self)


@stream("threads/gives_back_threads_and_files")
class KeepsThreads(ThreadedStream):
    """A dropped stream's thread stays."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        idle = threading.Thread(target=threading.Event().wait, args=(60,), daemon=True)
        idle.start()


@stream("threads/shares_a_stream")
class NotForThreads(ThreadedStream):
    """A call passes through a record of the stream, which no lock guards."""

    def enqueue(self, task: Callable[[], None]) -> None:
        self.__dict__["next"] = task
        time.sleep(0)
        super().enqueue(self.__dict__["next"])


# Capture


class _ElsewhereRecording(ThreadedRecording):
    def run(self, stream: Stream) -> None:
        super().run(self.device.stream())


@stream("capture/replays_asynchronously_and_in_order")
class ReplaysElsewhere(ThreadedStream):
    """A replay runs on a stream of its own, for which nobody on this stream waits."""

    def begin_capture(self) -> Any:
        return _ElsewhereRecording(self.device)


class _EagerRecording(ThreadedRecording):
    def add(self, call: Callable[[], None]) -> None:
        super().add(call)
        call()


@stream("capture/runs_nothing_at_capture")
class RunsAtCapture(ThreadedStream):
    """A captured call runs as well."""

    def begin_capture(self) -> Any:
        return _EagerRecording(self.device)


class _OnceRecording(ThreadedRecording):
    def run(self, stream: Stream) -> None:
        super().run(stream)
        self.calls = []


@stream("capture/replays_with_new_contents")
class ReplaysOnce(ThreadedStream):
    """The second replay does nothing."""

    def begin_capture(self) -> Any:
        return _OnceRecording(self.device)


class _FrozenRecording(ThreadedRecording):
    def run(self, stream: Stream) -> None:
        for call in self.calls:
            call()


@stream("capture/replays_after_earlier_work")
class ReplaysInTheCaller(ThreadedStream):
    """A replay does not wait for work that was enqueued before it on its stream."""

    def begin_capture(self) -> Any:
        return _FrozenRecording(self.device)


class _FirstRecording(ThreadedRecording):
    def add(self, call: Callable[[], None]) -> None:
        if not self.calls:
            super().add(call)


@stream("capture/replays_with_new_contents")
class RecordsTheFirstCall(ThreadedStream):
    """A recording has its first call alone."""

    def begin_capture(self) -> Any:
        return _FirstRecording(self.device)


class _OpenRecording(ThreadedRecording):
    def replay(self, stream: Stream | None = None) -> None:
        self.open = False
        super().replay(stream)


@stream("capture/refuses_a_replay_inside_its_capture")
class ReplaysOpenRecordings(ThreadedStream):
    """A recording can be replayed before it is complete."""

    def begin_capture(self) -> Any:
        return _OpenRecording(self.device)


class _ForgetfulRecording(ThreadedRecording):
    def close(self) -> None:
        super().close()
        self.owned.clear()
        self.calls = [self.weak(call) for call in self.calls]

    @staticmethod
    def weak(call: Any) -> Callable[[], None]:
        if "handles" not in call.__code__.co_freevars:
            return call
        cells = dict(zip(call.__code__.co_freevars, call.__closure__, strict=True))
        kernel, nbytes = cells["self"].cell_contents, cells["workspace_bytes"].cell_contents
        space = cells["workspace"].cell_contents
        refs = [None if h is None else weakref.ref(h) for h in cells["handles"].cell_contents]

        def run() -> None:
            blocks = [None if r is None else r() for r in refs]
            if all(b is not None for b, r in zip(blocks, refs, strict=True) if r is not None):
                kernel.compute(blocks, space, nbytes)

        return run


@stream("capture/holds_what_a_recording_names")
class RecordingsHoldNothing(ThreadedStream):
    """A recording does not hold the memory of its calls."""

    def begin_capture(self) -> Any:
        return _ForgetfulRecording(self.device)


@stream("capture/leaves_other_threads_alone")
class CapturesAllThreads(ThreadedStream):
    """A capture takes the calls of other threads too."""

    @property
    def recording(self) -> Any:
        own = super().recording
        return own if own is not None else self.__dict__.get("shared")

    def begin_capture(self) -> Any:
        made = self.__dict__["shared"] = super().begin_capture()
        return made

    def end_capture(self, recording: Any) -> None:
        self.__dict__.pop("shared", None)
        super().end_capture(recording)


@stream("capture/refuses_a_nested_capture")
class NestsCaptures(ThreadedStream):
    """A capture inside a capture is accepted."""

    def capture(self) -> Any:
        self._of_thread.__dict__.pop("recording", None)
        return super().capture()


class _ImmediateReplay(ThreadedRecording):
    def replay(self, stream: Stream | None = None) -> None:
        if self.open:
            super().replay(stream)
        self.run(stream or self.device.default_stream)


@stream("capture/records_a_replay")
class ReplaysInsideACapture(ThreadedStream):
    """A replay on a stream that is being captured runs at once."""

    def begin_capture(self) -> Any:
        return _ImmediateReplay(self.device)


# Kernels


@kernel("workspaces/keeps_calls_apart")
class OneScratchForAll(ThreadedKernel):
    """All calls share one scratch memory, whatever workspace they are given."""

    shared = Block(1 << 22, 4096)

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        if workspace is not None and nbytes <= 1 << 22:
            workspace = self.shared
        super().compute(handles, workspace, nbytes)


@kernel("workspaces/uses_what_it_asks_for")
class Overclaims(ThreadedKernel):
    """A workspace of four times what is needed is asked for."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        need = self.workspace
        self.workspace = Workspace(need.size * 4, need.alignment, need.kind)


@kernel("workspaces/claims_possible_workspaces")
class OddAlignment(ThreadedKernel):
    """The alignment of a workspace is 3."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.workspace = Workspace(self.workspace.size, 3, self.workspace.kind)


@kernel("workspaces/claims_possible_workspaces")
class UnknownKindOfWorkspace(ThreadedKernel):
    """A workspace is asked for in memory that the device does not have."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.workspace = Workspace(self.workspace.size, self.workspace.alignment, "moon")


@kernel("workspaces/starts_from_any_workspace")
class TrustsItsWorkspace(ThreadedKernel):
    """The result depends on what the workspace held."""

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        first = 0 if workspace is None else int(workspace.bytes[0])
        super().compute(handles, workspace, nbytes)
        if first == 0x5A:
            handles[0].bytes[:1] ^= 1


@kernel("workspaces/allocates_nothing_in_a_call")
class AllocatesInALaunch(ThreadedKernel):
    """A call takes memory of the device."""

    def launch(self, *args: Any) -> None:
        temporary = self.device.memory.alloc(256)
        super().launch(*args)
        temporary.close()


@kernel("workspaces/allocates_nothing_in_a_call")
class KeepsMemoryOfALaunch(ThreadedKernel):
    """A call takes memory of the device and keeps it."""

    def launch(self, *args: Any) -> None:
        KEPT.append(self.device.memory.alloc(16))
        super().launch(*args)


@kernel("workspaces/calls_without_growth")
class LeaksInACall(ThreadedKernel):
    """Each call on the default stream leaks a megabyte of the host."""

    def launch(self, *args: Any) -> None:
        if args[3] is self.device.default_stream:
            KEPT.append(np.full(1 << 17, 1.0))
        super().launch(*args)


@kernel("workspaces/calls_a_hundred_thousand_times_without_growth")
class LeaksALittleInACall(ThreadedKernel):
    """Each call on the default stream leaks a kilobyte of the host, which 300 calls do not show."""

    def launch(self, *args: Any) -> None:
        if args[3] is self.device.default_stream:
            KEPT.append(bytes(1024))
        super().launch(*args)


@kernel("threads/creates_ten_thousand_without_growth")
class LeaksALittleAtCreate(ThreadedKernel):
    """Each kernel leaks four kilobytes of the host, which 500 creates do not show."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        KEPT.append(bytes(4096))


@kernel("threads/creates_without_growth")
class LeaksAtCreate(ThreadedKernel):
    """Each kernel leaks 256 KiB."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if len(KEPT) < 2000:
            KEPT.append(np.full(1 << 15, 1.0))


@kernel("threads/shares_a_descriptor")
class SharesAResult(ThreadedKernel):
    """Calls of one descriptor pass through a record that they share."""

    def launch(self, handles: Any, workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        self.handles = handles
        super().launch(handles, workspace, workspace_bytes, stream)

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        time.sleep(0)
        super().compute(self.handles, workspace, nbytes)


@kernel("threads/leaves_the_caller_its_environment")
class ChangesNumPy(ThreadedKernel):
    """A call changes NumPy's error handling."""

    def launch(self, *args: Any) -> None:
        super().launch(*args)
        np.seterr(all="ignore")


class PackingKernel(ThreadedKernel):
    """A kernel whose packed layout inverts the bytes of a constant, as it may."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        descs = {at: self.plan.table[at] for at in self.plan.constants}
        self.packed_layouts = {
            at: PackedLayout("inverted", d.byte_range[1]) for at, d in descs.items() if d is not None and d.numel
        }

    def pack(self, position: int, source: Block, target: Block, stream: Stream) -> None:
        nbytes = self.packed_layouts[position].nbytes
        stream.enqueue(lambda: self.invert(source, target, nbytes))  # type: ignore[attr-defined]  # such a stream

    def invert(self, source: Block, target: Block, nbytes: int) -> None:
        target.bytes[:nbytes] = ~source.bytes[:nbytes]

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        plain = list(handles)
        for at, layout in self.packed_layouts.items():
            plain[at] = Block(layout.nbytes, 64)
            plain[at].bytes[...] = ~handles[at].bytes[: layout.nbytes]
        super().compute(plain, workspace, nbytes)


@kernel("prepacking/prepacks_after_earlier_work")
class PacksAtOnce(PackingKernel):
    """A constant is packed before the work that makes it."""

    def pack(self, position: int, source: Block, target: Block, stream: Stream) -> None:
        self.invert(source, target, self.packed_layouts[position].nbytes)


@kernel("prepacking/prepacks_once")
class ReadsTheUnpacked(PackingKernel):
    """A call reads the source of the constant."""

    sources: ClassVar[weakref.WeakKeyDictionary[Block, Block]] = weakref.WeakKeyDictionary()

    def invert(self, source: Block, target: Block, nbytes: int) -> None:
        super().invert(source, target, nbytes)
        self.sources[target] = source

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        for at in self.packed_layouts:
            super().invert(self.sources[handles[at]], handles[at], self.packed_layouts[at].nbytes)
        super().compute(handles, workspace, nbytes)


@kernel("prepacking/prepacks_once")
class KeepsPacked(PackingKernel):
    """Prepacked constants are never freed."""

    def pack(self, position: int, source: Block, target: Block, stream: Stream) -> None:
        super().pack(position, source, target, stream)
        KEPT.append(self.device.memory.alloc(self.packed_layouts[position].nbytes))


@kernel("prepacking/prepacks_in_threads")
class UnpacksIntoOneBuffer(PackingKernel):
    """All calls unpack their constants into one buffer, which no lock guards."""

    shared = Block(1 << 20, 64)

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        plain = list(handles)
        for at, layout in self.packed_layouts.items():
            self.shared.bytes[: layout.nbytes] = ~handles[at].bytes[: layout.nbytes]
            plain[at] = self.shared
        time.sleep(0.001)
        ThreadedKernel.compute(self, plain, workspace, nbytes)


libm = ctypes.CDLL(None)


@kernel("threads/leaves_the_caller_its_environment")
class LeavesARounding(ThreadedKernel):
    """A call leaves the thread rounding upwards."""

    upward = 0x800 if platform.machine() == "x86_64" else 0x400000

    def launch(self, *args: Any) -> None:
        super().launch(*args)
        libm.fesetround(self.upward)


@kernel("threads/leaves_the_caller_its_environment")
class LeavesFlushing(ThreadedKernel):
    """A call leaves the thread flushing subnormal numbers to zero."""

    # Where `fenv_t` has the register that says so, and the bits: MXCSR or FPCR
    at, flush = (28, 0x8040) if platform.machine() == "x86_64" else (0, 1 << 24)

    def launch(self, *args: Any) -> None:
        super().launch(*args)
        environment = ctypes.create_string_buffer(256)
        libm.fegetenv(environment)
        register = ctypes.c_uint32.from_buffer(environment, self.at)
        register.value |= self.flush
        libm.fesetenv(environment)


@kernel("claims/describes_tensors_it_has")
class SameAnswerForNoElements(ThreadedKernel):
    """Rank 0 is computed as nothing."""

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        desc = self.plan.table[0]
        if desc is None or desc.numel > 1:
            super().compute(handles, workspace, nbytes)


# Devices


@device("streams/synchronizes_the_device")
class DoesNotSynchronize(ThreadedDevice):
    """The device waits for its default stream alone, as the base class does."""

    def synchronize(self) -> None:
        self.default_stream.synchronize()


@device("streams/says_when_calls_return_early")
class SaysItIsSynchronous(ThreadedDevice):
    """`asynchronous` is false, and calls return before they are done."""

    asynchronous = False


@device("claims/states_known_conditions")
class MisspeltCondition(ThreadedDevice):
    """A condition that nobody knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, conditions={"flushes_denormal": "the hardware does"})


@device("claims/flushes_denormals_if_it_says_so")
class FalseCondition(ThreadedDevice):
    """A condition that is not true."""

    def __init__(self, name: str) -> None:
        super().__init__(name, conditions={"flushes_denormals": "the hardware does"})


@device("claims/states_known_conditions")
class ConditionWithoutReason(ThreadedDevice):
    """A condition without a reason."""

    def __init__(self, name: str) -> None:
        super().__init__(name, conditions={"nondeterministic": " "})


@device("claims/has_properties_one_can_print")
class BadProperties(ThreadedDevice):
    """A property that cannot be printed as JSON."""

    def __init__(self, name: str) -> None:
        super().__init__(name, properties={"clock": object()})


@device("claims/has_a_name")
class BadAlias(ThreadedDevice):
    """An alias that is no string."""

    def __init__(self, name: str) -> None:
        super().__init__(name, aliases=(7,))


def build_with(build: Callable[[KernelVariant, Any], Any]) -> Callable[[ThreadedDevice, KernelVariant], KernelVariant]:
    """Return a `wrap` for a device whose variants build so; `build` gets the sound variant and the plan."""

    def wrap(self: ThreadedDevice, variant: KernelVariant) -> KernelVariant:
        made = ThreadedDevice.wrap(self, variant)
        return KernelVariant(made.stem, made.name, made.priority, made.supported, lambda plan: build(made, plan))

    return wrap


def answer_with(answer: Callable[[Any, str | None], Any]) -> Callable[[ThreadedDevice, KernelVariant], KernelVariant]:
    """Return a `wrap` for a device whose variants answer so; `answer` gets the plan and the sound answer."""

    def wrap(self: ThreadedDevice, variant: KernelVariant) -> KernelVariant:
        made = ThreadedDevice.wrap(self, variant)
        return KernelVariant(
            made.stem, made.name, made.priority, lambda plan: answer(plan, made.supported(plan)), made.build
        )

    return wrap


@device("claims/answers_for_every_operator")
class AnswersWithTrue(ThreadedDevice):
    """`supported` returns True where it takes a plan of a softmax."""

    wrap = answer_with(lambda plan, said: True if plan.operator.stem == "softmax" and said is None else said)


@device("claims/answers_for_every_operator")
class RefusesWithoutAReason(ThreadedDevice):
    """`supported` returns an empty text."""

    wrap = answer_with(lambda plan, said: "" if plan.operator.stem == "topk" else said)


@device("claims/answers_for_every_operator")
class RaisesWhenAsked(ThreadedDevice):
    """`supported` raises for a dtype that it does not know."""

    wrap = answer_with(lambda plan, said: {"F32": said}[plan.table[0].dtype.name])


@device("claims/answers_for_every_operator")
class ChangesItsMind(ThreadedDevice):
    """`supported` answers differently each time."""

    turn = itertools.count(1)

    @staticmethod
    def change(plan: Any, said: str | None) -> str | None:
        return said or (f"not time {next(ChangesItsMind.turn)}" if plan.operator.stem == "conv2d" else None)

    wrap = answer_with(lambda plan, said: ChangesItsMind.change(plan, said))


@device("claims/answers_for_every_operator")
class TwoVariantsOfOneName(ThreadedDevice):
    """Two variants of a stem have one name."""

    def variants(self, stem: str) -> list[KernelVariant]:
        return super().variants(stem) * 2


def _decline(made: KernelVariant, plan: Any) -> Any:
    if plan.operator.stem == "softmax":
        raise Declined("the compiler does not take it")
    return made.build(plan)


@device("claims/builds_what_it_supports")
class DeclinesWhatItSupports(ThreadedDevice):
    """A softmax counts as supported and cannot be built."""

    wrap = build_with(_decline)


@device("claims/builds_what_it_supports")
class BuildsNoKernel(ThreadedDevice):
    """What `build` returns is no kernel."""

    wrap = build_with(lambda made, plan: types.SimpleNamespace(workspace=Workspace(), packed_layouts={}))


def _raise_key_error(made: KernelVariant, plan: Any) -> Any:
    return {"F32": made.build}[plan.table[0].dtype.name](plan)


@device("claims/builds_what_it_supports")
class RaisesWhenItBuilds(ThreadedDevice):
    """`build` raises for a dtype that it does not know."""

    wrap = build_with(_raise_key_error)
