"""The layouts of the block types that are only decoded, a declaration each, and their values in NumPy.

A block is cut into runs of 16 elements. Element l of run s is worth

    (d · scale(s)) · quant(s, l) - m · minimum(s)

in F32, each step rounded, where d and m are stored once a block. `code` (of which a quant is made), `scale` and
`minimum` are integers, written as one expression that NumPy and C (`cabi/block_layouts.py`) read alike: of the block's
bytes `B[...]`, of s and of l, with the operators that both have, and with those of `FUNCTIONS`. The layouts are those
of ggml's block types of the same names, as the files that its tools write have them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from ..dtypes import DType

Array = np.ndarray[Any, Any]
RUN = 16


@dataclass(frozen=True)
class BlockLayout:
    """The layout of a block type: d and m are the F16 at these bytes of a block, the rest are expressions.

    A code is a number of `bits` bits. A quant is its code + `lowest`, or what the function `table` has for the code,
    `lowest` being the lowest of its values, at most 255 less than the largest. `run` elements, 16 or 32, share a scale
    and a minimum, numbers of `scale_bits` bits without a sign if that is 4. Without `m` nothing is subtracted. `power`
    says that d is no F16 but a byte e at `d`, worth 2^(e - 128).
    """

    code: str
    bits: int
    lowest: int
    d: int
    table: str | None = None
    scale: str = "1"
    scale_bits: int = 8
    m: int | None = None
    minimum: str = "0"
    run: int = 32
    power: bool = False

    @property
    def quant(self) -> str:
        """The expression of a quant."""
        return f"{self.table}({self.code})" if self.table is not None else f"({self.code}) + ({self.lowest})"


# The scales and minima of 8 pairs of runs, of 6 bits each, in the 12 bytes from 4 on: the first four lie in the low
# bits of a byte, the others in four bits of one and two of another
_SIX = "(B[4 + {j} + ({j} & 4)] & (63 >> (({j} & 4) >> 1))) | (((B[{j}] >> 6) * ({j} >> 2)) << 4)".format(j="(s >> 1)")
_SIX_MINIMA = "((B[8 + {j}] >> ({j} & 4)) & (63 >> (({j} & 4) >> 1))) | (((B[4 + {j}] >> 6) * ({j} >> 2)) << 4)".format(
    j="(s >> 1)"
)
_HALF = "((s & 1) << 4) + l"  # the place of an element in its pair of runs
_TWO_BITS = "((B[{at} + ((s >> 3) << 5) + " + _HALF + "] >> (s & 6)) & 3)"  # of four pairs of runs in 32 bytes
_FOUR_BITS = "((B[{at} + ((s >> 2) << 5) + " + _HALF + "] >> ((s & 2) << 1)) & 15)"  # of two pairs of runs in 32 bytes
_NIBBLE = "((B[{at} + l] >> (s << 2)) & 15)"  # of the two runs of a block of 32

LAYOUTS: dict[str, BlockLayout] = {
    "Q6_K": BlockLayout(
        "((B[((s >> 3) << 6) + ((s & 3) << 4) + l] >> (s & 4)) & 15) | (" + _TWO_BITS.format(at=128) + " << 4)",
        bits=6,
        lowest=-32,
        d=208,
        scale="signed(B[192 + s])",
        run=16,
    ),
    "Q4_K": BlockLayout(_FOUR_BITS.format(at=16), bits=4, lowest=0, d=0, scale=_SIX, m=2, minimum=_SIX_MINIMA),
    "Q5_K": BlockLayout(
        _FOUR_BITS.format(at=48) + " | (((B[16 + " + _HALF + "] >> (s >> 1)) & 1) << 4)",
        bits=5,
        lowest=0,
        d=0,
        scale=_SIX,
        m=2,
        minimum=_SIX_MINIMA,
    ),
    "Q2_K": BlockLayout(
        _TWO_BITS.format(at=16),
        bits=2,
        lowest=0,
        d=80,
        scale="B[s] & 15",
        scale_bits=4,
        m=82,
        minimum="B[s] >> 4",
        run=16,
    ),
    "Q3_K": BlockLayout(
        _TWO_BITS.format(at=32) + " | (((B[" + _HALF + "] >> (s >> 1)) & 1) << 2)",
        bits=3,
        lowest=-4,
        d=108,
        run=16,
        scale="(((B[96 + (s & 7)] >> ((s >> 3) << 2)) & 15) | (((B[104 + (s & 3)] >> ((s >> 2) << 1)) & 3) << 4)) - 32",
    ),
    "Q5_0": BlockLayout(
        _NIBBLE.format(at=6) + " | ((((B[2 + (s << 1)] | (B[3 + (s << 1)] << 8)) >> l) & 1) << 4)",
        bits=5,
        lowest=-16,
        d=0,
    ),
    "Q5_1": BlockLayout(
        _NIBBLE.format(at=8) + " | ((((B[4 + (s << 1)] | (B[5 + (s << 1)] << 8)) >> l) & 1) << 4)",
        bits=5,
        lowest=0,
        d=0,
        m=2,
        minimum="-1",
    ),
    "IQ4_NL": BlockLayout(_NIBBLE.format(at=2), bits=4, lowest=-127, d=0, table="uneven"),
    "IQ4_XS": BlockLayout(
        "(B[8 + ((s >> 1) << 4) + l] >> ((s & 1) << 2)) & 15",
        bits=4,
        lowest=-127,
        d=0,
        table="uneven",
        scale="(((B[4 + (s >> 2)] >> ((s & 2) << 1)) & 15) | (((B[2 + (s >> 3)] >> (s & 6)) & 3) << 4)) - 32",
    ),
    "MXFP4": BlockLayout(_NIBBLE.format(at=1), bits=4, lowest=-12, d=0, table="twice_fp4", power=True),
    "TQ2_0": BlockLayout(_TWO_BITS.format(at=0), bits=2, lowest=-1, d=64),
}


UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4 = (0, 1, 2, 3, 4, 6, 8, 12)  # twice the values of the 4-bit floats of the Open Compute Project

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "signed": lambda x: (x ^ 128) - 128,
    "uneven": lambda n: np.array(UNEVEN, np.int32)[n],
    "twice_fp4": lambda n: np.array([*FP4, *(-v for v in FP4)], np.int32)[n],
}


class _Bytes:
    """The bytes of blocks [..., bytes], indexed as an expression indexes one block's."""

    def __init__(self, blocks: Array) -> None:
        self.blocks = blocks

    def __getitem__(self, at: Any) -> Array:
        return np.asarray(self.blocks[..., at].astype(np.int32))


