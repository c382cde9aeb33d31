"""What block formats of small floats share: E2M1 in bytes, shapes, samples and error cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..declare import ErrorCase, Sample
from ..declare.decomposition import Emitter, V
from ..dtypes import F32, F64, I32, U8, DType
from ..status import BadTensorDtype, BadTensorShape

Shape = tuple[int, ...]
FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)  # E2M1, by the lower three bits of a code


def _check_length(where: str, x: Shape, block: int) -> None:
    if len(x) == 0 or x[-1] % block != 0:
        raise BadTensorShape(where, f"x is {list(x)}", allowed=f"blocks of {block} along the last dim")


def _check_scales(where: str, x: Shape, scales: Shape, each: int, name: str) -> None:
    """Raise BadTensorShape unless there is a scale for each run of `each` elements, or bytes, of x."""
    if len(x) == 0 or x[-1] % each != 0 or tuple(scales) != (*x[:-1], x[-1] // each):
        raise BadTensorShape(where, f"x is {list(x)}, scales is {list(scales)}", allowed=f"x[…, {name}], scales[…, b]")


def split(e: Emitter[V], x: V, block: int) -> V:
    """Return x as F32 in rows of a block each."""
    return e.cast(e.reshape(x, (x.spec.numel // block, block)), F32)


# Numbers of E2M1


def encode(e: Emitter[V], x: V) -> V:
    """Return the codes of numbers as I32, rounded to nearest even and saturated; that of NaN is 0."""
    sizes = e.loop("ab->ab", "abs(x0)", x)
    # Steps of 0.5 up to 2, of 1 up to 4, of 2 up to 6
    steps = "rint(2 * minimum(x0, 2)) + rint(maximum(minimum(x0, 4), 2)) + rint(maximum(minimum(x0, 6), 4) / 2) - 4"
    sign = "8 if copysign(1, x1) < 0 and x1 == x1 else 0"
    return e.cast(e.loop("ab,ab->ab", f"x0 + ({sign})", e.loop("ab->ab", steps, sizes), x), I32)


def encode_reference(x: Any) -> Any:
    """Return the codes of F32, by ml_dtypes."""
    finfo: Any = ml_dtypes.finfo
    most = float(finfo(ml_dtypes.float4_e2m1fn).max)
    known = np.where(np.isnan(x), np.float32(0), np.clip(x, -most, most))
    return known.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15


def pack(e: Emitter[V], codes: V, shape: Shape) -> V:
    """Return codes as bytes, the first of two in the lower nibble."""
    rows, block = codes.spec.shape
    pairs = e.reshape(codes, (rows, block // 2, 2))
    return e.reshape(e.cast(e.loop("abc,c->ab", "x0 * (1 + 15 * x1)", pairs, e.iota(2, I32), combine="sum"), U8), shape)


def pack_reference(codes: Any) -> Any:
    """Return codes as bytes."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def decode(e: Emitter[V], x: V, block: int) -> V:
    """Return the numbers in bytes as F32, in rows of a block each: a byte names a row of a table of pairs."""
    count = x.spec.numel
    codes = e.loop("a,b->ab", "bitand(shift_right(x0, x1 * 4), 15)", e.iota(256, I32), e.iota(2, I32))
    size = "x0 * 0.5 if x0 < 4 else x0 - 2 if x0 < 6 else x0 * 2 - 8"
    signed = size.replace("x0", "(x0 - 8)")
    table = e.loop("ab->ab", f"-({signed}) if x0 >= 8 else ({size})", e.cast(codes, F32))
    found = e("gather", table, e.cast(e.reshape(x, (count,)), I32), axis=0)
    return e.reshape(found, (2 * count // block, block))


def decode_reference(x: Any) -> Any:
    """Return the numbers in bytes, in float64."""
    codes = np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], 2 * x.shape[-1])
    return np.array([*FP4, *(-v for v in FP4)])[codes]


def quantized_shapes(where: str, block: int, packed: bool) -> Any:
    """Return the function of the shapes of y, in bytes if it is packed, and of the scales."""

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x = inputs[0]
        _check_length(where, x, block)
        scales = (*x[:-1], x[-1] // block)
        return [(*x[:-1], x[-1] // 2) if packed else tuple(x), scales]

    return shapes


def quantized_samples(lengths: Sequence[int], extra: Mapping[str, Shape], domains: Mapping[str, str]) -> list[Sample]:
    """Return samples of floats with last dims of these lengths; `extra` are the shapes of other inputs."""
    a, b, c = lengths
    shapes = [(a,), (3, b), (2, 3, c), (2, 1, 2, 1, 3, 1, 2, a), (0, a), (3, 0)]
    return [
        *(Sample({"x": s, **extra}, {}, domains) for s in shapes),
        Sample({"x": (301, 1024), **extra}, {}, domains, size="wide"),
        Sample({"x": (512, 1024), **extra}, {}, domains, size="medium"),
        Sample({"x": (4096, 4096), **extra}, {}, domains, size="large"),
    ]


def quantized_errors(block: int, **extra: Shape) -> list[ErrorCase]:
    """Return the calls that operators to blocks refuse."""
    return [
        ErrorCase({"x": (3, block + 1), **extra}, BadTensorShape),
        ErrorCase({"x": (), **extra}, BadTensorShape),
        ErrorCase({"x": (3, block), **extra}, BadTensorDtype, dtypes={"T": F64}),
        ErrorCase({"x": (3, block), **extra}, BadTensorShape, outputs={"y": (4, block), "scales": (4, 1)}),
    ]


def dequantized_shapes(where: str, each: int, name: str, packed: bool) -> Any:
    """Return the function of the shape of y, for x with a scale for each run of `each` elements, or bytes."""

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x, scales = inputs[:2]
        _check_scales(where, x, scales, each, name)
        return [(*x[:-1], 2 * x[-1]) if packed else tuple(x)]

    return shapes


def with_scales(each: int, lengths: Sequence[int], extra: Mapping[str, Shape]) -> list[Sample]:
    """Return samples of quantized numbers, with a scale for each run of `each` along the last dim."""
    return [
        Sample({"x": s.shapes["x"], "scales": (*s.shapes["x"][:-1], s.shapes["x"][-1] // each), **extra}, size=s.size)
        for s in quantized_samples(lengths, {}, {})
    ]


def dequantized_errors(each: int, wrong: DType, **extra: Shape) -> list[ErrorCase]:
    """Return the calls that operators from blocks refuse; `wrong` is a dtype that x may not have."""
    return [
        ErrorCase({"x": (each,), "scales": (2,), **extra}, BadTensorShape),
        ErrorCase({"x": (each - 1,), "scales": (1,), **extra}, BadTensorShape),
        ErrorCase({"x": (), "scales": (), **extra}, BadTensorShape),
        ErrorCase({"x": (each,), "scales": (1,), **extra}, BadTensorDtype, dtypes={"x": wrong}),
    ]
