"""Floats that have no dtype here: their numbers lie in F32, rounded as the narrow type rounds.

Adding and taking off 1.5 · 2^(23 - m) times the power of two below a number leaves m bits of it, rounded to nearest
even, since that is the unit of the sum. Below the least exponent the power stays, which rounds subnormals, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dtypes import F32, U32
from .node import Node, Operand

EXPONENT = 0x7F800000  # the bits of F32 that have it


@dataclass(frozen=True)
class Format:
    """The bits after the point, the exponent of the least normal number, and the largest number."""

    bits: int
    least: int
    largest: float


FORMATS = {
    "FLOAT4E2M1": Format(1, 0, 6.0),
    "FLOAT8E4M3FNUZ": Format(3, -7, 240.0),
    "FLOAT8E5M2FNUZ": Format(2, -15, 57344.0),
}


def round_floats(node: Node, x: Operand, name: str, saturate: bool) -> Operand:
    """Return F32 numbers of a narrow type; beyond its range the largest one, or NaN."""
    form = FORMATS[name]
    x = node.cast(x, F32)
    if saturate:
        x = node.emit("clip", x, min=-form.largest, max=form.largest)
    power = node.emit("bitwise_and", node.emit("bit_cast", x, to=U32), np.asarray(EXPONENT, np.uint32))
    power = node.emit("maximum", node.emit("bit_cast", power, to=F32), node.full((), 2.0**form.least, F32))
    unit = node.emit("scale", power, value=1.5 * 2.0 ** (23 - form.bits))
    y = node.emit("sub", node.emit("add", x, unit), unit)
    if saturate:
        return y
    beyond = node.emit("greater", node.emit("abs", y), node.full((), form.largest, F32))
    return node.emit("where", beyond, node.full((), float("nan"), F32), y)
