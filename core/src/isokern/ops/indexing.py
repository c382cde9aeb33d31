"""Elements and slices read and written by index tuples, as gathers and scatters of the flattened tensor.

An index that is out of range in its own dim becomes a place behind the flattened tensor, so that it never names another
element and is reported by the gather or scatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, declare
from ..declare.attributes import attrs, choice, integer
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given, axis_of
from ..dtypes import BOOL, F32, I64, INDICES, NUMBERS, PLAIN
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .scatter import COMBINES, REDUCTIONS, check_reduction

Shape = tuple[int, ...]
OUTSIDE = "An index out of range in its own dim raises InvalidArgument as `gather` does, and"
REDUCTION = choice("reduction", REDUCTIONS, "none", "how an update joins what is there")


def _types(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {} if values.get("reduction", "none") == "none" else {"T": NUMBERS}


# An index for each element, along one axis


def _check_extents(where: str, x: Sequence[int], indices: Sequence[int], axis: int) -> None:
    at = axis_of(where, axis, len(x))
    fits = len(indices) == len(x)
    for d in range(min(len(x), len(indices))):
        fits = fits and (d == at or indices[d] <= x[d])
    if not fits:
        given = f"indices is {list(indices)} with x {list(x)}"
        raise BadTensorShape(where, given, allowed=f"rank {len(x)}, and at most x's dims but along axis {at}")


def _count_up(e: Emitter[V], shape: Sequence[int], extents: Sequence[int]) -> V:
    """Emit the numbers, in a tensor of a shape, of the elements in its first corner of these extents."""
    numbers = e.iota(math.prod(shape), I64)
    if tuple(shape) == tuple(extents):
        return numbers
    corner = e("slice", e.reshape(numbers, shape), starts=(0,) * len(shape), ends=tuple(extents))
    return e.collapse(corner, (len(extents),))


def _flatten_elements(e: Emitter[V], x: Sequence[int], indices: V, axis: int) -> V:
    """Emit the places in the flat x that the indices name along an axis.

    The first gather counts negative indices from the front, and reports one that is out of range as it was given.
    """
    at, extents = axis % len(x), indices.spec.shape
    size, behind = x[at], math.prod(x[at + 1 :])
    given = e.collapse(indices, (at, 1, len(x) - at - 1))
    rows = e("gather", e.iota(size, I64), given, axis=0)
    outer, inner = _count_up(e, x[:at], extents[:at]), _count_up(e, x[at + 1 :], extents[at + 1 :])
    place = f"(x2 * {size} + x1) * {behind} + x3 if {-size} <= x0 and x0 < {size} else {math.prod(x)}"
    return e.collapse(e.loop("abc,abc,a,c->abc", place, e.cast(given, I64), rows, outer, inner), (3,))


def _gather_elements_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, indices = inputs
    _check_extents("gather_elements", x, indices, values["axis"])
    return [tuple(indices)]


def _gather_elements(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, indices = inputs
    flat = _flatten_elements(e, x.spec.shape, indices, values["axis"])
    return e.reshape(e("gather", e.collapse(x, (x.spec.ndim,)), flat, axis=0), outputs[0].shape)


def _gather_elements_reference(x: Any, indices: Any, axis: int) -> Any:
    size, at = x.shape[axis], axis % x.ndim
    known = (-size <= indices) & (indices < size)
    if size == 0:
        return np.zeros(indices.shape, x.dtype)
    corner = x[tuple(slice(None) if d == at else slice(n) for d, n in enumerate(indices.shape))]
    picked = np.take_along_axis(corner, np.where(known, indices, 0).astype(np.int64), at)
    return np.where(known, picked, np.zeros((), x.dtype))


ELEMENTS: SampleTable = [
    ((7,), (5,), 0, "none", "small"),
    ((3, 5), (3, 4), 1, "add", "small"),
    ((2, 3, 4), (2, 6, 3), -2, "none", "small"),
    ((5, 33), (7, 33), 0, "min", "small"),
    ((2, 1, 2, 1, 3, 1, 2, 2), (2, 1, 1, 1, 4, 1, 2, 1), 4, "mul", "small"),
    ((9, 4), (5, 4), 0, "max", "small"),
    ((3, 4), (3, 0), 1, "none", "small"),
    ((0, 4), (0, 2), 1, "none", "small"),
    ((101, 103), (101, 55), 1, "add", "wide"),
]

declare(
    "gather_elements",
    "GTHE",
    "x: T[*s], indices: I[*i] -> y: T[*i]",
    {"T": PLAIN, "I": INDICES},
    family="movement",
    doc=(
        "y[…, j, …] = x[…, indices[…, j, …], …] along `axis` (ONNX GatherElements, NumPy take_along_axis, PyTorch"
        f" gather). The indices' other dims may be shorter than x's. {OUTSIDE} gives 0."
    ),
    reference=_gather_elements_reference,
    attrs=attrs("GTE1", integer("axis", 0, "the axis of x that the indices pick from")),
    shapes=_gather_elements_shapes,
    normal_form=as_given,
    decompose=_gather_elements,
    samples=lambda: [
        Sample({"x": x, "indices": i}, {"axis": axis}, {"indices": f"index:{x[axis]}"}, size=size)
        for x, i, axis, _, size in ELEMENTS
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (3, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": (3, 4), "indices": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": (3, 5)}, BadTensorShape),
        ErrorCase({"x": (), "indices": ()}, InvalidArgument),
        ErrorCase({"x": (3,), "indices": (3,)}, BadTensorDtype, dtypes={"indices": F32}),
    ],
    exact=True,
    device_error="indices[{at}] is {value}, out of range for the axis",
)


def _scatter_elements_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, indices, updates = inputs
    _check_extents("scatter_elements", x, indices, values["axis"])
    if updates != indices:
        raise BadTensorShape("scatter_elements", f"updates is {list(updates)}", allowed=f"{list(indices)}, as indices")
    return [tuple(x)]


def _scatter_elements(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> V:
    x, indices, updates = inputs
    flat, every = _flatten_elements(e, x.spec.shape, indices, values["axis"]), (x.spec.ndim,)
    given = e.collapse(x, every), flat, e.collapse(updates, every)
    return e.reshape(e("scatter", *given, axis=0, reduction=values["reduction"]), x.spec.shape)


def _scatter_elements_reference(x: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    y, at, size = x.copy(), axis % x.ndim, x.shape[axis]
    for place in np.ndindex(indices.shape):
        if -size <= indices[place] < size:
            to = (*place[:at], int(indices[place]), *place[at + 1 :])
            y[to] = COMBINES[reduction](y[to], updates[place])
    return y


def _check_elements(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    check_reduction("scatter_elements", inputs[0], values)


declare(
    "scatter_elements",
    "SCTE",
    "x: T[*s], indices: I[*i], updates: T[*i] -> y: T[*s]",
    {"T": PLAIN, "I": INDICES},
    family="reduction",
    doc=(
        "y = x; then y[…, indices[…, j, …], …] along `axis` is replaced by updates[…, j, …], or combined with it, in"
        " the order of `scatter` (ONNX ScatterElements, PyTorch scatter and scatter_reduce). The indices' other dims"
        f" may be shorter than x's. {OUTSIDE} changes nothing."
    ),
    reference=_scatter_elements_reference,
    attrs=attrs("SCE1", integer("axis", 0, "the axis of x that the indices pick from"), REDUCTION),
    shapes=_scatter_elements_shapes,
    check=_check_elements,
    normal_form=as_given,
    decompose=_scatter_elements,
    samples=lambda: [
        Sample(
            {"x": x, "indices": i, "updates": i},
            (values := {"axis": axis, "reduction": reduction}),
            {"indices": f"index:{x[axis]}"},
            size=size,
            types=_types(values),
        )
        for x, i, axis, reduction, size in ELEMENTS
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (3, 4), "updates": (3, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": (3, 4), "indices": (3, 5), "updates": (3, 5)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": (3, 2), "updates": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (3,), "indices": (3,), "updates": (3,)}, InvalidArgument, {"reduction": "mean"}),
        ErrorCase(
            {"x": (3,), "indices": (3,), "updates": (3,)}, BadTensorDtype, {"reduction": "add"}, dtypes={"T": BOOL}
        ),
    ],
    exact=True,
    device_error="indices[{at}] is {value}, out of range for the axis",
)


# A tuple of indices for each slice


def _check_tuples(where: str, x: Sequence[int], indices: Sequence[int], batch: int) -> None:
    """Raise BadTensorShape unless the last dim of indices holds tuples for dims of x behind the batch dims."""
    fits = len(indices) > batch and len(x) >= batch and tuple(indices[:batch]) == tuple(x[:batch])
    fits = fits and indices[-1] >= 1 and indices[-1] <= len(x) - batch
    if not fits:
        given = f"indices is {list(indices)} with x {list(x)} with {batch} batch dims"
        raise BadTensorShape(where, given, allowed="the same batch dims, then […, k] for k of x's other dims")


def emit_list(e: Emitter[V], values: Sequence[int]) -> V:
    """Emit a vector of these numbers."""
    chosen = " + ".join(f"({v} if x0 == {i} else 0)" for i, v in enumerate(values))
    return e.loop("a->a", chosen, e.iota(len(values), I64))


def _flatten_tuples(e: Emitter[V], x: Sequence[int], indices: V, batch: int) -> V:
    """Emit the slices of x that tuples name, numbered in order over the batch dims and those that are indexed.

    A gather of each axis' numbers finds the parts of tuples that are out of range, and reports them as they were given.
    """
    depth, many = indices.spec.shape[-1], math.prod(indices.spec.shape[batch:-1])
    if depth == 1 and batch == 0:  # the gather or scatter of x itself reports an index as it was given
        return e.reshape(e.cast(indices, I64), (1, many))
    dims = x[batch : batch + depth]
    count, batches = math.prod(dims), math.prod(x[:batch])
    given, numbers = e.cast(e.collapse(indices, (batch, indices.spec.ndim - batch - 1, 1)), I64), e.iota(depth, I64)
    places = []
    for i, size in enumerate(dims):
        part = e.loop("abc,c->ab", f"x0 if x1 == {i} else 0", given, numbers, combine="sum")
        row = e("gather", e.iota(size, I64), part, axis=0)
        step = math.prod(dims[i + 1 :])
        places.append(e.loop("ab,ab->ab", f"x1 * {step} if {-size} <= x0 and x0 < {size} else {count}", part, row))
    flat = places[0]
    for place in places[1:]:
        flat = e.loop("ab,ab->ab", "x0 + x1", flat, place)
    whole = f"x1 * {count} + x0 if x0 < {count} else {batches * count}"
    return e.loop("ab,a->ab", whole, flat, e.iota(batches, I64))


def _gather_nd_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, indices = inputs
    batch = values["batch_dims"]
    _check_tuples("gather_nd", x, indices, batch)
    return [(*indices[:-1], *x[batch + indices[-1] :])]


def _gather_nd(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x, indices), batch = inputs, values["batch_dims"]
    slices = e.collapse(x, (batch + indices.spec.shape[-1], x.spec.ndim - batch - indices.spec.shape[-1]))
    flat = _flatten_tuples(e, x.spec.shape, indices, batch)
    return e.reshape(e("gather", slices, flat, axis=0), outputs[0].shape)


def _gather_nd_reference(x: Any, indices: Any, batch_dims: int) -> Any:
    depth = indices.shape[-1]
    y = np.zeros((*indices.shape[:-1], *x.shape[batch_dims + depth :]), x.dtype)
    for place in np.ndindex(indices.shape[:-1]):
        at = indices[place].tolist()
        if all(-n <= i < n for i, n in zip(at, x.shape[batch_dims : batch_dims + depth], strict=True)):
            chosen = (*place[:batch_dims], *at)
            y[place] = x[chosen]
    return y


# The indexed dims of a sample have one extent, so that an index out of range is so in each of them
TUPLES: SampleTable = [
    ((5,), (3, 1), 0, "none", "small"),
    ((4, 4), (2,), 0, "add", "small"),
    ((4, 4, 3), (6, 2), 0, "none", "small"),
    ((3, 5, 5, 4), (3, 2, 2), 1, "", "small"),
    ((5, 34), (13, 1), 0, "max", "small"),
    ((5, 17), (4, 1), 0, "none", "small"),
    ((2, 3, 1, 3, 2), (2, 3, 2, 1), 2, "", "small"),
    ((2, 2, 2, 2, 2, 2, 2, 2), (3, 8), 0, "mul", "small"),
    ((4, 0), (2, 1), 0, "none", "small"),
    ((4, 3), (0, 1), 0, "none", "small"),
    ((31, 31, 64), (203, 2), 0, "add", "wide"),
]

declare(
    "gather_nd",
    "GTND",
    "x: T[*s], indices: I[*i] -> y: T[*d]",
    {"T": PLAIN, "I": INDICES},
    family="movement",
    doc=(
        "The slices of x that the tuples along the last dim of indices name, one for each tuple, behind `batch_dims`"
        f" dims that x and indices share (ONNX GatherND). Negative indices count from the end. {OUTSIDE} gives 0."
    ),
    reference=_gather_nd_reference,
    attrs=attrs("GND1", integer("batch_dims", 0, "leading dims that both share", minimum=0)),
    shapes=_gather_nd_shapes,
    normal_form=as_given,
    decompose=_gather_nd,
    samples=lambda: [
        Sample({"x": x, "indices": i}, {"batch_dims": batch}, {"indices": f"index:{x[batch]}"}, size=size)
        for x, i, batch, _, size in TUPLES
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (2, 3)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": (2, 0)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": ()}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": (2, 1)}, BadTensorShape, {"batch_dims": 1}),
        ErrorCase({"x": (3, 4), "indices": (3, 1)}, InvalidArgument, {"batch_dims": -1}),
        ErrorCase({"x": (3, 4), "indices": (2, 1)}, BadTensorDtype, dtypes={"indices": F32}),
    ],
    exact=True,
    device_error="tuple {at} of indices has {value}, out of range for its axis",
)


def _scatter_nd_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, indices, updates = inputs
    _check_tuples("scatter_nd", x, indices, 0)
    expected = (*indices[:-1], *x[indices[-1] :])
    if updates != expected:
        allowed = f"{list(expected)}, as gather_nd picks from x {list(x)}"
        raise BadTensorShape("scatter_nd", f"updates is {list(updates)}", allowed=allowed)
    return [tuple(x)]


def _scatter_nd(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, indices, updates = inputs
    depth, many = indices.spec.shape[-1], indices.spec.ndim - 1
    flat = e.collapse(_flatten_tuples(e, x.spec.shape, indices, 0), (2,))
    slices = e.collapse(x, (depth, x.spec.ndim - depth))
    given = e.collapse(updates, (many, updates.spec.ndim - many))
    return e.reshape(e("scatter", slices, flat, given, axis=0, reduction=values["reduction"]), x.spec.shape)


def _scatter_nd_reference(x: Any, indices: Any, updates: Any, reduction: str) -> Any:
    y = x.copy()
    for place in np.ndindex(indices.shape[:-1]):
        at = tuple(indices[place].tolist())
        if all(-n <= i < n for i, n in zip(at, x.shape, strict=False)):
            y[at] = COMBINES[reduction](y[at], updates[place])
    return y


def _check_nd(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    check_reduction("scatter_nd", inputs[0], values)


declare(
    "scatter_nd",
    "SCND",
    "x: T[*s], indices: I[*i], updates: T[*u] -> y: T[*s]",
    {"T": PLAIN, "I": INDICES},
    family="reduction",
    doc=(
        "y = x; then the slices that the tuples along the last dim of indices name are replaced by updates, or combined"
        " with them, in the order of `scatter` (ONNX ScatterND). updates has the shape of what `gather_nd` picks."
        f" Negative indices count from the end. {OUTSIDE} changes nothing."
    ),
    reference=_scatter_nd_reference,
    attrs=attrs("SND1", REDUCTION),
    shapes=_scatter_nd_shapes,
    check=_check_nd,
    normal_form=as_given,
    decompose=_scatter_nd,
    samples=lambda: [
        Sample(
            {"x": x, "indices": i, "updates": (*i[:-1], *x[i[-1] :])},
            (values := {"reduction": reduction}),
            {"indices": f"index:{x[0]}"},
            size=size,
            types=_types(values),
        )
        for x, i, batch, reduction, size in TUPLES
        if batch == 0
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (2, 3), "updates": (2,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": (2, 1), "updates": (2, 3)}, BadTensorShape),
        ErrorCase({"x": (3,), "indices": (2, 1), "updates": (2,)}, InvalidArgument, {"reduction": "mean"}),
        ErrorCase(
            {"x": (3,), "indices": (2, 1), "updates": (2,)}, BadTensorDtype, {"reduction": "min"}, dtypes={"T": BOOL}
        ),
    ],
    exact=True,
    device_error="tuple {at} of indices has {value}, out of range for its axis",
)
