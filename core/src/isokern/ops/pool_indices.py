"""max_pool2d_with_indices: the largest element of each window, and where it is in the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import FLOATS, I64
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .pool2d import WINDOW, shapes_of, window_of

NAME = "max_pool2d_with_indices"
_pooled = shapes_of(NAME)


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    y = _pooled(inputs, values)[0]
    _, _, (top, left, bottom, right), (dh, dw) = window_of(NAME, values)
    h, w = inputs[0][2:]
    if (top + bottom > 0 and h < dh) or (left + right > 0 and w < dw):
        given = f"x is {list(inputs[0])} with dilation {values['dilation']}"
        raise BadTensorShape(NAME, given, allowed="height and width of at least the dilation, beside padding")
    return [y, y]


def _places(e: Emitter[V], size: int, out: int, window: int, stride: int, low: int, dilation: int) -> V:
    """Emit which row each row of each window is; one in the padding is the nearest of the window that is not."""
    at = e.loop("a,b->ab", f"x0 * {stride} + x1 * {dilation} - {low}", e.iota(out, I64), e.iota(window, I64))
    up = f"x0 + {dilation} * quotient({dilation - 1} - x0, {dilation})"
    down = f"x0 - {dilation} * quotient(x0 + {dilation - size}, {dilation})"
    return e.loop("ab->ab", f"{up} if x0 < 0 else {down} if x0 >= {size} else x0", at)


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, V]:
    """Emit the windows with their elements last, the first largest of each, and its place in the flat image.

    An element that stands for the padding before it comes earlier than itself, but names the same place.
    """
    (x,), (n, c, oh, ow) = inputs, outputs[0].shape
    (kh, kw), (sh, sw), (top, left, _, _), (dh, dw) = window_of(NAME, values)
    h, w = x.spec.shape[2:]
    rows, columns = _places(e, h, oh, kh, sh, top, dh), _places(e, w, ow, kw, sw, left, dw)
    windows = e("gather", e("gather", x, rows, axis=2), columns, axis=4)
    windows = e("transpose", windows, axes=(0, 1, 2, 4, 3, 5))
    windows = e.collapse(windows, (1, 1, 1, 1, 2))
    chosen = e.reshape(e("argmax", windows, axis=-1), (n * c, oh * ow))
    flat = e.collapse(e.loop("ab,cd->acbd", f"x0 * {w} + x1", rows, columns), (4,))
    at = e.loop("ab,b->ab", f"x0 + x1 * {kh * kw}", chosen, e.iota(oh * ow, I64))
    return e("reduce_max", windows, axes=(4,)), e.reshape(e("gather", flat, at, axis=0), (n, c, oh, ow))


def _reference(x: Any, **values: Any) -> tuple[Any, Any]:
    kernel, stride, (top, left, _, _), dilation = window_of(NAME, values)
    n, c, h, w = x.shape
    _, _, oh, ow = _pooled([x.shape], values)[0]
    y, at = np.zeros((n, c, oh, ow)), np.full((n, c, oh, ow), -1, np.int64)
    for i, j, a, b in np.ndindex(oh, ow, *kernel):
        row, column = i * stride[0] + a * dilation[0] - top, j * stride[1] + b * dilation[1] - left
        if 0 <= row < h and 0 <= column < w:
            given, best = x[:, :, row, column], y[:, :, i, j]
            better = (at[:, :, i, j] < 0) | (given > best) | (np.isnan(given) & ~np.isnan(best))
            y[:, :, i, j] = np.where(better, given, best)
            at[:, :, i, j] = np.where(better, row * w + column, at[:, :, i, j])
    return y, at


SAMPLES: SampleTable = [
    ((1, 1, 2, 2), {"kernel": (2, 2)}, "small"),
    ((1, 3, 9, 7), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0)}, "small"),
    ((1, 2, 9, 9), {"kernel": (2, 3), "dilation": (2, 2), "stride": (1, 1), "padding": (0, 1, 2, 3)}, "small"),
    ((2, 1, 7, 35), {"kernel": (1, 5), "stride": (1, 1)}, "small"),
    ((0, 2, 4, 4), {"kernel": (2, 2)}, "small"),
    ((1, 0, 4, 4), {"kernel": (2, 2)}, "small"),
    ((1, 1, 6, 6), {"kernel": (3, 3), "stride": (1, 1), "padding": (2, 2)}, "small"),
    ((1, 9, 33, 31), {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 1)}, "wide"),
]

declare(
    NAME,
    "MXPI",
    "x: T[n, c, h, w] -> y: T[n, c, oh, ow], indices: I64[n, c, oh, ow]",
    {"T": FLOATS},
    family="pooling",
    doc=(
        "Maximum of each window, and its place in the flat image of its channel, never in the padding: of the first"
        " largest element, or of the first NaN, row by row (PyTorch's max_pool2d with return_indices; ONNX MaxPool"
        " counts through all images). `max_unpool` is its inverse."
    ),
    reference=_reference,
    tolerance=Tolerance(0),
    attrs=attrs("MXI1", *WINDOW),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_parts,
    flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
    samples=lambda: [Sample({"x": x}, values, size=size) for x, values, size in SAMPLES],
    errors=[
        ErrorCase({"x": (1, 1, 2, 2)}, InvalidArgument),
        ErrorCase({"x": (1, 1, 2, 2)}, BadTensorShape, {"kernel": (3, 3)}),
        ErrorCase({"x": (1, 1, 4, 4)}, InvalidArgument, {"kernel": (2, 2), "padding": (2, 2)}),
        ErrorCase({"x": (1, 1, 1, 4)}, BadTensorShape, {"kernel": (2, 2), "padding": (1, 0), "dilation": (2, 1)}),
        ErrorCase({"x": (1, 4, 4)}, BadTensorShape, {"kernel": (2, 2)}),
    ],
)
