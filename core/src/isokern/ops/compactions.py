"""Elements that a condition selects, moved together: nonzero, argwhere, masked_select, compress; and unique.

How many elements that are only the device knows, and no shape here depends on values. So each result has room for all
of them, and an output `count` says how many there are; the rest is 0. They keep their order: the indices of a stable
sort of the condition, largest first, begin with those that it selects. (A running sum of the condition would say as
much, but is serial on devices where a sort is not.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, declare
from ..declare.attributes import attrs, integers
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given, axis_of
from ..dtypes import BOOL, COMPUTED, F32, FLOATS, I64
from ..layout import TensorDesc, broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .indexing import emit_list

Shape = tuple[int, ...]
ROOM = "the first `count` hold them, in order, and the rest is 0"


def _select(e: Emitter[V], condition: V) -> tuple[V, V, V]:
    """Emit the indices at which a vector of conditions holds, then the others; which of those places hold; how many."""
    count = e("count_nonzero", condition)
    order = e.all("sort", condition, axis=0, descending=True)[1]
    within = e.loop("a,->a", "x0 < x1", e.iota(condition.spec.shape[0], I64), count, dtype=BOOL)
    return order, within, count


def _keep(e: Emitter[V], within: V, x: V, axis: int = 0, fill: float = 0.0) -> V:
    """Emit x, or `fill` behind the count along the axis."""
    rows = e.reshape(within, [d if i == axis else 1 for i, d in enumerate(x.spec.shape)])
    return e("where", rows, x, e.fill((), fill, x.spec.dtype))


def _flatten(e: Emitter[V], x: V) -> V:
    return e.reshape(x, (x.spec.numel,))


def _pad(y: Any, length: int, axis: int = 0) -> Any:
    """Return y with zeros behind it, so that the axis has that length."""
    rest = np.zeros([length - d if i == axis else d for i, d in enumerate(y.shape)], y.dtype)
    return np.concatenate([y, rest], axis)


# nonzero and argwhere


def _find(maps: str) -> Any:
    """Return the decomposition that gives the coordinates (b) of all elements (a) in the order of these maps."""

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
        x, shape = inputs[0], inputs[0].spec.shape
        if outputs[0].numel == 0:
            return e.fill(outputs[0].shape, 0.0, I64), e("count_nonzero", x)
        order, within, count = _select(e, e.loop("a->a", "x0 != 0", _flatten(e, x), dtype=BOOL))
        places = _keep(e, within, order)
        if len(shape) == 1:
            return e.reshape(places, outputs[0].shape), count
        steps = emit_list(e, [math.prod(shape[i + 1 :]) for i in range(len(shape))])
        body = "remainder(quotient(x0, x1), x2)"
        return e.loop(f"a,b,b->{maps}", body, places, steps, emit_list(e, shape)), count

    return decompose


def _find_reference(x: Any) -> tuple[Any, Any]:
    found = np.argwhere(x)
    return _pad(found, x.size), np.asarray(found.shape[0])


def _declare_find(name: str, kind: str, y: str, maps: str, reference: Any, wrong: Shape, doc: str) -> None:
    """Declare the coordinates of the elements that are not 0, as rows or as columns."""

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        rank, count = len(inputs[0]), math.prod(inputs[0])
        return [(rank, count) if maps == "ba" else (count, rank), ()]

    declare(
        name,
        kind,
        f"x: T[*s] -> y: I64[{y}], count: I64[]",
        {"T": COMPUTED},
        family="movement",
        doc=f"The coordinates of the elements of x that are not 0 (NaN is not), in row-major order, {doc}; {ROOM}.",
        reference=reference,
        shapes=shapes,
        normal_form=as_given,
        decompose=_find(maps),
        samples=lambda: [
            Sample({"x": s}, values={"x": "moderate"}, size=size)
            for s, size in [
                ((7,), "small"),
                ((), "small"),
                ((3, 5), "small"),
                ((2, 1, 2, 1, 3, 1, 2, 2), "small"),
                ((3, 0), "small"),
                ((4, 333), "small"),
                ((101, 103), "wide"),
            ]
        ],
        errors=[
            ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": wrong, "count": ()}),
            ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (1, 3), "count": (1,)}),
            ErrorCase({}, InvalidArgument),
        ],
        exact=True,
    )


_declare_find(
    "nonzero",
    "NZRO",
    "r, n",
    "ba",
    lambda x: (_find_reference(x)[0].T, _find_reference(x)[1]),
    (12, 2),
    "a column each (NumPy's and ONNX's nonzero)",
)
_declare_find(
    "argwhere", "AWHR", "n, r", "ab", _find_reference, (2, 12), "a row each (NumPy's argwhere, PyTorch's nonzero)"
)


# masked_select


def _masked_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, mask = inputs
    both = broadcast_shapes(x, mask)
    if both is None:
        raise BadTensorShape("masked_select", f"mask is {list(mask)}", allowed=f"what broadcasts with {list(x)}")
    return [(math.prod(both),), ()]


def _select_masked(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    shape = broadcast_shapes(*(v.spec.shape for v in inputs))
    assert shape is not None
    x, mask = (_flatten(e, e.repeat(v, shape)) for v in inputs)
    order, within, count = _select(e, mask)
    return _keep(e, within, e("gather", x, order, axis=0)), count


def _masked_reference(x: Any, mask: Any) -> tuple[Any, Any]:
    x, mask = np.broadcast_arrays(x, mask)
    return _pad(x[mask], x.size), np.sum(mask, dtype=np.int64)


declare(
    "masked_select",
    "MSKS",
    "x: T[*s], mask: BOOL[*m] -> y: T[n], count: I64[]",
    {"T": COMPUTED},
    family="movement",
    doc=f"The elements of x where mask is true, after both are broadcast (PyTorch's masked_select); {ROOM}.",
    reference=_masked_reference,
    shapes=_masked_shapes,
    normal_form=as_given,
    decompose=_select_masked,
    samples=lambda: [
        Sample({"x": x, "mask": mask}, size=size)
        for x, mask, size in [
            ((7,), (7,), "small"),
            ((), (), "small"),
            ((3, 5), (5,), "small"),
            ((4, 1), (2, 1, 3), "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), (1, 2, 1), "small"),
            ((3, 0), (3, 1), "small"),
            ((2, 1025), (2, 1025), "small"),
            ((101, 103), (103,), "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,), "mask": (4,)}, BadTensorShape),
        ErrorCase({"x": (3,), "mask": (3,)}, BadTensorDtype, dtypes={"mask": F32}),
        ErrorCase({"x": (3,), "mask": (3,)}, BadTensorShape, outputs={"y": (2,), "count": ()}),
        ErrorCase({"x": (3,)}, InvalidArgument),
    ],
    exact=True,
)


# compress


def _compress_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, (k,) = inputs
    if len(values["axis"]) > 1:
        raise InvalidArgument("compress", f"axis {list(values['axis'])}", allowed="one, or none for the flattened x")
    shape = tuple(x) if values["axis"] else (math.prod(x),)
    axis = axis_of("compress", values["axis"][0], len(x)) if values["axis"] else 0
    if k > shape[axis]:
        given = f"condition is [{k}] with {shape[axis]} along axis {axis}"
        raise BadTensorShape("compress", given, allowed="at most as many")
    return [(*shape[:axis], k, *shape[axis + 1 :]), ()]


def _compress(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    x, condition = inputs
    x, axis = (x, values["axis"][0] % x.spec.ndim) if values["axis"] else (_flatten(e, x), 0)
    order, within, count = _select(e, condition)
    return _keep(e, within, e("gather", x, order, axis=axis), axis), count


def _compress_reference(x: Any, condition: Any, axis: Sequence[int]) -> tuple[Any, Any]:
    at = axis[0] % x.ndim if axis else 0
    found = np.compress(condition, x, at if axis else None)
    return _pad(found, condition.size, at), np.sum(condition, dtype=np.int64)


declare(
    "compress",
    "CMPR",
    "x: T[*s], condition: BOOL[k] -> y: T[*d], count: I64[]",
    {"T": COMPUTED},
    family="movement",
    doc=(
        "The slices along `axis`, or elements of the flattened x, whose condition is true (NumPy's compress, ONNX"
        f" Compress); {ROOM}. Those behind the end of condition are left out, and y has as many as condition."
    ),
    reference=_compress_reference,
    attrs=attrs("CPR1", integers("axis", (), "one, or none for the flattened x")),
    shapes=_compress_shapes,
    normal_form=as_given,
    decompose=_compress,
    samples=lambda: [
        Sample({"x": x, "condition": (k,)}, {"axis": axis}, size=size)
        for x, k, axis, size in [
            ((7,), 7, (0,), "small"),
            ((), 1, (), "small"),
            ((3, 5), 12, (), "small"),
            ((3, 5), 4, (1,), "small"),
            ((4, 2, 3), 4, (-3,), "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), 3, (4,), "small"),
            ((3, 4), 0, (0,), "small"),
            ((0, 4), 3, (1,), "small"),
            ((101, 103), 99, (1,), "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4), "condition": (3,)}, InvalidArgument, {"axis": (2,)}),
        ErrorCase({"x": (3, 4), "condition": (3,)}, InvalidArgument, {"axis": (0, 1)}),
        ErrorCase({"x": (3, 4), "condition": (4,)}, BadTensorShape, {"axis": (0,)}),
        ErrorCase({"x": (3, 4), "condition": (13,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "condition": (3, 1)}, BadTensorShape),
        ErrorCase({"x": (3,), "condition": (3,)}, BadTensorDtype, dtypes={"condition": F32}),
    ],
    exact=True,
)


# unique


def _unique_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    n = math.prod(x)
    return [(n,), (n,), tuple(x), (n,), ()]


def _unique(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    """Emit runs of equal elements among the sorted ones: the beginning of each, and the number of the run of each."""
    (x,), n = inputs, inputs[0].spec.numel
    if n == 0:
        return tuple(e.fill(o.shape, 0.0, o.dtype) for o in outputs)
    ordered, order = e.all("sort", _flatten(e, x), axis=0)
    later, sooner = (e("slice", ordered, starts=(a,), ends=(a + n - 1,), axes=(0,)) for a in (1, 0))
    differ = "x0 != x1 and not (isnan(x0) and isnan(x1))" if x.spec.dtype.kind == "f" else "x0 != x1"
    first = e("concat", e.fill((1,), 1.0, BOOL), e.loop("a,a->a", differ, later, sooner, dtype=BOOL), axis=0)
    places, within, count = _select(e, first)
    y, indices = (_keep(e, within, e("gather", v, places, axis=0)) for v in (ordered, order))
    starts = _keep(e, within, places, fill=n)
    ends = e("concat", e("slice", starts, starts=(1,), ends=(n,), axes=(0,)), e.fill((1,), n, I64), axis=0)
    runs = e.loop("a->a", "x0 - 1", e("cumsum", e.cast(first, I64), axis=0))
    inverse = e("gather", runs, e.all("sort", order, axis=0)[1], axis=0)
    return y, indices, e.reshape(inverse, x.spec.shape), e("sub", ends, starts), count


def _unique_reference(x: Any) -> tuple[Any, ...]:
    flat = x.reshape(-1)
    wide = flat.astype(np.float64) if x.dtype.kind in "fV" else flat
    _, indices, inverse, counts = np.unique(wide, return_index=True, return_inverse=True, return_counts=True)
    found = [_pad(v, x.size) for v in (flat[indices], indices, counts)]
    return found[0], found[1], inverse.reshape(x.shape), found[2], np.asarray(indices.size)


UNIQUE: SampleTable = [
    ((7,), "moderate", "small"),
    ((), "any", "small"),
    ((3, 15), "moderate", "small"),
    ((2, 1, 2, 1, 3, 1, 2, 2), "moderate", "small"),
    ((3, 0), "any", "small"),
    ((33,), "equal", "small"),
    ((2, 1025), "moderate", "small"),
    ((51, 103), "moderate", "wide"),
]

declare(
    "unique",
    "UNIQ",
    "x: T[*s] -> y: T[n], indices: I64[n], inverse: I64[*s], counts: I64[n], count: I64[]",
    {"T": COMPUTED},
    family="reduction",
    doc=(
        "The distinct elements of x in rising order, the index of the first of each in the flattened x, and how often"
        f" each occurs: of y, indices and counts, {ROOM}. Element inverse[i] of y equals x[i]. NaN is the largest and"
        " equals NaN, -0 equals 0 (NumPy's unique, ONNX Unique; PyTorch's has each NaN by itself)."
    ),
    reference=_unique_reference,
    shapes=_unique_shapes,
    normal_form=as_given,
    decompose=_unique,
    samples=lambda: [
        *(Sample({"x": s}, values={"x": values}, size=size) for s, values, size in UNIQUE),
        Sample({"x": (9, 10)}, values={"x": "nans"}, types={"T": FLOATS}, size="long"),
    ],
    errors=[
        ErrorCase({}, InvalidArgument),
        ErrorCase(
            {"x": (3,)},
            BadTensorShape,
            outputs={"y": (3,), "indices": (3,), "inverse": (3,), "counts": (2,), "count": ()},
        ),
    ],
    exact=True,
)
