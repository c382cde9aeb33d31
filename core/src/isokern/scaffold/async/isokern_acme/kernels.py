"""The kernels, which run on the device: a function for each stem, why it refuses a plan, and the workspace it needs.

`isokern ops OPERATOR` and `isokern explain-call` say what each receives: the tensors of the plan in normal form,
outputs first, and its attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isokern.backend import Plan, Workspace
from isokern.expr.evaluate import evaluate
from isokern.status import InvalidArgument


def rearrange(plan: Plan, scratch: Any, y: Any, x: Any) -> None:
    """Compute copy, rearrange, slice and flatten: in normal form all are y = x with strides of their own."""
    y[...] = x


def elementwise(plan: Plan, scratch: Any, y: Any, *inputs: Any) -> None:
    """Compute an operator's scalar expression over whole arrays, in the compute type of its inputs."""
    compute, expression = inputs[-1].dtype, plan.operator.expression
    assert expression is not None  # what `refuse_elementwise` accepts has one
    compute = np.dtype(np.float32) if is_half(compute) else compute
    values = {o.name: x.astype(compute) for o, x in zip(plan.operator.signature.inputs, inputs, strict=True)}
    values |= {name: compute.type(value) for name, value in plan.attrs.items()}
    with np.errstate(all="ignore"):
        y[...] = evaluate(expression, values, compute)


def softmax(plan: Plan, scratch: Any, y: Any, x: Any) -> None:
    """Compute softmax or log_softmax of rows along the last dim, in a workspace of the compute type."""
    if y.size == 0:
        return
    # The workspace of a call may be larger than this kernel asked for
    rows = scratch.view(np.float32 if is_half(x.dtype) else x.dtype)[: x.size].reshape(x.shape)
    with np.errstate(all="ignore"):
        rows[...] = x
        rows -= rows.max(-1, keepdims=True)
        if plan.operator.name == "log_softmax":
            rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
        else:
            np.exp(rows, out=rows)
            rows /= rows.sum(-1, keepdims=True)
        y[...] = rows


def gather(plan: Plan, scratch: Any, y: Any, x: Any, indices: Any) -> None:
    """Compute y = x[…, indices, …] along an axis; an index out of range writes zeros and is an error of the device."""
    axis = plan.attrs["axis"] % x.ndim
    size = x.shape[axis]
    wrong = (indices < -size) | (indices >= size)
    if size:
        y[...] = np.take(x, np.where(wrong, 0, indices), axis)
    y[(slice(None),) * axis + (wrong,)] = 0
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        operator = plan.operator
        raise InvalidArgument(operator.name, operator.device_error.format(at=at, value=indices.flat[at]))


def is_half(kind: Any) -> bool:
    """Return whether a NumPy dtype is F16, BF16 or a float of 8 bits, whose compute type is F32."""
    return kind.itemsize <= 2 and kind.kind in "fV"


def refuse_nothing(plan: Plan) -> str | None:
    """Take every plan of the stem."""
    return None


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


def need_nothing(plan: Plan) -> Workspace:
    """Return the workspace of a kernel that needs none."""
    return Workspace()


def need_rows(plan: Plan) -> Workspace:
    """Return a workspace for all elements in the compute type."""
    y = plan.table[0]
    assert y is not None
    return Workspace(y.numel * y.dtype.compute.itemsize)


Entry = tuple[Callable[..., None], Callable[[Plan], str | None], Callable[[Plan], Workspace]]
KERNELS: dict[str, Entry] = {
    "rearrange": (rearrange, refuse_nothing, need_nothing),
    "elementwise": (elementwise, refuse_elementwise, need_nothing),
    "softmax": (softmax, refuse_nothing, need_rows),
    "gather": (gather, refuse_nothing, need_nothing),
}
