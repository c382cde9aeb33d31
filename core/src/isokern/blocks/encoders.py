"""Quantising float32 to the block types of `layouts` on the host, by searches for the least squared error.

Where the format's tools have one rule, the bytes are theirs: Q5_0, Q5_1, TQ1_0, TQ2_0, MXFP4 and Q8_K. The other types
leave the choice to the encoder. Here each group of elements that share a scale starts from several ranges for its
quants, takes for each the scale (and minimum) of least squared error, and keeps the best; then the scales are quantised
themselves, together with their neighbours, and the quants are chosen again for what will be decoded.

A block with a NaN has a scale of NaN, one with an infinity or with more than the type can hold an infinite one, and
quants of zero bits; MXFP4 has no such scales (`_encode_mxfp4`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType
from .layouts import FP4, UNEVEN, power_of
from .packing import pack

Array = np.ndarray[Any, Any]
F = np.float32


# Types with a rule


def _inverse(d: Array) -> Array:
    return np.asarray(np.where(d == 0, F(0), F(1) / d))


def _integers(values: Array, low: int, high: int) -> Array:
    """Return integers of a range; what is not finite becomes 0 first."""
    return np.clip(np.where(np.isfinite(values), values, F(0)), low, high).astype(np.int32)


def _canonical(d: Array) -> Array:
    """Return scales with one NaN, whose F16 is 0x7e00."""
    return np.asarray(np.where(np.isnan(d), F(np.nan), d))


def _half_away(values: Array) -> Array:
    size = np.abs(values)
    return np.asarray(np.copysign(np.floor(size) + np.floor(2 * (size - np.floor(size))), values))


def _encode_q5_0(x: Array, dtype: DType) -> Array:
    at = np.argmax(np.abs(x), -1, keepdims=True)
    d = np.take_along_axis(x, at, -1) / F(-16)
    return pack(dtype, _canonical(d)[..., 0], _integers(np.trunc(x * _inverse(d) + F(16.5)), 0, 31) - 16)


def _encode_q5_1(x: Array, dtype: DType) -> Array:
    low, high = (f(x, -1, keepdims=True) + F(0) for f in (np.min, np.max))  # never -0
    d = (high - low) / F(31)
    quants = _integers(np.trunc((x - low) * _inverse(d) + F(0.5)), 0, 31)
    return pack(dtype, _canonical(np.concatenate([d, low], -1)), quants)


def _find_trits(x: Array) -> tuple[Array, Array]:
    d = np.max(np.abs(x), -1, keepdims=True)
    return _canonical(d)[..., 0], _integers(_half_away(x * _inverse(d)), -1, 1)


def _encode_tq2_0(x: Array, dtype: DType) -> Array:
    return pack(dtype, *_find_trits(x))


def _encode_tq1_0(x: Array, dtype: DType) -> Array:
    """Five trits are a number below 243, and the byte is 256/243 of it, rounded up."""
    d, trits = _find_trits(x)
    parts = []
    for begin, end, count in ((0, 160, 5), (160, 240, 5), (240, 256, 4)):
        each = trits[..., begin:end].reshape(*x.shape[:-1], count, -1) + 1
        parts.append(np.sum(each * np.array([81, 27, 9, 3, 1])[:count, None], -2))
    raw = np.zeros((*x.shape[:-1], dtype.itemsize), np.uint8)
    raw[..., :52] = (np.concatenate(parts, -1) * 256 + 242) // 243
    raw[..., 52:] = d[..., None].astype(np.float16).view(np.uint8)
    return raw


def _encode_mxfp4(x: Array, dtype: DType) -> Array:
    """The largest magnitude has the exponent of the largest float, and each element the nearest float.

    Where the block has an infinity or a NaN, the power is 255, a NaN in the standard of these floats, and all are 0.
    """
    size = np.max(np.abs(x), -1)
    finite = np.isfinite(size)
    e = np.where(size > 0, np.clip(np.floor(np.log2(np.where(finite, size, F(1)))) - 2 + 127, 0, 255), 0)
    e = np.where(finite, e, 255).astype(np.uint8)
    levels = np.array([*FP4, *(-v for v in FP4)], F)
    nearest = np.argmin(np.abs(power_of(e)[..., None, None] * levels - x[..., None]), -1)
    return pack(dtype, e, np.where(finite[..., None], nearest, 0))


def _encode_q8_k(x: Array, dtype: DType) -> Array:
    """The element of largest magnitude is -127, and the sums of runs of 16 follow the quants."""
    at = np.argmax(np.abs(x), -1, keepdims=True)
    largest = np.take_along_axis(x, at, -1)
    inverse = np.where(largest == 0, F(0), F(-127) / largest)
    quants = _integers(np.rint(x * inverse), -128, 127)
    raw = pack(dtype, _canonical(np.where(largest == 0, F(0), F(1) / inverse))[..., 0], quants)
    sums = quants.reshape(*x.shape[:-1], 16, 16).sum(-1).astype(np.int16)
    raw[..., 260:] = sums.view(np.uint8)
    return raw


# Types with a search


@dataclass(frozen=True)
class Ranges:
    """What an encoder chooses from: groups of elements with a scale, and the ranges of their integers."""

    group: int
    levels: tuple[int, ...]
    scales: tuple[int, int] = (1, 1)
    minima: int = 0  # the largest; 0 for a type without minima


RANGES = {
    "Q2_K": Ranges(16, tuple(range(4)), (0, 15), 15),
    "Q3_K": Ranges(16, tuple(range(-4, 4)), (-32, 31)),
    "Q4_K": Ranges(32, tuple(range(16)), (0, 63), 63),
    "Q5_K": Ranges(32, tuple(range(32)), (0, 63), 63),
    "Q6_K": Ranges(16, tuple(range(-32, 32)), (-128, 127)),
    "IQ4_NL": Ranges(32, UNEVEN),
    "IQ4_XS": Ranges(32, UNEVEN, (-32, 31)),
}
STARTS = np.linspace(-1, 1, 9, dtype=F)  # how far the extreme element lies from the extreme level, in levels
HALF_MAX = float(np.finfo(np.float16).max)
ROUNDS = 2  # of choosing quants for a scale, and the scale for the quants


def _nearest(levels: Array, values: Array) -> Array:
    """Return the positions of the levels nearest to values."""
    if levels[-1] - levels[0] == len(levels) - 1:
        return np.asarray(np.clip(np.rint(values), levels[0], levels[-1]) - levels[0]).astype(np.int32)
    return np.searchsorted((levels[1:] + levels[:-1]) / 2, values).astype(np.int32)


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(np.where(b == 0, F(0), a / b))


def _fit_scale(x: Array, levels: Array) -> Array:
    """Return the scale of each group [..., n], such that levels times it are close to the elements."""
    at = np.argmax(np.abs(x), -1, keepdims=True)
    extreme = np.take_along_axis(x, at, -1)
    best, gain = np.zeros_like(extreme), np.full_like(extreme, -1)

    def consider(scale: Array) -> None:
        """Fit the scale to the quants of a given one, and keep it if it takes more off the squared error."""
        nonlocal best, gain
        for _ in range(ROUNDS):
            q = levels[_nearest(levels, x * _inverse(scale))]
            products, squares = np.sum(x * q, -1, keepdims=True), np.sum(q * q, -1, keepdims=True)
            scale, own = _divide(products, squares), _divide(products * products, squares)
            best, gain = np.where(own > gain, scale, best), np.maximum(own, gain)

    step = max(1, (levels[-1] - levels[0]) / 64)  # a level of Q6_K, two or three of IQ4's
    for end in (levels[0], levels[-1]):
        for start in STARTS:
            if end + start * step != 0:
                consider(extreme / (end + start * step))
    return np.asarray(best[..., 0])


def _fit_scale_and_minimum(x: Array, top: int) -> tuple[Array, Array]:
    """Return the scale and the minimum, which is not negative: 0 … top times the scale, less it, is close to x."""
    low = np.minimum(np.min(x, -1, keepdims=True), F(0))
    spread = np.max(x, -1, keepdims=True) - low
    best = [np.zeros_like(low), -low, np.sum((x - low) ** 2, -1, keepdims=True)]
    n, sum_x = F(x.shape[-1]), np.sum(x, -1, keepdims=True)
    for start in STARTS:
        scale, below = spread / F(top + start), -low
        for _ in range(ROUNDS):
            q = np.clip(np.rint((x + below) * _inverse(scale)), 0, top).astype(F)
            sum_q, squares, products = (np.sum(v, -1, keepdims=True) for v in (q, q * q, q * x))
            scale = _divide(n * products - sum_q * sum_x, n * squares - sum_q * sum_q)
            below = (scale * sum_q - sum_x) / n
            alone = (below < 0) | (scale <= 0)  # without a minimum
            scale, below = np.where(alone, _divide(products, squares), scale), np.where(alone, F(0), below)
            error = np.sum((scale * q - below - x) ** 2, -1, keepdims=True)
            better = error < best[2]
            best = [np.where(better, new, old) for new, old in zip((scale, below, error), best, strict=True)]
    return best[0][..., 0], best[1][..., 0]


def _choose(x: Array, d: Array, m: Array, levels: Array, scales: Array, minima: Array) -> tuple[Array, Array]:
    """Return the positions of the nearest levels, and the squared error of each group."""
    a, b = (d * scales)[..., None], (m * minima)[..., None]
    at = _nearest(levels, (x + b) * _inverse(a))
    return at, np.sum((a * levels[at] - b - x) ** 2, -1)


def _search(x: Array, dtype: DType) -> Array:
    """Encode blocks x [n, elements] of a type of RANGES."""
    ranges = RANGES[dtype.name]
    levels, (first, last) = np.array(ranges.levels, F), ranges.scales
    groups = x.reshape(len(x), -1, ranges.group)
    if ranges.minima:
        scale, below = _fit_scale_and_minimum(groups, len(levels) - 1)
        d, m = np.max(scale, -1, keepdims=True) / F(last), np.max(below, -1, keepdims=True) / F(ranges.minima)
    else:
        scale, below = _fit_scale(groups, levels), np.zeros(groups.shape[:2], F)
        at = np.argmax(np.abs(scale), -1, keepdims=True)
        d, m = np.take_along_axis(scale, at, -1) / F(first), np.zeros((len(x), 1), F)
    best: list[Array] = []
    for _ in range(2):
        d, m = (np.clip(v, -HALF_MAX, HALF_MAX).astype(np.float16).astype(F) for v in (d, m))
        found = _quantize_scales(groups, d, m, ranges, scale, below)
        total = np.sum(found[3], -1)[:, None]
        if not best:
            best = [d, m, *found[:3], total]
        else:
            better = total < best[-1]
            wide = better[..., None]
            masks = (better, better, better, better, wide, better)
            best = [np.where(k, new, old) for k, new, old in zip(masks, (d, m, *found[:3], total), best, strict=True)]
        d, m = _fit_both(groups, levels[found[2]], *found[:2])
    d, m, scales, minima, at = best[:5]
    quants = at if dtype.name.startswith("IQ4") else at + int(levels[0])
    every = dtype.block // 16 // scales.shape[-1] or 1  # runs in a group
    given = {"scales": scales, "minima": minima if ranges.minima else None} if ranges.scales != (1, 1) else {}
    return pack(
        dtype,
        np.concatenate([d, m], -1) if ranges.minima else d[..., 0],
        quants.reshape(len(x), -1),
        **{name: None if v is None else np.repeat(v, every, -1) for name, v in given.items()},
    )


def _quantize_scales(
    x: Array, d: Array, m: Array, ranges: Ranges, scale: Array, below: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the scales and minima of groups as integers, the positions of levels, and squared errors.

    Of each scale the nearest integer and its two neighbours are tried, with those of the minimum.
    """
    levels, (first, last) = np.array(ranges.levels, F), ranges.scales
    near, deep = np.rint(scale * _inverse(d)), np.rint(below * _inverse(m))
    best: tuple[Array, Array, Array, Array] | None = None
    for up in (0, -1, 1) if first != last else (0,):
        for down in (0, -1, 1) if ranges.minima else (0,):
            scales, minima = np.clip(near + F(up), first, last), np.clip(deep + F(down), 0, ranges.minima)
            at, error = _choose(x, d, m, levels, scales, minima)
            if best is None:
                best = scales, minima, at, error
                continue
            better = error < best[3]
            best = (
                np.where(better, scales, best[0]),
                np.where(better, minima, best[1]),
                np.where(better[..., None], at, best[2]),
                np.where(better, error, best[3]),
            )
    assert best is not None
    return best


