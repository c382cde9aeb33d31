"""Order statistics along an axis, taken from its sorted elements: kthvalue, medians and quantile; and argmin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, choice, flag, integer, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import as_given, axis_of
from ..dtypes import BOOL, FLOATS, I32, NUMBERS, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .reduce import kept_shape
from .sort import argsort

Shape = tuple[int, ...]


def _shapes(where: str, outputs: int) -> Any:
    """Return the shape function of results along one axis, which must not be empty unless there are none."""

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        (x,) = inputs
        axis = axis_of(where, values["axis"], len(x))
        y = kept_shape(x, [axis], values["keepdims"])
        if x[axis] == 0 and 0 not in y:
            raise BadTensorShape(
                where, f"x is {list(x)}: nothing to choose from along axis {axis}", allowed="at least one element"
            )
        return [y] if outputs == 1 else [y, y]

    return shapes


def _statistic(
    name: str,
    kind: str,
    schema: str,
    reference: Callable[..., Any],
    decompose: Any,
    doc: str,
    *others: Attr,
    outputs: str = "y: T[*d], indices: I64[*d]",
    dtypes: tuple[DType, ...] = NUMBERS,
    tries: Sequence[Mapping[str, Any]] = ({},),
    errors: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> None:
    """Declare a statistic; `tries` are attributes that its samples take in turn, `errors` some that are refused."""
    shapes: list[tuple[Shape, int, str]] = [
        ((7,), 0, "small"),
        ((3, 6), -1, "small"),
        ((5, 3), 0, "small"),
        ((2, 4, 3), 1, "small"),
        ((2, 1, 2, 1, 3, 1, 2, 2), 4, "small"),
        ((0, 5), 1, "small"),
        ((60, 257), 1, "wide"),
        ((512, 512), 1, "medium"),
        ((512, 32768), 1, "large"),
    ]
    given = dict(tries[0])
    wrong = {part.partition(":")[0].strip(): (3,) for part in outputs.split(",")}
    refused = BOOL if dtypes is NUMBERS else I32
    fields.setdefault("shapes", _shapes(name, len(wrong)))
    declare(
        name,
        kind,
        f"x: T[*s] -> {outputs}",
        {"T": dtypes},
        family="reduction",
        doc=doc,
        reference=reference,
        attrs=attrs(
            schema, *others, integer("axis", -1, "the axis searched"), flag("keepdims", False, "leave the axis as 1")
        ),
        normal_form=as_given,
        decompose=decompose,
        flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
        samples=lambda: [
            *(
                Sample({"x": s}, {**tries[i % len(tries)], "axis": axis, "keepdims": i % 2 == 1}, size=size)
                for i, (s, axis, size) in enumerate(shapes)
            ),
            *(
                Sample({"x": (9, 10)}, {**given, "axis": axis}, {"x": "nans"}, types={"T": FLOATS}, size="long")
                for axis in (0, 1)
            ),
            Sample({"x": (2, 33)}, given, {"x": "equal"}, size="long"),
        ],
        errors=[
            ErrorCase({"x": (3, 4)}, InvalidArgument, {**given, "axis": 2}),
            ErrorCase({"x": ()}, InvalidArgument, given),
            ErrorCase({"x": (3, 0)}, BadTensorShape, given),
            ErrorCase({"x": (3, 4)}, BadTensorShape, {**given, "axis": 0}, outputs=wrong),
            ErrorCase({"x": (3, 4)}, BadTensorDtype, given, dtypes={"T": refused}),
            *(ErrorCase({"x": (3, 4)}, InvalidArgument, bad) for bad in errors),
        ],
        **fields,
    )


def _wide(x: Any) -> Any:
    """Return floats in float64, which has all of their values; other elements as they are."""
    return x.astype(np.float64) if x.dtype.kind in "fV" else x


def _fold(y: Any, axis: int, keepdims: bool) -> Any:
    return y if keepdims else np.squeeze(y, axis)


def _choose(e: Emitter[V], found: Sequence[V], axis: int, at: int, outputs: Sequence[TensorDesc]) -> tuple[V, ...]:
    """Emit element `at` of the axis of each value."""
    picked = [e("slice", v, starts=(at,), ends=(at + 1,), axes=(axis,)) for v in found]
    return tuple(e.reshape(v, o.shape) for v, o in zip(picked, outputs, strict=True))


def _none(e: Emitter[V], outputs: Sequence[TensorDesc]) -> tuple[V, ...]:
    return tuple(e.fill(o.shape, 0.0, o.dtype) for o in outputs)


# argmin


def _argmin(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the argmax of elements in the reverse order, in which equal ones stay equal, and NaN stays NaN."""
    (x,), every = inputs, LETTERS[: inputs[0].spec.ndim]
    return e("argmax", e.loop(f"{every}->{every}", "-x0" if x.spec.dtype.kind == "f" else "bitnot(x0)", x), **values)


