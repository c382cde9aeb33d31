"""scan: a first-order recurrence along one axis, whose step is a scalar expression of the inputs and the value before.

Normal form: all tensors in y's shape with the axis last and the other dims merged; init has stride 0 along the axis. A
scan in reverse is one along negative strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, body, flag, integer, number
from ..declare.conversion import convert
from ..declare.decomposition import constant
from ..declare.error_bound import Range, bounds, distance, exactly
from ..declare.normal_form import Descs, axis_of, coalesce
from ..dtypes import BF16, F16, F32, F64, FLOATS, I32, I64, INTEGERS, NUMBERS, U64, DType
from ..expr import evaluate
from ..expr.stack_code import INPUTS
from ..expr.tree import parse
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .generic import check_body


def _place_last(d: TensorDesc | None, axis: int, reverse: bool) -> TensorDesc | None:
    """Return the tensor with the axis last, its steps in reverse where that is asked for."""
    if d is None:
        return None
    strides = [s for i, s in enumerate(d.strides) if i != axis]
    shape = [n for i, n in enumerate(d.shape) if i != axis]
    length, step = d.shape[axis], d.strides[axis]
    if not reverse:
        return TensorDesc(d.dtype, [*shape, length], [*strides, step], d.offset)
    last = (length - 1) * step if 0 not in d.shape else 0
    return TensorDesc(d.dtype, [*shape, length], [*strides, -step], d.offset + last)


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return all tensors in y's shape with the axis last, init with stride 0 along it; the other dims are merged."""
    init, *ins = inputs
    y = outputs[0]
    axis = axis_of("scan", values["axis"], y.ndim)
    start = None
    if init is not None:
        start = TensorDesc(init.dtype, y.shape, [*init.strides[:axis], 0, *init.strides[axis:]], init.offset)
    y_, *others = coalesce([_place_last(d, axis, values["reverse"]) for d in [y, start, *ins]], keep=1)
    assert y_ is not None
    return others, [y_]


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    init, first, *others = inputs
    axis = axis_of("scan", values["axis"], len(first))
    for i, shape in enumerate(others):
        if shape != first:
            raise BadTensorShape("scan", f"x[{i + 1}] is {list(shape)}", allowed=f"{list(first)}, as x[0]")
    rest = [d for i, d in enumerate(first) if i != axis]
    if init is not None and list(init) != rest:
        raise BadTensorShape("scan", f"init is {list(init)}", allowed=f"{rest}, as x without the axis")
    return [first]


def _check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    ins = [d for d in inputs[1:] if d is not None]
    if len(ins) >= INPUTS:
        raise InvalidArgument("scan", f"{len(ins)} inputs", allowed=f"up to {INPUTS - 1}")
    check_body("scan", values["body"], len(ins) + 1, ins[0].dtype)
    initial = values["initial"]
    if ins[0].dtype.kind == "f":
        return
    if initial % 1 != 0 or (ins[0].dtype.kind == "u" and initial < 0):
        raise InvalidArgument("scan", f"initial={initial} of {ins[0].dtype.name}", allowed="an integer of that type")


def along(array: Any, axis: int, reverse: bool) -> Any:
    """Return a view with the steps of the scan as first dim, in their order."""
    moved = np.moveaxis(array, axis, 0)
    return moved[::-1] if reverse else moved


def carry(value: Any, compute: DType) -> Any:
    """Return a value as it is carried to the next step: infinite where it is beyond the range of the compute type."""
    if compute is not F32:
        return value
    most = float(np.finfo(np.float32).max) * (1 + 2**-25)
    return np.where(np.abs(value) >= most, np.copysign(np.inf, value), value)


