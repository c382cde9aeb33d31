"""Windows as a tensor of their own: im2col_3d and unfold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given, axis_of
from ..dtypes import I64, PLAIN
from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import extent
from .convolutions import borders, slide
from .pools import Shape, window


def _columns_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, windows = inputs[0], window("im2col_3d", values, 3)
    low, high = borders("im2col_3d", values["padding"], 3)
    count, volume = 1, x[1]
    for i in range(3):
        kernel, stride, dilation = windows[i]
        volume = volume * kernel
        count = count * extent("im2col_3d", f"dim {2 + i}", x[2 + i], low[i], high[i], kernel, stride, dilation)
    return [(x[0], volume, count)]


def _columns(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, windows = inputs[0], window("im2col_3d", values, 3)
    low, high = borders("im2col_3d", values["padding"], 3)
    y = e("pad", x, low=(0, 0, *low), high=(0, 0, *high)) if any((*low, *high)) else x
    for i, (kernel, stride, dilation) in enumerate(windows):
        places = extent("", "", y.spec.shape[2 + 2 * i], 0, 0, kernel, stride, dilation)
        body = f"x0 * {dilation} + x1 * {stride}"
        at = e.loop("a,b->ab", body, e.iota(kernel, I64), e.iota(places, I64))
        y = e("gather", y, at, axis=2 + 2 * i)
    return e.collapse(e("transpose", y, axes=(0, 1, 2, 4, 6, 3, 5, 7)), (1, 4, 3))


def _columns_reference(x: Any, **values: Any) -> Any:
    windows, (low, high) = window("", values, 3), borders("", values["padding"], 3)
    bits = x.view(f"u{x.dtype.itemsize}")  # NumPy makes no windows of F8E5M2
    room = np.zeros((*x.shape[:2], *(a + n + b for a, n, b in zip(low, x.shape[2:], high, strict=True))), bits.dtype)
    inner = [slice(None)] * 2 + [slice(a, a + n) for a, n in zip(low, x.shape[2:], strict=True)]
    room[tuple(inner)] = bits
    view = slide(room, windows, ((0,) * 3, (0,) * 3), 0)
    made = view.transpose(0, 1, 5, 6, 7, 2, 3, 4)
    return made.reshape(x.shape[0], math.prod(made.shape[1:5]), math.prod(made.shape[5:])).view(x.dtype)


declare(
    "im2col_3d",
    "I2C3",
    "x: T[n, c, d, h, w] -> y: T[n, k, l]",
    {"T": PLAIN},
    family="movement",
    doc="Each window of a volume as a column, channels slowest, 0 outside the volume: im2col in three dims.",
    reference=_columns_reference,
    attrs=attrs(
        "I2C3",
        integers("kernel", doc="window: one or three", minimum=1),
        integers("stride", (1,), "one or three", minimum=1),
        integers("padding", (0,), "one, three, or six: before each dim, then behind", minimum=0),
        integers("dilation", (1,), "one or three", minimum=1),
    ),
    shapes=_columns_shapes,
    normal_form=as_given,
    decompose=_columns,
    samples=lambda: [
        Sample({"x": (1, 1, 2, 2, 2)}, {"kernel": (2,)}),
        Sample({"x": (2, 3, 4, 3, 5)}, {"kernel": (2, 1, 3), "padding": (1, 0, 1), "stride": (2, 1, 1)}),
        Sample({"x": (1, 2, 3, 5, 4)}, {"kernel": (2,), "dilation": (1, 2, 1), "padding": (0, 1, 0, 1, 0, 0)}),
        Sample({"x": (0, 2, 3, 3, 3)}, {"kernel": (2,)}),
        Sample({"x": (1, 2, 11, 31, 33)}, {"kernel": (3,), "padding": (1,)}, size="wide"),
    ],
    errors=[
        ErrorCase({"x": (1, 1, 2, 3, 3)}, BadTensorShape, {"kernel": (3,)}),
        ErrorCase({"x": (1, 2, 2, 2)}, BadTensorShape, {"kernel": (1,)}),
        ErrorCase({"x": (1, 1, 2, 2, 2)}, InvalidArgument, {"kernel": (1, 1)}),
        ErrorCase({"x": (1, 1, 2, 2, 2)}, InvalidArgument, {"kernel": (1,), "stride": (0,)}),
    ],
    exact=True,
)


def _unfold_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, size, step = inputs[0], values["size"], values["step"]
    if len(x) == MAX_RANK:
        raise BadTensorShape("unfold", f"x has rank {len(x)}", allowed=f"up to {MAX_RANK - 1}")
    axis = axis_of("unfold", values["axis"], len(x))
    return [(*x[:axis], extent("unfold", f"dim {axis}", x[axis], 0, 0, size, step), *x[axis + 1 :], size)]


def _unfold(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, y = inputs[0], outputs[0]
    axis = values["axis"] % x.spec.ndim
    numbers = e.iota(y.shape[axis], I64), e.iota(values["size"], I64)
    at = e.loop("a,b->ab", f"x0 * {values['step']} + x1", *numbers)
    order = [i for i in range(y.ndim) if i != axis + 1] + [axis + 1]
    made = e("gather", x, at, axis=axis)
    return e("transpose", made, axes=tuple(order)) if order != sorted(order) else made


def _unfold_reference(x: Any, axis: int, size: int, step: int) -> Any:
    bits = x.view(f"u{x.dtype.itemsize}")  # as above
    windows = np.moveaxis(np.lib.stride_tricks.sliding_window_view(bits, size, axis), axis % x.ndim, 0)
    return np.moveaxis(windows[::step], 0, axis % x.ndim).view(x.dtype)


declare(
    "unfold",
    "UNFD",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc="Windows of `size` elements, each `step` behind the one before, along `axis`, as a new last dim"
    " (PyTorch's Tensor.unfold).",
    reference=_unfold_reference,
    attrs=attrs(
        "UNF1",
        integer("axis", -1, "along which windows lie"),
        integer("size", doc="of a window", minimum=1),
        integer("step", 1, "from one window to the next", minimum=1),
    ),
    shapes=_unfold_shapes,
    normal_form=as_given,
    decompose=_unfold,
    samples=lambda: [
        Sample({"x": x}, {"axis": axis, "size": size, "step": step}, size=of)
        for x, axis, size, step, of in [
            ((7,), 0, 3, 1, "small"),
            ((3, 5), 0, 2, 1, "small"),
            ((2, 3, 9), -1, 4, 3, "small"),
            ((2, 1, 2, 1, 4, 1, 2), 4, 2, 2, "small"),
            ((0, 5), 1, 2, 2, "small"),
            ((2, 1025), 1, 5, 4, "small"),
            ((301, 1025), 1, 4, 2, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, {"size": 4}),
        ErrorCase({"x": ()}, InvalidArgument, {"size": 1}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"size": 1, "axis": 1}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"size": 0}),
        ErrorCase({"x": (1,) * 8}, BadTensorShape, {"size": 1}),
    ],
    exact=True,
)
