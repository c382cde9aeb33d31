"""NVFP4: blocks of 16 numbers of E2M1 with a scale in F8E4M3FN each, and one scale for the tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import Tolerance, declare
from ..declare.conversion import convert
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import F8E4M3FN, F32, I8
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

NV = 16  # elements that share a scale


def _nvfp4(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, V]:
    x, scale = inputs
    y, scales = outputs
    blocks = split(e, x, NV)
    most = e.loop("ab->a", "abs(x0)", blocks, combine="maximum")
    wanted = e.loop("a,->a", f"minimum(x0 / (6 * x1), {constant(largest(F8E4M3FN))})", most, scale)
    held = e.cast(wanted, F8E4M3FN)
    steps = e.loop("a,->a", "x0 * x1", e.cast(held, F32), scale)
    scaled = e.loop("ab,a->ab", "x0 / x1 if x1 > 0 else 0", blocks, steps)
    return pack(e, encode(e, scaled), y.shape), e.reshape(held, scales.shape)


def _nvfp4_reference(x: Any, scale: Any) -> tuple[Any, Any]:
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // NV, NV)
    with np.errstate(all="ignore"):
        wanted = np.minimum(np.abs(blocks).max(-1, initial=0) / (np.float32(6) * scale), np.float32(largest(F8E4M3FN)))
        held = convert(np.asarray(wanted, np.float32), F8E4M3FN.numpy)
        steps = (held.astype(np.float32) * scale)[..., None]
        scaled = np.where(steps > 0, blocks / steps, np.float32(0)).astype(np.float32)
    return pack_reference(encode_reference(scaled.reshape(x.shape))), held


declare(
    "quantize_nvfp4",
    "QNV4",
    "x: T[*b, d], scale: F32[] -> y: U8[*b, p], scales: F8E4M3FN[*b, c]",
    {"T": FORMATS},
    family="conversion",
    doc=(
        "Blocks of 16 along the last dim with a scale of F8E4M3FN each, max |x| / (6 · scale), saturated at 448; their"
        " elements are x / (scales · scale) in E2M1, rounded to nearest even and saturated, two in each byte, the first"
        " in the lower nibble (NVFP4). `scale` is for the whole tensor, such as max |x| / (6 · 448). Elements of a"
        " block whose scale is 0 or NaN are 0."
    ),
    reference=_nvfp4_reference,
    shapes=quantized_shapes("quantize_nvfp4", NV, packed=True),
    normal_form=as_given,
    decompose=_nvfp4,
    samples=lambda: quantized_samples((16, 32, 48), {"scale": ()}, {"scale": "positive"}),
    errors=[c for c in quantized_errors(NV, scale=()) if not c.outputs],
    exact=True,
)


def _nvfp4_numbers(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, scales, scale = inputs
    factors = e.cast(e.reshape(scales, (scales.spec.numel,)), F32)
    wide = e.loop("ab,a,->ab", "x0 * x1 * x2", decode(e, x, NV), factors, scale)
    return e.cast(e.reshape(wide, outputs[0].shape), outputs[0].dtype)


declare(
    "dequantize_nvfp4",
    "DNV4",
    "x: U8[*b, p], scales: F8E4M3FN[*b, c], scale: F32[] -> y: T[*b, d]",
    {"T": FORMATS},
    family="conversion",
    doc=(
        "Blocks of 16 numbers of E2M1, two in each byte, the first in the lower nibble, times a scale each and the"
        " scale of the whole tensor (NVFP4)."
    ),
    reference=lambda x, scales, scale: decode_reference(x) * np.repeat(scales, NV, -1) * scale,
    tolerance=Tolerance(2),
    shapes=dequantized_shapes("dequantize_nvfp4", NV // 2, "8·b", packed=True),
    normal_form=as_given,
    decompose=_nvfp4_numbers,
    samples=lambda: with_scales(NV // 2, (8, 16, 24), {"scale": ()}),
    errors=dequantized_errors(NV // 2, I8, scale=()),
    domains={"x": "any"},
)
