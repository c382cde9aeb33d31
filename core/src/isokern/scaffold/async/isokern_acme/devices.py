"""The device, and kernels on their way to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isokern import TensorDesc
from isokern.backend import Device, Kernel, KernelVariant, Memory, Plan, RecordedCalls, Stream, Workspace

from .kernels import KERNELS
from .memory import AcmeMemory, AcmePointer
from .streams import AcmeStream, Worker


class AcmeDevice(Device):
    """A device that works while the host goes on."""

    asynchronous = True

    def __init__(self, index: int, memory: Memory | None = None) -> None:
        self.workers: set[Worker] = set()
        # Acme: ask the device for its name, its memory and its driver's version: `isokern devices` shows them
        properties = {"computes with": f"NumPy {np.__version__}"}
        super().__init__(f"acme:{index}", properties, AcmeMemory() if memory is None else memory)
        weakref.finalize(self, _finish, self.workers)  # also at exit: work in flight uses what is about to be freed

    def stream(self) -> Stream:
        """Return a new stream."""
        return AcmeStream(self, self.workers)

    def synchronize(self) -> None:
        """Wait for the work of every stream, also of those that nobody holds, and raise the first error of any."""
        workers = list(self.workers)
        for worker in workers:
            worker.finish()  # Acme: wait for the device
        for worker in workers:
            worker.raise_error()

    def variants(self, stem: str) -> Sequence[KernelVariant]:
        """Return the variants of a stem; none where the device has no kernel for it."""
        return VARIANTS.get(stem, ())


def _finish(workers: set[Worker]) -> None:
    for worker in list(workers):
        if worker.thread.is_alive():  # in a forked child none is
            worker.tasks.put(None)
            worker.thread.join()


class AcmeKernel(Kernel):
    """A plan and the function that computes it."""

    def __init__(self, function: Callable[..., None], workspace: Workspace, plan: Plan) -> None:
        self.function, self.workspace, self.plan = function, workspace, plan

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Enqueue the call, or add it to the stream's recording.

        The call holds the pointers, so the memory stays until the call has run, whatever becomes of the buffers.
        """
        assert isinstance(stream, AcmeStream)
        handles = tuple(handles)

        def call() -> None:
            self.compute(handles, workspace, workspace_bytes)

        if isinstance(stream.recording, RecordedCalls):
            stream.recording.add(call)
        else:
            stream.enqueue(call)

    def compute(self, handles: Sequence[AcmePointer | None], workspace: AcmePointer | None, nbytes: int) -> None:
        """Compute on the device, in the stream's order."""
        # Acme: launch the kernel on the stream, with the addresses of the pointers, the plan's shapes and strides, and
        # its attributes. Where a kernel finds a mistake in its data, it leaves an error word, which `synchronize` reads
        tensors = zip(self.plan.table, handles, strict=True)
        arrays = [None if d is None or p is None else view(d, p) for d, p in tensors]
        self.function(self.plan, None if workspace is None else workspace.bytes[:nbytes], *arrays)


def view(desc: TensorDesc, pointer: AcmePointer) -> Any:
    """Return the elements that `desc` describes in the memory of `pointer`, without a copy."""
    kind, size = desc.dtype.numpy, desc.dtype.itemsize
    if desc.numel == 0:
        return np.empty(desc.shape, kind)
    steps = [s * size for s in desc.strides]
    return np.ndarray(desc.shape, kind, pointer.bytes, desc.offset * size, steps)


VARIANTS: dict[str, list[KernelVariant]] = {}
for _stem, (_function, _refuse, _measure) in KERNELS.items():

    def _build(plan: Plan, function: Any = _function, measure: Any = _measure) -> Kernel:
        return AcmeKernel(function, measure(plan), plan)

    VARIANTS[_stem] = [KernelVariant(_stem, "numpy", 0, _refuse, _build)]
