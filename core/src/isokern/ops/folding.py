"""Back from windows to an image: fold adds what overlaps, max_unpool puts each maximum at its place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integers
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import F32, FLOATS, I32, I64, INDICES, PLAIN, DType
from ..expr.stack_code import INPUTS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .conv2d import extent, pair, sides

Shape = tuple[int, ...]
TERMS = INPUTS - 1  # that a loop adds to a sum


def _windows(values: Mapping[str, Any]) -> Any:
    names = ("size", "kernel", "stride", "dilation")
    size, kernel, stride, dilation = [pair("fold", n, values[n]) for n in names]
    return size, kernel, stride, sides("fold", values["padding"]), dilation


def _fold_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (n, k, count), ((h, w), (kh, kw), (sh, sw), (top, left, bottom, right), (dh, dw)) = inputs[0], _windows(values)
    rows = extent("fold", "height", h, top, bottom, kh, sh, dh)
    columns = extent("fold", "width", w, left, right, kw, sw, dw)
    if k % (kh * kw) != 0 or count != rows * columns:
        allowed = f"[n, c · {kh * kw}, {rows * columns}]: {rows} × {columns} windows"
        raise BadTensorShape("fold", f"x is {list(inputs[0])}", allowed=allowed)
    return [(n, k // (kh * kw), h, w)]


def _add_windows(e: Emitter[V], x: V, stride: int, dilation: int, low: int, size: int, dtype: DType) -> V:
    """Return [a, b, size, c]: along one dim, the sums of what windows x[a, kernel, b, places, c] have at each element.

    Element k of window i is at i·stride + k·dilation - low. Numbers k of different remainders by the stride never
    meet. Those of one remainder are added as copies of x, each moved by one place more than the one before.
    """
    lead, kernel, middle, count, inner = x.spec.shape
    if dilation > 1 and stride > 1:  # windows with nothing between them
        x = e(
            "pad", e.reshape(x, (lead, kernel, middle, count, 1, inner)), low=(0,) * 6, high=(0, 0, 0, 0, stride - 1, 0)
        )
        count, stride = count * stride, 1
        x = e.reshape(x, (lead, kernel, middle, count, inner))
    terms, first = -(-kernel // stride), low // stride
    length, reach = (low + size - 1) // stride - first + 1, (terms - 1) * dilation
    before, behind = max(0, reach - first), max(0, first + length - count)
    if before or behind or terms * stride > kernel:
        more = terms * stride - kernel
        x = e("pad", x, low=(0, 0, 0, before, 0), high=(0, more, 0, behind, 0))
    split = e.reshape(x, (lead, terms, stride, middle, before + count + behind, inner))
    parts = []
    for t in range(terms):
        start = first + before - t * dilation
        part = e("slice", split, starts=(t, start), ends=(t + 1, start + length), axes=(1, 4))
        parts.append(e.collapse(part, (2, 1, 1, 1, 1)))
    y = parts[0]
    for at in range(1, terms, TERMS):
        some = [y, *parts[at : at + TERMS]]
        body = " + ".join(f"x{i}" for i in range(len(some)))
        y = e.loop(",".join(["abcde"] * len(some)) + "->abcde", body, *some, dtype=dtype)
    made = e.reshape(e("transpose", y, axes=(0, 2, 3, 1, 4)), (lead, middle, length * stride, inner))
    if length * stride == size:
        return made
    start = low - first * stride
    return e("slice", made, starts=(start,), ends=(start + size,), axes=(2,))


def _fold(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the sums of what overlaps along the width, and then those along the height."""
    (x,), y = inputs, outputs[0]
    (h, w), (kh, kw), (sh, sw), (top, left, bottom, _), (dh, dw) = _windows(values)
    if y.numel == 0:
        return e.fill(y.shape, 0.0, y.dtype)
    n, c, wide = *y.shape[:2], y.dtype.compute
    rows = extent("fold", "height", h, top, bottom, kh, sh, dh)
    columns = x.spec.shape[2] // rows
    made = _add_windows(e, e.reshape(x, (n * c * kh, kw, rows, columns, 1)), sw, dw, left, w, wide)
    made = _add_windows(e, e.reshape(made, (n * c, kh, 1, rows, w)), sh, dh, top, h, wide)
    return e.cast(e.reshape(made, y.shape), y.dtype)


