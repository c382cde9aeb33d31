"""Values of a case's tensors: draws by domain, and special values (NaN, infinities, zeros, subnormals, limits)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..blocks import raw_shape
from ..blocks.layouts import LAYOUTS, has_powers, read_scale, write_scale
from ..dtypes import F16, F64, DType

Array = np.ndarray[Any, Any]


def limits_of(dtype: DType) -> Any:
    """Return `finfo` of a float dtype, including BF16."""
    finfo: Any = ml_dtypes.finfo
    return finfo(dtype.numpy)


def generator(text: str) -> np.random.Generator:
    """Return a random generator whose numbers depend on the text alone."""
    return np.random.default_rng(zlib.crc32(text.encode()))


def draw(domain: str, dtype: DType, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Draw plain values of a domain.

    - any: floats of either sign around 1 (a factor of 8 up and down), every integer
    - positive: floats or integers above 0
    - tiny: as any, times 2^-100, which is 0 in F16
    - unit: within (-1, 1)
    - small: within (-1/8, 1/8), as a trained matrix that a state meets again and again
    - above_one: from 1
    - near_one: of either sign, within a factor of 1.006 of 1, so that long products stay within the range
    - moderate: -8 to 8, some of them whole
    - nonzero: any but 0
    - logits: around 0, some equal, some -inf
    - index:N: -N to N-1
    - length:N: 0 to N
    - slots:N: each of 0 to N-1 at most once, some -1 between them
    - offsets:N: rising from 0 to at most N
    - peaks: the largest element of each row, and of each column, lies on the diagonal, and its exponential is infinite
    - valleys: peaks with the other sign
    - equal: all alike
    - exponents: 112 to 127, exponents of scales up to 1, as MXFP4 has them in U8
    - hilbert: 1 / (i + j + 1) at row i and column j, the matrix whose systems are the badly conditioned example
    - boxes: in the last dim, four corners (a0, a1, b0, b1) of a box with a ≤ b, many of which overlap
    - regions: in the last dim, a place (down, across) and the height and width of a bin there
    - rois: in the last dim, the number of the first image, 0, and the corners of a box
    - nan_behind: NaN in the last quarter of dim 1
    - nans: in each row, and in each column, a NaN on the diagonal, and a larger one, by its bits, at the end

    An unknown domain is a ValueError.
    """
    kind = domain.partition(":")[0]
    size = tuple(shape)
    if dtype.kind == "q":
        return _blocks(kind, dtype, size, rng)
    if dtype.kind == "b":
        return rng.integers(0, 2, size).astype(np.bool_)
    if kind == "slots":
        return _slots(int(domain.partition(":")[2]), dtype, size, rng)
    if kind == "offsets":
        ends = np.sort(rng.integers(0, int(domain.partition(":")[2]), size, endpoint=True))
        ends[..., :1] = 0
        return np.asarray(ends).astype(dtype.numpy)
    if kind in ("index", "length"):
        low, high = _range(domain, dtype)
        return np.asarray(rng.integers(low, high, size, endpoint=True) if low <= high else np.zeros(size)).astype(
            dtype.numpy
        )
    if dtype.kind in "iu":
        return _integers(kind, dtype, size, rng)
    if kind not in _FLOATS:
        raise ValueError(f"domain {domain!r}: {', '.join(_FLOATS)}, index:N, length:N, slots:N or offsets:N")
    values = np.asarray(_FLOATS[kind](rng, size))
    if dtype.storage:  # a short range, beyond which F8E4M3FN has nothing but NaN
        most = float(limits_of(dtype).max)
        values = np.clip(values, -most, most)
    drawn = values.astype(dtype.numpy)
    if kind in ("peaks", "valleys") and dtype is F64:
        drawn[np.abs(drawn) == 1000] *= 1e9  # rounded to F32, it has another exponential
    if kind == "nans":
        drawn[..., -1] = drawn[..., -1, :] = special_values(dtype)[-1]
    return drawn


