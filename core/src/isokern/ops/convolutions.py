"""conv3d, and what convolutions and pools of 1 to 3 dims share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.epilogue import ACTIVATION, activate
from ..declare.normal_form import as_given
from ..dtypes import FLOATS, I64
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import extent

Shape = tuple[int, ...]
SPATIAL = ("l", "h, v", "d, h, v")  # dims of x, of windows and of y by their count
WINDOWS = ("k", "kh, kw", "kd, kh, kw")
PLACES = ("o", "oh, ow", "od, oh, ow")
GROUPS = integer("groups", 1, "channel groups that do not mix", minimum=1)


def each(where: str, name: str, value: Sequence[int], dims: int) -> Shape:
    """Return an attribute for each of `dims` dims, given as one integer or as many."""
    if len(value) not in (1, dims):
        raise InvalidArgument(where, f"{name}={tuple(value)}", allowed=f"one integer or {dims}")
    return tuple([value[i % len(value)] for i in range(dims)])


def borders(where: str, value: Sequence[int], dims: int) -> tuple[Shape, Shape]:
    """Return the padding before and behind each dim, given as one integer, one a dim, or all before and all behind."""
    if len(value) not in (1, dims, 2 * dims):
        raise InvalidArgument(where, f"padding={tuple(value)}", allowed=f"one integer, {dims} or {2 * dims}")
    low = tuple([value[i % len(value)] for i in range(dims)])
    return low, tuple([value[(i + dims) % len(value)] for i in range(dims)])


def slide(x: Any, windows: Sequence[Any], padding: tuple[Shape, Shape], fill: float = 0.0) -> Any:
    """Return the windows [n, c, *places, *kernel] of x[n, c, *s], for the references.

    Each dim has (length, stride, dilation).
    """
    dims, (kernel, stride, dilation) = len(windows), zip(*windows, strict=True)
    padded = np.pad(x, ((0, 0), (0, 0), *zip(*padding, strict=True)), constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + dims)))
    steps = [slice(None), slice(None), *(slice(None, None, s) for s in (*stride, *dilation))]
    return view[tuple(steps)]


def correlate(view: Any, w: Any, groups: int) -> Any:
    """Return the products of windows with filters w[co, ci, *kernel], summed."""
    dims, own, out = w.ndim - 2, w.shape[1], w.shape[0] // groups
    axes = ([1, *range(2 + dims, 2 + 2 * dims)], list(range(1, 2 + dims)))
    parts = [np.tensordot(view[:, g * own : (g + 1) * own], w[g * out : (g + 1) * out], axes) for g in range(groups)]
    return np.moveaxis(np.concatenate(parts, -1), -1, 1)


def add_and_activate(y: Any, bias: Any, activation: str) -> Any:
    """Return the reference of an epilogue."""
    return activate(activation, y if bias is None else y + bias.reshape(-1, *[1] * (y.ndim - 2)))


def check_channels(where: str, x: Shape, w: Shape, groups: int, channels: int, filters: int) -> None:
    """Raise where w, which reads `channels` a group and has `filters`, does not suit x or the groups."""
    if filters % groups or x[1] != channels * groups:
        given = f"x has {x[1]} channels and w is {list(w)} with groups={groups}"
        raise BadTensorShape(where, given, allowed="channels of x and filters that the groups share evenly")
    if 0 in w[2:]:
        raise BadTensorShape(where, f"w is {list(w)}", allowed="a window of at least 1 in each dim")


# conv3d


def _conv3d_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, w = inputs[0], inputs[1]
    check_channels("conv3d", x, w, values["groups"], w[1], w[0])
    stride = each("conv3d", "stride", values["stride"], 3)
    dilation = each("conv3d", "dilation", values["dilation"], 3)
    low, high = borders("conv3d", values["padding"], 3)
    y = [
        extent("conv3d", f"dim {2 + i}", x[2 + i], low[i], high[i], w[2 + i], stride[i], dilation[i]) for i in range(3)
    ]
    return [(x[0], w[0], *y)]


def _conv3d(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, activation: str) -> Any:
    windows = list(zip(w.shape[2:], each("", "", stride, 3), each("", "", dilation, 3), strict=True))
    view = slide(x, windows, borders("", padding, 3))
    return add_and_activate(correlate(view, w, groups), bias, activation)


def _conv3d_scale(x: Any, w: Any, bias: Any, **values: Any) -> Any:
    sizes: list[Any] = [None if t is None else np.abs(t) for t in (x, w, bias)]
    slope = 1 if values["activation"] in ("none", "relu") else 4
    return slope * (2 + math.sqrt(math.prod(w.shape[1:]))) * _conv3d(*sizes, **{**values, "activation": "none"})


def _conv3d_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit conv2d of images whose channels are the planes of each window."""
    x, w, bias, y = inputs[0], inputs[1], find_optional(inputs, 2), outputs[0]
    stride, dilation = (each("conv3d", name, values[name], 3) for name in ("stride", "dilation"))
    low, high = borders("conv3d", values["padding"], 3)
    if low[0] or high[0]:
        x = e("pad", x, low=(0, 0, low[0], 0, 0), high=(0, 0, high[0], 0, 0))
    (n, co, od, oh, ow), (_, ci, kd, kh, kw) = y.shape, w.spec.shape
    body = f"x0 * {stride[0]} + x1 * {dilation[0]}"
    planes = e("gather", x, e.loop("a,b->ab", body, e.iota(od, I64), e.iota(kd, I64)), axis=2)
    images = e.collapse(e("transpose", planes, axes=(0, 2, 1, 3, 4, 5)), (2, 2, 1, 1))
    made = e(
        "conv2d",
        images,
        e.reshape(w, (co, ci * kd, kh, kw)),
        bias,
        stride=stride[1:],
        padding=(*low[1:], *high[1:]),
        dilation=dilation[1:],
        groups=values["groups"],
        activation=values["activation"],
    )
    return e("transpose", e.reshape(made, (n, od, co, oh, ow)), axes=(0, 2, 1, 3, 4))


