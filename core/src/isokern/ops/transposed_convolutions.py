"""Transposed convolutions in 1 to 3 dims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integers
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.epilogue import ACTIVATION
from ..declare.normal_form import as_given
from ..declare.operator import Decompose
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import LONGEST
from .convolutions import (
    GROUPS,
    PLACES,
    SPATIAL,
    WINDOWS,
    Shape,
    add_and_activate,
    borders,
    check_channels,
    correlate,
    each,
    slide,
)


def _transposed_shapes(where: str, dims: int) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x, w = inputs[0], inputs[1]
        groups = values["groups"]
        if w[0] % groups:
            raise BadTensorShape(where, f"w is {list(w)} with groups={groups}", allowed="w[c, co/groups, …]")
        check_channels(where, x, w, groups, w[0] // groups, w[1] * groups)
        stride = each(where, "stride", values["stride"], dims)
        dilation = each(where, "dilation", values["dilation"], dims)
        extra = each(where, "output_padding", values["output_padding"], dims)
        low, high = borders(where, values["padding"], dims)
        made = []
        for i in range(dims):
            if extra[i] >= max(stride[i], dilation[i]):
                given = f"output_padding {extra[i]} with stride {stride[i]} and dilation {dilation[i]}"
                raise InvalidArgument(where, given, allowed="less than the stride or the dilation")
            reach = dilation[i] * (w[2 + i] - 1)
            size = (x[2 + i] - 1) * stride[i] + reach + extra[i] + 1 - low[i] - high[i]
            if x[2 + i] < 1 or size < 1 or max(reach, size, low[i], high[i], stride[i] * x[2 + i]) >= LONGEST:
                given = f"dim {2 + i} of x is {x[2 + i]}, with stride {stride[i]} and padding {low[i]}+{high[i]}"
                raise BadTensorShape(where, given, allowed="what gives a dim of y from 1 to 2^31 - 1")
            made.append(size)
        return [(x[0], w[1] * groups, *made)]

    return shapes


def _turn(e: Emitter[V], w: V, groups: int) -> V:
    """Return w[c, co/groups, *k] as the filters [co, c/groups, *k] of a convolution, each from its last element on."""
    c, co, *kernel = w.spec.shape
    dims = len(kernel)
    split = e.reshape(w, (groups, c // groups, co, *kernel))
    made = e("transpose", split, axes=(0, 2, 1, *range(3, 3 + dims)))
    filters = e.reshape(made, (groups * co, c // groups, *kernel))
    return e("flip", filters, axes=tuple(range(2, 2 + dims)))


def _spread(e: Emitter[V], x: V, stride: Shape) -> V:
    """Return x with stride - 1 zeros behind each element along each dim."""
    n, c, *sizes = x.spec.shape
    if max(stride) == 1:
        return x
    single = e.reshape(x, (n, c, *(d for size in sizes for d in (size, 1))))
    high = (0, 0, *(d for s in stride for d in (0, s - 1)))
    wide = e("pad", single, low=(0,) * len(high), high=high)
    return e.reshape(wide, (n, c, *(size * s for size, s in zip(sizes, stride, strict=True))))


def _transposed_parts(name: str, dims: int) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        """Emit x with zeros between its elements, cut and padded for each dim of y, and its convolution."""
        x, w, y = inputs[0], inputs[1], outputs[0]
        names = ("stride", "dilation")
        stride, dilation = (each(name, n, values[n], dims) for n in names)
        low, _ = borders(name, values["padding"], dims)
        made = _spread(e, x, stride)
        starts, ends, before, behind = [], [], [], []
        for i in range(dims):
            size, reach = made.spec.shape[2 + i], dilation[i] * (w.spec.shape[2 + i] - 1)
            room, first = y.shape[2 + i] + reach, low[i] - reach  # y's windows read elements first … first + room
            starts.append(min(max(first, 0), size))
            ends.append(max(starts[i], min(size, first + room)))
            before.append(min(max(-first, 0), room))
            behind.append(room - before[i] - (ends[i] - starts[i]))
        if any(starts) or tuple(ends) != made.spec.shape[2:]:
            made = e("slice", made, starts=tuple(starts), ends=tuple(ends), axes=tuple(range(2, 2 + dims)))
        if any(before) or any(behind):
            made = e("pad", made, low=(0, 0, *before), high=(0, 0, *behind))
        step = dilation[0] if dims == 1 else dilation
        filters = _turn(e, w, values["groups"])
        return e(
            f"conv{dims}d", made, filters, find_optional(inputs, 2), dilation=step, groups=values["groups"],
            activation=values["activation"],
        )  # fmt: skip

    return decompose


def _conv_transpose(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int,
    activation: str,
) -> Any:  # fmt: skip
    """Return the convolution of x, spread with zeros, by the turned filters, written with NumPy's views."""
    dims = w.ndim - 2
    steps, spread, extra = (each("", "", v, dims) for v in (stride, dilation, output_padding))
    reach = [d * (k - 1) for d, k in zip(spread, w.shape[2:], strict=True)]
    room = [(s - 1) * t + 1 for s, t in zip(x.shape[2:], steps, strict=True)]
    full = np.zeros((*x.shape[:2], *(r + 2 * h + p for r, h, p in zip(room, reach, extra, strict=True))))
    inner = [slice(None)] * 2 + [slice(h, h + r, t) for h, r, t in zip(reach, room, steps, strict=True)]
    full[tuple(inner)] = x
    turned = np.flip(w, tuple(range(2, w.ndim)))
    own = x.shape[1] // groups
    filters = np.concatenate([np.swapaxes(turned[g * own : (g + 1) * own], 0, 1) for g in range(groups)])
    view = slide(full, list(zip(w.shape[2:], (1,) * dims, spread, strict=True)), ((0,) * dims, (0,) * dims))
    low, high = borders("", padding, dims)
    cut = [slice(None)] * 2 + [slice(a, n - b) for a, b, n in zip(low, high, view.shape[2:], strict=False)]
    return add_and_activate(correlate(view[tuple(cut)], filters, groups), bias, activation)


