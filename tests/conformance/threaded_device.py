"""A correct device with memory of its own and a thread for each stream; its kernels are the CPU device's.

It is the device of the template `async` with other kernels, and `runtime_saboteurs` breaks one thing of it at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isokern_acme.devices import AcmeDevice, AcmeKernel
from isokern_acme.memory import FIRST, AcmeBuffer as ThreadedBuffer, AcmeMemory, AcmePointer
from isokern_acme.streams import AcmeEvent as ThreadedEvent, AcmeRecording as ThreadedRecording, AcmeStream

import isokern
from isokern.backend import Kernel, KernelVariant, Plan
from isokern.backend.native import NativeDevice

__all__ = [
    "Block",
    "ThreadedBuffer",
    "ThreadedDevice",
    "ThreadedEvent",
    "ThreadedKernel",
    "ThreadedMemory",
    "ThreadedRecording",
    "ThreadedStream",
]


class Block(AcmePointer):
    """A run of the device's memory, whose address is the host's, so that the kernels of the CPU can use it."""

    def __init__(self, nbytes: int, alignment: int) -> None:
        super().__init__(nbytes, alignment)
        self.address -= FIRST


class ThreadedMemory(AcmeMemory):
    """Memory of two kinds, with a place to plant faults in."""

    kinds = ("default", "near")

    def make_pointer(self, nbytes: int, alignment: int) -> Block:
        return self.make_block(nbytes, alignment)

    def make_block(self, nbytes: int, alignment: int) -> Block:
        return Block(nbytes, alignment)


class ThreadedStream(AcmeStream):
    """A stream of the device."""

    def __init__(self, device: ThreadedDevice) -> None:
        super().__init__(device, device.workers)


class ThreadedKernel(AcmeKernel):
    """A kernel of the CPU device that runs in a stream's thread."""

    def __init__(self, inner: Kernel, plan: Plan, device: ThreadedDevice) -> None:
        self.inner, self.plan, self.device = inner, plan, device
        self.workspace = inner.workspace

    def compute(self, handles: Sequence[Block | None], workspace: Block | None, nbytes: int) -> None:
        """Run the call now."""
        addresses = [None if h is None else h.address for h in handles]
        on = self.device.inner.default_stream
        self.inner.launch(addresses, None if workspace is None else workspace.address, nbytes, on)


class ThreadedDevice(AcmeDevice):
    """The device, whose parts a saboteur replaces."""

    kernel: type[ThreadedKernel] = ThreadedKernel
    stream_type: type[ThreadedStream] = ThreadedStream
    memory_type: type[ThreadedMemory] = ThreadedMemory

    def __init__(self, name: str, properties: Any = None, **facts: Any) -> None:
        inner = isokern.device("cpu")
        assert isinstance(inner, NativeDevice)
        self.inner = inner
        super().__init__(0, self.memory_type())
        self.name, self.properties = name, {} if properties is None else properties
        for fact, value in facts.items():
            setattr(self, fact, value)

    def stream(self) -> ThreadedStream:
        return self.stream_type(self)

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