CONVOLVED: SampleTable = [
    ((1, 1, 2, 3, 3), (1, 1, 2, 3, 3), 0, {}, "small"),
    ((2, 3, 5, 6, 4), (4, 3, 3, 2, 3), 1, {"padding": (1,), "stride": (2, 1, 2)}, "small"),
    ((1, 4, 5, 4, 5), (6, 2, 2, 1, 2), 1, {"groups": 2, "dilation": (2, 1, 3), "activation": "relu"}, "small"),
    ((1, 2, 3, 3, 4), (2, 1, 2, 3, 2), 0, {"groups": 2, "padding": (2, 0, 1, 0, 1, 0)}, "small"),
    ((0, 3, 2, 2, 2), (2, 3, 2, 2, 2), 1, {}, "small"),
    ((1, 0, 2, 2, 2), (2, 0, 2, 2, 2), 1, {"activation": "silu"}, "small"),
    ((2, 8, 9, 31, 33), (12, 8, 3, 3, 3), 1, {"padding": (1,)}, "wide"),
]

declare(
    "conv3d",
    "CNV3",
    "x: T[n, c, d, h, v], w: T[co, ci, kd, kh, kw], bias?: T[co] -> y: T[n, co, od, oh, ow]",
    {"T": FLOATS},
    family="contraction",
    doc="activation(conv(x, w) + bias), the cross-correlation of volumes with filters (ONNX Conv of rank 5).",
    reference=_conv3d,
    tolerance=Tolerance(2, _conv3d_scale),
    attrs=attrs(
        "CNV3",
        integers("stride", (1,), "one or three", minimum=1),
        integers("padding", (0,), "one, three, or six: before each dim, then behind", minimum=0),
        integers("dilation", (1,), "one or three", minimum=1),
        GROUPS,
        ACTIVATION,
    ),
    shapes=_conv3d_shapes,
    normal_form=as_given,
    decompose=_conv3d_parts,
    flops=lambda i, o: 2.0 * o[0].numel * (i[1].numel / max(1, i[1].shape[0]) if i[1] is not None else 0),
    samples=lambda: [
        Sample({"x": x, "w": w, **({"bias": w[:1]} if given else {})}, values, size=size)
        for x, w, given, values, size in CONVOLVED
    ],
    errors=[
        ErrorCase({"x": (1, 3, 4, 4, 4), "w": (2, 4, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 2, 4, 4), "w": (2, 3, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (3, 4, 4, 4), "w": (2, 3, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4, 4, 4), "w": (2, 3, 3, 3, 3), "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4, 4, 4), "w": (2, 3, 3, 3, 3)}, InvalidArgument, {"stride": (1, 2)}),
        ErrorCase({"x": (1, 3, 4, 4, 4), "w": (2, 3, 3, 3, 3)}, InvalidArgument, {"padding": (1, 1)}),
    ],
)
