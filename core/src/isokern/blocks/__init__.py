"""Block-quantised types on the host: conversion between raw blocks and float32, byte for byte as in GGUF.

A block holds 32 elements along the last dim. Q4_0 is a scale d (F16) and 16 bytes of nibbles n, each worth (n - 8) d;
the low nibbles are elements 0 to 15, the high ones 16 to 31. Q4_1 is a scale d, a minimum m (both F16) and nibbles
worth n d + m. Q8_0 is a scale d (F16) and 32 signed bytes q worth q d. An array of blocks is uint8; its last dim is the
bytes of a row's blocks, 18, 20 or 34 for every 32 elements. Other types are declared in `layouts`, and quantised to in
`encoders`: on devices only those with one rule, and those with codebooks (IQ1 to IQ3) nowhere.

Quantising is float32 arithmetic with every step rounded. For Q4_0 d is the element of largest magnitude (the first of
several) over -8, for Q4_1 it is (max - min) / 15, for Q8_0 the largest magnitude over 127. The quants are x (1/d) + 8.5
and (x - min) (1/d) + 0.5, truncated and limited to 0 .. 15, and x (1/d) rounded half away from zero. Then d is rounded
to F16. Where 1/d or the scaled element is not finite, the quant is 0; so a block with NaN gets a scale of NaN (0x7e00)
and quants of 0, and a block with an infinity gets an infinite scale. The minimum and the maximum of Q4_1 are never -0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import Q4_0, Q4_1, Q8_0, DType
from ..status import BadTensorDtype
from .layouts import LAYOUTS, dequantize_layout

Array = np.ndarray[Any, Any]
BLOCK = 32


def raw_shape(dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in bytes of elements of `shape`: its last dim is the bytes of whole blocks."""
    return (*shape[:-1], dtype.nbytes(shape[-1]))


def dequantize(raw: Array, dtype: DType) -> Array:
    """Return the float32 elements of rows of raw blocks (uint8 [..., bytes]); the sum of Q4_1 is rounded once."""
    blocks = np.ascontiguousarray(raw).reshape(*raw.shape[:-1], raw.shape[-1] // dtype.itemsize, dtype.itemsize)
    if dtype.name in LAYOUTS:
        return dequantize_layout(blocks, dtype).reshape(*raw.shape[:-1], blocks.shape[-2] * dtype.block)
    d = _half(blocks, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype is Q8_0:
            values = blocks[..., 2:].view(np.int8).astype(np.float32) * d
        elif dtype is Q4_1:
            values = _nibbles(blocks[..., 4:]) * d + _half(blocks, 2)
        else:
            assert dtype is Q4_0
            values = (_nibbles(blocks[..., 2:]) - 8) * d
    return np.asarray(values.reshape(*raw.shape[:-1], blocks.shape[-2] * BLOCK))


def quantize(x: Array, dtype: DType) -> Array:
    """Return rows of raw blocks (uint8) for `x`, of any float dtype.

    The last dim is a multiple of the elements of a block, and elements are converted to float32 first. Raises
    `BadTensorDtype` for a type that is only decoded.
    """
    if dtype.block > 1 and dtype.name not in ("Q4_0", "Q4_1", "Q8_0"):
        return _encode(x, dtype)
    blocks = np.ascontiguousarray(x, np.float32).reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    with np.errstate(all="ignore"):
        if dtype is Q8_0:
            d = np.max(np.abs(blocks), -1, keepdims=True, initial=0) / np.float32(127)
            scaled = blocks * _inverse(d)
            size = np.abs(scaled)
            near = np.floor(size) + np.floor(2 * (size - np.floor(size)))
            parts = [d, _integer(np.copysign(near, scaled), np.int8).view(np.uint8)]
        elif dtype is Q4_1:
            low, high = (f(blocks, -1, keepdims=True) + np.float32(0) for f in (np.min, np.max))  # never -0
            d = (high - low) / np.float32(15)
            parts = [d, low, _pack((blocks - low) * _inverse(d) + np.float32(0.5))]
        else:
            assert dtype is Q4_0
            at = np.argmax(np.abs(blocks), -1, keepdims=True)
            d = np.take_along_axis(blocks, at, -1) / np.float32(-8)
            parts = [d, _pack(blocks * _inverse(d) + np.float32(8.5))]
        rows = [_bytes(p) if p.dtype == np.float32 else p for p in parts]
    return np.asarray(np.concatenate(rows, -1).reshape(raw_shape(dtype, x.shape)))


def _encode(x: Array, dtype: DType) -> Array:
    from .encoders import ENCODED, encode

    if dtype.name not in ENCODED:
        raise BadTensorDtype(
            "blocks.quantize", f"{dtype} is only decoded", allowed=f"Q4_0, Q4_1, Q8_0, {', '.join(ENCODED)}"
        )
    blocks = np.ascontiguousarray(x, np.float32).reshape(*x.shape[:-1], x.shape[-1] // dtype.block, dtype.block)
    return encode(blocks, dtype).reshape(raw_shape(dtype, x.shape))


def _half(blocks: Array, at: int) -> Array:
    """Return the F16 at byte `at` of each block as float32, with a last dim of 1."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(quants: Array) -> Array:
    return np.concatenate([quants & 15, quants >> 4], -1).astype(np.float32)


def _inverse(d: Array) -> Array:
    return np.asarray(np.where(d == 0, np.float32(0), np.float32(1) / d))


def _integer(values: Array, to: Any) -> Array:
    """Convert `values` to integers; those that are not finite become 0."""
    return np.asarray(np.where(np.isfinite(values), values, np.float32(0)).astype(to))


def _pack(values: Array) -> Array:
    quants = np.clip(_integer(np.trunc(values), np.int32), 0, 15).astype(np.uint8)
    low, high = np.split(quants, 2, -1)
    return np.asarray(low | high << 4)


def _bytes(d: Array) -> Array:
    """Return F32 scales as the bytes of their F16; every NaN gets the pattern 0x7e00."""
    half = np.where(np.isnan(d), np.float16(np.nan), d.astype(np.float16))
    return np.ascontiguousarray(half).view(np.uint8)