def _slots(count: int, dtype: DType, size: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return distinct slots, and -1 for what is left out.

    The first is -1, so that a layout that repeats it names no slot twice.
    """
    most = min(count, int(np.iinfo(dtype.numpy or np.int64).max) + 1)
    drawn = np.concatenate([rng.permutation(most), np.full(max(0, math.prod(size) - most), -1)])[: math.prod(size)]
    drawn[rng.random(drawn.size) < 0.2] = -1
    drawn = rng.permutation(drawn)
    drawn[:1] = -1
    return np.asarray(drawn.reshape(size)).astype(dtype.numpy)


def _range(domain: str, dtype: DType) -> tuple[int, int]:
    """Return the first and the last valid value of a domain of indices or lengths, limited to the dtype's range."""
    assert dtype.numpy is not None
    kind, _, limit = domain.partition(":")
    top = int(limit)
    low, high = {"index": (-top, top - 1), "slots": (-(1 << 63), top - 1)}.get(kind, (0, top))
    if dtype.kind not in "iu":
        return low, high
    limits = np.iinfo(dtype.numpy)
    return max(low, limits.min), min(high, limits.max)


_FLOATS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Any]] = {
    "any": lambda rng, size: rng.standard_normal(size) * np.exp2(rng.integers(-3, 4, size)),
    "nonzero": lambda rng, size: rng.choice([-1.0, 1.0], size) * np.exp(rng.standard_normal(size)),
    "positive": lambda rng, size: np.exp(2 * rng.standard_normal(size)),
    "unit": lambda rng, size: rng.uniform(-0.999, 0.999, size),
    "small": lambda rng, size: rng.uniform(-0.125, 0.125, size),
    "near_one": lambda rng, size: rng.choice([-1.0, 1.0], size) * np.exp2(rng.uniform(-1 / 128, 1 / 128, size)),
    "above_one": lambda rng, size: 1 + np.exp(2 * rng.standard_normal(size)),
    "moderate": lambda rng, size: np.where(rng.random(size) < 0.4, rng.integers(-8, 9, size), rng.uniform(-8, 8, size)),
}


