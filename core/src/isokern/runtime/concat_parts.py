"""Concatenations without copies: which values are computed in place in the result of a concatenation.

The operands of a `concat` are slices of its result. If each slice is contiguous (all dims before the axis are 1), and
each operand is computed anew by an operator, the operands are in the result's memory from the beginning, and the concat
needs no call. Values that are concatenated again one after the other, as in a DenseNet, are in the longest of
their concatenations, of which the shorter ones are slices.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from ..backend import BASE_ALIGNMENT
from ..graph.ir import COMPUTED, Graph, Op, Value

ALIGNED = 64  # bytes that slices begin at multiples of, as the rows of kernels' vectors do


@dataclass
class Joined:
    """The places of values, as (the whole, first element), and the concats that need no call."""

    places: dict[Value, tuple[Value, int]] = field(default_factory=dict)
    joined: set[Op] = field(default_factory=set)


def find_parts(graph: Graph, kept: Collection[Value]) -> Joined:
    """Return the parts of a graph; `kept` are values that have memory of their own. The last concat is first."""
    found = Joined()
    parts = found.places
    wholes: set[Value] = set()
    for op in reversed(graph.ops):
        whole = op.outputs[0]
        if op.kind != "concat" or not _has_slices(op, kept):
            continue
        starts, at = [], 0
        for x in op.given:
            starts.append(at)
            at += x.spec.numel
        pairs = list(zip(op.given, starts, strict=True))
        root, begin = parts.get(whole, (whole, 0))
        placed = {(parts[x][0], parts[x][1] - start) if x in parts else None for x, start in pairs}
        if placed == {None} and all(_is_free(x, kept) and x not in wholes for x, _ in pairs):
            parts |= {x: (root, begin + start) for x, start in pairs}
        elif len(placed) == 1 and None not in placed and whole not in parts and whole not in wholes:
            (parts[whole],) = [p for p in placed if p is not None]
            root = parts[whole][0]
        else:
            continue
        found.joined.add(op)
        wholes.add(root)
    return found


def _has_slices(op: Op, kept: Collection[Value]) -> bool:
    """Return whether the operands of a concat are aligned, contiguous slices of its result, each of them once."""
    whole, given = op.outputs[0], list(op.given)
    shape, size = whole.spec.shape, whole.spec.dtype.itemsize
    axis = op.attrs["axis"] % max(1, len(shape))
    dense = all(v.spec.is_contiguous and v.spec.offset == 0 for v in (whole, *given))
    constrained = any(user.constraints for v in (whole, *given) for user in v.users)
    return (
        not (op.constraints or constrained)
        and whole not in kept
        and len(set(given)) == len(given)
        and whole.spec.dtype.block == 1
        and BASE_ALIGNMENT % size == 0
        and math.prod(shape[:axis]) == 1
        and dense
        and all(v.spec.numel * size % ALIGNED == 0 and v.spec.numel > 0 for v in given[:-1])
        and given[-1].spec.numel > 0
    )


def _is_free(x: Value, kept: Collection[Value]) -> bool:
    """Return whether a value is computed anew, so that it may be anywhere."""
    op = x.producer
    if x.role != COMPUTED or x in kept or op is None or op.constraints or op.operator.inout:
        return False
    return op.operator.stem != "rearrange" or op.kind == "concat"  # a view takes no memory, and stays one
