"""The layouts of the block types that core's kernels only decode, a declaration each, and their values in NumPy.

A block is cut into runs of 16 elements. Element l of run s is worth

    (d · scale(s)) · quant(s, l) - m · minimum(s)

in F32, each step rounded, where d and m are stored once a block. `code` (of which a quant is made), `scale` and
`minimum` are integers, written as one expression that NumPy and C (`cabi/block_layouts.py`) read alike: of the block's
bytes `B[...]`, of s and of l, with the operators that both have, with those of `FUNCTIONS`, and with `word(n)`, entry n
of the layout's codebook. The layouts are those of ggml's block types of the same names, as the files that its tools
write have them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from ..dtypes import DType

Array = np.ndarray[Any, Any]
RUN = 16


@dataclass(frozen=True)
class BlockLayout:
    """The layout of a block type: d and m are stored at these bytes of a block, the rest are expressions.

    A code is a number of `bits` bits. A quant is its code + `lowest`, or what the function `table` has for the code,
    `lowest` being the lowest of its values, at most 255 less than the largest; with 0 bits the code is the quant. `run`
    elements, 16 or 32, share a scale and a minimum, numbers of `scale_bits` bits without a sign if that is 4. `values`
    are all quants of a type without codes, in order, where they are at most 16: packed forms count them. Without
    `m` nothing is subtracted; m is an F16. `stored` says what d is: `half` an F16, `single` an F32, `power` a byte e,
    worth 2^(e - 128), `spread` an F16 whose nibbles are the high ones of every other byte from `d` on, the lowest
    first. It is multiplied by `unit`, a power of two. `codebook` names the table in codebooks.txt that `word` reads:
    entries of 16 bits.
    """

    code: str
    lowest: int
    d: int
    bits: int = 0
    table: str | None = None
    scale: str = "1"
    scale_bits: int = 8
    m: int | None = None
    minimum: str = "0"
    run: int = 32
    stored: str = "half"
    unit: float = 1.0
    codebook: str | None = None
    values: tuple[int, ...] = ()

    @property
    def quant(self) -> str:
        """The expression of a quant."""
        if self.table is not None:
            return f"{self.table}({self.code})"
        return f"({self.code}) + ({self.lowest})" if self.bits else self.code


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

# Of the types with codebooks: groups are two runs, entries are 8 or 4 elements
_GROUP = "((s >> 1) << 3)"  # the first of 8 bytes of a group
_EIGHT = "(((s & 1) << 1) + (l >> 3))"  # the number of an entry of 8 in its group
_ENTRY = "((s << 1) + (l >> 3))"  # and in its block
_PAIR = "((s << 2) + ((l >> 3) << 1))"  # the same in pairs of bytes
_QUARTER = "((s << 2) + (l >> 2))"  # the number of an entry of 4 in its block
_TWO, _FOUR = "((l & 7) << 1)", "((l & 3) << 2)"  # the place of an element's field in its entry
_SEVENTH = f"({_EIGHT} * 7)"  # seven bits for the signs of 8 elements, in the low 28 of four bytes
_SIGNS = (
    f"even(((B[{{at}} + ({_SEVENTH} >> 3)] | (B[{{at}} + 1 + ({_SEVENTH} >> 3)] << 8)) >> ({_SEVENTH} & 7)) & 127)"
    " >> (l & 7)"
)
_OF_16 = "1 + (((B[{at} + (s >> 1)] >> ((s & 1) << 2)) & 15) << 1)"  # an odd scale, of a nibble a run
_HIGH = "(B[34 + ((s >> 1) << 1)] | (B[35 + ((s >> 1) << 1)] << 8))"  # what a group of IQ1_S has besides its bytes

# All quants of the types with codebooks
_IQ2, _IQ1 = (-43, -25, -8, 8, 25, 43), (-9, -7, -1, 1, 7, 9)
_IQ3_XXS, _IQ3_S = (-62, *range(-52, 53, 8), 62), tuple(range(-15, 16, 2))

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
    "MXFP4": BlockLayout(_NIBBLE.format(at=1), bits=4, lowest=-12, d=0, table="twice_fp4", stored="power"),
    "TQ2_0": BlockLayout(_TWO_BITS.format(at=0), bits=2, lowest=-1, d=64),
    # Five trits in a byte of 48, whose runs are the two halves of 32 bytes five times, then 16 bytes five times; the
    # last run has four trits of each of four bytes
    "TQ1_0": BlockLayout(
        "trit(B[((s < 10) * (s & 1) << 4) + ((s >= 10) << 5) + ((s == 15) << 4) + (l & (15 - (s == 15) * 12))],"
        " (s < 10) * (s >> 1) + (s >= 10) * (s < 15) * (s - 10) + (s == 15) * (l >> 2))",
        bits=2,
        lowest=-1,
        d=52,
    ),
    "Q8_K": BlockLayout("signed(B[4 + (s << 4) + l])", lowest=-128, d=0, stored="single"),
    "IQ2_XXS": BlockLayout(
        f"negate(apart((word(B[2 + {_GROUP} + {_EIGHT}]) >> {_TWO}) & 3), {_SIGNS.format(at=f'6 + {_GROUP}')})",
        lowest=-43,
        d=0,
        scale=f"1 + ((B[9 + {_GROUP}] >> 4) << 1)",
        unit=1 / 8,
        codebook="IQ2_XXS",
        values=_IQ2,
    ),
    "IQ2_XS": BlockLayout(
        f"negate(apart((word(B[2 + {_PAIR}] | ((B[3 + {_PAIR}] & 1) << 8)) >> {_TWO}) & 3),"
        f" even(B[3 + {_PAIR}] >> 1) >> (l & 7))",
        lowest=-43,
        d=0,
        scale=_OF_16.format(at=66),
        unit=1 / 8,
        codebook="IQ2_XS",
        run=16,
        values=_IQ2,
    ),
    "IQ2_S": BlockLayout(
        f"negate(apart((word(B[2 + {_ENTRY}] | (((B[66 + (s >> 1)] >> ({_EIGHT} << 1)) & 3) << 8)) >> {_TWO}) & 3),"
        f" B[34 + {_ENTRY}] >> (l & 7))",
        lowest=-43,
        d=0,
        scale=_OF_16.format(at=74),
        unit=1 / 8,
        codebook="IQ2_S",
        run=16,
        values=_IQ2,
    ),
    "IQ3_XXS": BlockLayout(
        f"negate(steep((word(B[2 + {_QUARTER}]) >> {_FOUR}) & 7), {_SIGNS.format(at='66 + ((s >> 1) << 2)')})",
        lowest=-62,
        d=0,
        scale="1 + ((B[69 + ((s >> 1) << 2)] >> 4) << 1)",
        unit=1 / 4,
        codebook="IQ3_XXS",
        values=_IQ3_XXS,
    ),
    "IQ3_S": BlockLayout(
        f"negate(((word(B[2 + {_QUARTER}] | (((B[66 + (s >> 1)] >> ({_QUARTER} & 7)) & 1) << 8)) >> {_FOUR}) & 7) * 2"
        f" + 1, B[74 + {_ENTRY}] >> (l & 7))",
        lowest=-15,
        d=0,
        scale="1 + (((B[106 + (s >> 2)] >> ((s & 2) << 1)) & 15) << 1)",
        codebook="IQ3_S",
        values=_IQ3_S,
    ),
    # Trits, each an eighth more or less: the last bit of 16, or of four, says which
    "IQ1_S": BlockLayout(
        f"(((word(B[2 + {_ENTRY}] | ((({_HIGH} >> ({_EIGHT} * 3)) & 7) << 8)) >> {_TWO}) & 3) << 3) - 7"
        f" - (({_HIGH} >> 15) << 1)",
        lowest=-9,
        d=0,
        scale=f"1 + ((({_HIGH} >> 12) & 7) << 1)",
        unit=1 / 8,
        codebook="IQ1_S",
        values=_IQ1,
    ),
    "IQ1_M": BlockLayout(
        f"(((word(B[{_ENTRY}] | (((B[32 + s] >> ((l >> 3) << 2)) & 7) << 8)) >> {_TWO}) & 3) << 3) - 7"
        " - (((B[32 + s] >> (3 + ((l >> 3) << 2))) & 1) << 1)",
        lowest=-9,
        d=49,
        scale="1 + ((((B[48 + ((s >> 2) << 1)] | (B[49 + ((s >> 2) << 1)] << 8)) >> ((s & 3) * 3)) & 7) << 1)",
        stored="spread",
        unit=1 / 8,
        codebook="IQ1_S",
        run=16,
        values=_IQ1,
    ),
}


UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4 = (0, 1, 2, 3, 4, 6, 8, 12)  # twice the values of the 4-bit floats of the Open Compute Project
THREES = (1, 3, 9, 27, 81)

# Integers of integers: the parameters, and an expression of them that is read like a layout's
ARITHMETIC: dict[str, tuple[tuple[str, ...], str]] = {
    "signed": (("x",), "(x ^ 128) - 128"),
    "apart": (("n",), "8 + n * 17 + (n >> 1)"),  # 8, 25, 43
    "steep": (("n",), "4 + (n << 3) + (((n + 1) >> 3) << 1)"),  # 4, 12, 20 … 52, 62
    "even": (("n",), "n | (((27030 >> ((n ^ (n >> 4)) & 15)) & 1) << 7)"),  # with the bit that makes their number even
    "negate": (("x", "n"), "x * (1 - ((n & 1) << 1))"),  # if n is odd
    # A byte is 256/243 of a fraction that is written with five trits: the highest of what is left of it
    "trit": (("x", "n"), "(((x * power_of_three(n)) & 255) * 3) >> 8"),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "uneven": lambda n: np.array(UNEVEN, np.int32)[n],
    "twice_fp4": lambda n: np.array([*FP4, *(-v for v in FP4)], np.int32)[n],
    "power_of_three": lambda n: np.array(THREES, np.int32)[n],
}
FUNCTIONS |= {
    name: eval(f"lambda {', '.join(given)}: {text}", dict(FUNCTIONS)) for name, (given, text) in ARITHMETIC.items()
}


@cache
def codebook(name: str) -> tuple[int, ...]:
    """Return the words of a codebook, as the file next to this one has them."""
    lines = iter(Path(__file__).with_name("codebooks.txt").read_text(encoding="ascii").splitlines())
    for line in lines:
        if line.split(" ")[0] == name:
            words: list[int] = []
            while len(words) < int(line.split(" ")[1]):
                words += [int(word, 16) for word in next(lines).split(" ")]
            return tuple(words)
    raise KeyError(name)


class _Bytes:
    """The bytes of blocks [..., bytes], indexed as an expression indexes one block's."""

    def __init__(self, blocks: Array) -> None:
        self.blocks = blocks

    def __getitem__(self, at: Any) -> Array:
        return np.asarray(self.blocks[..., at].astype(np.int32))


