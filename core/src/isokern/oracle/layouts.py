"""Placements of a case's tensors: layouts by name, guard bytes around every tensor, and elements of raw memory.

A layout names an arrangement for the outputs, and for each input in turn. Guards of 128 bytes lie before and after the
elements (two vectors of the widest instruction set), so the first element is 64-byte aligned unless the arrangement
moves it. An `exact` input fills its buffer: who reads behind it reads memory that is not its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..dtypes import DType
from ..layout import TensorDesc, contiguous_strides

GUARD = 128  # bytes on both sides of a tensor
FAR_GUARD = GUARD + 8192  # the same where no protected page ends a write that goes further; alignments are the same
FAR = (1 << 24) + 1  # elements before a far tensor: an offset that F32 does not hold
ODD = 10_007  # stride of dims of 1, which nothing may depend on
Array = np.ndarray[Any, Any]

# The arrangement of the outputs, then those of the inputs in turn (repeated)
LAYOUTS: dict[str, tuple[str, ...]] = {
    "contiguous": ("contiguous",),
    "bare": ("bare", "exact"),
    "offset": ("offset",),
    "offset_in": ("contiguous", "offset", "contiguous"),
    "rows": ("rows",),
    "gaps": ("gaps",),
    "permuted": ("permuted",),
    "negative": ("negative",),
    "broadcast": ("offset", "broadcast", "rows"),
    "repeated": ("offset", "repeated", "rows"),
    "permuted_in": ("offset", "permuted", "contiguous", "permuted"),
    "permuted_out": ("permuted", "rows", "contiguous"),
    "mixed": ("gaps", "negative", "rows", "offset", "permuted"),
    "gaps_in": ("offset", "gaps"),
    "gaps_out": ("gaps", "offset"),
    "mirrored": ("offset", "negative"),
    "crossed": ("turned_back", "turned", "turned_back"),
    "far": ("far",),
}
DENSE = ("contiguous", "offset", "bare", "offset_in")
STRIDED = ("gaps", "permuted_in", "negative", "mixed", "rows", "broadcast", "permuted", "permuted_out", "crossed")
OVERLAPS = ("offset", "negative", "gaps", "gaps_in", "gaps_out", "mirrored")  # those that `windows` implements


def arrangements(layout: str, outputs: int, inputs: int) -> list[str]:
    """Return the arrangement of each output, then of each input."""
    first, *others = LAYOUTS[layout]
    cycle = others or [first]
    return [first] * outputs + [cycle[i % len(cycle)] for i in range(inputs)]


def place(arrangement: str, dtype: DType, shape: Sequence[int], guard: int = GUARD) -> tuple[TensorDesc, int]:
    """Return the description of a tensor so arranged in a buffer of its own, and the buffer's bytes with guards.

    A bare tensor has no guard before it, since its offset is 0; an exact one none behind it, either.
    """
    size, block = dtype.itemsize, dtype.block
    if block == 1:
        strides, lead = _strides(arrangement, tuple(shape))
    else:  # the same over all dims but the last, whose blocks are adjacent
        width, spare = -(-shape[-1] // block) * block, {"rows": 3, "gaps": 5}.get(arrangement, 0) * block
        plain = "contiguous" if arrangement in ("rows", "gaps") else arrangement
        outer, lead = _strides(plain, tuple(shape[:-1]))
        strides, lead = (*(s * (width + spare) for s in outer), 1), lead * block
    low = sum((d - 1) * s for d, s in zip(shape, strides, strict=True) if s < 0 and 0 not in shape)
    start = (0 if arrangement in ("bare", "exact") else -(-guard // size) * block) + lead - low
    start += FAR if arrangement == "far" and block == 1 else 0
    desc = TensorDesc(dtype, shape, strides, start)
    end = desc.byte_range[1]
    return desc, end if arrangement == "exact" and end else -(-(end + guard) // 64) * 64


def _strides(arrangement: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return (strides, elements before the first) of an arrangement."""
    if arrangement in ("contiguous", "bare", "exact", "far"):
        return contiguous_strides(shape), 0
    if arrangement in ("turned", "turned_back"):  # every second dim backwards, from the first or from the second
        turned = 0 if arrangement == "turned" else 1
        return tuple(-s if i % 2 == turned else s for i, s in enumerate(contiguous_strides(shape))), 0
    if arrangement == "offset":
        return contiguous_strides(shape), 1
    if arrangement == "permuted":
        return contiguous_strides(shape[::-1])[::-1], 0
    if arrangement == "negative":
        return tuple(-s for s in contiguous_strides(shape)), 0
    if arrangement in ("broadcast", "repeated"):
        wide = _find_wide(arrangement, shape)
        kept = contiguous_strides([1 if i == wide else d for i, d in enumerate(shape)])
        return tuple(0 if i == wide else s for i, s in enumerate(kept)), 0
    steps, step = [], {"rows": 1, "gaps": 2}[arrangement]
    # rows: three unused elements behind each row; gaps: every second element is unused as well
    for d in reversed(shape):
        steps.append(ODD if d == 1 and arrangement == "gaps" else step)
        step = step * max(d, 1) + 3
    return tuple(reversed(steps)), 0