_statistic(
    "argmin",
    "AMIN",
    "AMN1",
    # NumPy rejects an empty x even where there are no results
    lambda x, axis, keepdims: (np.argmin if x.size else np.sum)(x, axis, keepdims=keepdims),
    _argmin,
    "Index of the first smallest element along `axis`; the first NaN counts as smallest (NumPy's rule).",
    outputs="y: I64[*d]",
    exact=True,
)


# kthvalue


def _kth_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    axis = axis_of("kthvalue", values["axis"], len(x))
    y = kept_shape(x, [axis], values["keepdims"])
    if values["k"] > x[axis]:
        raise BadTensorShape("kthvalue", f"k={values['k']} of {x[axis]} along axis {axis}", allowed="k up to as many")
    return [y, y]


def _kthvalue(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, ...]:
    axis = values["axis"] % inputs[0].spec.ndim
    return _choose(e, e.all("sort", inputs[0], axis=axis), axis, values["k"] - 1, outputs)


def _kth_reference(x: Any, k: int, axis: int, keepdims: bool) -> Any:
    at = np.take(argsort(x, axis), [k - 1], axis)
    return _fold(np.take_along_axis(x, at, axis), axis, keepdims), _fold(at, axis, keepdims)


_statistic(
    "kthvalue",
    "KTHV",
    "KTH1",
    _kth_reference,
    _kthvalue,
    "The k-th smallest element along `axis`, counted from 1, and its index: element k - 1 of `sort`, so NaN counts as"
    " largest, and equal elements in the order of their indices (PyTorch's kthvalue, whose index"
    " is that of any of them).",
    integer("k", doc="which, from 1", minimum=1),
    tries=({"k": 3}, {"k": 1}),
    errors=({}, {"k": 0}),
    shapes=_kth_shapes,
    exact=True,
)


# Medians