def _scan(
    init: Any,
    x: Sequence[Any],
    axis: int,
    body: str,
    initial: float,
    reverse: bool,
    exclusive: bool,
    out: Sequence[TensorDesc],
) -> Any:
    kind = np.float64 if x[0].dtype.kind in "fV" else np.uint64 if x[0].dtype == np.uint64 else np.int64
    tree, steps = parse(body), [along(a.astype(kind), axis, reverse) for a in x]
    y = np.empty(x[0].shape, kind)
    made = along(y, axis, reverse)
    state = evaluate.constant(initial, np.dtype(kind)) if init is None else init.astype(kind)
    with np.errstate(all="ignore"):
        for t, given in enumerate(zip(*steps, strict=True)):
            before = np.broadcast_to(state, given[0].shape)
            state = evaluate.evaluate(tree, {f"x{i}": v for i, v in enumerate((*given, before))}, kind)
            state = carry(state, out[0].dtype.compute)
            made[t] = before if exclusive else state
    return y if out[0].dtype.kind == "f" else convert(y, out[0].dtype.numpy)


def scan_scale(
    init: Any,
    x: Sequence[Any],
    axis: int,
    body: str,
    initial: float,
    reverse: bool,
    exclusive: bool,
    compute: DType,
) -> Any:
    """Return the rounding error of the steps, each carried through all that follow it."""
    tree, steps = parse(body), [along(a.astype(np.float64), axis, reverse) for a in x]
    off = np.empty(x[0].shape)
    made = along(off, axis, reverse)
    state = bounds(parse(constant(initial)), {}, compute) if init is None else exactly(init.astype(np.float64))
    for t, given in enumerate(zip(*steps, strict=True)):
        before = state
        found = bounds(tree, {**{f"x{i}": v for i, v in enumerate(given)}, f"x{len(x)}": before}, compute)
        state = Range(*(carry(end, compute) for end in (found.value, found.low, found.high)))
        made[t] = distance(before if exclusive else state)
    return off


def _sample(text: str, shape: tuple[int, ...], inputs: int = 1, init: bool = False, **fields: Any) -> Sample:
    """Return a sample of that body over so many inputs; names in capitals are other fields of the sample."""
    axis = fields.get("axis", -1) % len(shape)
    given: dict[str, Any] = {"x": [shape] * inputs}
    if init:
        given["init"] = (*shape[:axis], *shape[axis + 1 :])
    types, size, values = (fields.pop(name, None) for name in ("TYPES", "SIZE", "VALUES"))
    return Sample(
        given,
        {"body": text, **fields},
        values={"x": values} if values else {},
        types={"T": types or FLOATS},
        size=size or "small",
    )


LINEAR = "x0 * x2 + x1"  # x0: the decay, x1: what is added, x2: the value before
LOG_SUM = "x0 + 0.6931471805599453 if x0 == x1 else maximum(x0, x1) + log1p(exp(-abs(x0 - x1)))"


def _samples() -> list[Sample]:
    some = (F32, F16, BF16, F64, I32, U64)
    return [
        _sample("x0 + x1", (7,), TYPES=NUMBERS),
        _sample("x0 + x1", (3, 37), TYPES=NUMBERS, reverse=True),
        _sample("x0 + x1", (37, 5), TYPES=NUMBERS, axis=0, exclusive=True),
        _sample("x0 + x1", (67, 33), TYPES=some, init=True),
        _sample("x0 * x1", (5, 9), TYPES=some, init=True, exclusive=True, reverse=True, VALUES="moderate"),
        _sample("maximum(x0, x1)", (3, 20, 7), TYPES=(F32, BF16), axis=1, initial=-1e4),
        _sample("minimum(x0, x1)", (3, 5, 130), TYPES=some, init=True),
        _sample("minimum(x0, x1)", (40, 150), TYPES=some, init=True, axis=0),
        _sample("maximum(x0, x1)", (9, 261), TYPES=some, init=True, reverse=True),
        _sample("bitxor(x0, x1) + quotient(x1, 3)", (5, 33), TYPES=INTEGERS, initial=3.0),
        _sample(LINEAR, (5, 70), 2, VALUES="moderate"),
        _sample(LINEAR, (129, 66), 2, True, TYPES=(F32, F16), axis=0, VALUES="moderate"),
        _sample("tanh(x0 * x6 + x1 * x2 + x3 * x4) * x5", (3, 11), 6, True, TYPES=(F32, F64), VALUES="moderate"),
        _sample(LOG_SUM, (4, 35), TYPES=(F32, F16), initial=-1e300, VALUES="moderate"),
        _sample("0.5 * x1", (2, 9), TYPES=(F32, F64), init=True),
        _sample("x0", (3, 9), TYPES=(F32, I64), exclusive=True, initial=7.0),
        _sample("x1", (3, 9), TYPES=(F32, I64), init=True),
        _sample("x0 + x1", (2, 1, 3, 2, 1, 2, 2, 3), TYPES=(F32, I32), axis=2, init=True),
        *(_sample("x0 + x1", s, TYPES=(F32,), axis=0) for s in [(0,), (0, 5), (3, 0), (1, 1), (4, 3, 0)]),
        _sample("x0 + x1", (1031, 1025), TYPES=(F32, F16), SIZE="wide"),
        _sample("x0 + x1", (129, 3001), TYPES=(F32, F16), SIZE="wide", axis=0),
        _sample("x0 + x1", (37, 701, 21), TYPES=(F32,), SIZE="wide", axis=1, exclusive=True),
        _sample(LINEAR, (3, 161, 1101), 2, TYPES=(F32, F64), SIZE="wide", axis=1, reverse=True, VALUES="moderate"),
        *(_sample("x0 + x1", (2, n), TYPES=(F32, I32)) for n in (257, 1025)),
        *(
            _sample(LINEAR, (n, n), 2, SIZE=size, VALUES="moderate")
            for n, size in [(64, "small"), (512, "medium"), (4096, "large")]
        ),
    ]


