"""Quantisation with a scale and a zero point: per tensor, along an axis or in blocks; 4-bit weights of AWQ and GPTQ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, flag, integer
from ..declare.conversion import convert
from ..declare.decomposition import LETTERS, Emitter, V, constant, find_optional
from ..declare.normal_form import as_given, axis_of
from ..dtypes import BF16, BOOL, F16, F32, F64, FLOATS, FP8, I8, I16, I32, I64, U8, U16, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

Shape = tuple[int, ...]
AXIS = integer("axis", 1, "of a scale along an axis, or in blocks along it")
BLOCK = integer("block_size", 0, "elements that share a scale along the axis; 0 where there are no blocks", minimum=0)


def _check_scale(where: str, x: Shape, given: Shape, values: Mapping[str, Any]) -> None:
    """Raise BadTensorShape where a scale or zero point of that shape does not go with x."""
    if len(given) == 0 or (len(given) == 1 and given[0] == 1 and values["block_size"] == 0):
        return
    axis, size = axis_of(where, values["axis"], len(x)), values["block_size"]
    if size == 0:
        if tuple(given) != (x[axis],):
            raise BadTensorShape(where, f"scale is {list(given)}", allowed=f"[], [1] or [{x[axis]}], as axis {axis}")
        return
    if x[axis] % size != 0:
        raise BadTensorShape(where, f"x is {list(x)}", allowed=f"blocks of {size} along axis {axis}")
    blocks = (*x[:axis], x[axis] // size, *x[axis + 1 :])
    if tuple(given) != blocks:
        raise BadTensorShape(where, f"scale is {list(given)}", allowed=f"{list(blocks)}, one for each block")


def _emit_over_groups(
    e: Emitter[V], body: str, x: V, parameters: Sequence[V], values: Mapping[str, Any], dtype: DType | None = None
) -> V:
    """Emit the body over x0, x, and x1 …, its parameters, each spread over what it stands for; the shape is x's."""
    shape, rank = x.spec.shape, x.spec.ndim
    letters = LETTERS[:rank]
    if parameters[0].spec.ndim == 0 or (parameters[0].spec.shape == (1,) and values["block_size"] == 0):
        pairs = [(e.reshape(p, ()), "") for p in parameters]
    elif values["block_size"] == 0:
        pairs = [(p, letters[values["axis"] % rank]) for p in parameters]
    else:
        axis, size = values["axis"] % rank, values["block_size"]
        inside = (*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
        letters = LETTERS[: rank + 1]
        pairs = [(p, letters[: axis + 1] + letters[axis + 2 :]) for p in parameters]
        return e.reshape(e.over(inside, body, [(e.reshape(x, inside), letters), *pairs], dtype=dtype), shape)
    return e.over(shape, body, [(x, letters), *pairs], dtype=dtype)


def _spread(x: Any, given: Any, axis: int, block_size: int) -> Any:
    """Return a scale or a zero point so that it broadcasts with x, for the references."""
    if given.ndim == 0 or (given.size == 1 and block_size == 0):
        return given.reshape(())
    if block_size:
        return np.repeat(given, block_size, axis)
    return given.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def _linear_shapes(where: str) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x, scale, zero = [*inputs, None][:3]
        if values["block_size"] > 0 and len(x) == 8:
            raise BadTensorShape(where, f"x is {list(x)}", allowed="up to rank 7 with blocks")
        _check_scale(where, x, scale, values)
        if zero is not None and tuple(zero) != tuple(scale):
            raise BadTensorShape(where, f"zero_point is {list(zero)}", allowed=f"{list(scale)}, as scale")
        return [tuple(x)]

    return shapes


def largest(element: DType) -> float:
    """Return the largest finite number of a float, at which quantisation saturates."""
    return _LARGEST[element]


_finfo: Any = ml_dtypes.finfo
_LARGEST = {d: float(_finfo(d.numpy).max) for d in (*FLOATS, *FP8)}


def _quantize(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, scale = inputs[:2]
    zero = find_optional(inputs, 2)
    wide, element = x.spec.dtype.compute, outputs[0].dtype
    x, scale = e.cast(x, wide), e.cast(scale, wide)
    body = "x0 / x1" if element.storage else "rint(x0 / x1)"
    body = body if zero is None else f"{body} + x2"
    if element.storage:  # an integer type saturates where it is cast to
        most = constant(largest(element))
        body = f"minimum(maximum({body}, -{most}), {most})"
    parameters = [scale] if zero is None else [scale, e.cast(zero, wide)]
    return e.cast(_emit_over_groups(e, body, x, parameters, values), element)


def _quantize_reference(
    x: Any, scale: Any, zero_point: Any, axis: int, block_size: int, out: Sequence[TensorDesc]
) -> Any:
    wide, element = np.float64 if x.dtype == np.float64 else np.float32, out[0].dtype
    with np.errstate(all="ignore"):
        y = x.astype(wide) / _spread(x, scale.astype(wide), axis, block_size)
        y = y if element.storage else np.rint(y)
        y = y if zero_point is None else y + _spread(x, zero_point.astype(wide), axis, block_size)
        y = np.clip(y, -largest(element), largest(element)) if element.storage else y
    return convert(np.asarray(y, wide), element.numpy)


LINEAR: SampleTable = [
    ((7,), (), 0, 0, "small"),
    ((), (), 0, 0, "small"),
    ((3, 5), (5,), 1, 0, "small"),
    ((2, 3, 4), (3,), -2, 0, "small"),
    ((2, 6, 3), (2, 2, 3), 1, 3, "small"),
    ((5, 1025), (1,), 1, 0, "small"),
    ((0, 4), (4,), 1, 0, "small"),
    ((601, 1024), (1024,), 1, 0, "wide"),
]


def _linear_samples(values: Mapping[str, str]) -> list[Sample]:
    """Return the samples of both directions, every second one without a zero point."""
    return [
        Sample(
            {"x": x, "scale": scale, **({} if i % 2 else {"zero_point": scale})},
            {"axis": axis, "block_size": block},
            values,
            size=size,
        )
        for i, (x, scale, axis, block, size) in enumerate(LINEAR)
    ]


_ERRORS = [
    ErrorCase({"x": (3, 4), "scale": (3,)}, BadTensorShape),
    ErrorCase({"x": (3, 4), "scale": (4,)}, InvalidArgument, {"axis": 2}),
    ErrorCase({"x": (3, 4), "scale": (3, 2)}, BadTensorShape, {"block_size": 3}),
    ErrorCase({"x": (3, 4), "scale": (3, 4)}, BadTensorShape, {"block_size": 2}),
    ErrorCase({"x": (3, 4), "scale": (), "zero_point": (4,)}, BadTensorShape),
    ErrorCase({"x": (3, 4), "scale": ()}, InvalidArgument, {"block_size": -1}),
]

declare(
    "quantize_linear",
    "QLIN",
    "x: T[*s], scale: T[*c], zero_point?: Q[*z] -> y: Q[*s]",
    {"T": FLOATS, "Q": (U8, I8, U16, I16, *FP8)},
    family="conversion",
    doc=(
        "rint(x / scale) + zero_point, saturated; NaN is 0 (ONNX QuantizeLinear). A scale is one number, one for each"
        " index of `axis`, or one for each block of `block_size` along it; zero_point has its shape, and is 0 without."
        " In a float of 8 bits x / scale + zero_point is rounded to nearest even instead; it saturates, infinities too,"
        " and NaN stays NaN."
    ),
    reference=_quantize_reference,
    attrs=attrs("QTL1", AXIS, BLOCK),
    shapes=_linear_shapes("quantize_linear"),
    normal_form=as_given,
    decompose=_quantize,
    samples=lambda: _linear_samples({"scale": "positive"}),
    errors=[*_ERRORS, ErrorCase({"x": (3, 4), "scale": (), "zero_point": ()}, BadTensorDtype, dtypes={"Q": I64})],
    domains={"zero_point": "any"},
    exact=True,
)


def _dequantize(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, scale = inputs[:2]
    zero = find_optional(inputs, 2)
    y = outputs[0]
    wide = y.dtype.compute
    if zero is None:
        return _emit_over_groups(e, "x0 * x1", e.cast(x, wide), [e.cast(scale, wide)], values, y.dtype)
    if x.spec.dtype is I32 and wide is F32:  # whose differences F32 does not have, as it has those of smaller integers
        x = _emit_over_groups(e, "x0 - x1", e.cast(x, I64), [e.cast(zero, I64)], values)
        return _emit_over_groups(e, "x0 * x1", e.cast(x, wide), [e.cast(scale, wide)], values, y.dtype)
    parameters = [e.cast(v, wide) for v in (scale, zero)]
    return _emit_over_groups(e, "(x0 - x2) * x1", e.cast(x, wide), parameters, values, y.dtype)


def _dequantize_reference(x: Any, scale: Any, zero_point: Any, axis: int, block_size: int) -> Any:
    whole = np.float64 if x.dtype.kind in "fV" else np.int64
    y = x.astype(whole)
    if zero_point is not None:
        y = y - _spread(x, zero_point.astype(whole), axis, block_size)
    return y * _spread(x, scale, axis, block_size)


declare(
    "dequantize_linear",
    "DQLN",
    "x: Q[*s], scale: T[*c], zero_point?: Q[*z] -> y: T[*s]",
    {"Q": (U8, I8, U16, I16, I32, *FP8), "T": FLOATS},
    family="conversion",
    doc=(
        "(x - zero_point) · scale (ONNX DequantizeLinear); the difference of integers is exact, scale and zero_point"
        " are as in quantize_linear."
    ),
    reference=_dequantize_reference,
    tolerance=Tolerance(3),
    attrs=attrs("DQL1", AXIS, BLOCK),
    shapes=_linear_shapes("dequantize_linear"),
    normal_form=as_given,
    decompose=_dequantize,
    samples=lambda: _linear_samples({}),
    errors=[*_ERRORS, ErrorCase({"x": (3, 4), "scale": ()}, BadTensorDtype, dtypes={"Q": BOOL})],
    domains={"x": "any", "zero_point": "any"},
)


def _dynamic_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    if 0 in x:
        raise BadTensorShape("dynamic_quantize_linear", f"x is {list(x)}", allowed="at least one element")
    return [tuple(x), (), ()]


def _dynamic(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, V, V]:
    (x,) = inputs
    wide = x.spec.dtype
    flat = e.reshape(x, (x.spec.numel,))
    zero = e.fill((), 0, wide)
    least = e.loop("a->", "x0", flat, combine="minimum", init=zero)
    most = e.loop("a->", "x0", flat, combine="maximum", init=zero)
    scale = e.loop(",->", "(x1 - x0) / 255", least, most)
    middle = e.cast(e.loop(",->", "0 if x1 == 0 else rint(-x0 / x1)", least, scale), U8)
    body = "0 if x1 == 0 else rint(x0 / x1) + x2"
    y = e.over(x.spec.shape, body, [(x, LETTERS[: x.spec.ndim]), (scale, ""), (e.cast(middle, wide), "")])
    return e.cast(y, U8), scale, middle


def _dynamic_reference(x: Any, out: Sequence[TensorDesc]) -> tuple[Any, Any, Any]:
    least, most = np.minimum(x.min(), x.dtype.type(0)), np.maximum(x.max(), x.dtype.type(0))
    with np.errstate(all="ignore"):
        scale = np.asarray((most - least) / x.dtype.type(255), x.dtype)
        middle = convert(np.asarray(np.where(scale == 0, 0, np.rint(-least / scale)), x.dtype), np.dtype(np.uint8))
        y = np.where(scale == 0, 0, np.rint(x / scale) + middle.astype(x.dtype))
    return convert(np.asarray(y, x.dtype), np.dtype(np.uint8)), scale, middle


declare(
    "dynamic_quantize_linear",
    "DYQL",
    "x: T[*s] -> y: U8[*s], y_scale: T[], y_zero_point: U8[]",
    {"T": (F32, F64)},
    family="conversion",
    doc=(
        "quantize_linear with the scale (max(x, 0) - min(x, 0)) / 255 and the zero point rint(-min(x, 0) / scale),"
        " saturated (ONNX DynamicQuantizeLinear). Of nothing but zeros the scale is 0, and so are y and the zero point."
    ),
    reference=_dynamic_reference,
    shapes=_dynamic_shapes,
    normal_form=as_given,
    decompose=_dynamic,
    samples=lambda: [
        Sample({"x": shape}, {}, size=size)
        for shape, size in [
            ((64,), "small"),
            ((), "small"),
            ((1,), "small"),
            ((3, 5), "small"),
            ((2, 1, 3, 4), "small"),
            ((2, 1025), "small"),
            ((601, 803), "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (0, 3)}, BadTensorShape),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (4,), "y_scale": (), "y_zero_point": ()}),
    ],
    exact=True,
)


# Weights of 4 bits, eight in each I32

IN_ORDER = "bitand(shift_right(x0, x1 * 4), 15)"
# Columns 0 to 7 of AWQ lie in the nibbles 0, 4, 1, 5, 2, 6, 3, 7
INTERLEAVED = "bitand(shift_right(x0, shift_right(x1, 1) * 4 + bitand(x1, 1) * 16), 15)"
AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)
FORMATS = (F16, BF16, F32)  # no F64: the formats define 4-bit values with scales of these, and F32 holds each exactly


def _unpack(e: Emitter[V], packed: V, body: str) -> V:
    """Return the nibbles of a matrix of I32, eight columns from each."""
    wide = e.loop("ab,c->abc", body, packed, e.iota(8, I32))
    return e.reshape(wide, (packed.spec.shape[0], 8 * packed.spec.shape[1]))


def _apply_groups(e: Emitter[V], weights: V, zeros: V, scales: V, offset: int, y: TensorDesc) -> V:
    """Return (weights - zeros - offset) · scales, of groups of rows that are as long as there are rows of scales."""
    k, n = weights.spec.shape
    groups = scales.spec.shape[0]
    inside = (groups, k // groups if groups else 0, n)
    shifted = e.over(inside, f"x0 - x1 - {offset}", [(e.reshape(weights, inside), "abc"), (zeros, "ac")])
    pairs = [(e.cast(shifted, F32), "abc"), (e.cast(scales, F32), "ac")]
    return e.cast(e.reshape(e.over(inside, "x0 * x1", pairs), (k, n)), y.dtype)


def _nibbles(packed: Any, order: Sequence[int] = tuple(range(8))) -> Any:
    """Return the nibbles of I32 in a new last dim, in an order of theirs."""
    return packed[..., None].view(np.uint32) >> np.array([4 * i for i in order], np.uint32) & 15


def _check_groups(where: str, k: int, n: int, zeros: Shape, scales: Shape) -> None:
    groups = scales[0]
    if n % 8 != 0 or scales[1] != n or tuple(zeros) != (groups, n // 8):
        raise BadTensorShape(
            where, f"qzeros is {list(zeros)}, scales is {list(scales)}", allowed=f"qzeros[g, {n // 8}], scales[g, {n}]"
        )
    if groups == 0 or k % groups != 0:
        raise BadTensorShape(where, f"{groups} groups of {k} rows", allowed="at least one, and groups of equal length")


def _awq_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    weights, zeros, scales = inputs
    k, n = weights[0], weights[1] * 8
    _check_groups("dequantize_awq", k, n, zeros, scales)
    return [(k, n)]


def _awq(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    weights, zeros, scales = inputs
    return _apply_groups(e, _unpack(e, weights, INTERLEAVED), _unpack(e, zeros, INTERLEAVED), scales, 0, outputs[0])


def _awq_reference(qweight: Any, qzeros: Any, scales: Any) -> Any:
    weights, zeros = (
        _nibbles(a, AWQ_NIBBLES).reshape(len(a), 8 * a.shape[1]).astype(np.float64) for a in (qweight, qzeros)
    )
    length = len(weights) // len(scales)
    return (weights - np.repeat(zeros, length, 0)) * np.repeat(scales, length, 0)


declare(
    "dequantize_awq",
    "DAWQ",
    "qweight: I32[k, p], qzeros: I32[g, p], scales: T[g, n] -> y: T[k, n]",
    {"T": FORMATS},
    family="conversion",
    doc=(
        "(w - z) · scale of 4-bit weights as AWQ packs them (Lin et al., 2023): eight columns in each I32, in the"
        " nibbles 0, 4, 1, 5, 2, 6, 3, 7; k / g rows share a row of zeros and scales."
    ),
    reference=_awq_reference,
    tolerance=Tolerance(2),
    shapes=_awq_shapes,
    normal_form=as_given,
    decompose=_awq,
    samples=lambda: [
        Sample({"qweight": (k, p), "qzeros": (g, p), "scales": (g, 8 * p)}, size=size)
        for k, p, g, size in [
            (8, 1, 2, "small"),
            (6, 3, 3, "small"),
            (5, 2, 1, "small"),
            (0, 2, 1, "small"),
            (4, 0, 2, "small"),
            (512, 96, 4, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"qweight": (8, 1), "qzeros": (2, 1), "scales": (2, 9)}, BadTensorShape),
        ErrorCase({"qweight": (8, 1), "qzeros": (2, 2), "scales": (2, 8)}, BadTensorShape),
        ErrorCase({"qweight": (8, 1), "qzeros": (3, 1), "scales": (3, 8)}, BadTensorShape),
        ErrorCase({"qweight": (8, 1), "qzeros": (2, 1), "scales": (2, 8)}, BadTensorDtype, dtypes={"qweight": U8}),
    ],
    domains={"qweight": "any", "qzeros": "any"},
)


def _gptq_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    weights, zeros, scales, order = [*inputs, None][:4]
    k, n = weights[0] * 8, weights[1]
    _check_groups("dequantize_gptq", k if order is None else scales[0], n, zeros, scales)
    if order is not None and tuple(order) != (k,):
        raise BadTensorShape("dequantize_gptq", f"g_idx is {list(order)}", allowed=f"[{k}], a group for each row")
    return [(k, n)]


def _gptq(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    packed, zeros, scales = inputs[:3]
    order = find_optional(inputs, 3)
    k, n = outputs[0].shape
    weights = e.reshape(e.loop("ab,c->acb", IN_ORDER, packed, e.iota(8, I32)), (k, n))
    zeros, offset = _unpack(e, zeros, IN_ORDER), int(values["plus_one"])
    if order is None:
        return _apply_groups(e, weights, zeros, scales, offset, outputs[0])
    zeros, scales = (e("gather", x, order, axis=0) for x in (zeros, scales))
    shifted = e.loop("ab,ab->ab", f"x0 - x1 - {offset}", weights, zeros)
    return e.cast(e.loop("ab,ab->ab", "x0 * x1", e.cast(shifted, F32), e.cast(scales, F32)), outputs[0].dtype)


def _gptq_reference(qweight: Any, qzeros: Any, scales: Any, g_idx: Any, plus_one: bool) -> Any:
    weights = _nibbles(qweight).transpose(0, 2, 1).reshape(8 * len(qweight), qweight.shape[1]).astype(np.float64)
    zeros = _nibbles(qzeros).reshape(len(qzeros), 8 * qzeros.shape[1]).astype(np.float64) + plus_one
    rows = np.arange(len(weights)) // max(1, len(weights) // len(scales)) if g_idx is None else g_idx
    known = (-len(scales) <= rows) & (rows < len(scales))
    return np.where(known[:, None], (weights - zeros[rows * known]) * scales[rows * known], 0)


declare(
    "dequantize_gptq",
    "DGPQ",
    "qweight: I32[p, n], qzeros: I32[g, q], scales: T[g, n], g_idx?: I32[k] -> y: T[k, n]",
    {"T": FORMATS},
    family="conversion",
    doc=(
        "(w - z) · scale of 4-bit weights as GPTQ packs them (Frantar et al., 2022): eight rows in each I32 of qweight,"
        " eight columns in each of qzeros, the lowest nibble first. g_idx names each row's group; without it groups are"
        " runs of k / g rows."
    ),
    reference=_gptq_reference,
    tolerance=Tolerance(2),
    attrs=attrs("DGP1", flag("plus_one", True, "stored zeros are one less than they mean, as in files of format v1")),
    shapes=_gptq_shapes,
    normal_form=as_given,
    decompose=_gptq,
    samples=lambda: [
        Sample(
            {"qweight": (p, n), "qzeros": (g, n // 8), "scales": (g, n), **({"g_idx": (8 * p,)} if named else {})},
            {"plus_one": not named},
            {"g_idx": f"index:{g}"} if named else {},
            size=size,
        )
        for p, n, g, named, size in [
            (1, 8, 2, False, "small"),
            (3, 16, 3, False, "small"),
            (2, 8, 3, True, "small"),
            (1, 16, 2, True, "small"),
            (0, 8, 1, False, "small"),
            (64, 768, 4, False, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"qweight": (1, 8), "qzeros": (2, 1), "scales": (2, 9)}, BadTensorShape),
        ErrorCase({"qweight": (1, 9), "qzeros": (2, 1), "scales": (2, 9)}, BadTensorShape),
        ErrorCase({"qweight": (1, 8), "qzeros": (3, 1), "scales": (3, 8)}, BadTensorShape),
        ErrorCase({"qweight": (1, 8), "qzeros": (2, 1), "scales": (2, 8), "g_idx": (7,)}, BadTensorShape),
    ],
    domains={"qweight": "any", "qzeros": "any"},
    device_error="g_idx[{at}] is {value}, out of range for the groups",
)
