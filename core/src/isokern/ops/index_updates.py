"""What one scatter or gather and a little more make up: index_add, index_fill, add_id, bincount and histc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer, number
from ..declare.conversion import convert
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given, axis_of
from ..dtypes import F32, FLOATS, I32, I64, INDICES, PLAIN
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

Shape = tuple[int, ...]
INDEX_ERROR = "indices[{at}] is {value}, out of range for the axis"
OUTSIDE = "Negative indices count from the end; one out of range raises InvalidArgument as `gather` does, and"
AXIS = integer("axis", 0, "the axis of x that the indices pick from")


# index_add and index_fill

ROWS: SampleTable = [
    ((7,), 3, 0, "small"),
    ((5, 4), 6, 1, "small"),
    ((2, 3, 4), 5, -2, "small"),
    ((9, 33), 12, 0, "small"),
    ((2, 1, 2, 1, 3, 1, 2, 2), 2, 4, "small"),
    ((3, 4), 0, 0, "small"),
    ((0, 3), 2, 1, "small"),
    ((301, 103), 203, 0, "wide"),
]


def _add_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, indices, updates = inputs
    axis = axis_of("index_add", values["axis"], len(x))
    expected = (*x[:axis], *indices, *x[axis + 1 :])
    if updates != expected:
        raise BadTensorShape("index_add", f"updates is {list(updates)}", allowed=f"{list(expected)} with x {list(x)}")
    return [tuple(x)]


def _add(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, indices, updates = inputs
    if values["alpha"] != 1:
        flat = e.collapse(updates, (updates.spec.ndim,))
        updates = e.reshape(e.loop("a->a", f"x0 * {constant(values['alpha'])}", flat), updates.spec.shape)
    return e("scatter", x, indices, updates, axis=values["axis"], reduction="add")


def _add_reference(x: Any, indices: Any, updates: Any, axis: int, alpha: float, out: Sequence[TensorDesc]) -> Any:
    wide = out[0].dtype.compute.numpy
    y, size = x.copy(), x.shape[axis]
    rows, given = np.moveaxis(y, axis, 0), np.moveaxis(updates, axis, 0)
    if alpha != 1:
        given = convert(given.astype(wide) * np.asarray(alpha, wide), x.dtype)
    for row, update in zip(indices.tolist(), given, strict=True):
        if -size <= row < size:
            rows[row] += update
    return y


declare(
    "index_add",
    "IDXA",
    "x: T[*s], indices: I[n], updates: T[*u] -> y: T[*s]",
    {"T": FLOATS, "I": INDICES},
    family="reduction",
    doc=(
        "y = x; then y[…, indices[i], …] += alpha · updates[…, i, …] along `axis`, in the order of `scatter` (PyTorch's"
        f" index_add; `scatter` has the same of integers, without alpha). {OUTSIDE} adds nothing."
    ),
    reference=_add_reference,
    attrs=attrs("IXA1", AXIS, number("alpha", 1.0, "what the updates are multiplied by, rounded to T")),
    shapes=_add_shapes,
    normal_form=as_given,
    decompose=_add,
    samples=lambda: [
        Sample(
            {"x": x, "indices": (n,), "updates": (*x[:axis], n, *x[axis % len(x) + 1 :])},
            {"axis": axis, "alpha": (1.0, -0.3)[len(x) % 2]},
            {"indices": f"index:{x[axis]}"},
            size=size,
        )
        for x, n, axis, size in ROWS
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (2,), "updates": (2, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": (3, 4), "indices": (2,), "updates": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": (2, 1), "updates": (2, 4)}, BadTensorShape),
        ErrorCase({"x": (3,), "indices": (2,), "updates": (2,)}, BadTensorDtype, dtypes={"T": I32}),
    ],
    exact=True,
    device_error=INDEX_ERROR,
)


def _fill_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    axis_of("index_fill", values["axis"], len(inputs[0]))
    return [tuple(inputs[0])]


def _fill(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x, indices), axis = inputs, values["axis"] % outputs[0].ndim
    shape = (*x.spec.shape[:axis], *indices.spec.shape, *x.spec.shape[axis + 1 :])
    return e("scatter", x, indices, e.fill(shape, values["value"], x.spec.dtype), axis=axis)


def _fill_reference(x: Any, indices: Any, axis: int, value: float) -> Any:
    y, size = x.copy(), x.shape[axis]
    known = indices[(-size <= indices) & (indices < size)].astype(np.int64)
    np.moveaxis(y, axis, 0)[known] = convert(np.array(value), x.dtype)
    return y


declare(
    "index_fill",
    "IDXF",
    "x: T[*s], indices: I[n] -> y: T[*s]",
    {"T": PLAIN, "I": INDICES},
    family="movement",
    doc=(
        "`value`, converted as `cast` does, at the indices along `axis`, else x (PyTorch's index_fill)."
        f" {OUTSIDE} writes nothing."
    ),
    reference=_fill_reference,
    attrs=attrs("IXF1", AXIS, number("value", doc="what to write")),
    shapes=_fill_shapes,
    normal_form=as_given,
    decompose=_fill,
    samples=lambda: [
        Sample({"x": x, "indices": (n,)}, {"axis": axis, "value": -2.5}, {"indices": f"index:{x[axis]}"}, size=size)
        for x, n, axis, size in ROWS
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (2,)}, InvalidArgument, {"axis": 2, "value": 0.0}),
        ErrorCase({"x": (), "indices": (2,)}, InvalidArgument, {"value": 0.0}),
        ErrorCase({"x": (3, 4), "indices": (2, 1)}, BadTensorShape, {"value": 0.0}),
        ErrorCase({"x": (3, 4), "indices": (2,)}, InvalidArgument),
        ErrorCase({"x": (3,), "indices": (2,)}, BadTensorDtype, {"value": 0.0}, dtypes={"indices": F32}),
    ],
    exact=True,
    device_error=INDEX_ERROR,
)


# add_id


def _add_id_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, table, indices = inputs
    if len(x) == 0 or x[:-1] != indices or x[-1] != table[1]:
        given = f"x is {list(x)} with table {list(table)} and indices {list(indices)}"
        raise BadTensorShape("add_id", given, allowed="the indices' dims, then the table's last one")
    return [tuple(x)]


def _add_id_reference(x: Any, table: Any, indices: Any) -> Any:
    size = table.shape[0]
    known = (-size <= indices) & (indices < size)
    rows = table[np.where(known, indices, 0)] if size else np.zeros(x.shape)
    return x + np.where(known[..., None], rows, 0)


declare(
    "add_id",
    "ADID",
    "x: T[*s], table: T[n, d], indices: I[*i] -> y: T[*s]",
    {"T": FLOATS, "I": INDICES},
    family="movement",
    doc=f"x[…, :] + table[indices[…], :], as the biases of chosen experts (ggml's add_id). {OUTSIDE} adds nothing.",
    reference=_add_id_reference,
    tolerance=Tolerance(1),
    shapes=_add_id_shapes,
    normal_form=as_given,
    decompose=lambda e, i, v, o: e("add", i[0], e("gather", i[1], i[2], axis=0)),
    samples=lambda: [
        Sample({"x": (*i, d), "table": (n, d), "indices": i}, {}, {"indices": f"index:{n}"}, size=size)
        for i, n, d, size in [
            ((), 3, 5, "small"),
            ((4,), 3, 33, "small"),
            ((2, 3), 5, 4, "small"),
            ((2, 1, 2, 1, 2, 1, 2), 3, 3, "small"),
            ((0,), 3, 4, "small"),
            ((3,), 4, 0, "small"),
            ((103, 4), 8, 129, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4), "table": (2, 4), "indices": (2,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "table": (2, 5), "indices": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "table": (4,), "indices": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "table": (2, 4), "indices": (3,)}, BadTensorDtype, dtypes={"indices": F32}),
    ],
    device_error=INDEX_ERROR,
)


# Counts


def _bincount(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, length = inputs[0], values["length"]
    # An index below 0 becomes less than -length, so that it does not count from the end
    below, dtype = ("x0", I64) if length >> 31 else (f"maximum(x0, {length - (1 << 31)})", x.spec.dtype)
    at = e.loop("a->a", f"x0 if x0 >= 0 else {below} - {length}", e.cast(e.reshape(x, (x.spec.numel,)), dtype))
    return e.cast(_count(e, at, length), I64)


def _count(e: Emitter[V], at: V, length: int) -> V:
    """Emit how often each number below `length` is in at[n], in the shortest integers that count all."""
    dtype = I64 if at.spec.numel >> 31 else I32
    ones = e.fill(at.spec.shape, 1.0, dtype)
    return e("scatter", e.fill((length,), 0.0, dtype), at, ones, axis=0, reduction="add")


def _bincount_reference(x: Any, length: int) -> Any:
    return np.bincount(x[(x >= 0) & (x < length)].astype(np.int64), minlength=length)


declare(
    "bincount",
    "BINC",
    "x: I[*s] -> y: I64[length]",
    {"I": INDICES},
    family="reduction",
    doc=(
        "How often each number from 0 to length - 1 is an element of x (NumPy's bincount; the length is given, since no"
        " shape here depends on values). Any other number is not counted, and raises InvalidArgument as an index of"
        " `scatter` does."
    ),
    reference=_bincount_reference,
    attrs=attrs("BNC1", integer("length", doc="of y", minimum=0, maximum=1 << 31)),
    normal_form=as_given,
    decompose=_bincount,
    samples=lambda: [
        Sample({"x": x}, {"length": length}, {"x": f"length:{length - 1}"}, size=size)
        for x, length, size in [
            ((), 3, "small"),
            ((7,), 5, "small"),
            ((3, 33), 9, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), 4, "small"),
            ((0,), 3, "small"),
            ((33,), 1, "small"),
            ((43, 71), 5, "small"),
            ((201, 103), 301, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,)}, InvalidArgument),
        ErrorCase({"x": (3,)}, InvalidArgument, {"length": -1}),
        ErrorCase({"x": (3,)}, BadTensorShape, {"length": 3}, outputs={"y": (4,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, {"length": 3}, dtypes={"x": F32}),
    ],
    exact=True,
    device_error="element {at} of x is {value}, out of range for the counts",
)


def _check_range(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    if not values["min"] < values["max"]:
        raise InvalidArgument("histc", f"min={values['min']}, max={values['max']}", allowed="min below max")


def _histc(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the number of each element's bin, a bin more for what is in none, and count all of them."""
    x, bins = inputs[0], values["bins"]
    low, high, scale = (constant(v) for v in _range(values))
    place = f"minimum(floor((x0 - {low}) * {scale}), {bins - 1}) if x0 >= {low} and x0 <= {high} else {bins}"
    wide = x.spec.dtype.compute
    at = e.cast(e.loop("a->a", place, e.reshape(x, (x.spec.numel,)), dtype=wide), I32)
    return e.cast(e("slice", _count(e, at, bins + 1), starts=(0,), ends=(bins,)), x.spec.dtype)