def _transposed_scale(x: Any, w: Any, bias: Any, **values: Any) -> Any:
    sizes: list[Any] = [None if t is None else np.abs(t) for t in (x, w, bias)]
    slope = 1 if values["activation"] in ("none", "relu") else 4
    terms = math.prod(w.shape[2:]) * w.shape[0]
    return slope * (2 + math.sqrt(terms)) * _conv_transpose(*sizes, **{**values, "activation": "none"})


SPREAD: SampleTable = [  # x, w, whether there is a bias, and attributes, in 1, 2 or 3 dims by the first so many
    ((1, 1), (1, 1), (1, 1, 1), (1, 1, 1), 0, {}),
    ((2, 4), (4, 3), (5, 4, 3), (3, 2, 3), 1, {"stride": (2,), "padding": (1,), "output_padding": (1,)}),
    ((1, 4), (4, 2), (4, 3, 2), (2, 3, 1), 1, {"groups": 2, "stride": (3,), "dilation": (2,), "activation": "relu"}),
    ((1, 2), (2, 1), (4, 5, 6), (2, 1, 3), 0, {"groups": 2, "padding": (2,), "stride": (2,)}),
    ((0, 3), (3, 2), (2, 2, 2), (2, 2, 2), 1, {}),
    ((1, 0), (0, 2), (2, 2, 2), (2, 2, 2), 1, {"stride": (2,), "activation": "silu"}),
]
LARGE: SampleTable = [
    ((2, 16, 1501), (16, 24, 4), {"stride": (2,), "padding": (1,)}),
    ((1, 16, 33, 31), (16, 24, 4, 4), {"stride": (2,), "padding": (1,)}),
    ((1, 8, 5, 17, 15), (8, 12, 4, 4, 4), {"stride": (2,), "padding": (1,)}),
]


def _transposed_samples(dims: int) -> list[Sample]:
    made = []
    for n, w, sizes, kernel, given, values in SPREAD:
        filters = (*w, *kernel[:dims])
        bias = {"bias": (w[1] * values.get("groups", 1),)} if given else {}
        made.append(Sample({"x": (*n, *sizes[:dims]), "w": filters, **bias}, values))
    x, w, values = LARGE[dims - 1]
    return [*made, Sample({"x": x, "w": w, "bias": (w[1],)}, values, size="wide")]


def _transposed_errors(dims: int) -> list[ErrorCase]:
    x, w = (1, 4, *[3] * dims), (4, 2, *[2] * dims)
    return [
        ErrorCase({"x": x, "w": (3, *w[1:])}, BadTensorShape),
        ErrorCase({"x": x[1:], "w": w}, BadTensorShape),
        ErrorCase({"x": x, "w": w, "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": x, "w": w}, BadTensorShape, {"padding": (2,)}),
        ErrorCase({"x": (1, 4, *[0] * dims), "w": w}, BadTensorShape, {"stride": (4,)}),
        ErrorCase({"x": x, "w": w}, BadTensorShape, {"groups": 3}),
        ErrorCase({"x": x, "w": w}, InvalidArgument, {"output_padding": (1,)}),
        ErrorCase({"x": x, "w": w}, InvalidArgument, {"stride": (1,) * (dims + 1)}),
    ]


for _dims, _name in enumerate(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1):
    _room, _window, _places = SPATIAL[_dims - 1], WINDOWS[_dims - 1], PLACES[_dims - 1]
    declare(
        _name,
        f"CVT{_dims}",
        f"x: T[n, c, {_room}], w: T[c, m, {_window}], bias?: T[groups*m] -> y: T[n, groups*m, {_places}]",
        {"T": FLOATS},
        family="contraction",
        doc=(
            "activation(convolution + bias) of x, with stride - 1 zeros between its elements, by w[c, co/groups, …]"
            " turned around (ONNX ConvTranspose). Each dim of y is (x's - 1)·stride + dilation·(w's - 1) + 1 -"
            " padding + output_padding. The zeros are multiplied too: an infinite weight makes NaN of them."
        ),
        reference=_conv_transpose,
        tolerance=Tolerance(2, _transposed_scale),
        attrs=attrs(
            f"CVT{_dims}",
            integers("stride", (1,), f"from one element of x to the next in y: one or {_dims}", minimum=1),
            integers("padding", (0,), "cut off y: one, one a dim, or all before and all behind", minimum=0),
            integers("output_padding", (0,), f"more at the end of y: one or {_dims}", minimum=0),
            integers("dilation", (1,), f"from one element of w to the next: one or {_dims}", minimum=1),
            GROUPS,
            ACTIVATION,
        ),
        shapes=_transposed_shapes(_name, _dims),
        normal_form=as_given,
        decompose=_transposed_parts(_name, _dims),
        flops=lambda i, o: 2.0 * (i[0].numel * i[1].numel / max(1, i[1].shape[0]) if i[0] and i[1] else 0),
        samples=lambda dims=_dims: _transposed_samples(dims),
        errors=_transposed_errors(_dims),
    )
