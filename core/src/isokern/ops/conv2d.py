"""conv2d: two-dimensional convolution (cross-correlation), NCHW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.decomposition import Emitter, V
from ..declare.epilogue import ACTIVATION, activate, finish
from ..declare.normal_form import as_given
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument

LONGEST = 1 << 31


def pair(where: str, name: str, value: Sequence[int]) -> tuple[int, int]:
    """Return (height, width) of a window attribute given as one or two integers."""
    if len(value) not in (1, 2):
        raise InvalidArgument(where, f"{name}={tuple(value)}", allowed="one or two integers")
    return value[0], value[-1]


def sides(where: str, value: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the padding (top, left, bottom, right) given as one, two (height, width) or four integers."""
    if len(value) not in (1, 2, 4):
        raise InvalidArgument(
            where,
            f"padding={tuple(value)}",
            allowed="one, two (height, width) or four (top, left, bottom, right) integers",
        )
    h, w = value[0], value[1 % len(value)]
    return (h, w, *value[2:]) if len(value) == 4 else (h, w, h, w)  # type: ignore[return-value]  # four by now


def extent(where: str, name: str, size: int, low: int, high: int, window: int, step: int, spread: int = 1) -> int:
    """Return how many windows fit along one dim.

    Padding and the dilated window must be below 2^31, so that no kernel's index arithmetic overflows.
    """
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
    made = (
        n,
        co,
        extent("conv2d", "height", h, top, bottom, kh, sh, dh),
        extent("conv2d", "width", w, left, right, kw, sw, dw),
    )
    residual = [*inputs[2:], None, None][1]
    if residual is not None and residual != made:
        raise BadTensorShape("conv2d", f"residual is {list(residual)}", allowed=f"{list(made)}, as y")
    return [made]


def patches(
    x: Any,
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    fill: float,
) -> Any:
    """Return the windows [n, c, oh, ow, kh, kw] of x[n, c, h, w], for the references."""
    top, left, bottom, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _conv(
    x: Any, w: Any, bias: Any, residual: Any, stride: Any, padding: Any, dilation: Any, groups: int, activation: str
) -> Any:
    view = patches(x, w.shape[2:], pair("", "", stride), sides("", padding), pair("", "", dilation), 0.0)
    n, _, oh, ow, kh, kw = view.shape
    view = view.reshape(n, groups, w.shape[1], oh, ow, kh, kw)
    weight = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = np.einsum("ngihwkl,goikl->ngohw", view, weight, optimize=True).reshape(n, w.shape[0], oh, ow)
    y = y if bias is None else y + bias[:, None, None]
    return activate(activation, y if residual is None else y + residual)


def _scale(x: Any, w: Any, bias: Any, residual: Any, **values: Any) -> Any:
    terms = w.shape[1] * w.shape[2] * w.shape[3]
    sizes: list[Any] = [None if t is None else np.abs(t) for t in (x, w, bias, residual)]
    # As steep as none, but with rounding of their own
    slope = 1 if values["activation"] in ("none", "relu") else 4
    return slope * (2 + np.sqrt(terms)) * _conv(*sizes, **{**values, "activation": "none"})


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    w = inputs[1]
    return 2.0 * outputs[0].numel * (w.numel / max(1, w.shape[0]) if w is not None else 0)