@cache
def _code(expression: str) -> CodeType:
    return compile(expression, "<layout>", "eval")


def dequantize_layout(raw: Array, dtype: DType) -> Array:
    """Return the float32 elements [..., blocks, elements] of blocks (uint8 [..., blocks, bytes])."""
    layout = LAYOUTS[dtype.name]

    def value(expression: str) -> Array:
        return evaluate(expression, raw, dtype).astype(np.float32)

    with np.errstate(invalid="ignore", over="ignore"):
        d = read_scale(raw, layout)[..., None, None] * np.float32(layout.unit)
        values = d * value(layout.scale) * value(layout.quant)
        if layout.m is not None:
            m = np.ascontiguousarray(raw[..., layout.m : layout.m + 2]).view(np.float16).astype(np.float32)
            values = values - m[..., None] * value(layout.minimum)
    return np.asarray(values).reshape(*raw.shape[:-1], dtype.block)


def evaluate(expression: str, raw: Array, dtype: DType) -> Array:
    """Return the integers of an expression for each element of blocks, [..., runs, elements of a run] or fewer dims."""
    layout = LAYOUTS[dtype.name]
    s, l_ = np.indices((dtype.block // RUN, RUN))
    known = {**FUNCTIONS, "__builtins__": {}, "B": _Bytes(raw), "s": s, "l": l_}
    if layout.codebook is not None:
        words = np.array(codebook(layout.codebook), np.int32)
        known["word"] = lambda n: words[n]
    return np.asarray(eval(_code(expression), known), np.int32)


def read_scale(raw: Array, layout: BlockLayout) -> Array:
    """Return d of blocks [..., bytes] as float32, before it is multiplied by the layout's unit."""
    at = layout.d
    if layout.stored == "power":
        return power_of(raw[..., at])
    if layout.stored == "single":
        return np.ascontiguousarray(raw[..., at : at + 4]).view(np.float32)[..., 0]
    if layout.stored == "spread":
        high = raw[..., at : at + 8 : 2] >> 4
        return np.ascontiguousarray(high[..., ::2] | high[..., 1::2] << 4).view(np.float16)[..., 0].astype(np.float32)
    return np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16)[..., 0].astype(np.float32)


def write_scale(raw: Array, layout: BlockLayout, d: Array) -> None:
    """Set d of blocks [..., bytes], in place: bytes where it is a power of two, else floats, which are rounded."""
    at = layout.d
    if layout.stored == "power":
        raw[..., at] = d
    elif layout.stored == "single":
        raw[..., at : at + 4] = np.ascontiguousarray(d, np.float32)[..., None].view(np.uint8)
    elif layout.stored == "spread":
        half = np.ascontiguousarray(d, np.float16)[..., None].view(np.uint8)
        nibbles = np.stack([half & 15, half >> 4], -1).reshape(*half.shape[:-1], 4)
        raw[..., at : at + 8 : 2] = raw[..., at : at + 8 : 2] & 15 | nibbles << 4
    else:
        raw[..., at : at + 2] = np.ascontiguousarray(d, np.float16)[..., None].view(np.uint8)


def has_powers(dtype: DType) -> bool:
    """Return whether the scales of a block type are powers of two, in a byte."""
    return dtype.name in LAYOUTS and LAYOUTS[dtype.name].stored == "power"


def power_of(e: Array) -> Array:
    """Return 2^(e - 128) in float32 for bytes e; the first two are subnormal numbers."""
    wide = e.astype(np.uint32)
    small = np.uint32(0x00200000) << np.minimum(wide, 1)
    return np.where(wide < 2, small, (wide - 1) << 23).astype(np.uint32).view(np.float32)