def constant_axis(arrangement: str, dtype: DType, shape: Sequence[int]) -> int | None:
    """Return the axis along which a tensor repeats; None for arrangements that repeat none."""
    return _find_wide(arrangement, shape if dtype.block == 1 else shape[:-1])


def _find_wide(arrangement: str, shape: Sequence[int]) -> int | None:
    """Return the first dim of several elements, or for `repeated` the last, whose step is 0."""
    wide = [i for i, d in enumerate(shape) if d > 1]
    at = {"broadcast": 0, "repeated": -1}.get(arrangement)
    return wide[at] if wide and at is not None else None


def windows(layout: str, n: int, m: int) -> tuple[range, range, int]:
    """Return which elements of one run are an input of n and an output of m, and the run's length.

    With one stride, there is a layout with the output behind the input and one with it before. With two strides they
    meet halfway, so that addresses go up on one side of that point and down on the other.
    """
    if layout == "gaps_in":
        x, y = range(0, 2 * n, 2), range(n // 2, n // 2 + m)
    elif layout == "gaps_out":
        x, y = range(m // 2, m // 2 + n), range(0, 2 * m, 2)
    elif layout == "mirrored":
        x, y = range(n - 1, -1, -1), range(m)
    else:
        first, start = (7, 0) if layout == "gaps" else (0, 1)
        x, y = range(first, first + n), range(start, start + m)
    return x, y, 1 + max(end for r in (x, y) if r for end in (r[0], r[-1]))


def elements(raw: Array, desc: TensorDesc) -> Array:
    """Return the elements of `desc` in a buffer's bytes, as a view; raw blocks for a block type."""
    desc = desc if desc.dtype.block == 1 else desc.raw
    assert desc.dtype.numpy is not None
    if desc.numel == 0:
        return np.empty(desc.shape, desc.dtype.numpy)
    size = desc.dtype.itemsize
    whole = raw[: raw.size // size * size].view(f"u{size}")[desc.offset :]  # as_strided does not take every type
    return np.lib.stride_tricks.as_strided(whole, desc.shape, [s * size for s in desc.strides]).view(desc.dtype.numpy)


def outside(desc: TensorDesc, nbytes: int) -> Array:
    """Return a mask of the buffer's bytes that belong to no element: guards and gaps."""
    return _outside_kept(desc, nbytes) if nbytes < 1 << 17 else _outside(desc, nbytes)


def _outside(desc: TensorDesc, nbytes: int) -> Array:
    mask = np.ones(nbytes, np.bool_)
    desc = desc if desc.dtype.block == 1 else desc.raw
    if desc.numel:
        size = desc.dtype.itemsize
        own = np.lib.stride_tricks.as_strided(
            mask[desc.offset * size :], (*desc.shape, size), [*(s * size for s in desc.strides), 1]
        )
        own[...] = False
    return mask


_outside_kept = lru_cache(maxsize=256)(_outside)
