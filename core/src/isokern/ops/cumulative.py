"""Cumulative operators, each a scan: running sums, products, extremes and ln Σ eˣ; and differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, flag, integer
from ..declare.decomposition import LETTERS, Emitter, V
from ..declare.normal_form import as_given, axis_of
from ..dtypes import F32, FLOATS, NUMBERS, U8, U64, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .scan import LOG_SUM, along, carry, scan_scale

_CARRIED = "The value is carried in the compute type, so its rounding error grows with the length."
_AXIS, _REVERSE = integer("axis", -1), flag("reverse", False, "from the end")
_EXCLUSIVE = flag("exclusive", False, "without the element itself: the first result is that of no elements")
_NANS = [Sample({"x": (200, 200)}, {"axis": axis}, {"x": "nans"}, types={"T": FLOATS}, size="long") for axis in (0, 1)]


def _initial(body: str, element: DType) -> float:
    """Return the value that the body of a running result leaves as it is."""
    if body == LOG_SUM:
        return -np.inf
    if "maximum" in body or "minimum" in body:
        last = np.inf if element.kind == "f" else 2.0**64 if element is U64 else 2.0**63
        lowest = 0.0 if element.kind == "u" else -last
        return last if "minimum" in body else lowest
    return 1.0 if "*" in body else 0.0


def _decompose(body: str) -> Any:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        return e("scan", None, inputs[0], body=body, initial=_initial(body, outputs[0].dtype), **values)

    return decompose


def _accumulate(join: Callable[[Any, Any], Any], none: float | None) -> Callable[..., Any]:
    """Return the reference of running results of `join`; `none` is that of no elements, None if it is not needed."""

    def reference(x: Any, axis: int, reverse: bool, out: Sequence[TensorDesc], exclusive: bool = False) -> Any:
        y = np.empty_like(x)
        made, steps = along(y, axis, reverse), along(x, axis, reverse)
        value = None if none is None else np.full(steps.shape[1:], none, x.dtype)
        with np.errstate(all="ignore"):
            for t, given in enumerate(steps):
                before = value
                value = given if before is None else join(before, given).astype(x.dtype)
                value = carry(value, out[0].dtype.compute) if x.dtype.kind == "f" else value
                made[t] = before if exclusive else value
        return y

    return reference


def _body_scale(body: str, initial: float) -> Callable[..., Any]:
    """Return the rounding errors of the steps, carried through those that follow."""

    def scale(x: Any, axis: int, reverse: bool, compute: DType, exclusive: bool = False) -> Any:
        return scan_scale(None, [x], axis, body, initial, reverse, exclusive, compute)

    return scale


def _log_scale(x: Any, axis: int, reverse: bool) -> Any:
    """Return the error of ln(eˢ + eˣ) at each step, and that of s before it by its share in the sum."""
    off = np.zeros(x.shape)
    made, steps = along(off, axis, reverse), along(x, axis, reverse)
    total, error = np.full(steps.shape[1:], -np.inf), np.zeros(steps.shape[1:])
    with np.errstate(all="ignore"):
        for t, given in enumerate(steps):
            before, total = total, np.logaddexp(total, given)
            apart = np.abs(given - before)
            own = np.abs(total) + (apart + 9) * np.exp(-apart)
            error = np.where(np.isfinite(before), np.exp(before - total) * error + own, 0.0)
            made[t] = error
    return np.nan_to_num(off, nan=0.0, posinf=0.0)


def _check_axis(name: str) -> Any:
    """Return the check of the attribute `axis`."""

    def check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
        x = inputs[0]
        assert x is not None
        axis_of(name, values["axis"], x.ndim)

    return check


def _samples(exclusive: bool, domain: str) -> list[Sample]:
    shapes: list[tuple[tuple[int, ...], int]] = [((7,), 0), ((3, 37), -1), ((33, 5), 0), ((2, 3, 1, 4), 1)]
    shapes += [((4, 0), 1), ((0, 3), 1)]
    tries: list[dict[str, Any]] = [{}, {"reverse": True}]
    if exclusive:
        tries += [{"exclusive": True}, {"reverse": True, "exclusive": True}]
    values = {"x": domain} if domain else {}
    return [
        *(Sample({"x": s}, {"axis": axis, **tries[i % len(tries)]}, values) for i, (s, axis) in enumerate(shapes)),
        Sample({"x": (100, 257)}, values=values, size="wide"),
        Sample({"x": (512, 512)}, values=values, size="medium"),
        Sample({"x": (4096, 4096)}, values=values, size="large"),
    ]


def _cumulative(
    name: str,
    kind: str,
    body: str,
    reference: Callable[..., Any],
    doc: str,
    exclusive: bool = False,
    domain: str = "",
    dtypes: tuple[DType, ...] = NUMBERS,
    scale: Callable[..., Any] | None = None,
    more: Sequence[Sample] = (),
) -> None:
    """Declare the running results of a body along an axis."""
    others: tuple[Attr, ...] = (_EXCLUSIVE,) if exclusive else ()
    declare(
        name,
        kind,
        "x: T[*s] -> y: T[*s]",
        {"T": dtypes},
        family="reduction",
        doc=doc,
        reference=reference,
        tolerance=Tolerance(1, scale or _body_scale(body, _initial(body, F32))),
        attrs=attrs("CUM1" if exclusive else "CUM2", _AXIS, _REVERSE, *others),
        check=_check_axis(name),
        normal_form=as_given,
        decompose=_decompose(body),
        flops=lambda i, o: float(o[0].numel),
        samples=lambda: [*_samples(exclusive, domain), *more],
        errors=[
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"axis": 2}),
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"axis": -3}),
            ErrorCase({"x": ()}, InvalidArgument),
            ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4, 3)}),
        ],
    )


_cumulative(
    "cumsum",
    "CSUM",
    "x0 + x1",
    _accumulate(np.add, 0),
    f"y[i] = x[0] + … + x[i] along an axis; integers wrap in their type (PyTorch: in I64). {_CARRIED}",
    exclusive=True,
)
_cumulative(
    "cumprod",
    "CPRD",
    "x0 * x1",
    _accumulate(np.multiply, 1),
    f"y[i] = x[0] · … · x[i] along an axis; integers wrap in their type (PyTorch: in I64). {_CARRIED}",
    exclusive=True,
    domain="moderate",
)
_cumulative(
    "cummax",
    "CMAX",
    "maximum(x0, x1)",
    _accumulate(np.maximum, None),
    "y[i] = max(x[0], …, x[i]) along an axis; NaN from the first NaN on. The values alone, without their indices.",
    more=_NANS,
)
_cumulative(
    "cummin",
    "CMIN",
    "minimum(x0, x1)",
    _accumulate(np.minimum, None),
    "y[i] = min(x[0], …, x[i]) along an axis; NaN from the first NaN on. The values alone, without their indices.",
    more=_NANS,
)
_cumulative(
    "logcumsumexp",
    "LCSE",
    LOG_SUM,
    _accumulate(np.logaddexp, None),
    f"y[i] = ln(e^x[0] + … + e^x[i]) along an axis, without overflow; -∞ adds nothing. {_CARRIED}",
    dtypes=FLOATS,
    scale=_log_scale,
)


# Differences
def _diff_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x = inputs[0]
    axis = axis_of("diff", values["axis"], len(x))
    return [tuple([max(0, d - values["n"]) if i == axis else d for i, d in enumerate(x)])]


def _diff(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y, element, n = inputs[0], outputs[0].dtype, values["n"]
    axis, every = values["axis"] % y.spec.ndim, LETTERS[: y.spec.ndim]
    if outputs[0].numel == 0:
        return e.fill(outputs[0].shape, 0.0, element)
    if n == 0:
        return e("copy", y)
    for left in reversed(range(n)):
        length = y.spec.shape[axis]
        later, sooner = (e("slice", y, starts=(a,), ends=(a + length - 1,), axes=(axis,)) for a in (1, 0))
        wide = element.compute if left > 0 and element.kind == "f" else element
        y = e.loop(f"{every},{every}->{every}", "x0 - x1", later, sooner, dtype=wide)
    return y


def _diff_scale(x: Any, n: int, axis: int) -> Any:
    """Return the rounding error of each round of differences, added up over the rounds that follow."""
    value, error = x, np.zeros(x.shape)
    for _ in range(min(n, x.shape[axis])):
        later, sooner = (np.take(error, range(a, a + error.shape[axis] - 1), axis) for a in (1, 0))
        value = np.diff(value, axis=axis)
        error = later + sooner + np.abs(value)
    return np.nan_to_num(error, nan=0.0, posinf=0.0)


declare(
    "diff",
    "DIFF",
    "x: T[*s] -> y: T[*d]",
    {"T": NUMBERS},
    family="reduction",
    doc=(
        "The n-th differences along an axis: once, y[i] = x[i + 1] - x[i], which is one element shorter; nothing is"
        " left from the length on, and n = 0 copies. Integers wrap."
    ),
    reference=lambda x, n, axis: np.diff(x, min(n, x.shape[axis]), axis),
    tolerance=Tolerance(1, _diff_scale),
    attrs=attrs("DIF1", integer("n", 1, "how many times", minimum=0), _AXIS),
    shapes=_diff_shapes,
    normal_form=as_given,
    decompose=_diff,
    flops=lambda i, o: float(o[0].numel),
    samples=lambda: [
        *(
            Sample({"x": s}, {"n": n, "axis": axis})
            for s, n, axis in [((7,), 1, -1), ((5, 9), 3, 1), ((6, 3), 1, 0), ((2, 4, 3), 2, 1), ((3, 4), 0, 0)]
        ),
        *(Sample({"x": s}, {"n": n, "axis": 0}) for s, n in [((3,), 3), ((2, 3), 2**60), ((0, 3), 1), ((3, 0), 1)]),
        Sample({"x": (2, 1, 3, 2, 1, 2, 2, 3)}, {"axis": 2}, types={"T": (F32, U8)}),
        Sample({"x": (300, 1001)}, size="wide"),
        *(Sample({"x": (n, n)}, size=size) for size, n in [("medium", 512), ("large", 4096)]),
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": ()}, InvalidArgument),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"n": -1}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (3, 4)}),
    ],
)