@cache
def _code(expression: str) -> CodeType:
    return compile(expression, "<layout>", "eval")


def evaluate(expression: str, raw: Array, dtype: DType) -> Array:
    """Return the integers of an expression for each element of blocks, [..., runs, elements of a run] or fewer dims."""
    s, l_ = np.indices((dtype.block // RUN, RUN))
    known = {**FUNCTIONS, "__builtins__": {}, "B": _Bytes(raw), "s": s, "l": l_}
    return np.asarray(eval(_code(expression), known), np.int32)


def dequantize_layout(raw: Array, dtype: DType) -> Array:
    """Return the float32 elements [..., blocks, elements] of blocks (uint8 [..., blocks, bytes])."""
    layout = LAYOUTS[dtype.name]

    def value(expression: str) -> Array:
        return evaluate(expression, raw, dtype).astype(np.float32)

    def half(at: int) -> Array:
        return np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16).astype(np.float32)

    d = (power_of(raw[..., layout.d, None]) if layout.power else half(layout.d))[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        values = d * value(layout.scale) * value(layout.quant)
        if layout.m is not None:
            values = values - half(layout.m)[..., None] * value(layout.minimum)
    return np.asarray(values).reshape(*raw.shape[:-1], dtype.block)


def has_powers(dtype: DType) -> bool:
    """Return whether the scales of a block type are powers of two, in a byte."""
    return dtype.name in LAYOUTS and LAYOUTS[dtype.name].power


def power_of(e: Array) -> Array:
    """Return 2^(e - 128) in float32 for bytes e; the first two are subnormal numbers."""
    wide = e.astype(np.uint32)
    small = np.uint32(0x00200000) << np.minimum(wide, 1)
    return np.where(wide < 2, small, (wide - 1) << 23).astype(np.uint32).view(np.float32)