scan = declare(
    "scan",
    "SCAN",
    "init?: T[*r], x...: T[*s] -> y: T[*s]",
    {"T": NUMBERS},
    family="structured",
    doc=(
        "y[t] = body(x0[t], …, x{n-1}[t], y[t-1]) along an axis, for n inputs of one shape: `x0 + x1` are running sums,"
        " `x0 * x2 + x1` is a linear recurrence. The value before the first step is init (in x's shape without the"
        " axis), or `initial` where there is none. With `reverse`, steps go from the end; with `exclusive`, y[t] is the"
        " value before step t. The value is carried in the compute type from step to step, so its rounding error grows"
        " with the number of steps; integers wrap."
    ),
    reference=_scan,
    tolerance=Tolerance(1, scan_scale),
    attrs=attrs(
        "SCN1",
        integer("axis", -1),
        body("body", doc="an expression of the inputs x0, x1, … at a step; the next name is the value before"),
        number("initial", 0.0, "the value before the first step, without init"),
        flag("reverse", False, "step from the end"),
        flag("exclusive", False, "y[t] is the value before step t"),
    ),
    shapes=_shapes,
    check=_check,
    normal_form=_normal_form,
    flops=lambda i, o: float(sum(d.numel for d in i if d is not None)),
    samples=_samples,
    errors=[
        ErrorCase({"x": [(3, 4)]}, InvalidArgument, {"body": "x0 + x1", "axis": 2}),
        ErrorCase({"x": [()]}, InvalidArgument, {"body": "x0 + x1"}),
        ErrorCase({"x": [(3, 4)]}, InvalidArgument, {"body": "x0 + x2"}),
        ErrorCase({"x": [(3, 4)]}, InvalidArgument, {"body": "x0 @ x1"}),
        ErrorCase({"x": [(3,)] * 8}, InvalidArgument, {"body": "x0 + x7"}),
        ErrorCase({"x": [(3, 4), (4, 3)]}, BadTensorShape, {"body": "x0 + x1"}),
        ErrorCase({"x": [(3, 4)], "init": (4,)}, BadTensorShape, {"body": "x0 + x1"}),
        ErrorCase({"x": [(3, 4)]}, BadTensorShape, {"body": "x0 + x1"}, outputs={"y": (4, 3)}),
        ErrorCase({"x": [(3,)]}, InvalidArgument, {"body": "exp(x0)"}, dtypes={"T": I32}),
        ErrorCase({"x": [(3,)]}, InvalidArgument, {"body": "x0 + x1", "initial": 0.5}, dtypes={"T": I32}),
        ErrorCase({"x": [(3,)]}, InvalidArgument, {"body": "x0 + x1", "initial": -1.0}, dtypes={"T": U64}),
    ],
)
