"""The bytes of blocks from their integers: the inverse of a layout, which its declaration gives bit by bit.

Each bit of a block stands for one bit of a quant, a scale or a minimum. The layout's expressions say which: they are
evaluated for blocks with a single bit set.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..dtypes import DType
from .layouts import LAYOUTS, RUN, evaluate, write_scale

Array = np.ndarray[Any, Any]


def pack(dtype: DType, d: Array, quants: Array, scales: Array | None = None, minima: Array | None = None) -> Array:
    """Return blocks (uint8 [..., bytes]) of the integers of a layout.

    d is [...], or [..., 2] with the scale and the minimum of a block; quants are [..., elements], in the order of the
    block, of IQ4_NL, IQ4_XS and MXFP4 as positions in their tables; scales and minima are [..., runs].
    """
    layout, integers = LAYOUTS[dtype.name], {"quant": quants, "scale": scales, "minimum": minima}
    bits = np.zeros((*quants.shape[:-1], 8 * dtype.itemsize), np.uint8)
    for part, given in integers.items():
        if given is not None:
            at, element, place, lowest = _find_bits(dtype, part)
            index = element if part == "quant" else element // RUN
            bits[..., at] = (given.astype(np.int32)[..., index] - lowest) >> place & 1
    raw = np.packbits(bits.reshape(*bits.shape[:-1], dtype.itemsize, 8), -1, bitorder="little")[..., 0]
    write_scale(raw, layout, d if layout.m is None else d[..., 0])
    if layout.m is not None:
        raw[..., layout.m : layout.m + 2] = np.ascontiguousarray(d[..., 1:], np.float16).view(np.uint8)
    return np.asarray(raw)


@cache
def _find_bits(dtype: DType, part: str) -> tuple[Array, Array, Array, int]:
    """Return the bits of a block that a part's integers have, an element and the place in its integer for each.

    The last is the integer that a block without bits has.
    """
    single = np.packbits(np.eye(8 * dtype.itemsize, dtype=np.uint8), -1, bitorder="little")
    layout = LAYOUTS[dtype.name]
    expression: str = layout.code if part == "quant" and layout.table is not None else getattr(layout, part)
    none, each = (evaluate(expression, raw, dtype).reshape(len(raw), -1) for raw in (single[:1] * 0, single))
    change = np.abs(each - none)
    at = np.flatnonzero(change.any(1))
    element = np.argmax(change[at] != 0, 1)
    place = np.log2(change[at, element]).astype(np.int32)
    return at, element, place, int(none[0, 0])
