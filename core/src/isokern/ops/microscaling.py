"""MXFP8 and MXFP4: blocks of 32 small floats with a power of two each (OCP Microscaling Formats 1.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import Tolerance, declare
from ..declare.conversion import convert
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import F32, FP8, I8, U8, DType
from ..layout import TensorDesc
from .block_floats import (
    decode,
    decode_reference,
    dequantized_errors,
    dequantized_shapes,
    encode,
    encode_reference,
    pack,
    pack_reference,
    quantized_errors,
    quantized_samples,
    quantized_shapes,
    split,
    with_scales,
)
from .linear_quantization import FORMATS, largest

MX = 32  # elements that share a scale
NAN_SCALE = 255


# Scales of E8M0: 2^(code - 127); 255 is NaN


def _factors(e: Emitter[V], scales: V) -> V:
    """Return the scales of blocks, in one dim, as F32."""
    codes = e.cast(e.reshape(scales, (scales.spec.numel,)), F32)
    return e.loop("a->a", f"0 * 1e999 if x0 == {NAN_SCALE} else exp2(x0 - 127)", codes)


def _factors_reference(scales: Any, block: int) -> Any:
    factors = np.where(scales == NAN_SCALE, np.nan, np.exp2(scales.astype(np.float64) - 127))
    return np.repeat(factors, block, -1)


def floor_exponents(e: Emitter[V], sizes: V) -> V:
    """Return floor(log2(x)) of positive normal F32 in one dim, exactly: the logarithm may be off by one at powers."""
    near = e.loop("a->a", "minimum(maximum(floor(log2(x0)), -126), 127)", sizes)
    up = "1 if x1 < 127 and exp2(minimum(x1 + 1, 127)) <= x0 else 0"
    return e.loop("a,a->a", f"x1 + ({up}) - (1 if exp2(x1) > x0 else 0)", sizes, near)


_EXPONENTS = {d: int(np.floor(np.log2(largest(d)))) for d in FP8}


def _exponent_of(element: DType | None) -> int:
    """Return the exponent of the largest number: of an element type, or of E2M1."""
    return 2 if element is None else _EXPONENTS[element]


def _shared_scales(e: Emitter[V], blocks: V, element: DType | None) -> tuple[V, V]:
    """Return the codes of the blocks' scales as F32, and the blocks divided by them; 0 where a scale is NaN."""
    most = e.loop("ab->a", "abs(x0)", blocks, combine="maximum")
    found = f"minimum(maximum(x1 + {127 - _exponent_of(element)}, 0), 254)"
    # What is below the normal numbers has a scale of 2^-127, too
    code = f"{NAN_SCALE} if x0 - x0 != 0 else ({found}) if x0 >= {constant(2.0**-126)} else 0"
    codes = e.loop("a,a->a", code, most, floor_exponents(e, most))
    inverse = e.loop("a->a", f"0 if x0 == {NAN_SCALE} else exp2(127 - x0)", codes)
    return codes, e.loop("ab,a->ab", "0 if x1 == 0 else x0 * x1", blocks, inverse)