def _median(skip: bool) -> Any:
    """Return the decomposition of the median; `skip` says that NaN does not count."""

    def decompose(
        e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
    ) -> tuple[V, ...]:
        x, every = inputs[0], LETTERS[: inputs[0].spec.ndim]
        if outputs[0].numel == 0:
            return _none(e, outputs)
        axis = values["axis"] % x.spec.ndim
        n, found = x.spec.shape[axis], e.all("sort", x, axis=axis)
        if x.spec.dtype.kind != "f":
            return _choose(e, found, axis, (n - 1) // 2, outputs)
        unknown = e("count_nonzero", e("isnan", x), axes=(axis,), keepdims=True)
        body = f"quotient(maximum({n - 1} - x0, 0), 2)" if skip else f"{n} - x0 if x0 > 0 else {(n - 1) // 2}"
        at = e.loop(f"{every}->{every}", body, unknown)
        picked = [e("gather_elements", v, at, axis=axis) for v in found]
        return tuple(e.reshape(v, o.shape) for v, o in zip(picked, outputs, strict=True))

    return decompose


def _median_reference(x: Any, axis: int, keepdims: bool) -> Any:
    order, unknown = argsort(x, axis), np.isnan(_wide(x))
    at = np.take_along_axis(order, np.full(unknown.any(axis, keepdims=True).shape, (x.shape[axis] - 1) // 2), axis)
    if x.shape[axis]:
        at = np.where(unknown.any(axis, keepdims=True), unknown.argmax(axis, keepdims=True), at)
    return _fold(np.take_along_axis(x, at, axis), axis, keepdims), _fold(at, axis, keepdims)


def _nanmedian_reference(x: Any, axis: int, keepdims: bool) -> Any:
    known = np.sum(~np.isnan(_wide(x)), axis, keepdims=True)
    at = np.take_along_axis(argsort(x, axis), np.maximum(known - 1, 0) // 2, axis)
    return _fold(np.take_along_axis(x, at, axis), axis, keepdims), _fold(at, axis, keepdims)


_statistic(
    "median",
    "MEDN",
    "MED1",
    _median_reference,
    _median(skip=False),
    "The element in the middle of the sorted ones along `axis`, of an even number of them the lower of the two, and its"
    " index in x; the first NaN where there is one (PyTorch's median; NumPy's is the quantile 0.5).",
    exact=True,
)
_statistic(
    "nanmedian",
    "NMED",
    "MED1",
    _nanmedian_reference,
    _median(skip=True),
    "The `median` of the elements along `axis` that are not NaN, and its index in x; NaN where all are (PyTorch's"
    " nanmedian).",
    dtypes=FLOATS,
    exact=True,
)


# Quantiles


def _around(n: int, values: Mapping[str, Any]) -> tuple[int, int, float]:
    """Return the places of the sorted elements on both sides of a quantile, and the weight of the second."""
    place, how = values["q"] * (n - 1), values["interpolation"]
    low, high = math.floor(place), math.ceil(place)
    if how == "nearest":
        low = high = round(place)
    ends = {"lower": (low, low), "higher": (high, high)}.get(how, (low, high))
    return *ends, 0.5 if how == "midpoint" else place - low


def _quantile(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, (y,) = inputs[0], outputs
    if y.numel == 0:
        return e.fill(y.shape, 0.0, y.dtype)
    axis, every = values["axis"] % x.spec.ndim, LETTERS[: y.ndim]
    n, ordered = x.spec.shape[axis], e("sort", x, axis=axis)
    low, high, weight = _around(n, values)
    given = [_choose(e, [ordered], axis, at, outputs)[0] for at in (low, high, n - 1)]
    between = f"x0 * {constant(1 - weight)} + x1 * {constant(weight)}"
    body = f"x2 if isnan(x2) else x0 if x0 == x1 else {between}"
    return e.loop(f"{every},{every},{every}->{every}", body, *given)


def _quantile_ends(x: Any, axis: int, values: Mapping[str, Any]) -> tuple[Any, Any, float]:
    low, high, weight = _around(x.shape[axis], values)
    ordered = np.sort(x, axis)
    return np.take(ordered, [low], axis), np.take(ordered, [high], axis), weight


def _quantile_reference(x: Any, axis: int, keepdims: bool, **values: Any) -> Any:
    if x.size == 0:
        return np.sum(x, axis, keepdims=keepdims)
    a, b, weight = _quantile_ends(x, axis, values)
    with np.errstate(invalid="ignore"):
        y = np.where(a == b, a, (1 - weight) * a + weight * b)
    return _fold(np.where(np.isnan(x).any(axis, keepdims=True), np.nan, y), axis, keepdims)


def _quantile_scale(x: Any, axis: int, keepdims: bool, **values: Any) -> Any:
    if x.size == 0:
        return np.sum(x, axis, keepdims=keepdims)
    a, b, _ = _quantile_ends(x, axis, values)
    return _fold(np.nan_to_num(np.abs(a) + np.abs(b), nan=0.0, posinf=0.0), axis, keepdims)


_statistic(
    "quantile",
    "QNTL",
    "QNT1",
    _quantile_reference,
    _quantile,
    "The value below which a share q of the elements along `axis` lies: at place q · (n - 1) of the n sorted ones. A"
    " place between two gives what `interpolation` says of them: `linear` weights them by their distances, `midpoint`"
    " halves their sum, `nearest` takes the even place in the middle. NaN where any element is (NumPy's quantile;"
    " PyTorch's is NaN beside an infinity too).",
    number("q", doc="the share", minimum=0, maximum=1),
    choice("interpolation", ("linear", "lower", "higher", "midpoint", "nearest"), "linear", "between two elements"),
    outputs="y: T[*d]",
    dtypes=FLOATS,
    tries=(
        {"q": 0.5},
        {"q": 0.3},
        {"q": 0.9, "interpolation": "lower"},
        {"q": 0.35, "interpolation": "higher"},
        {"q": 0.7, "interpolation": "midpoint"},
        {"q": 1.0, "interpolation": "nearest"},
        {"q": 0.123},
    ),
    errors=({}, {"q": 1.5}, {"q": 0.5, "interpolation": "cubic"}),
    tolerance=Tolerance(2, _quantile_scale),
)
