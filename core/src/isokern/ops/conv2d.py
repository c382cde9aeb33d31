"""conv2d: two-dimensional convolution (cross-correlation), NCHW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..abi.records import attrs, integer, integers
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from . import ErrorCase, Rows, Sample, Tolerance, declare
from .decomposition import Emitter, V
from .views import as_given

LONGEST = 1 << 31


def pair(where: str, name: str, value: Sequence[int]) -> tuple[int, int]:
    """(height, width) of a window attribute given as one or two integers."""
    if len(value) not in (1, 2):
        raise InvalidArgument(where, f"{name}={tuple(value)}", allowed="one or two integers")
    return value[0], value[-1]


def sides(where: str, value: Sequence[int]) -> tuple[int, int, int, int]:
    """Padding (top, left, bottom, right) given as one, two (height, width) or four integers."""
    if len(value) not in (1, 2, 4):
        raise InvalidArgument(
            where,
            f"padding={tuple(value)}",
            allowed="one, two (height, width) or four (top, left, bottom, right) integers",
        )
    h, w = value[0], value[1 % len(value)]
    return (h, w, *value[2:]) if len(value) == 4 else (h, w, h, w)  # type: ignore[return-value]  # four by now


def extent(where: str, name: str, size: int, low: int, high: int, window: int, step: int, spread: int = 1) -> int:
    """Windows that fit along one dim. Padding and window stay below 2^31, so that no kernel's index arithmetic overflows."""
    if max(low, high, spread * (window - 1) + 1) >= LONGEST:
        raise BadTensorShape(
            where,
            f"{name} {size} with padding {low}+{high}, window {window} and dilation {spread}",
            allowed="padding, and a window that reaches, below 2^31",
        )
    room = size + low + high - spread * (window - 1) - 1
    if room < 0:
        raise BadTensorShape(
            where,
            f"{name} {size} with padding {low}+{high}",
            allowed=f"at least the window's {spread * (window - 1) + 1}",
        )
    return room // step + 1


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (n, c, h, w), (co, ci, kh, kw) = inputs[:2]
    groups = values["groups"]
    if co % groups or c != ci * groups:
        raise BadTensorShape(
            "conv2d",
            f"x has {c} channels and w is {list(inputs[1])} with groups={groups}",
            allowed="w[co, c/groups, kh, kw] with co a multiple of groups",
        )
    if kh * kw == 0:
        raise BadTensorShape("conv2d", f"w is {list(inputs[1])}", allowed="a window of at least 1×1")
    (sh, sw), (dh, dw) = pair("conv2d", "stride", values["stride"]), pair("conv2d", "dilation", values["dilation"])
    top, left, bottom, right = sides("conv2d", values["padding"])
    return [
        (
            n,
            co,
            extent("conv2d", "height", h, top, bottom, kh, sh, dh),
            extent("conv2d", "width", w, left, right, kw, sw, dw),
        )
    ]