def _fit_both(x: Array, q: Array, scales: Array, minima: Array) -> tuple[Array, Array]:
    """Return d and m of least squared error for the integers of a block: x is about d u - m v."""
    u, v = q * scales[..., None], np.broadcast_to(minima[..., None], x.shape)
    uu, uv, vv, ux, vx = (np.sum(a * b, (-1, -2))[:, None] for a, b in ((u, u), (u, v), (v, v), (u, x), (v, x)))
    whole = uu * vv - uv * uv
    d, m = _divide(ux * vv - vx * uv, whole), _divide(uv * ux - uu * vx, whole)
    alone = (whole <= 0) | (m < 0)
    return np.where(alone, _divide(ux, uu), d), np.where(alone, F(0), m)


RULES: dict[str, Callable[[Array, DType], Array]] = {
    "Q5_0": _encode_q5_0,
    "Q5_1": _encode_q5_1,
    "TQ1_0": _encode_tq1_0,
    "TQ2_0": _encode_tq2_0,
    "MXFP4": _encode_mxfp4,
    "Q8_K": _encode_q8_k,
}
ENCODED = (*RULES, *RANGES)
PIECE = 1 << 15  # elements that are searched at a time


def encode(blocks: Array, dtype: DType) -> Array:
    """Return blocks (uint8 [..., bytes]) of float32 elements [..., elements of a block]."""
    if blocks.size == 0:
        return np.zeros((*blocks.shape[:-1], dtype.itemsize), np.uint8)
    flat = blocks.reshape(-1, dtype.block)
    with np.errstate(all="ignore"):
        if dtype.name in RULES:
            raw = RULES[dtype.name](flat, dtype)
        else:
            odd = ~(np.max(np.abs(flat), -1) <= _find_reach(RANGES[dtype.name]))
            plain, step = np.where(odd[:, None], F(0), flat), max(1, PIECE // dtype.block)
            parts = [_search(plain[at : at + step], dtype) for at in range(0, len(plain), step)]
            raw = np.concatenate(parts)
            if odd.any():
                raw[odd] = _encode_odd(flat[odd], dtype)
    return raw.reshape(*blocks.shape[:-1], dtype.itemsize)


def _find_reach(ranges: Ranges) -> float:
    """Return the largest magnitude that a block can hold."""
    return HALF_MAX * max(map(abs, ranges.scales)) * max(map(abs, ranges.levels))


def _encode_odd(x: Array, dtype: DType) -> Array:
    """Return blocks with a scale of NaN or infinity."""
    d = np.where(np.isnan(x).any(-1), F(np.nan), F(np.inf))
    zeros = np.zeros(x.shape, np.int32)
    return pack(dtype, np.stack([d, 0 * zeros[:, 0]], -1) if RANGES[dtype.name].minima else d, zeros)