def _shared_scales_reference(x: Any, element: DType | None, block: int) -> tuple[Any, Any]:
    """Return the codes of the scales, and x divided by them, in F32."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // block, block)
    most = np.abs(blocks).max(-1, initial=0)
    finite = np.isfinite(most)
    exponents = np.frexp(np.where(finite, most, 1))[1] - 1 - _exponent_of(element)
    codes = np.where(finite, np.where(most == 0, 0, np.clip(exponents + 127, 0, 254)), NAN_SCALE).astype(np.uint8)
    with np.errstate(all="ignore"):
        scaled = np.where(finite[..., None], blocks * np.exp2(127 - codes[..., None].astype(np.float32)), np.float32(0))
    return codes, scaled.astype(np.float32).reshape(x.shape)


# MXFP8


def _mxfp8(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, V]:
    y, scales = outputs
    codes, scaled = _shared_scales(e, split(e, inputs[0], MX), y.dtype)
    most = constant(largest(y.dtype))
    held = e.loop("ab->ab", f"minimum(maximum(x0, -{most}), {most})", scaled)
    return e.reshape(e.cast(held, y.dtype), y.shape), e.reshape(e.cast(codes, U8), scales.shape)


def _mxfp8_reference(x: Any, out: Sequence[TensorDesc]) -> tuple[Any, Any]:
    element = out[0].dtype
    codes, scaled = _shared_scales_reference(x, element, MX)
    return convert(np.clip(scaled, -largest(element), largest(element)), element.numpy), codes


declare(
    "quantize_mxfp8",
    "QMX8",
    "x: T[*b, d] -> y: E[*b, d], scales: U8[*b, c]",
    {"E": FP8, "T": FORMATS},
    family="conversion",
    doc=(
        "Blocks of 32 along the last dim, each divided by a power of two and rounded to nearest even, saturated. The"
        " power is 2^(floor(log2(max |x|)) - e), e the largest exponent of the element type (8 for F8E4M3FN, 15 for"
        " F8E5M2), and its code in `scales` is the exponent + 127, from 0 (OCP Microscaling Formats 1.0, 6.3). Where a"
        " block has an infinity or NaN, its scale is 255, which stands for NaN, and its elements are 0."
    ),
    reference=_mxfp8_reference,
    shapes=quantized_shapes("quantize_mxfp8", MX, packed=False),
    normal_form=as_given,
    decompose=_mxfp8,
    samples=lambda: quantized_samples((32, 64, 96), {}, {}),
    errors=quantized_errors(MX),
    exact=True,
)


def _mxfp8_numbers(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, scales = inputs
    wide = e.loop("ab,a->ab", "x0 * x1", split(e, x, MX), _factors(e, scales))
    return e.cast(e.reshape(wide, outputs[0].shape), outputs[0].dtype)


declare(
    "dequantize_mxfp8",
    "DMX8",
    "x: E[*b, d], scales: U8[*b, c] -> y: T[*b, d]",
    {"E": FP8, "T": FORMATS},
    family="conversion",
    doc="Blocks of 32 numbers, times a scale 2^(s - 127) each; 255 is NaN (OCP Microscaling Formats 1.0, MXFP8).",
    reference=lambda x, scales: x * _factors_reference(scales, MX),
    tolerance=Tolerance(2),
    shapes=dequantized_shapes("dequantize_mxfp8", MX, "32·b", packed=False),
    normal_form=as_given,
    decompose=_mxfp8_numbers,
    samples=lambda: with_scales(MX, (32, 64, 96), {}),
    errors=dequantized_errors(MX, I8),
    domains={"scales": "any"},
)


# MXFP4


def _mxfp4(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, V]:
    y, scales = outputs
    codes, scaled = _shared_scales(e, split(e, inputs[0], MX), None)
    return pack(e, encode(e, scaled), y.shape), e.reshape(e.cast(codes, U8), scales.shape)


def _mxfp4_reference(x: Any) -> tuple[Any, Any]:
    codes, scaled = _shared_scales_reference(x, None, MX)
    return pack_reference(encode_reference(scaled)), codes


declare(
    "quantize_mxfp4",
    "QMX4",
    "x: T[*b, d] -> y: U8[*b, p], scales: U8[*b, c]",
    {"T": FORMATS},
    family="conversion",
    doc=(
        "As quantize_mxfp8, in numbers of E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign; the largest exponent is 2), two"
        " in each byte, the first in the lower nibble (OCP Microscaling Formats 1.0, MXFP4)."
    ),
    reference=_mxfp4_reference,
    shapes=quantized_shapes("quantize_mxfp4", MX, packed=True),
    normal_form=as_given,
    decompose=_mxfp4,
    samples=lambda: quantized_samples((32, 64, 96), {}, {}),
    errors=[c for c in quantized_errors(MX) if not c.outputs],
    exact=True,
)


def _mxfp4_numbers(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, scales = inputs
    wide = e.loop("ab,a->ab", "x0 * x1", decode(e, x, MX), _factors(e, scales))
    return e.cast(e.reshape(wide, outputs[0].shape), outputs[0].dtype)


dequantize_mxfp4 = declare(
    "dequantize_mxfp4",
    "DMX4",
    "x: U8[*b, p], scales: U8[*b, c] -> y: T[*b, d]",
    {"T": FORMATS},
    family="conversion",
    doc=(
        "Blocks of 32 numbers of E2M1, two in each byte, the first in the lower nibble, times a scale 2^(s - 127) each;"
        " a scale of 255 is NaN (OCP Microscaling Formats 1.0, MXFP4)."
    ),
    reference=lambda x, scales: decode_reference(x) * _factors_reference(scales, MX),
    tolerance=Tolerance(2),
    shapes=dequantized_shapes("dequantize_mxfp4", MX // 2, "16·b", packed=True),
    normal_form=as_given,
    decompose=_mxfp4_numbers,
    samples=lambda: with_scales(MX // 2, (16, 32, 48), {}),
    errors=dequantized_errors(MX // 2, I8),
    domains={"x": "any", "scales": "any"},
)