def _fold_reference(x: Any, **values: Any) -> Any:
    (h, w), (kh, kw), (sh, sw), (top, left, bottom, right), (dh, dw) = _windows(values)
    n, k, _ = x.shape
    image = np.zeros((n, k // (kh * kw), h + top + bottom, w + left + right))
    rows, columns = (image.shape[2] - dh * (kh - 1) - 1) // sh + 1, (image.shape[3] - dw * (kw - 1) - 1) // sw + 1
    parts = x.reshape(n, image.shape[1], kh, kw, rows, columns)
    for i, j in np.ndindex(kh, kw):
        there = slice(i * dh, i * dh + sh * rows, sh), slice(j * dw, j * dw + sw * columns, sw)
        image[:, :, there[0], there[1]] += parts[:, :, i, j]
    return image[:, :, top : top + h, left : left + w]


def _fold_scale(x: Any, **values: Any) -> Any:
    """Return a rounding of the sum so far for each term of an element."""
    counts = _fold_reference(np.ones_like(x), **values)
    return np.maximum(counts - 1, 0) * _fold_reference(np.abs(x), **values)


FOLDED: SampleTable = [
    ((1, 4, 1), {"size": (2, 2), "kernel": (2, 2)}, "small"),
    ((2, 18, 30), {"size": (5, 6), "kernel": (3, 2), "padding": (1, 1, 1, 0)}, "small"),
    ((1, 8, 9), {"size": (7, 6), "kernel": (2,), "stride": (2,), "dilation": (2, 1)}, "small"),
    ((1, 2, 20), {"size": (3, 4), "kernel": (1, 1), "padding": (0, 1, 1, 0)}, "small"),
    ((0, 8, 6), {"size": (3, 4), "kernel": (2, 2)}, "small"),
    ((1, 0, 6), {"size": (3, 4), "kernel": (2, 2)}, "small"),
    ((1, 9, 1023), {"size": (3, 1025), "kernel": (3, 3)}, "small"),
    ((1, 4, 2100), {"size": (2, 2101), "kernel": (2, 2)}, "small"),
    ((1, 9, 4200), {"size": (141, 121), "kernel": (3, 3), "stride": (2, 2)}, "small"),
    ((2, 3, 14), {"size": (2, 60), "kernel": (1, 3), "stride": (1, 9)}, "small"),
    ((1, 36, 41 * 39), {"size": (41, 39), "kernel": (3, 3), "padding": (1, 1)}, "wide"),
]

declare(
    "fold",
    "FOLD",
    "x: T[n, k, l] -> y: T[n, c, h, w]",
    {"T": FLOATS},
    family="pooling",
    doc=(
        "The sum of windows at their places in an image of `size`, 0 if there is none: the transpose of `im2col`"
        " (PyTorch's fold, ONNX Col2Im of two dims). A sum is rounded to T once."
    ),
    reference=_fold_reference,
    tolerance=Tolerance(1, _fold_scale),
    attrs=attrs(
        "FLD1",
        integers("size", doc="of the image: one or two", minimum=0),
        integers("kernel", doc="window: one or two", minimum=1),
        integers("stride", (1, 1), "one or two", minimum=1),
        integers("padding", (0, 0), "one, two (h, w) or four (top, left, bottom, right)", minimum=0),
        integers("dilation", (1, 1), "one or two", minimum=1),
    ),
    shapes=_fold_shapes,
    normal_form=as_given,
    decompose=_fold,
    flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
    samples=lambda: [Sample({"x": x}, values, size=size) for x, values, size in FOLDED],
    errors=[
        ErrorCase({"x": (1, 4, 2)}, BadTensorShape, {"size": (2, 2), "kernel": (2, 2)}),
        ErrorCase({"x": (1, 3, 1)}, BadTensorShape, {"size": (2, 2), "kernel": (2, 2)}),
        ErrorCase({"x": (4, 1)}, BadTensorShape, {"size": (2, 2), "kernel": (2, 2)}),
        ErrorCase({"x": (1, 9, 1)}, BadTensorShape, {"size": (2, 2), "kernel": (3, 3)}),
        ErrorCase({"x": (1, 4, 1)}, InvalidArgument, {"size": (2, 2, 2), "kernel": (2, 2)}),
        ErrorCase({"x": (1, 4, 1)}, InvalidArgument, {"kernel": (2, 2)}),
        ErrorCase({"x": (1, 4, 1)}, BadTensorDtype, {"size": (2, 2), "kernel": (2, 2)}, dtypes={"T": I32}),
    ],
)


def _unpool_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, indices = inputs
    if len(x) < 3 or indices != x:
        given = f"x is {list(x)} with indices {list(indices)}"
        raise BadTensorShape("max_unpool", given, allowed="one shape of both, with dims behind the channels")
    if len(values["size"]) != len(x) - 2:
        raise InvalidArgument("max_unpool", f"size={values['size']}", allowed=f"{len(x) - 2} integers")
    return [(*x[:2], *values["size"])]


def _unpool(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x, indices), plane = inputs, math.prod(outputs[0].shape[2:])
    planes = math.prod(x.spec.shape[:2])
    given = e.cast(e.reshape(indices, (planes, math.prod(x.spec.shape[2:]))), I64)
    place = f"x0 + x1 * {plane} if 0 <= x0 and x0 < {plane} else {planes * plane}"
    at = e.loop("ab,a->ab", place, given, e.iota(planes, I64))
    zeros = e.fill((planes * plane,), 0.0, x.spec.dtype)
    flat = e.collapse(x, (x.spec.ndim,))
    return e.reshape(e("scatter", zeros, e.collapse(at, (2,)), flat, axis=0), outputs[0].shape)


def _unpool_reference(x: Any, indices: Any, size: Any) -> Any:
    y = np.zeros((*x.shape[:2], math.prod(size)), x.dtype)
    for place in np.ndindex(x.shape):
        at = int(indices[place])
        if 0 <= at < y.shape[2]:
            y[place[0], place[1], at] = x[place]
    return y.reshape((*x.shape[:2], *size))


declare(
    "max_unpool",
    "MXUP",
    "x: T[n, c, *s], indices: I[n, c, *s] -> y: T[n, c, *d]",
    {"T": PLAIN, "I": INDICES},
    family="pooling",
    doc=(
        "Each element of x at its index in the flat image of its channel, of `size`, and 0 elsewhere; of equal indices"
        " the last counts (PyTorch's max_unpool1d to 3d; ONNX MaxUnpool counts through all images). An index out of"
        " range writes nothing and raises InvalidArgument as one of `scatter` does."
    ),
    reference=_unpool_reference,
    attrs=attrs("MXU1", integers("size", doc="of an image of y, one for each dim behind the channels", minimum=0)),
    shapes=_unpool_shapes,
    normal_form=as_given,
    decompose=_unpool,
    samples=lambda: [
        Sample({"x": x, "indices": x}, {"size": size}, {"indices": f"length:{max(0, math.prod(size) - 1)}"}, size=kind)
        for x, size, kind in [
            ((1, 1, 2), (4,), "small"),
            ((2, 3, 5), (10,), "small"),
            ((2, 2, 3, 4), (7, 8), "small"),
            ((1, 2, 2, 1, 3), (4, 2, 6), "small"),
            ((0, 2, 3), (6,), "small"),
            ((2, 3, 0), (4,), "small"),
            ((1, 3, 65), (131,), "small"),
            ((2, 8, 21, 19), (43, 38), "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (2, 3), "indices": (2, 3)}, BadTensorShape, {"size": ()}),
        ErrorCase({"x": (2, 3, 4), "indices": (2, 3, 5)}, BadTensorShape, {"size": (8,)}),
        ErrorCase({"x": (2, 3, 4), "indices": (2, 3, 4)}, InvalidArgument, {"size": (8, 8)}),
        ErrorCase({"x": (2, 3, 4), "indices": (2, 3, 4)}, InvalidArgument),
        ErrorCase({"x": (2, 3, 4), "indices": (2, 3, 4)}, BadTensorDtype, {"size": (8,)}, dtypes={"indices": F32}),
    ],
    exact=True,
    device_error="indices[{at}] is {value}, out of range for the image",
)
