"""Phases: which places of a transposed convolution have the same taps, and which elements of x these multiply."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Phase:
    """Places of y along a dim whose sums have the same taps: some residues of the stride in a row.

    The sum of place q·stride + residue i, counted from y's first place without padding, is that of x[q - shift -
    t·spread] · w[first + i + t·step] over t < taps.
    """

    residues: int
    first: int
    taps: int
    shift: int


def phases_of(stride: int, dilation: int, length: int) -> list[Phase]:
    """Return the phases of a dim, for windows of that length, in the order of their residues."""
    common = math.gcd(stride, dilation)
    step = stride // common
    turn = pow(dilation // common, -1, step)
    made: list[Phase] = []
    for residue in range(stride):
        first = residue // common * turn % step
        taps = 0 if residue % common else len(range(first, length, step))
        new = Phase(1, first, taps, (first * dilation - residue) // stride)
        old = made[-1] if made else None
        if old is not None and taps == old.taps and (taps == 0 or _follows(old, new)):
            made[-1] = replace(old, residues=old.residues + 1)
        else:
            made.append(new)
    return made


def _follows(old: Phase, new: Phase) -> bool:
    return new.first == old.first + old.residues and new.shift == old.shift


@dataclass(frozen=True)
class Dim:
    """A dim of a transposed convolution: its phases, taps of w and elements of x between terms, and places of y."""

    phases: list[Phase]
    stride: int
    step: int
    spread: int
    first: int  # y's places lie in the strides first … first + places - 1 of the result without padding
    places: int
    cut: int  # and begin so many places behind the first of these


def dim_of(stride: int, dilation: int, length: int, low: int, size: int) -> Dim:
    """Return a dim for windows of `length`, with `low` places cut off before the `size` of y."""
    common, first = math.gcd(stride, dilation), low // stride
    places = (low + size - 1) // stride - first + 1
    phases = phases_of(stride, dilation, length)
    return Dim(phases, stride, stride // common, dilation // common, first, places, low - first * stride)
