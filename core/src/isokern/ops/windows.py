"""Windows over sequences and whole images: 1-d convolution and pooling as images of height 1, and global pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import Attr, attrs, flag, integer
from ..declare.decomposition import Emitter, V
from ..declare.epilogue import ACTIVATION
from ..declare.normal_form import as_given
from ..declare.operator import Decompose
from ..declare.registry import find
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from . import pool2d  # noqa: F401  # declares the pools that these find
from .conv2d import conv2d, extent

Shape = tuple[int, ...]
SIDES = (
    integer("padding", 0, "elements before the first", minimum=0),
    integer("end_padding", -1, "elements behind the last; as many as before where -1", minimum=-1),
)


def _sides(values: Mapping[str, Any]) -> tuple[int, int]:
    low, high = values["padding"], values["end_padding"]
    return low, low if high < 0 else high


def _image_attributes(values: Mapping[str, Any], kernel: int | None) -> dict[str, Any]:
    """Return the attributes of the operator on images of height 1."""
    low, high = _sides(values)
    given = {n: v for n, v in values.items() if n not in ("kernel", "stride", "padding", "end_padding", "dilation")}
    size = {} if kernel is None else {"kernel": (1, kernel)}
    stride = values["stride"] or kernel
    return {**given, **size, "stride": (1, stride), "padding": (0, low, 0, high), "dilation": (1, values["dilation"])}


def _as_image(x: Any) -> Any:
    return None if x is None else x[:, :, None, :]


def _lift(e: Emitter[V], x: V) -> V:
    n, c, size = x.spec.shape
    return e.reshape(x, (n, c, 1, size))


def _pool_shapes(where: str) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        n, c, size = inputs[0]
        kernel, dilation = values["kernel"], values["dilation"]
        low, high = _sides(values)
        if max(low, high) > dilation * (kernel - 1):
            given = f"padding {low} and {high} with kernel={kernel}"
            raise InvalidArgument(where, given, allowed="less than the window, so that none lies in the padding alone")
        return [(n, c, extent(where, "length", size, low, high, kernel, values["stride"] or kernel, dilation))]

    return shapes


def _pool_parts(name: str) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        made = e(name, _lift(e, inputs[0]), **_image_attributes(values, values["kernel"]))
        return e.reshape(made, outputs[0].shape)

    return decompose


def _on_images(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Any, **values: Any) -> Any:
        return function(_as_image(x), **_image_attributes(values, values["kernel"]))[:, :, 0]

    return reference


POOLED: SampleTable = [
    ((1, 1, 2), {"kernel": 2}, "small"),
    ((2, 3, 9), {"kernel": 3, "stride": 2, "padding": 1}, "small"),
    ((1, 2, 9), {"kernel": 2, "dilation": 3, "stride": 1}, "small"),
    ((1, 2, 5), {"kernel": 3, "padding": 0, "end_padding": 2}, "small"),
    ((0, 2, 4), {"kernel": 2}, "small"),
    ((1, 0, 4), {"kernel": 2}, "small"),
    ((1, 2, 1025), {"kernel": 5, "stride": 1}, "small"),
    ((2, 33, 9001), {"kernel": 3, "stride": 1, "padding": 1}, "wide"),
]

POOL_FIELDS: dict[str, tuple[str, tuple[Attr, ...], str]] = {
    "max_pool1d": ("MP1D", (), "Maximum of each window; padding counts as -∞; NaN in a window gives NaN."),
    "avg_pool1d": (
        "AP1D",
        (flag("count_include_pad", False, "divide by the whole window at the ends"),),
        "Mean of each window, over the elements inside x (or the whole window with count_include_pad, as PyTorch's"
        " are unless told otherwise).",
    ),
}

for _name, (_kind, _fields, _doc) in POOL_FIELDS.items():
    _wide = find(_name.replace("1d", "2d"))
    _bound = _wide.tolerance
    declare(
        _name,
        _kind,
        "x: T[n, c, l] -> y: T[n, c, o]",
        {"T": FLOATS},
        family="pooling",
        doc=_doc,
        reference=_on_images(_wide.reference),
        tolerance=Tolerance(_bound.ulps, _bound.scale and _on_images(_bound.scale)),
        attrs=attrs(
            _kind,
            integer("kernel", doc="length of a window", minimum=1),
            integer("stride", 0, "from one window to the next; the window's length where 0", minimum=0),
            *SIDES,
            integer("dilation", 1, "from one element of a window to the next", minimum=1),
            *_fields,
        ),
        shapes=_pool_shapes(_name),
        normal_form=as_given,
        decompose=_pool_parts(_wide.name),
        samples=lambda: [Sample({"x": x}, values, size=size) for x, values, size in POOLED],
        errors=[
            ErrorCase({"x": (1, 1, 4)}, InvalidArgument),
            ErrorCase({"x": (1, 1, 2)}, BadTensorShape, {"kernel": 3}),
            ErrorCase({"x": (1, 1, 4)}, InvalidArgument, {"kernel": 2, "padding": 2}),
            ErrorCase({"x": (1, 4)}, BadTensorShape, {"kernel": 2}),
        ],
    )


# Convolution


def _conv_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (n, c, size), (co, ci, kernel) = inputs[:2]
    groups = values["groups"]
    if co % groups or c != ci * groups:
        given = f"x has {c} channels and w is {list(inputs[1])} with groups={groups}"
        raise BadTensorShape("conv1d", given, allowed="w[co, c/groups, k] with co a multiple of groups")
    if kernel == 0:
        raise BadTensorShape("conv1d", f"w is {list(inputs[1])}", allowed="a window of at least 1")
    low, high = _sides(values)
    return [(n, co, extent("conv1d", "length", size, low, high, kernel, values["stride"], values["dilation"]))]


def _conv_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w, *bias = inputs
    made = e("conv2d", _lift(e, x), _lift(e, w), *bias, **_image_attributes(values, None))
    return e.reshape(made, outputs[0].shape)


def _conv(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Any, w: Any, bias: Any, **values: Any) -> Any:
        return function(_as_image(x), _as_image(w), bias, None, **_image_attributes(values, None))[:, :, 0]

    return reference


assert conv2d.tolerance.scale is not None
CONVOLVED: SampleTable = [
    ((1, 1, 3), (1, 1, 3), 0, {}, "small"),
    ((2, 3, 9), (4, 3, 3), 1, {"padding": 1, "stride": 2}, "small"),
    ((1, 4, 8), (6, 2, 3), 1, {"groups": 2, "activation": "relu"}, "small"),
    ((2, 4, 7), (4, 1, 3), 0, {"groups": 4, "padding": 2, "end_padding": 0}, "small"),
    ((1, 2, 9), (3, 2, 3), 1, {"dilation": 3, "activation": "silu"}, "small"),
    ((0, 3, 4), (2, 3, 3), 1, {}, "small"),
    ((1, 0, 4), (2, 0, 3), 1, {}, "small"),
    ((1, 2, 1025), (3, 2, 5), 1, {}, "small"),
    ((2, 16, 3001), (24, 16, 3), 1, {"padding": 1}, "wide"),
]

declare(
    "conv1d",
    "CNV1",
    "x: T[n, c, l], w: T[co, ci, k], bias?: T[co] -> y: T[n, co, o]",
    {"T": FLOATS},
    family="contraction",
    doc="activation(conv(x, w) + bias), the cross-correlation of sequences with filters (ONNX Conv of rank 3).",
    reference=_conv(conv2d.reference),
    tolerance=Tolerance(conv2d.tolerance.ulps, _conv(conv2d.tolerance.scale)),
    attrs=attrs(
        "CNV1",
        integer("stride", 1, "from one window to the next", minimum=1),
        *SIDES,
        integer("dilation", 1, "from one element of a window to the next", minimum=1),
        integer("groups", 1, "channel groups that do not mix", minimum=1),
        ACTIVATION,
    ),
    shapes=_conv_shapes,
    normal_form=as_given,
    decompose=_conv_parts,
    flops=lambda i, o: 2.0 * o[0].numel * (i[1].numel / max(1, i[1].shape[0]) if i[1] is not None else 0),
    samples=lambda: [
        Sample({"x": x, "w": w, **({"bias": w[:1]} if given else {})}, values, size=size)
        for x, w, given, values, size in CONVOLVED
    ],
    errors=[
        ErrorCase({"x": (1, 3, 4), "w": (2, 4, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 2), "w": (2, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "w": (2, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4), "w": (2, 3, 3), "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4), "w": (2, 3, 3)}, InvalidArgument, {"stride": 0}),
    ],
)


# Whole images


def _global_shapes(where: str) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        (x,) = inputs
        if len(x) < 3 or 0 in x[2:]:
            raise BadTensorShape(where, f"x is {list(x)}", allowed="dims behind the channels, each at least 1")
        return [(*x[:2], *[1 for _ in x[2:]])]

    return shapes


def _global_parts(kind: str) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        n, c, *rest = inputs[0].spec.shape
        made = e(kind, e.reshape(inputs[0], (n, c, math.prod(rest))), axes=(2,))
        return e.reshape(made, outputs[0].shape)

    return decompose


def _global(function: Any) -> Callable[..., Any]:
    def reference(x: Any) -> Any:
        return function(x, axis=tuple(range(2, x.ndim)), keepdims=True)

    return reference


def _mean_scale(x: Any) -> Any:
    count = max(1, math.prod(x.shape[2:]))
    return (2 + math.log2(count)) * _global(np.mean)(np.abs(x))


for _name, _kind, _part, _function, _text, _tolerance in (
    ("global_avg_pool", "GAVP", "reduce_mean", np.mean, "Mean", Tolerance(3, _mean_scale)),
    ("global_max_pool", "GMXP", "reduce_max", np.max, "Largest element", Tolerance(0)),
):
    declare(
        _name,
        _kind,
        "x: T[n, c, *s] -> y: T[n, c, *d]",
        {"T": FLOATS},
        family="pooling",
        doc=f"{_text} of each channel, the other dims left as 1 (ONNX's operator of this name).",
        reference=_global(_function),
        tolerance=_tolerance,
        shapes=_global_shapes(_name),
        normal_form=as_given,
        decompose=_global_parts(_part),
        flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
        samples=lambda: [
            Sample({"x": x}, size=size)
            for x, size in [
                ((1, 1, 1), "small"),
                ((2, 3, 7), "small"),
                ((2, 3, 4, 5), "small"),
                ((1, 2, 3, 4, 2), "small"),
                ((0, 2, 3), "small"),
                ((2, 0, 3), "small"),
                ((1, 2, 1025), "small"),
                ((4, 33, 61, 59), "wide"),
            ]
        ],
        errors=[
            ErrorCase({"x": (2, 3)}, BadTensorShape),
            ErrorCase({"x": (2, 3, 0)}, BadTensorShape),
            ErrorCase({"x": (2, 3, 4)}, BadTensorShape, outputs={"y": (2, 3)}),
        ],
    )
