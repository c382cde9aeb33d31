"""Quantization whose scales come from the tensor itself: dynamic_quantize and dynamic_quantize_affine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, declare
from ..declare.attributes import attrs, choice, flag, integer
from ..declare.conversion import convert
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import F32, F64, FP8, I8, U8, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .linear_quantization import FORMATS, largest
from .microscaling import floor_exponents

Shape = tuple[int, ...]
GRANULARITY = choice("granularity", ("token", "channel", "group", "tensor"), "token", "what shares a scale")
GROUP = integer("group_size", 0, "elements of a group along the last dim; 0 without groups", minimum=0)


def _scale_shape(where: str, x: Shape, values: Mapping[str, Any]) -> Shape:
    """Return the shape of the scales of x, or raise InvalidArgument or BadTensorShape."""
    how, size = values["granularity"], values["group_size"]
    if (how == "group") != (size > 0):
        raise InvalidArgument(
            where, f"group_size={size} with granularity={how}", allowed="1 or more with group, 0 with others"
        )
    if how == "tensor":
        return ()
    if len(x) == 0:
        raise BadTensorShape(where, f"x is {list(x)}", allowed="rank 1 or more, or granularity=tensor")
    if how == "token":
        return tuple(x[:-1])
    if how == "channel":
        return (x[-1],)
    if x[-1] % size != 0:
        raise BadTensorShape(where, f"x is {list(x)}", allowed=f"groups of {size} along the last dim")
    return (*x[:-1], x[-1] // size)


def _split(e: Emitter[V], x: V, scales: Shape, values: Mapping[str, Any]) -> tuple[V, str, str]:
    """Return x as a matrix of F32, the letters of its dims, and that of the dim along which the scales are."""
    count = math.prod(scales)
    if values["granularity"] == "channel":
        rows = x.spec.numel // count if count else 0
        return e.cast(e.reshape(x, (rows, count)), F32), "ba", "a"
    return e.cast(e.reshape(x, (count, x.spec.numel // count if count else 0)), F32), "ab", "a"


def _split_reference(x: Any, scales: Shape, values: Mapping[str, Any]) -> tuple[Any, int]:
    """Return x in F32 as a matrix, and the axis that a scale spans."""
    count = math.prod(scales)
    wide = x.astype(np.float32)
    if values["granularity"] == "channel":
        return wide.reshape(x.size // count if count else 0, count), 0
    return wide.reshape(count, x.size // count if count else 0), 1


# Symmetric


def _most(element: DType) -> float:
    return largest(element) if element.kind == "f" else 127.0


def _quantize(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    y, scale = outputs
    x, letters, own = _split(e, inputs[0], scale.shape, values)
    zeros = e.fill((scale.numel,), 0.0, F32)
    size = e.loop(f"{letters}->{own}", "abs(x0)", x, combine="maximum", init=zeros)
    most = constant(_most(y.dtype))
    steps = e.loop("a->a", f"x0 / {most}", size)
    if values["power_of_two"]:
        power = "exp2(x1 + (1 if exp2(x1) < x0 else 0))"
        least = constant(2.0**-126)
        steps = e.loop(
            "a,a->a", f"x0 if x0 - x0 != 0 or x0 == 0 else {least} if x0 < {least} else {power}", steps,
            floor_exponents(e, steps),
        )  # fmt: skip
    quotient = "x0 / x1" if y.dtype.kind == "f" else "rint(x0 / x1)"
    body = f"0 if x1 == 0 else minimum(maximum({quotient}, -{most}), {most})"
    quants = e.cast(e.loop(f"{letters},{own}->{letters}", body, x, steps), y.dtype)
    return e.reshape(quants, y.shape), e.reshape(steps, scale.shape)


def _quantize_reference(x: Any, out: Sequence[TensorDesc], **values: Any) -> tuple[Any, Any]:
    y, scale = out
    wide, axis = _split_reference(x, scale.shape, values)
    most = np.float32(_most(y.dtype))
    with np.errstate(all="ignore"):
        steps = np.abs(wide).max(axis, keepdims=True, initial=0) / most
        if values["power_of_two"]:
            fraction, exponent = np.frexp(steps)
            power = np.exp2((exponent - (fraction == 0.5)).astype(np.float32))
            known = np.isfinite(steps) & (steps != 0)
            steps = np.where(known, np.maximum(power, np.float32(2.0**-126)), steps).astype(np.float32)
        quotient = wide / steps if y.dtype.kind == "f" else np.rint(wide / steps)
        quants = np.where(steps == 0, np.float32(0), np.clip(quotient, -most, most)).astype(np.float32)
    return convert(quants, y.dtype.numpy).reshape(x.shape), steps.reshape(scale.shape)


def _quantize_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    return [tuple(inputs[0]), _scale_shape("dynamic_quantize", inputs[0], values)]


SAMPLES: SampleTable = [
    ((7,), "token", 0, "small"),
    ((), "tensor", 0, "small"),
    ((3, 5), "token", 0, "small"),
    ((3, 5), "channel", 0, "small"),
    ((2, 3, 12), "group", 4, "small"),
    ((5, 1025), "token", 0, "small"),
    ((33, 17), "channel", 0, "small"),
    ((2, 1, 3, 4), "tensor", 0, "small"),
    ((2, 1, 2, 1, 3, 1, 2, 8), "group", 8, "small"),
    ((0, 4), "token", 0, "small"),
    ((3, 0), "token", 0, "small"),
    ((0, 4), "channel", 0, "small"),
    ((301, 1024), "group", 128, "wide"),
    ((512, 1024), "token", 0, "medium"),
    ((4096, 4096), "group", 128, "large"),
]


def _samples(**more: Any) -> list[Sample]:
    """Return the samples of both operators; every second one has further attributes."""
    return [
        Sample({"x": x}, {"granularity": how, "group_size": size, **(more if i % 2 else {})}, size=n)
        for i, (x, how, size, n) in enumerate(SAMPLES)
    ]


_ERRORS = [
    ErrorCase({"x": (3, 4)}, InvalidArgument, {"granularity": "group"}),
    ErrorCase({"x": (3, 4)}, InvalidArgument, {"group_size": 2}),
    ErrorCase({"x": (3, 4)}, InvalidArgument, {"granularity": "row"}),
    ErrorCase({"x": (3, 4)}, InvalidArgument, {"group_size": -1}),
    ErrorCase({"x": (3, 4)}, BadTensorShape, {"granularity": "group", "group_size": 3}),
    ErrorCase({"x": ()}, BadTensorShape),
    ErrorCase({"x": (3, 4)}, BadTensorDtype, dtypes={"T": F64}),
]

declare(
    "dynamic_quantize",
    "DYQS",
    "x: T[*s] -> y: Q[*s], scale: F32[*c]",
    {"Q": (I8, *FP8), "T": FORMATS},
    family="conversion",
    doc=(
        "x / scale, saturated, with scale = max |x| / M over what shares a scale, M the largest number of y's type (127"
        " for I8). A token is a row along the last dim, a channel an index of it, a group a run of group_size along it;"
        " scale is x.shape[:-1], [d], [*x.shape[:-1], d / group_size], or [] for the whole tensor. In I8 the quotient"
        " is rounded to an integer, in a float of 8 bits to its nearest. power_of_two rounds scales up to a power of"
        " two (UE8M0), at least 2^-126. If all x are 0, scale and y are; computed in F32."
    ),
    reference=_quantize_reference,
    attrs=attrs("DYS1", GRANULARITY, GROUP, flag("power_of_two", False, "round scales up to powers of two")),
    shapes=_quantize_shapes,
    normal_form=as_given,
    decompose=_quantize,
    samples=lambda: _samples(power_of_two=True),
    errors=[*_ERRORS, ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (3, 4), "scale": (4,)})],
    exact=True,
)


# Asymmetric


def _affine(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    y, scale, zero = outputs
    x, letters, own = _split(e, inputs[0], scale.shape, values)
    zeros = e.fill((scale.numel,), 0.0, F32)
    least = e.loop(f"{letters}->{own}", "x0", x, combine="minimum", init=zeros)
    most = e.loop(f"{letters}->{own}", "x0", x, combine="maximum", init=zeros)
    steps = e.loop("a,a->a", "(x1 - x0) / 255", least, most)
    low = constant(-128.0 if y.dtype is I8 else 0.0)
    middle = e.cast(e.loop("a,a->a", f"0 if x1 == 0 else rint(-x0 / x1) + {low}", least, steps), y.dtype)
    body = "0 if x1 == 0 else rint(x0 / x1) + x2"
    quants = e.cast(e.loop(f"{letters},{own},{own}->{letters}", body, x, steps, e.cast(middle, F32)), y.dtype)
    return e.reshape(quants, y.shape), e.reshape(steps, scale.shape), e.reshape(middle, zero.shape)


def _affine_reference(x: Any, out: Sequence[TensorDesc], **values: Any) -> tuple[Any, Any, Any]:
    y, scale, zero = out
    wide, axis = _split_reference(x, scale.shape, values)
    low = np.float32(-128 if y.dtype is I8 else 0)
    with np.errstate(all="ignore"):
        least, most = wide.min(axis, keepdims=True, initial=0), wide.max(axis, keepdims=True, initial=0)
        steps = (most - least) / np.float32(255)
        middle = convert(np.where(steps == 0, np.float32(0), np.rint(-least / steps) + low), y.dtype.numpy)
        quants = np.where(steps == 0, np.float32(0), np.rint(wide / steps) + middle.astype(np.float32))
    return convert(quants, y.dtype.numpy).reshape(x.shape), steps.reshape(scale.shape), middle.reshape(zero.shape)


def _affine_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    scale = _scale_shape("dynamic_quantize_affine", inputs[0], values)
    return [tuple(inputs[0]), scale, scale]


declare(
    "dynamic_quantize_affine",
    "DYQA",
    "x: T[*s] -> y: Q[*s], scale: F32[*c], zero_point: Q[*c]",
    {"Q": (U8, I8), "T": FORMATS},
    family="conversion",
    doc=(
        "rint(x / scale) + zero_point, saturated, with scale = (max(x, 0) - min(x, 0)) / 255 and zero_point ="
        " rint(-min(x, 0) / scale) above the least number of y's type, over what shares a scale (as in"
        " dynamic_quantize; dynamic_quantize_linear is this for a whole tensor in U8). If all x are 0, so is"
        " everything; computed in F32."
    ),
    reference=_affine_reference,
    attrs=attrs("DYA1", GRANULARITY, GROUP),
    shapes=_affine_shapes,
    normal_form=as_given,
    decompose=_affine,
    samples=_samples,
    errors=_ERRORS,
    exact=True,
)