def _range(values: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the ends, and bins for each unit between them."""
    low, high = values["min"], values["max"]
    return low, high, values["bins"] / (high - low)


def _histc_reference(x: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
    wide, bins = out[0].dtype.compute.numpy, values["bins"]
    low, high, scale = (np.asarray(v, wide) for v in _range(values))
    given = x.astype(wide).reshape(-1)
    inside = given[(given >= low) & (given <= high)]
    at = np.minimum(np.floor((inside - low) * scale), bins - 1).astype(np.int64)
    return convert(np.bincount(at, minlength=bins), out[0].dtype.numpy)


declare(
    "histc",
    "HSTC",
    "x: T[*s] -> y: T[bins]",
    {"T": FLOATS},
    family="reduction",
    doc=(
        "How many elements of x are in each of `bins` equal bins between min and max; max itself is in the last one,"
        " and others, or NaN, in none (PyTorch's histc). Bin floor((x - min) · s) with s = bins / (max - min),"
        " in the compute type: that rounding decides near a bin's edge."
    ),
    reference=_histc_reference,
    attrs=attrs(
        "HSC1",
        integer("bins", 100, "how many", minimum=1, maximum=1 << 20),
        number("min", doc="the beginning of the first bin", minimum=-1e30, maximum=1e30),
        number("max", doc="the end of the last bin", minimum=-1e30, maximum=1e30),
    ),
    check=_check_range,
    normal_form=as_given,
    decompose=_histc,
    samples=lambda: [
        Sample({"x": x}, {"bins": bins, "min": low, "max": high}, {"x": "moderate"}, size=size)
        for x, bins, low, high, size in [
            ((), 3, -8.0, 8.0, "small"),
            ((7,), 5, -1.5, 4.1, "small"),
            ((3, 133), 16, -8.0, 8.0, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), 4, -3.0, 0.0, "small"),
            ((0,), 3, 0.0, 1.0, "small"),
            ((33,), 1, 0.0, 1.0, "small"),
            ((3, 1001), 5, -6.0, 5.0, "small"),
            ((201, 103), 64, -5.0, 7.0, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,)}, InvalidArgument),
        ErrorCase({"x": (3,)}, InvalidArgument, {"bins": 0, "min": 0.0, "max": 1.0}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"bins": 3, "min": 1.0, "max": 1.0}),
        ErrorCase({"x": (3,)}, BadTensorDtype, {"bins": 3, "min": 0.0, "max": 1.0}, dtypes={"T": I32}),
    ],
    exact=True,
)