def _logits(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    values = np.where(rng.random(size) < 0.3, rng.integers(-4, 5, size), 4 * rng.standard_normal(size))
    hidden = rng.random(size) < 0.05
    hidden[..., :1] = False  # every row has at least one token
    return np.where(hidden, -np.inf, values)


def _peaks(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    values = rng.standard_normal(size)
    at = np.arange(min(size[-2:]))
    values[..., at, at] = 1000
    return values


def _hilbert(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    row, column = np.ogrid[: size[-2], : size[-1]]
    return np.broadcast_to(1 / (row + column + 1.0), size)


def _boxes(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    drawn = rng.uniform(0, 8, size)
    drawn[..., 2:] = drawn[..., :2] + rng.uniform(0.25, 4, size)[..., 2:]
    return drawn


def _regions(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    drawn = rng.uniform(-2, 5, size)
    drawn[..., 2:] = rng.uniform(0.1, 3, size)[..., 2:]
    return drawn


def _rois(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    drawn = np.zeros(size)
    drawn[..., 1:] = _boxes(rng, (*size[:-1], 4))
    return drawn


def _nan_behind(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    values = rng.standard_normal(size)
    values[:, size[1] - size[1] // 4 :] = np.nan
    return values


_FLOATS["tiny"] = lambda rng, size: _FLOATS["any"](rng, size) * 2.0**-100
_FLOATS["logits"] = _logits
_FLOATS["peaks"] = _peaks
_FLOATS["hilbert"] = _hilbert
_FLOATS["boxes"] = _boxes
_FLOATS["regions"] = _regions
_FLOATS["rois"] = _rois
_FLOATS["nan_behind"] = _nan_behind
_FLOATS["exponents"] = lambda rng, size: rng.integers(112, 128, size)
_FLOATS["equal"] = lambda rng, size: np.full(size, 1.5)
_FLOATS["nans"] = lambda rng, size: np.where(_peaks(rng, size) == 1000, np.nan, rng.standard_normal(size))
_FLOATS["valleys"] = lambda rng, size: -_peaks(rng, size)
SHAPED = ("peaks", "valleys", "nans", "nan_behind", "hilbert", "boxes", "regions", "rois")  # by their dims
CHECKED = ("index", "length", "logits", "slots")  # domains whose values the device checks


def _blocks(kind: str, dtype: DType, size: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return raw blocks with any quants, and scales that give elements of the domain's magnitude."""
    raw = rng.integers(0, 256, raw_shape(dtype, size), dtype=np.uint8)
    shape = _read_scales(raw, dtype).shape
    if has_powers(dtype):
        _write_scales(raw, dtype, np.asarray(rng.integers(122, 128, shape)))
        return np.asarray(raw)
    spread = np.exp2(rng.integers(-3, 4, shape)) if kind == "any" else np.ones(shape)
    scales = rng.choice([-1, 1], shape) * rng.uniform(0.5, 1, shape) * spread * _REACH[dtype.name]
    _write_scales(raw, dtype, np.asarray(scales))
    return np.asarray(raw)


# Scales for elements of about 1
_REACH = {"Q4_0": 1 / 8, "Q4_1": 1 / 15, "Q8_0": 1 / 128, "Q5_0": 1 / 16, "Q5_1": 1 / 31, "IQ4_NL": 1 / 127}
_REACH |= {"Q6_K": 1 / 4096, "Q5_K": 1 / 2048, "Q4_K": 1 / 1024, "Q3_K": 1 / 128, "Q2_K": 1 / 32, "IQ4_XS": 1 / 4096}
_REACH |= {"TQ2_0": 1, "TQ1_0": 1, "Q8_K": 1 / 128, "IQ1_S": 1 / 16, "IQ1_M": 1 / 16, "IQ3_S": 1 / 256}
_REACH |= {"IQ2_XXS": 1 / 128, "IQ2_XS": 1 / 128, "IQ2_S": 1 / 128, "IQ3_XXS": 1 / 512}
_POWERS = (0, 1, 2, 96, 131)  # bytes of special scales that are powers of two: subnormal ones, small and larger ones


def _read_scales(raw: Array, dtype: DType) -> Array:
    """Return the F16 scales (and minima) of raw blocks as [..., blocks, 1 or 2], or bytes that are powers.

    They lie before the 16 or 32 bytes of quants, or where the layout has them. An F32 scale is rounded.
    """
    blocks, layout = _split_blocks(raw, dtype), LAYOUTS.get(dtype.name)
    if layout is None:
        return np.ascontiguousarray(blocks[..., : dtype.itemsize % 16]).view(np.float16)
    if layout.stored == "power":
        return blocks[..., layout.d, None]
    with np.errstate(over="ignore"):
        d = read_scale(blocks, layout)[..., None].astype(np.float16)
    if layout.m is None:
        return d
    return np.concatenate([d, np.ascontiguousarray(blocks[..., layout.m : layout.m + 2]).view(np.float16)], -1)


def _write_scales(raw: Array, dtype: DType, scales: Array) -> None:
    """Set what `_read_scales` returns."""
    blocks, layout = _split_blocks(raw, dtype), LAYOUTS.get(dtype.name)
    if layout is None:
        blocks[..., : dtype.itemsize % 16] = scales.astype(np.float16).view(np.uint8)
        return
    write_scale(blocks, layout, scales[..., 0])
    if layout.m is not None:
        blocks[..., layout.m : layout.m + 2] = scales[..., 1:].astype(np.float16).view(np.uint8)


def _split_blocks(raw: Array, dtype: DType) -> Array:
    """Return a view [..., blocks, bytes of a block] of rows of blocks."""
    return raw.reshape(*raw.shape[:-1], raw.shape[-1] // dtype.itemsize, dtype.itemsize)


def _integers(kind: str, dtype: DType, size: tuple[int, ...], rng: np.random.Generator) -> Array:
    assert dtype.numpy is not None
    limits = np.iinfo(dtype.numpy)
    if kind == "equal":
        return np.full(size, 3, dtype.numpy)
    if kind == "exponents":
        return np.asarray(_FLOATS[kind](rng, size)).astype(dtype.numpy)
    if kind in ("peaks", "valleys"):
        return np.asarray(np.clip(_FLOATS[kind](rng, size), max(limits.min, -100), 100)).astype(dtype.numpy)
    low, high = {"any": (limits.min, limits.max), "nonzero": (1, limits.max), "positive": (1, limits.max)}.get(
        kind, (max(limits.min, -8), 8)
    )
    wide = rng.integers(low, high, size, dtype=dtype.numpy, endpoint=True)
    small = rng.integers(max(low, -9), min(high, 9), size, dtype=dtype.numpy, endpoint=True)
    return np.asarray(np.where(rng.random(size) < 0.5, wide, small)).astype(dtype.numpy)


def out_of_range(domain: str, dtype: DType, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Draw values of a checked domain, the last ones invalid.

    These are NaN among logits; otherwise one past each end, and the dtype's limits.
    """
    kind = domain.partition(":")[0]
    flat = draw(domain, dtype, shape, rng).reshape(-1)
    if kind == "logits":
        wrong = np.array([np.nan]).astype(dtype.numpy)
    else:
        assert dtype.numpy is not None
        limits, (low, high) = np.iinfo(dtype.numpy), _range(domain, dtype)
        outside = [v for v in (high + 1, low - 1, limits.max, limits.min) if not low <= v <= high]
        wrong = np.array([v for v in outside if limits.min <= v <= limits.max], dtype.numpy)
    count = min(len(wrong), max(1, flat.size // 2))  # none where every value of the dtype is valid
    flat[flat.size - count :] = wrong[:count]
    return flat.reshape(tuple(shape))


def special_values(dtype: DType, subnormal: bool = True) -> Array:
    """Return the values of a dtype that kernels tend to get wrong, with a few plain ones."""
    assert dtype.numpy is not None
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        rows = {
            0,
            1,
            2,
            3,
            7,
            info.max,
            info.max - 1,
            info.min,
            info.min + 1,
            info.max // 2,
            *([-1, -2, -7, info.min // 2] if dtype.kind == "i" else []),
        }
        return np.array(sorted(rows), dtype.numpy)
    limits = limits_of(dtype)
    top, least, tiny = float(limits.max), float(limits.tiny), float(limits.smallest_subnormal)
    positive = [
        0.0,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        7.25,
        88.5,
        least,
        top,
        np.inf,
        *([tiny, least - tiny] if subnormal else []),
    ]
    plain = np.array([*positive, *(-v for v in positive), np.nan, np.nan], np.float64).astype(dtype.numpy)
    bits = plain.view(f"u{dtype.itemsize}")
    bits[-1] |= 1 | 1 << (8 * dtype.itemsize - 1)  # a NaN with a sign and a payload, which data movement keeps
    return plain


def wide(dtype: DType, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Draw floats over the whole range of exponents of normal numbers, or any integers and booleans."""
    if dtype.kind != "f":
        return draw("any", dtype, shape, rng)
    limits = limits_of(dtype)
    exponents = rng.uniform(float(limits.minexp), float(limits.maxexp) - 1, tuple(shape))
    return (rng.choice([-1.0, 1.0], tuple(shape)) * np.exp2(exponents)).astype(dtype.numpy)


def cross_specials(
    dtypes: Sequence[DType], shapes: Sequence[Sequence[int]], rng: np.random.Generator, subnormal: bool
) -> list[Array]:
    """Return one array per operand: as many combinations of special values as fit, then wide draws."""
    choices = [special_values(d, subnormal) for d in dtypes]
    total = math.prod(len(c) for c in choices)
    arrays, step = [], 1
    for dtype, shape, own in zip(dtypes, shapes, choices, strict=True):
        flat = wide(dtype, (math.prod(shape),), rng)
        count = min(flat.size, total)
        flat[:count] = own[np.arange(count) // step % len(own)]
        arrays.append(flat.reshape(tuple(shape)))
        step *= len(own)
    return arrays


def sprinkle_specials(
    plain: Array, dtype: DType, rng: np.random.Generator, subnormal: bool, infinite: bool = True
) -> Array:
    """Return plain values with a few special ones among them.

    For operators that add up, without the largest: whether their sums overflow depends on the order. For a block type
    the scales become special. Infinities are used only if `infinite`, since a scaled sum and a sum of scaled terms
    differ in them.
    """
    if dtype.kind == "q":
        raw = plain.copy()
        scales = _read_scales(raw, dtype)
        if has_powers(dtype):
            at = rng.random(scales.shape) < 1 / 8
            _write_scales(raw, dtype, np.where(at, rng.choice(_POWERS, scales.shape), scales))
            return np.asarray(raw)
        _write_scales(raw, dtype, sprinkle_specials(scales, F16, rng, subnormal, infinite))
        return np.asarray(raw)
    choices = special_values(dtype, subnormal)
    choices = choices if infinite else choices[~np.isinf(choices)]
    if dtype.kind == "f":
        sizes = np.abs(choices.astype(np.float64))
        choices = choices[~(np.isfinite(sizes) & (sizes > 1e3))]
    flat = plain.reshape(-1).copy()
    if flat.size:
        count = max(1, min(6, flat.size // 8))
        flat[rng.choice(flat.size, count, replace=False)] = rng.choice(choices, count)
    return np.asarray(flat.reshape(plain.shape))


def special_slices(plain: Array, dtype: DType) -> Array:
    """Return plain values in which every second slice along the first dim is of one special value alone.

    The first slice along the last dim, and all of rank 1, is of -Inf or the lowest integer: nothing in it counts.
    """
    assert dtype.numpy is not None
    if dtype.kind == "b":
        whole = np.array([False, True])
    elif dtype.kind == "f":
        whole = np.array([-np.inf, np.nan, 0.0, np.inf, -0.0], np.float64).astype(dtype.numpy)
    else:
        whole = np.array([np.iinfo(dtype.numpy).min, 0, np.iinfo(dtype.numpy).max], dtype.numpy)
    array: Array = np.array(plain)
    for n, at in enumerate(range(0, len(array) if array.ndim > 1 else 0, 2)):
        array[at] = whole[n % len(whole)]
    if array.ndim:
        array[..., : array.shape[-1] if array.ndim == 1 else 1] = whole[0]
    return array


def weight_tails(array: Any, dtype: DType, sign: int) -> Array:
    """Return plain values with the largest, or the lowest, in the last place of each row: who loses it shows it."""
    weighted: Array = np.array(array)
    if weighted.ndim:
        weighted[..., -1] = sign * (2 * float(np.max(np.abs(weighted.astype(np.float64)))) + 1)
    return weighted


def append_conversions(array: Any, source: DType, target: DType) -> Array:
    """Return the values of a conversion's input with `conversion_values` in its last elements."""
    flat: Array = np.array(array).reshape(-1)
    edges = conversion_values(source, target)[: flat.size // 2]
    flat[flat.size - len(edges) :] = edges
    shaped: Array = flat.reshape(np.shape(array))
    return shaped


def conversion_values(source: DType, target: DType) -> Array:
    """Return values of `source` at which rounding to `target`, or its range, decides.

    These are ties between neighbours of the target, and the values beside them; the ends of the target's range and
    what is half a step beyond; NaN of several payloads; and for integers the same ends.
    """
    assert source.numpy is not None
    if not {source.kind, target.kind} <= {"f", "i", "u"}:
        return np.zeros(0, source.numpy)
    if target.kind == "f":
        limits = limits_of(target)
        bits, top = int(limits.nmant), float(limits.max)
        step = 2.0 ** (math.frexp(top)[1] - 1 - bits)
        exact = [1.0, 1.5, 2.0 - 2.0**-bits, 2.0**bits, 3.0 * 2.0 ** (bits + 2), float(limits.tiny), top - step]
        exact += [2.0**60, 3.0 * 2.0**29] if top > 2.0**61 else []
        ties = [v + n * 2.0 ** (math.frexp(v)[1] - 2 - bits) for v in exact for n in (1, 2, 3)]
        least = float(limits.smallest_subnormal)
        ends = [top, top + step / 4, top + step / 2, top + step * 0.75, top + step, least, least / 2, least * 1.5]
        wanted = [*ties, *ends]
    else:
        assert target.numpy is not None
        info = np.iinfo(target.numpy)
        ends = [float(info.min), float(info.max), float(info.max) + 1]
        wanted = [e + d for e in ends for d in (-1.0, -0.5, 0.0, 0.5, 1.0)] + [0.5, 1.5, 2.5, -0.5, -1.5]
    return _beside(np.array([*wanted, *(-v for v in wanted)]), source)


def _beside(wanted: Array, source: DType) -> Array:
    """Return the values of a dtype nearest to numbers, those before and after them, and NaN of several payloads."""
    assert source.numpy is not None
    if source.kind != "f":
        info = np.iinfo(source.numpy)
        whole = [int(v) + d for v in wanted if math.isfinite(v) for d in (-1, 0, 1)]
        return np.array(sorted({v for v in whole if info.min <= v <= info.max}), source.numpy)
    with np.errstate(over="ignore"):
        near = wanted.astype(source.numpy)
    unsigned = np.dtype(f"u{source.itemsize}")
    bits = near.view(unsigned)
    ones = unsigned.type(1)
    finite = np.isfinite(near.astype(np.float64)) & (bits << ones != 0)
    around = np.concatenate([bits, bits[finite] - ones, bits[finite] + ones])
    nan = np.array([np.nan], np.float64).astype(source.numpy).view(unsigned)
    infinity = np.array([np.inf], np.float64).astype(source.numpy).view(unsigned)
    if source.itemsize > 1:  # the payload in the lowest bit alone, in the highest, and both
        around = np.concatenate([around, infinity | ones, nan, nan | ones])
    return around.view(source.numpy)
