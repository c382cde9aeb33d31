"""A correct device with memory of its own and a thread for each stream; its kernels are the CPU device's.

`runtime_saboteurs.py` breaks one thing of it at a time.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import isokern
from isokern.backend import Buffer, Device, Event, Kernel, KernelVariant, Memory, Stream
from isokern.backend.host_recording import RecordedCalls
from isokern.backend.native import NativeDevice
from isokern.cabi.plan import Plan
from isokern.dtypes import DType
from isokern.status import InvalidArgument, IsokernError, OutOfMemory

LIMIT = 1 << 34  # bytes of memory that the device has


class Block:
    """A run of the device's memory; kept by the buffer, and by the work that uses it."""

    def __init__(self, nbytes: int, alignment: int) -> None:
        whole = np.empty(nbytes + alignment, np.uint8)
        start = -whole.ctypes.data % alignment
        self.bytes = whole[start : start + nbytes]
        self.address = whole.ctypes.data + start


class ThreadedBuffer(Buffer):
    """A buffer that the host reaches by copies alone."""

    def read_bytes(self, offset: int, nbytes: int) -> np.ndarray[Any, Any]:
        return self.handle.bytes[offset : offset + nbytes].copy()

    def write_bytes(self, offset: int, data: np.ndarray[Any, Any]) -> None:
        self.handle.bytes[offset : offset + data.size] = data


class ThreadedMemory(Memory):
    """Memory of the device."""

    kinds = ("default", "near")
    buffer: type[ThreadedBuffer] = ThreadedBuffer

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        if self.live + nbytes > LIMIT:
            raise OutOfMemory("alloc", f"{nbytes} bytes of {kind} memory")
        block = self.make_block(nbytes, alignment)
        if not empty:
            block.bytes[...] = 0
        return self.buffer(self, nbytes, element, kind, block.address, block)

    def make_block(self, nbytes: int, alignment: int) -> Block:
        return Block(nbytes, alignment)


class ThreadedEvent(Event):
    """A point in a stream's work."""

    def __init__(self) -> None:
        self.past = threading.Event()

    def synchronize(self) -> None:
        self.past.wait()

    def query(self) -> bool:
        return self.past.is_set()


class Worker:
    """A thread that does a stream's work in order; it outlives the stream until the work is done."""

    def __init__(self, workers: set[Worker]) -> None:
        self.tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.errors: list[IsokernError] = []
        self.workers = workers
        workers.add(self)
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        while (task := self.tasks.get()) is not None:
            try:
                task()
            except IsokernError as error:
                self.errors.append(error)
            del task  # it keeps memory
        if not self.errors:
            self.workers.discard(self)

    def finish(self) -> None:
        """Wait for all work."""
        done = threading.Event()
        self.tasks.put(done.set)
        while not done.wait(0.01) and self.thread.is_alive():
            pass

    def raise_errors(self) -> None:
        errors, self.errors[:] = list(self.errors), []
        if errors:
            raise errors[0]


class ThreadedStream(Stream):
    """A queue of work, and the thread that does it."""

    event: type[ThreadedEvent] = ThreadedEvent

    def __init__(self, device: ThreadedDevice) -> None:
        super().__init__(device)
        self.worker = Worker(device.workers)
        self.tasks = self.worker.tasks
        weakref.finalize(self, self.tasks.put, None)

    def enqueue(self, task: Callable[[], None]) -> None:
        self.tasks.put(task)

    def synchronize(self) -> None:
        self.worker.finish()
        self.worker.raise_errors()

    def record(self) -> Event:
        event = self.event()
        self.tasks.put(event.past.set)
        return event

    def wait(self, event: Event) -> None:
        if not isinstance(event, Event):
            raise InvalidArgument("wait", f"event is a {type(event).__name__}", allowed="an event: stream.record()")
        self.tasks.put(event.synchronize)

    def begin_capture(self) -> ThreadedRecording:
        return ThreadedRecording(self.device)

    def end_capture(self, recording: Any) -> None:
        recording.close()


class ThreadedRecording(RecordedCalls[Callable[[], None]]):
    """A list of calls."""

    def run(self, stream: Stream) -> None:
        assert isinstance(stream, ThreadedStream)
        for call in self.calls:
            stream.enqueue(call)


class ThreadedKernel(Kernel):
    """A kernel of the CPU device that runs in a stream's thread."""

    def __init__(self, inner: Kernel, plan: Plan, device: ThreadedDevice) -> None:
        self.inner, self.plan, self.device = inner, plan, device
        self.workspace = inner.workspace

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        assert isinstance(stream, ThreadedStream)

        def call() -> None:
            self.compute(handles, workspace, workspace_bytes)

        if isinstance(stream.recording, RecordedCalls):
            stream.recording.add(call)
        else:
            stream.enqueue(call)

    def compute(self, handles: Sequence[Block | None], workspace: Block | None, nbytes: int) -> None:
        """Run the call now."""
        addresses = [None if h is None else h.address for h in handles]
        on = self.device.inner.default_stream
        self.inner.launch(addresses, None if workspace is None else workspace.address, nbytes, on)


class ThreadedDevice(Device):
    """The device."""

    asynchronous = True
    kernel: type[ThreadedKernel] = ThreadedKernel
    stream_type: type[ThreadedStream] = ThreadedStream
    memory_type: type[ThreadedMemory] = ThreadedMemory

    def __init__(self, name: str, properties: Any = None, **facts: Any) -> None:
        inner = isokern.device("cpu")
        assert isinstance(inner, NativeDevice)
        self.inner = inner
        self.workers: set[Worker] = set()
        super().__init__(name, {} if properties is None else properties, self.memory_type(), **facts)

    def stream(self) -> Stream:
        return self.stream_type(self)

    def synchronize(self) -> None:
        workers = list(self.workers)
        for worker in workers:
            worker.finish()
        for worker in workers:
            worker.raise_errors()

    def variants(self, stem: str) -> list[KernelVariant]:
        usable = [v for v in self.inner.variants(stem) if v.name in self.inner.properties["levels"]]
        return [self.wrap(max(usable, key=lambda v: v.priority))] if usable else []

    def wrap(self, variant: KernelVariant) -> KernelVariant:
        def build(plan: Plan) -> Kernel:
            wanted, plan.constants = plan.constants, ()  # no packed layouts
            inner = variant.build(plan)
            plan.constants = wanted
            return self.kernel(inner, plan, self)

        return KernelVariant(variant.stem, variant.name, variant.priority, variant.supported, build)