def patches(
    x: Any,
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    fill: float,
) -> Any:
    """x[n, c, h, w] → its windows [n, c, oh, ow, kh, kw], for the references."""
    top, left, bottom, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _conv(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    view = patches(x, w.shape[2:], pair("", "", stride), sides("", padding), pair("", "", dilation), 0.0)
    n, _, oh, ow, kh, kw = view.shape
    view = view.reshape(n, groups, w.shape[1], oh, ow, kh, kw)
    weight = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = np.einsum("ngihwkl,goikl->ngohw", view, weight, optimize=True).reshape(n, w.shape[0], oh, ow)
    return y if bias is None else y + bias[:, None, None]


def _scale(x: Any, w: Any, bias: Any, **values: Any) -> Any:
    terms = w.shape[1] * w.shape[2] * w.shape[3]
    return (2 + np.sqrt(terms)) * _conv(np.abs(x), np.abs(w), None if bias is None else np.abs(bias), **values)


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    w = inputs[1]
    return 2.0 * outputs[0].numel * (w.numel / max(1, w.shape[0]) if w is not None else 0)


SAMPLES: Rows = [
    ((1, 1, 3, 3), (1, 1, 3, 3), False, {}, "small"),
    ((2, 3, 8, 8), (4, 3, 3, 3), True, {"padding": (1, 1)}, "small"),
    ((1, 3, 9, 7), (5, 3, 3, 2), True, {"stride": (2, 1), "padding": (1, 0)}, "small"),
    ((1, 4, 8, 8), (6, 2, 3, 3), True, {"groups": 2}, "small"),
    ((2, 4, 7, 7), (4, 1, 3, 3), False, {"groups": 4, "padding": (1,)}, "small"),
    ((1, 2, 9, 9), (3, 2, 3, 3), False, {"dilation": (2, 3)}, "small"),
    ((1, 5, 6, 6), (7, 5, 1, 1), True, {}, "small"),
    ((1, 5, 7, 6), (7, 5, 1, 1), False, {"stride": (2, 2)}, "small"),
    ((1, 2, 5, 5), (3, 2, 2, 2), True, {"padding": (0, 1, 1, 0), "stride": (2,)}, "small"),
    ((0, 3, 4, 4), (2, 3, 3, 3), True, {}, "small"),
    ((1, 0, 4, 4), (2, 0, 3, 3), True, {}, "small"),
    ((1, 17, 12, 11), (19, 17, 3, 3), True, {"padding": (1, 1)}, "small"),
    ((2, 16, 33, 31), (24, 16, 3, 3), True, {"padding": (1, 1)}, "wide"),
    ((1, 64, 56, 56), (64, 64, 3, 3), True, {"padding": (1, 1)}, "medium"),
    # The layers of ResNet-18 (He et al. 2015), beside the one above
    ((1, 3, 224, 224), (64, 3, 7, 7), True, {"padding": (3, 3), "stride": (2, 2)}, "large"),
    ((1, 64, 56, 56), (128, 64, 3, 3), True, {"padding": (1, 1), "stride": (2, 2)}, "large"),
    ((1, 64, 56, 56), (128, 64, 1, 1), True, {"stride": (2, 2)}, "large"),
    ((1, 128, 28, 28), (128, 128, 3, 3), True, {"padding": (1, 1)}, "large"),
    ((1, 128, 28, 28), (256, 128, 3, 3), True, {"padding": (1, 1), "stride": (2, 2)}, "large"),
    ((1, 256, 14, 14), (256, 256, 3, 3), True, {"padding": (1, 1)}, "large"),
    ((1, 256, 14, 14), (512, 256, 3, 3), True, {"padding": (1, 1), "stride": (2, 2)}, "large"),
    ((1, 512, 7, 7), (512, 512, 3, 3), True, {"padding": (1, 1)}, "large"),
]


def padded(e: Emitter[V], x: V, padding: Sequence[int], value: float) -> V:
    """x with a border (top, left, bottom, right)."""
    if not any(padding):
        return x
    top, left, bottom, right = padding
    return e("pad", x, low=(0, 0, top, left), high=(0, 0, bottom, right), value=value)


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """A border of zeros, the products, and the bias, in the compute type."""
    x, w, bias = [*inputs, None][:3]
    assert x is not None and w is not None
    y = outputs[0]
    init = e.fill(y.shape, 0.0, y.dtype.compute)
    steps: dict[str, Any] = {name: pair("conv2d", name, values[name]) for name in ("stride", "dilation")}
    border = sides("conv2d", values["padding"])
    made = e("conv_2d_nchw_fchw", init, padded(e, x, border, 0.0), w, groups=values["groups"], **steps)
    return e.cast(made, y.dtype) if bias is None else e.loop("abcd,b->abcd", "x0 + x1", made, bias, dtype=y.dtype)


conv2d = declare(
    "conv2d",
    "CNV2",
    "x: T[n, groups*ci, h, w], w: T[co, ci, kh, kw], bias?: T[co] -> y: T[n, co, oh, ow]",
    {"T": FLOATS},
    family="contraction",
    doc="Cross-correlation of x with the filters w (ONNX Conv): oh = (h + top + bottom - dilation·(kh - 1) - 1) / stride + 1.",
    reference=_conv,
    tolerance=Tolerance(2, _scale),
    attrs=attrs(
        "CNV1",
        integers("stride", (1, 1), "one or two", minimum=1),
        integers("padding", (0, 0), "one, two (h, w) or four (top, left, bottom, right)", minimum=0),
        integers("dilation", (1, 1), "one or two", minimum=1),
        integer("groups", 1, "channel groups that do not mix", minimum=1),
    ),
    shapes=_shapes,
    view=as_given,
    decompose=_parts,
    flops=_flops,
    samples=lambda: [
        Sample({"x": x, "w": w, **({"bias": w[:1]} if bias else {})}, values, size=size)
        for x, w, bias, values, size in SAMPLES
    ],
    errors=[
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 4, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 2, 2), "w": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (3, 4, 4), "w": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 4, 4, 4), "w": (3, 2, 3, 3)}, BadTensorShape, {"groups": 2}),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3), "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"stride": (0, 1)}),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"padding": (1, 1, 1)}),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"groups": 0}),
    ],
)
