"""A whole backend in one file.

NumPy computes the elementwise operators and moves elements; other plans are refused, with the reason.

To start your own, copy this folder, rename `acme`, and replace `view` and the two kernels; `isokern check --device
acme:0` judges the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import SimpleNamespace
from typing import Any

import numpy as np

from isokern import TensorDesc, hookimpl
from isokern.backend import Device, Event, HostMemory, Kernel, KernelVariant, RecordedCalls, Register, Stream, Workspace
from isokern.cabi.plan import Plan
from isokern.expr.tree import Expr

FAR = {"f": np.inf, "d": 2.0**50}  # an F64 angle beyond this bound gives NaN, which is declared here
FUNCTIONS: dict[str, Callable[..., Any]] = {  # functions that have another name in NumPy than in the scalar language
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "<": np.less, "<=": np.less_equal, ">": np.greater,
    ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal, "and": np.logical_and, "or": np.logical_or,
    "not": np.logical_not, "neg": np.negative, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor, "bitnot": np.invert, "quotient": np.floor_divide, "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh,
    **{
        f.__name__: lambda x, f=f: f(np.where(np.abs(x) > FAR[x.dtype.char], np.nan, x))
        for f in (np.sin, np.cos, np.tan)
    },
}  # fmt: skip


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register a function that creates the devices, or raises `Unavailable(reason)`, when they are first asked for."""
    register.backend("acme", lambda: [AcmeDevice("acme:0", {}, HostMemory())], hook_version=1)


class AcmeDevice(Device):
    """A device whose memory is the host's."""

    def stream(self) -> Stream:
        """Return a new stream."""
        return AcmeStream(self)

    def variants(self, stem: str) -> Sequence[KernelVariant]:
        """Return one variant for each of the two stems that have kernels."""
        return [v for v in VARIANTS if v.stem == stem]


class AcmeStream(Stream):
    """A stream that does its work at once, so there is never anything to wait for."""

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
        """Make the calls again."""
        for call in self.calls:
            call()


class AcmeKernel(Kernel):
    """A plan and the function that runs it; it needs no scratch memory."""

    workspace = Workspace()

    def __init__(self, run: Callable[[Plan, list[Any]], None], plan: Plan) -> None:
        self.run, self.plan = run, plan

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Run now, or add the call to the stream's recording."""
        arrays = [None if d is None else view(d, h) for d, h in zip(self.plan.table, handles, strict=True)]
        if isinstance(stream.recording, AcmeRecording):
            stream.recording.add(lambda: self.run(self.plan, arrays))
        else:
            self.run(self.plan, arrays)


def view(desc: TensorDesc, address: int) -> Any:
    """Return the elements that `desc` describes in the buffer at `address`, as a NumPy array without a copy."""
    size = desc.dtype.itemsize
    first, steps = address + desc.offset * size, tuple(s * size for s in desc.strides)
    memory = {"data": (first, False), "shape": desc.shape, "strides": steps, "typestr": f"|V{size}", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=memory)).view(desc.dtype.numpy)


def rearrange(plan: Plan, arrays: list[Any]) -> None:
    """Compute copy, rearrange, slice and flatten: in normal form all are y = x with strides of their own."""
    arrays[0][...] = arrays[1]


def refuse_elementwise(plan: Plan) -> str | None:
    """Return None where `elementwise` takes the plan, else why not."""
    called = [n.value for n in plan.operator.expression.walk() if n.kind == "call"]
    missing = [name for name in called if name not in FUNCTIONS and not hasattr(np, name)]
    if missing:
        return f"NumPy has no function {missing[0]}"
    whole = plan.table[-1].dtype.kind != "f" and any(a.kind == "float" for a in plan.operator.attrs.attrs)
    return "attributes of integers are not implemented" if whole else None


def elementwise(plan: Plan, arrays: list[Any]) -> None:
    """Interpret the operator's expression over whole arrays, in the compute type of its last input."""
    element = plan.table[-1].dtype.compute.numpy.type
    names = {o.name: a.astype(element) for o, a in zip(plan.operator.signature.inputs, arrays[1:], strict=True)}
    names |= {name: element(value) for name, value in plan.attrs.items()}
    with np.errstate(all="ignore"):
        arrays[0][...] = evaluate(plan.operator.expression, names, element)


def evaluate(node: Expr, names: dict[str, Any], element: Any) -> Any:
    """Return the value of a tree; conditions are 1 or 0 where a number is needed."""
    if node.kind in ("const", "name"):
        return element(node.value) if node.kind == "const" else names[node.value]
    given = [evaluate(arg, names, element) for arg in node.args]
    if node.kind == "select":
        return np.where(given[0] != 0, given[1], given[2])
    name = node.value or node.kind
    function = FUNCTIONS.get(name) or getattr(np, name)
    result = reduce(function, given) if len(given) > 1 else function(*given)
    return result if node.is_condition else result.astype(element)


VARIANTS = [
    KernelVariant("elementwise", "numpy", 0, refuse_elementwise, partial(AcmeKernel, elementwise)),
    KernelVariant("rearrange", "numpy", 0, lambda plan: None, partial(AcmeKernel, rearrange)),
]