SAMPLES: SampleTable = [
    ((1, 1, 3, 3), (1, 1, 3, 3), "", {}, "small"),
    ((2, 3, 8, 8), (4, 3, 3, 3), "b", {"padding": (1, 1)}, "small"),
    ((1, 3, 9, 7), (5, 3, 3, 2), "b", {"stride": (2, 1), "padding": (1, 0)}, "small"),
    ((1, 4, 8, 8), (6, 2, 3, 3), "b", {"groups": 2}, "small"),
    ((2, 4, 7, 7), (4, 1, 3, 3), "", {"groups": 4, "padding": (1,)}, "small"),
    ((1, 2, 9, 9), (3, 2, 3, 3), "", {"dilation": (2, 3)}, "small"),
    ((1, 5, 6, 6), (7, 5, 1, 1), "b", {}, "small"),
    ((1, 5, 7, 6), (7, 5, 1, 1), "", {"stride": (2, 2)}, "small"),
    ((1, 2, 5, 5), (3, 2, 2, 2), "b", {"padding": (0, 1, 1, 0), "stride": (2,)}, "small"),
    ((1, 3, 17, 21), (3, 1, 5, 5), "b", {"groups": 3, "padding": (2,), "stride": (2,), "activation": "silu"}, "small"),
    ((1, 2, 16, 33), (4, 1, 7, 7), "", {"groups": 2, "padding": (3,)}, "small"),
    ((1, 3, 16, 19), (3, 1, 3, 3), "b", {"groups": 3, "padding": (0, 1, 1, 0), "stride": (2,)}, "small"),
    ((1, 9, 1, 1), (40, 9, 1, 1), "b", {"activation": "silu"}, "small"),
    ((0, 3, 4, 4), (2, 3, 3, 3), "b", {}, "small"),
    ((1, 0, 4, 4), (2, 0, 3, 3), "b", {}, "small"),
    ((1, 17, 12, 11), (19, 17, 3, 3), "b", {"padding": (1, 1)}, "small"),
    ((1, 5, 9, 8), (7, 5, 3, 3), "b", {"padding": (1, 1), "activation": "relu"}, "small"),
    ((2, 4, 7, 7), (6, 4, 3, 3), "r", {"padding": (1, 1), "activation": "silu"}, "small"),
    ((1, 4, 8, 8), (6, 2, 3, 3), "br", {"groups": 2, "activation": "relu"}, "small"),
    ((1, 6, 6, 5), (6, 1, 3, 3), "br", {"groups": 6, "padding": (1,), "activation": "gelu"}, "small"),
    ((1, 40, 7, 15), (70, 40, 3, 3), "br", {"padding": (1, 1), "stride": (1, 2), "activation": "relu"}, "small"),
    ((1, 5, 6, 6), (7, 5, 1, 1), "br", {"activation": "tanh"}, "small"),
    ((1, 5, 6, 7), (7, 5, 3, 3), "b", {"padding": (1, 1), "activation": "hardswish"}, "small"),
    ((1, 4, 6, 5), (4, 1, 3, 3), "b", {"groups": 4, "activation": "relu6"}, "small"),
    ((2, 3, 5, 5), (4, 3, 1, 1), "b", {"activation": "hardsigmoid"}, "small"),
    ((1, 0, 4, 4), (2, 0, 3, 3), "br", {"activation": "sigmoid"}, "small"),
    ((2, 16, 33, 31), (24, 16, 3, 3), "b", {"padding": (1, 1)}, "wide"),
    ((1, 64, 56, 56), (64, 64, 3, 3), "b", {"padding": (1, 1)}, "medium"),
    # The layers of ResNet-18 (He et al. 2015), except the one above
    ((1, 3, 224, 224), (64, 3, 7, 7), "b", {"padding": (3, 3), "stride": (2, 2)}, "large"),
    ((1, 64, 56, 56), (128, 64, 3, 3), "b", {"padding": (1, 1), "stride": (2, 2)}, "large"),
    ((1, 64, 56, 56), (128, 64, 1, 1), "b", {"stride": (2, 2)}, "large"),
    ((1, 128, 28, 28), (128, 128, 3, 3), "b", {"padding": (1, 1)}, "large"),
    ((1, 128, 28, 28), (256, 128, 3, 3), "b", {"padding": (1, 1), "stride": (2, 2)}, "large"),
    ((1, 256, 14, 14), (256, 256, 3, 3), "b", {"padding": (1, 1)}, "large"),
    ((1, 256, 14, 14), (512, 256, 3, 3), "b", {"padding": (1, 1), "stride": (2, 2)}, "large"),
    ((1, 512, 7, 7), (512, 512, 3, 3), "b", {"padding": (1, 1)}, "large"),
    # Two with a complete epilogue
    ((1, 64, 56, 56), (64, 64, 3, 3), "br", {"padding": (1, 1), "activation": "relu"}, "large"),
    ((1, 512, 7, 7), (512, 512, 3, 3), "br", {"padding": (1, 1), "activation": "relu"}, "large"),
]


def _samples() -> list[Sample]:
    """Return the samples of SAMPLES, whose letters say whether there is a bias (b) and a residual (r)."""
    made = []
    for x, w, added, values, size in SAMPLES:
        given = {"x": x, "w": w, **({"bias": w[:1]} if "b" in added else {})}
        if "r" in added:
            plain = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1, **values}
            given["residual"] = _shapes([x, w], plain)[0]
        made.append(Sample(given, values, size=size))
    return made


def pad_border(e: Emitter[V], x: V, padding: Sequence[int], value: float) -> V:
    """Return x with a border (top, left, bottom, right) of `value`."""
    if not any(padding):
        return x
    top, left, bottom, right = padding
    return e("pad", x, low=(0, 0, top, left), high=(0, 0, bottom, right), value=value)


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit a border of zeros, the products, and the epilogue, in the compute type."""
    x, w, bias, residual = [*inputs, None, None][:4]
    assert x is not None and w is not None
    y = outputs[0]
    init = e.fill(y.shape, 0.0, y.dtype.compute)
    steps: dict[str, Any] = {name: pair("conv2d", name, values[name]) for name in ("stride", "dilation")}
    border = sides("conv2d", values["padding"])
    made = e("conv_2d_nchw_fchw", init, pad_border(e, x, border, 0.0), w, groups=values["groups"], **steps)
    return finish(e, made, [(bias, "b", 1.0), (residual, "abcd", 1.0)], values["activation"], y.dtype)


conv2d = declare(
    "conv2d",
    "CNV2",
    "x: T[n, groups*ci, h, w], w: T[co, ci, kh, kw], bias?: T[co], residual?: T[n, co, oh, ow] -> y: T[n, co, oh, ow]",
    {"T": FLOATS},
    family="contraction",
    doc=(
        "activation(conv(x, w) + bias + residual), conv being the cross-correlation of x with the filters w (ONNX"
        " Conv): oh = (h + top + bottom - dilation·(kh - 1) - 1) / stride + 1."
    ),
    reference=_conv,
    tolerance=Tolerance(2, _scale),
    attrs=attrs(
        "CNV2",
        integers("stride", (1, 1), "one or two", minimum=1),
        integers("padding", (0, 0), "one, two (h, w) or four (top, left, bottom, right)", minimum=0),
        integers("dilation", (1, 1), "one or two", minimum=1),
        integer("groups", 1, "channel groups that do not mix", minimum=1),
        ACTIVATION,
    ),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_parts,
    flops=_flops,
    samples=_samples,
    constants=("w",),
    aliases=("residual",),
    errors=[
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 4, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 2, 2), "w": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (3, 4, 4), "w": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 4, 4, 4), "w": (3, 2, 3, 3)}, BadTensorShape, {"groups": 2}),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3), "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3), "residual": (1, 2, 4, 4)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"activation": "swish"}),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"stride": (0, 1)}),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"padding": (1, 1, 1)}),
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"groups": 0}),
    ],
)
