"""A backend for the Acme in one file: NumPy stands for the chip, and computes on the host's memory.

It computes the elementwise operators and those that only move elements. Other plans it has no kernel for, and a plan
that a kernel does not take is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from isokern import TensorDesc, hookimpl
from isokern.backend import (
    Device,
    Event,
    HostMemory,
    Kernel,
    KernelVariant,
    Plan,
    RecordedCalls,
    Register,
    Stream,
    Workspace,
    array_at,
)
from isokern.expr.evaluate import evaluate

CLAIMS = Path(__file__).with_name("claims.txt")


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the backend, whose devices are opened when they are first asked for."""
    register.backend("acme", open_devices, hook_version=1, claims=CLAIMS)


def open_devices() -> list[Device]:
    """Return the devices of this machine.

    Acme: import the vendor's library here, not at the top, and ask it for its devices. Where there is none, raise
    `Unavailable(reason)` of isokern.backend, with a reason that the user can act on.
    """
    return [AcmeDevice("acme:0", {"computes with": f"NumPy {np.__version__}"}, HostMemory())]


class AcmeDevice(Device):
    """A device whose memory is the host's."""

    def stream(self) -> Stream:
        """Return a new stream."""
        return AcmeStream(self)

    def variants(self, stem: str) -> Sequence[KernelVariant]:
        """Return the variants of a stem; none where the device has no kernel for it."""
        return [v for v in VARIANTS if v.stem == stem]


class AcmeStream(Stream):
    """A stream that does its work in the caller's thread, so there is never anything to wait for."""

    def synchronize(self) -> None:
        """Return at once: nothing is pending."""

    def record(self) -> Event:
        """Return an event that has passed already."""
        return Event()

    def begin_capture(self) -> RecordedCalls[Callable[[], None]]:
        """Return a recording, to which `launch` adds its calls."""
        return AcmeRecording(self.device)

    def end_capture(self, recording: Any) -> None:
        """Close the recording."""
        recording.close()


class AcmeRecording(RecordedCalls[Callable[[], None]]):
    """The calls that were made while a stream captured."""

    def run(self, stream: Stream) -> None:
        """Make the calls again, with what the buffers hold now."""
        for call in self.calls:
            call()


class AcmeKernel(Kernel):
    """A plan and the function that computes it; it needs no scratch memory."""

    workspace = Workspace()

    def __init__(self, compute: Callable[..., None], plan: Plan) -> None:
        self.compute, self.plan = compute, plan

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Compute now, or add the call to the stream's recording."""
        call = partial(self.run, handles)
        if isinstance(stream.recording, AcmeRecording):
            stream.recording.add(call)
        else:
            call()

    def run(self, handles: Sequence[Any]) -> None:
        """Compute. A handle of host memory is its address, and keeps the memory."""
        tensors = zip(self.plan.table, handles, strict=True)
        self.compute(self.plan, *(None if d is None else view(d, handle) for d, handle in tensors))


def view(desc: TensorDesc, address: Any) -> Any:
    """Return the elements that `desc` describes in the buffer at `address`, as a NumPy array without a copy."""
    size = desc.dtype.itemsize
    steps = tuple(s * size for s in desc.strides)
    raw = array_at(address + desc.offset * size, desc.shape, f"|V{size}", owner=address, strides=steps)
    return raw.view(desc.dtype.numpy)


# The kernels. `isokern ops OPERATOR` and `isokern explain-call` say what each receives


def rearrange(plan: Plan, y: Any, x: Any) -> None:
    """Compute copy, rearrange, slice and flatten: in normal form all are y = x with strides of their own."""
    y[...] = x


def elementwise(plan: Plan, y: Any, *inputs: Any) -> None:
    """Compute an operator's scalar expression over whole arrays, in the compute type of its inputs."""
    compute, expression = inputs[-1].dtype, plan.operator.expression
    assert expression is not None  # what `refuse_elementwise` accepts has one
    compute = np.dtype(np.float32) if compute.itemsize <= 2 and compute.kind in "fV" else compute
    values = {o.name: x.astype(compute) for o, x in zip(plan.operator.signature.inputs, inputs, strict=True)}
    values |= {name: compute.type(value) for name, value in plan.attrs.items()}
    with np.errstate(all="ignore"):
        y[...] = evaluate(expression, values, compute)


def refuse_elementwise(plan: Plan) -> str | None:
    """Return None where `elementwise` takes the plan, else why not."""
    element, expression = plan.table[-1], plan.operator.expression
    if element is None or expression is None:
        return "it has no scalar expression"
    called = {node.value for node in expression.walk() if node.kind == "call"}
    if element.dtype.name == "F64" and called & {"sin", "cos", "tan"}:
        return "NumPy's angles have no bound, where NaN is declared for F64 beyond 2^50"
    if element.dtype.kind != "f" and any(a.kind == "float" for a in plan.operator.attrs.attrs):
        return "attributes of integers are not implemented"
    return None


VARIANTS = [
    KernelVariant("elementwise", "numpy", 0, refuse_elementwise, partial(AcmeKernel, elementwise)),
    KernelVariant("rearrange", "numpy", 0, lambda plan: None, partial(AcmeKernel, rearrange)),
]
