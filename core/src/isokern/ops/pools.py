"""Pools in 1 to 3 dims with ceil_mode, adaptive pools, and the norm of whole images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, flag, integer, integers
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..declare.operator import Decompose
from ..dtypes import FLOATS, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import extent
from .convolutions import PLACES, SPATIAL, borders, each, slide
from .pool2d import bins

Shape = tuple[int, ...]
LP_DOC = (
    "(Σ |x|ᵖ)^(1/p) of each window (ONNX LpPool). PyTorch's sums xᵖ, and multiplies the mean of a window that passes"
    " the end by all of its elements."
)
P = integer("p", 2, "of the norm", minimum=1, maximum=64)


def _place_count(where: str, size: int, low: int, high: int, window: Sequence[int], ceil_mode: bool) -> int:
    """Return how many windows (length, stride, dilation) fit; with ceil_mode the last may pass the end."""
    kernel, stride, dilation = window
    count = extent(where, "a dim", size, low, high, kernel, stride, dilation)
    rest = (size + low + high - dilation * (kernel - 1) - 1) % stride
    return count + 1 if ceil_mode and rest > 0 and count * stride < size + low else count


def window(where: str, values: Mapping[str, Any], dims: int) -> list[Shape]:
    """Return (length, stride, dilation) of the window for each dim."""
    kernel = each(where, "kernel", values["kernel"], dims)
    stride = each(where, "stride", values["stride"], dims) if values["stride"] else kernel
    dilation = each(where, "dilation", values["dilation"], dims)
    return [(kernel[i], stride[i], dilation[i]) for i in range(dims)]


def _pool_shapes(where: str, dims: int) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x = inputs[0]
        windows = window(where, values, dims)
        low, high = borders(where, values["padding"], dims)
        made = []
        for i in range(dims):
            reach = windows[i][2] * (windows[i][0] - 1)
            if max(low[i], high[i]) > reach:
                given = f"padding {low[i]} and {high[i]} with kernel={values['kernel']}"
                raise InvalidArgument(where, given, allowed="less than the window")
            made.append(_place_count(where, x[2 + i], low[i], high[i], windows[i], values["ceil_mode"]))
        return [(*x[:2], *made)]

    return shapes


def _behind(size: int, low: int, window: Shape, places: int) -> int:
    """Return how many elements the last window needs behind x."""
    kernel, stride, dilation = window
    return max(0, (places - 1) * stride + dilation * (kernel - 1) + 1 - size - low)


def _pool_windows(e: Emitter[V], x: V, y: TensorDesc, where: str, values: Mapping[str, Any], largest: bool) -> V:
    """Emit the largest elements, or the means of whole windows: over the last one or two dims, then the first of three.

    What lies before and behind x counts as -∞, or as 0.
    """
    dims, dtype = y.ndim - 2, y.dtype if largest else y.dtype.compute
    windows, (low, _) = window(where, values, dims), borders(where, values["padding"], dims)
    behind = [_behind(x.spec.shape[2 + i], low[i], windows[i], y.shape[2 + i]) for i in range(dims)]
    sides = list(zip(windows, low, behind, strict=True))
    n, c, *sizes = x.spec.shape
    none = ((1, 1, 1), 0, 0)
    if dims < 3:
        image = (n, c, *[1] * (2 - dims), *sizes)
        made = _pool_image(e, e.reshape(x, image), [none] * (2 - dims) + sides, largest, dtype)
        return e.reshape(made, y.shape)
    flat = _pool_image(e, e.collapse(x, (1, 2, 1, 1)), sides[1:], largest, dtype)
    columns = e.reshape(flat, (n, c, sizes[0], y.shape[3] * y.shape[4]))
    return e.reshape(_pool_image(e, columns, [sides[0], none], largest, dtype), y.shape)


def _pool_image(e: Emitter[V], x: V, sides: Sequence[tuple[Shape, int, int]], largest: bool, dtype: DType) -> V:
    """Emit a pool of two dims, each with its window and its padding before and behind."""
    windows, low, behind = zip(*sides, strict=True)
    kernel, stride, dilation = zip(*windows, strict=True)
    if kernel == (1, 1) and stride == (1, 1):
        return e.cast(x, dtype)
    fields: dict[str, Any] = {"kernel": kernel, "stride": stride, "dilation": dilation, "padding": (*low, *behind)}
    if largest:
        return e("max_pool2d", x, **fields)
    return e("avg_pool2d", e.cast(x, dtype), count_include_pad=True, **fields)


def _elements(where: str, values: Mapping[str, Any], dims: int) -> int:
    """Return how many elements a window has, by which its mean becomes its sum."""
    return math.prod(kernel for kernel, _, _ in window(where, values, dims))


def _max_parts(where: str) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        return _pool_windows(e, inputs[0], outputs[0], where, values, largest=True)

    return decompose


def _mean_parts(where: str) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        """Emit the sums, divided by how many elements of each window count, which is a product over the dims."""
        x, y = inputs[0], outputs[0]
        dims, wide = y.ndim - 2, y.dtype.compute
        windows, (low, high) = window(where, values, dims), borders(where, values["padding"], dims)
        made, letters, counts = _pool_windows(e, x, y, where, values, largest=False), "abcde"[: y.ndim], []
        for i, (kernel, stride, dilation) in enumerate(windows):
            size = x.spec.shape[2 + i]
            first, last = (-low[i], size + high[i]) if values["count_include_pad"] else (0, size)
            place = f"x0 * {stride} + x1 * {dilation} - {low[i]}"
            body = f"1 if {place} >= {first} and {place} < {last} else 0"
            numbers = e.iota(y.shape[2 + i], I64), e.iota(kernel, I64)
            counts.append(e.cast(e.loop("o,k->o", body, *numbers, combine="sum"), wide))
        divisor = " * ".join(f"x{i}" for i in range(1, dims + 1))
        body = f"x0 * {_elements(where, values, dims)} / ({divisor})"
        return e.loop(f"{letters},{','.join(letters[2:])}->{letters}", body, made, *counts, dtype=y.dtype)

    return decompose


def _power(p: int) -> tuple[str, str]:
    """Return the term and the root of a norm."""
    if p <= 2:
        return (("abs(x0)", "x0"), ("x0 * x0", "sqrt(x0)"))[p - 1]
    return f"pow(abs(x0), {p})", f"pow(x0, {constant(1 / p)})"


def _lp_parts(where: str) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        x, y, (term, root) = inputs[0], outputs[0], _power(values["p"])
        loops = "abcde"[: y.ndim]
        powers = e.loop(f"{loops}->{loops}", term, e.cast(x, y.dtype.compute))
        means = _pool_windows(e, powers, y, where, values, largest=False)
        total = f"(x0 * {_elements(where, values, y.ndim - 2)})"
        return e.loop(f"{loops}->{loops}", root.replace("x0", total), means, dtype=y.dtype)

    return decompose


def _slide(x: Any, fill: float, **values: Any) -> Any:
    """Return the windows of a pool, for the references."""
    dims = x.ndim - 2
    windows, (low, high) = window("", values, dims), borders("", values["padding"], dims)
    places = [
        _place_count("", n, a, b, w, values["ceil_mode"])
        for n, a, b, w in zip(x.shape[2:], low, high, windows, strict=True)
    ]
    more = tuple(_behind(n, a, w, o) for n, a, w, o in zip(x.shape[2:], low, windows, places, strict=True))
    return slide(x, windows, (low, more), fill)


def _tail(x: Any) -> tuple[int, ...]:
    return tuple(range(-(x.ndim - 2), 0))


def _max(x: Any, **values: Any) -> Any:
    return _slide(x, -np.inf, **values).max(_tail(x), initial=-np.inf)


def _mean(x: Any, count_include_pad: bool, **values: Any) -> Any:
    view, (low, high) = _slide(x, 0.0, **values), borders("", values["padding"], x.ndim - 2)
    y, windows = view.sum(_tail(x)), window("", values, x.ndim - 2)
    for i, (kernel, stride, dilation) in enumerate(windows):
        before, behind = (low[i], high[i]) if count_include_pad else (0, 0)
        places = np.arange(y.shape[2 + i])[:, None] * stride + np.arange(kernel) * dilation - low[i]
        count = ((places >= -before) & (places < x.shape[2 + i] + behind)).sum(1)
        y = y / count.reshape(-1, *[1] * (y.ndim - 3 - i))
    return y


def _lp(x: Any, p: int, **values: Any) -> Any:
    return (np.abs(_slide(x, 0.0, **values)) ** p).sum(_tail(x)) ** (1 / p)


def _mean_scale(x: Any, **values: Any) -> Any:
    return 6 * _mean(np.abs(x), **values)


def _lp_scale(x: Any, p: int, **values: Any) -> Any:
    return (8 + math.log2(1 + math.prod(values["kernel"]))) * _lp(x, p, **values)


# A kind for each dims, its field, its parts, its reference, its bound and its meaning
POOLS: dict[str, Any] = {
    "max": ("MXP", (), _max_parts, _max, Tolerance(0), "Maximum of each window; padding counts as -∞; NaN gives NaN."),
    "avg": (
        "AVP",
        (flag("count_include_pad", False, "divide by the elements of the window that lie in x or its padding"),),
        _mean_parts,
        _mean,
        Tolerance(4, _mean_scale),
        "Mean of each window, over its elements inside x (or its padding too, with count_include_pad, as PyTorch's are"
        " unless told otherwise).",
    ),
    "lp": ("LPP", (P,), _lp_parts, _lp, Tolerance(4, _lp_scale), LP_DOC),
}
POOLED: SampleTable = [
    ((1, 1), (2, 2, 2), {"kernel": (2,)}),
    ((2, 3), (9, 5, 7), {"kernel": (3,), "stride": (2,), "padding": (1,), "ceil_mode": True}),
    ((1, 2), (6, 8, 7), {"kernel": (2,), "stride": (3,), "dilation": (2,), "ceil_mode": True}),
    ((1, 2), (5, 6, 4), {"kernel": (3,), "stride": (1,), "padding": (2,)}),
    ((0, 2), (3, 3, 3), {"kernel": (2,)}),
    ((1, 0), (3, 3, 3), {"kernel": (2,)}),
]
WIDE = ((2, 33, 9001), (2, 17, 61, 59), (2, 5, 11, 61, 59))


def _pool_samples(what: str, dims: int) -> list[Sample]:
    added: dict[str, dict[str, Any]] = {"avg": {"count_include_pad": True}, "lp": {"p": 3}}
    more = added.get(what, {})
    small = [Sample({"x": (*n, *sizes[:dims])}, values) for n, sizes, values in POOLED]
    other = [Sample({"x": s.shapes["x"]}, {**s.attrs, **more}) for s in small[1:2] if more]
    return [*small, *other, Sample({"x": WIDE[dims - 1]}, {"kernel": (3,), "padding": (1,)}, size="wide")]


for _name, _what, _dims in (
    ("max_pool3d", "max", 3),
    ("avg_pool3d", "avg", 3),
    ("lp_pool1d", "lp", 1),
    ("lp_pool2d", "lp", 2),
    ("lp_pool3d", "lp", 3),
):
    _kind, _fields, _parts, _reference, _tolerance, _doc = POOLS[_what]
    _one = (1, 1, *[3] * (_dims - 1))
    declare(
        _name,
        f"{_kind}{_dims}",
        f"x: T[n, c, {SPATIAL[_dims - 1]}] -> y: T[n, c, {PLACES[_dims - 1]}]",
        {"T": FLOATS},
        family="pooling",
        doc=_doc + " With ceil_mode the last window may pass the end, if it begins inside x or the padding before it.",
        reference=_reference,
        tolerance=_tolerance,
        attrs=attrs(
            f"{_kind}{_dims}",
            integers("kernel", doc=f"window: one or {_dims}", minimum=1),
            integers("stride", (), f"one or {_dims}; the window's size where empty", minimum=1),
            integers("padding", (0,), "one, one a dim, or all before and all behind; below the window", minimum=0),
            integers("dilation", (1,), f"one or {_dims}", minimum=1),
            flag("ceil_mode", False, "round the number of windows up"),
            *_fields,
        ),
        shapes=_pool_shapes(_name, _dims),
        normal_form=as_given,
        decompose=_parts(_name),
        flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
        samples=lambda what=_what, dims=_dims: _pool_samples(what, dims),
        errors=[
            ErrorCase({"x": (*_one, 4)}, InvalidArgument),
            ErrorCase({"x": (*_one, 2)}, BadTensorShape, {"kernel": (3,)}),
            ErrorCase({"x": (*_one, 4)}, InvalidArgument, {"kernel": (2,), "padding": (2,)}),
            ErrorCase({"x": (*_one[1:], 4)}, BadTensorShape, {"kernel": (2,)}),
            ErrorCase({"x": (*_one, 4)}, InvalidArgument, {"kernel": (2,) * (_dims + 1)}),
        ],
    )


# Adaptive pools


def _adaptive_shapes(where: str, dims: int) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x = inputs[0]
        if 0 in x[2:]:
            raise BadTensorShape(where, f"x is {list(x)}", allowed="dims from 1 behind the channels")
        return [(*x[:2], *each(where, "output_size", values["output_size"], dims))]

    return shapes


MOST_SLICES = 64  # bins that are reduced one by one; more are gathered first


def _bins_of_axis(e: Emitter[V], x: V, out: int) -> V:
    """Return the largest elements of bins of the middle dim of x[a, i, b]: of even ones, of a few, or of many.

    A bin that is shorter than others repeats its last element.
    """
    lead, size, rest = x.spec.shape
    if size % out == 0:
        return e("reduce_max", e.reshape(x, (lead, out, size // out, rest)), axes=(2,))
    runs = bins(size, out)
    if out <= MOST_SLICES:
        parts = [e("slice", x, starts=(r.start,), ends=(r.stop,), axes=(1,)) for r in runs]
        return e("concat", *(e("reduce_max", part, axes=(1,), keepdims=True) for part in parts), axis=1)
    longest = max(r.stop - r.start for r in runs)
    begin, end = f"quotient(x0 * {size}, {out})", f"quotient((x0 + 1) * {size} + {out - 1}, {out})"
    at = e.loop("o,k->ok", f"minimum({begin} + x1, {end} - 1)", e.iota(out, I64), e.iota(longest, I64))
    return e("reduce_max", e("gather", x, at, axis=1), axes=(2,))


def _largest_bins(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the bins of one axis after the other, that which shrinks most first."""
    made, shape, y = inputs[0], list(inputs[0].spec.shape), outputs[0]
    for axis in sorted(range(2, y.ndim), key=lambda i: y.shape[i] / max(1, shape[i])):
        rows = e.reshape(made, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
        if shape[axis] != y.shape[axis]:
            made = _bins_of_axis(e, rows, y.shape[axis])
        shape[axis] = y.shape[axis]
    return e.reshape(made, y.shape) if tuple(shape) != inputs[0].spec.shape else e("copy", inputs[0])


def _mean_bins(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit adaptive_avg_pool2d of the last one or two dims, then of the first of three."""
    (x,), y = inputs, outputs[0]
    n, c, *sizes = x.spec.shape
    if len(sizes) == 1:
        made = e("adaptive_avg_pool2d", e.reshape(x, (n, c, 1, *sizes)), output_size=(1, y.shape[2]))
        return e.reshape(made, y.shape)
    wide, (od, oh, ow) = e.cast(x, y.dtype.compute), y.shape[2:]
    flat = e("adaptive_avg_pool2d", e.collapse(wide, (1, 2, 1, 1)), output_size=(oh, ow))
    made = e("adaptive_avg_pool2d", e.reshape(flat, (n, c, sizes[0], oh * ow)), output_size=(od, oh * ow))
    return e.reshape(e.cast(made, y.dtype), y.shape)


def _adaptive(largest: bool) -> Callable[..., Any]:
    def reference(x: Any, output_size: Any) -> Any:
        y = x
        for axis, out in enumerate(each("", "", output_size, x.ndim - 2), 2):
            rows = np.moveaxis(y, axis, 0)
            parts = [rows[part].max(0) if largest else rows[part].mean(0) for part in bins(rows.shape[0], out)]
            y = np.moveaxis(np.stack(parts), 0, axis)
        return y

    return reference


def _adaptive_scale(x: Any, output_size: Any) -> Any:
    return 4 * (x.ndim - 2) * _adaptive(False)(np.abs(x), output_size)


BINNED: SampleTable = [
    ((1, 1), (1, 1, 1), (1,)),
    ((2, 3), (8, 4, 6), (2,)),
    ((1, 3), (7, 5, 9), (3, 2, 4)),
    ((1, 2), (3, 2, 4), (5, 4, 3)),
    ((0, 2), (3, 3, 3), (2,)),
]

for _name, _kind, _dims, _largest in (
    ("adaptive_avg_pool1d", "ADA1", 1, False),
    ("adaptive_avg_pool3d", "ADA3", 3, False),
    ("adaptive_max_pool1d", "ADM1", 1, True),
    ("adaptive_max_pool2d", "ADM2", 2, True),
    ("adaptive_max_pool3d", "ADM3", 3, True),
):
    declare(
        _name,
        _kind,
        f"x: T[n, c, {SPATIAL[_dims - 1]}] -> y: T[n, c, {PLACES[_dims - 1]}]",
        {"T": FLOATS},
        family="pooling",
        doc=("Maximum" if _largest else "Mean") + " of bins: bin i of n covers floor(i·size/n) to ceil((i+1)·size/n).",
        reference=_adaptive(_largest),
        tolerance=Tolerance(0) if _largest else Tolerance(4, _adaptive_scale),
        attrs=attrs(_kind, integers("output_size", doc=f"one or {_dims}", minimum=1)),
        shapes=_adaptive_shapes(_name, _dims),
        normal_form=as_given,
        decompose=_largest_bins if _largest else _mean_bins,
        flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
        samples=lambda dims=_dims: [
            *(Sample({"x": (*n, *s[:dims])}, {"output_size": o[:dims]}) for n, s, o in BINNED),
            Sample({"x": WIDE[dims - 1]}, {"output_size": (7,)}, size="wide"),
        ],
        errors=[
            ErrorCase({"x": (1, 1, *[4] * _dims)}, InvalidArgument),
            ErrorCase({"x": (1, 1, *[0] * _dims)}, BadTensorShape, {"output_size": (1,)}),
            ErrorCase({"x": (1, *[4] * _dims)}, BadTensorShape, {"output_size": (1,)}),
            ErrorCase({"x": (1, 1, *[4] * _dims)}, InvalidArgument, {"output_size": (1,) * 4}),
        ],
    )


# The norm of whole images


def _global_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x = inputs[0]
    if len(x) < 3:
        raise BadTensorShape("global_lp_pool", f"x is {list(x)}", allowed="dims behind the channels")
    return [(*x[:2], *[1 for _ in x[2:]])]


def _global(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, y, (term, root) = inputs[0], outputs[0], _power(values["p"])
    wide = e.cast(e.collapse(x, (1, 1, x.spec.ndim - 2)), y.dtype.compute)
    total = e.loop("abc->ab", term, wide, combine="sum")
    return e.reshape(e.loop("ab->ab", root, total, dtype=y.dtype), y.shape)


def _global_reference(x: Any, p: int) -> Any:
    return (np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)


declare(
    "global_lp_pool",
    "GLPP",
    "x: T[n, c, *s] -> y: T[n, c, *d]",
    {"T": FLOATS},
    family="pooling",
    doc="(Σ |x|ᵖ)^(1/p) of each channel, the other dims left as 1 (ONNX GlobalLpPool).",
    reference=_global_reference,
    tolerance=Tolerance(4, lambda x, p: (8 + math.log2(1 + math.prod(x.shape[2:]))) * _global_reference(x, p)),
    attrs=attrs("GLP1", P),
    shapes=_global_shapes,
    normal_form=as_given,
    decompose=_global,
    samples=lambda: [
        *(Sample({"x": x}, {"p": p}) for x, p in [((1, 1, 1), 2), ((2, 3, 7), 1), ((2, 3, 4, 5), 3), ((0, 2, 3), 2)]),
        Sample({"x": (2, 2, 0)}),
        Sample({"x": (4, 33, 61, 59)}, size="wide"),
    ],
    errors=[
        ErrorCase({"x": (2, 3)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 4)}, InvalidArgument, {"p": 0}),
        ErrorCase({"x": (2, 3, 4)}, BadTensorShape, outputs={"y": (2, 3)}),
    ],
)
