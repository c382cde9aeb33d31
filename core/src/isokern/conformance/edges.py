"""Samples at the edges of what a kernel is written for, made from a declaration's small samples and its signature.

Each changes one thing of a sample: dims to lengths near powers of two, at which tiles, loops and launches end; the
rank to 7 and 8; two attributes, away from their defaults together; float attributes to values that F32 does not hold,
or to 0 and 1, at which an operand does not count; the axis and the rank of indices. Cases that the declaration refuses
are skipped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..declare.attributes import Attr
from ..declare.operator import Operator, Sample
from ..declare.samples import describe, slots
from ..dtypes import DType
from ..layout import MAX_RANK
from ..status import IsokernError

Types = Mapping[str, DType]
Shape = tuple[int, ...]
LENGTHS = tuple(n + d for n in (32, 64, 128, 256, 1024, 4096) for d in (-1, 1))
MOST = 1 << 17  # elements of a tensor, but for `vast`
WORK = 1 << 24  # floating-point operations
VAST = (1 << 22) + 1000  # elements at which what is launched in parts of 2^20 or 2^22 has a last, short one
LIMITED = ("index", "length", "slots", "offsets", "rois")  # domains whose values other dims limit
STILL_VALID = ("index", "length")  # those whose values stay valid where dims grow


def is_valid(operator: Operator, sample: Sample, types: Types, most: int = MOST) -> bool:
    """Return whether the declaration takes a sample, and its tensors and its work are not too large to judge."""
    try:
        inputs, outputs = describe(operator, sample, types)
        flops = operator.flops(inputs, outputs) if operator.flops else 0
    except (IsokernError, ArithmeticError, IndexError):
        return False
    tensors = [d for d in (*inputs, *outputs) if d is not None]
    return all(d.numel <= most for d in tensors) and flops <= WORK


def resize(operator: Operator, sample: Sample, types: Types, length: int, of: int = 0) -> Iterator[Sample]:
    """Yield a sample with a dim (of size `of`) changed to `length`, each in turn, and with all dims of one size.

    A length of 0 or 1 takes the place of longer dims; others only in samples whose outputs are inferred. Cases that the
    declaration refuses are skipped, and so are those with given values that the changed dims limit, which are drawn for
    the sample's own dims.
    """
    given = [s for s in slots(operator, sample, types) if s.shape is not None]
    shorter = length <= 1
    if sample.outputs and not shorter:
        return
    dims = {
        (n, axis): dim
        for n, s in enumerate(given)
        for axis, dim in enumerate(s.shape or ())
        if (dim > length if shorter else 1 < dim != length) and of in (0, dim)
    }
    alike = [frozenset(at for at, dim in dims.items() if dim == size) for size in dims.values()]
    domains = {**operator.domains, **sample.values}
    for changed in dict.fromkeys([*alike, *(frozenset([at]) for at in dims)]):
        shrinks = any(dims[at] > length for at in changed)
        shapes: dict[str, Any] = {}
        for n, slot in enumerate(given):
            shape = tuple([length if (n, axis) in changed else dim for axis, dim in enumerate(slot.shape or ())])
            if slot.operand.variadic:
                shapes.setdefault(slot.operand.name, []).append(shape)
            else:
                shapes[slot.operand.name] = shape
            kind = domains.get(slot.operand.name, "").partition(":")[0]
            if 0 not in shape and kind in LIMITED and (shrinks or kind not in STILL_VALID):
                break
        else:
            found = replace(sample, shapes=shapes, outputs={})
            with suppress(IsokernError):
                describe(operator, found, types)
                yield found


def lengthen(operator: Operator, sample: Sample, types: Types) -> Iterator[Sample]:
    """Yield a sample with dims of each of `LENGTHS`."""
    for length in LENGTHS:
        yield from (s for s in resize(operator, sample, types, length) if is_valid(operator, s, types))


def lengthen_all(operator: Operator, sample: Sample, types: Types, start: int) -> Iterator[Sample]:
    """Yield a sample whose dims of different sizes have different ones of `LENGTHS` together, as far as it takes them.

    So one case has a tail along each dim; which lengths those are depends on `start`.
    """
    sizes = {d for s in slots(operator, sample, types) if s.shape is not None for d in s.shape if d > 1}
    found = sample
    for n, size in enumerate(sorted(sizes, reverse=True)):
        length = LENGTHS[(start + 5 * n) % len(LENGTHS)]
        for other in (length, LENGTHS[(start + n) % 4]):
            changed = next(
                (s for s in resize(operator, found, types, other, size) if is_valid(operator, s, types)), None
            )
            if changed is not None:
                found = changed
                break
    if found is not sample:
        yield found


def deepen(operator: Operator, sample: Sample, types: Types) -> Iterator[Sample]:
    """Yield a sample with as many dims of 2 in front as give the ranks 7 and 8, if the signature has any rank.

    Values that a dim limits, such as indices, stay valid: the axis that they are of moves with its dim, and a sample
    without an axis is left out.
    """
    limited = any({**operator.domains, **sample.values}.get(name, "").startswith(LIMITED) for name in sample.shapes)
    axis = sample.attrs.get("axis")
    if limited and not isinstance(axis, int):
        return
    ranked = {o.name for o in operator.signature.inputs if o.dims[:1] and o.dims[0].startswith("*")}
    most = max((len(s) for name, s in sample.shapes.items() if name in ranked and _is_shape(s)), default=0)
    for rank in (MAX_RANK - 1, MAX_RANK) if most else ():
        more = rank - most
        shapes = {
            name: (2,) * more + tuple(s) if name in ranked and _is_shape(s) and len(s) == most else s
            for name, s in sample.shapes.items()
        }
        moved = {"axis": axis + more} if limited and isinstance(axis, int) and axis >= 0 else {}
        for attrs in (sample.attrs, {n: _deepen_list(v, most, more) for n, v in sample.attrs.items()}):
            attrs = {**attrs, **moved}
            found = replace(sample, shapes=shapes, attrs=attrs, outputs={})
            if is_valid(operator, found, types):
                yield found
                break


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and all(isinstance(d, int) for d in shape)


def _deepen_list(value: Any, rank: int, more: int) -> Any:
    """Return the integers for each dim of a tensor with `more` dims in front; an order of dims mixes all."""
    if not isinstance(value, (tuple, list)) or len(value) != rank:
        return value
    if sorted(value) == list(range(rank)):
        return (*(v + more for v in value), *range(more))
    return (*value[:1] * more, *value)


def pair_attributes(operator: Operator, samples: Sequence[Sample], types: Types) -> Iterator[Sample]:
    """Yield a sample for each two attributes, both with a value that is not the default, and that a sample has."""
    pool: dict[str, list[Any]] = {}
    for attr in operator.attrs.attrs:
        values = [s.attrs[attr.name] for s in samples if attr.name in s.attrs]
        values += [v for v in (*attr.choices, True, False) if attr.kind in ("choice", "bool") and _is_value(attr, v)]
        pool[attr.name] = [v for n, v in enumerate(values) if v != attr.default and v not in values[:n]]
    for a, b in itertools.combinations([name for name, values in pool.items() if values], 2):
        ways = itertools.product(samples, pool[a], pool[b])
        found = (replace(s, attrs={**s.attrs, a: x, b: y}, outputs={}) for s, x, y in ways)
        known = {s.text for s in samples}
        yield from itertools.islice((s for s in found if s.text not in known and is_valid(operator, s, types)), 1)


def _is_value(attr: Attr, value: Any) -> bool:
    return isinstance(value, bool) == (attr.kind == "bool")


def refine_attributes(operator: Operator, sample: Sample, types: Types) -> Iterator[Sample]:
    """Yield a sample whose float attributes have more digits than F32 holds."""
    floats = [a for a in operator.attrs.attrs if a.kind == "float"]
    given = {a.name: sample.attrs.get(a.name, a.default) for a in floats}
    finer = {n: v * (1 + 2.0**-31) for n, v in given.items() if isinstance(v, (int, float)) and v and math.isfinite(v)}
    found = replace(sample, attrs={**sample.attrs, **finer}, outputs={})
    if finer and is_valid(operator, found, types):
        yield found


def neutralise_attributes(operator: Operator, samples: Sequence[Sample], types: Types) -> Iterator[Sample]:
    """Yield a sample for each float attribute of 0, and of 1: with operands that may not count."""
    for attr in operator.attrs.attrs:
        for value in (0.0, 1.0) if attr.kind == "float" else ():
            fullest = sorted(samples, key=lambda s: -len(s.shapes))
            found = (replace(s, attrs={**s.attrs, attr.name: value}, outputs={}) for s in fullest)
            yield from itertools.islice((s for s in found if is_valid(operator, s, types)), 1)


def turn_axes(operator: Operator, samples: Sequence[Sample], types: Types) -> Iterator[Sample]:
    """Yield samples of an operator with indices along an axis: each axis, indices of each rank, all dims different."""
    axis = next((a.name for a in operator.attrs.attrs if a.name == "axis" and a.kind == "int"), "")
    for sample in samples[:1] if axis else ():
        domains = {**operator.domains, **sample.values}
        indices = [n for n in sample.shapes if domains.get(n, "").startswith("index:")]
        if not indices or not _is_shape(sample.shapes[next(iter(sample.shapes))]):
            return
        first = next(iter(sample.shapes))
        valid = int(domains[indices[0]].partition(":")[2])
        shape: Shape = (valid, valid + 1, valid + 2)
        for at, picked in itertools.product(range(-2, 3), ((), (2,), (2, 3), (4, 3, 2))):
            taken = (*shape[: at % 3], *picked, *shape[at % 3 + 1 :])  # as an operator that scatters has its updates
            for rest in ({}, {n: taken for n in sample.shapes if n not in (first, *indices)}):
                shapes = {**sample.shapes, first: shape, **dict.fromkeys(indices, picked), **rest}
                found = replace(sample, shapes=shapes, attrs={**sample.attrs, axis: at}, outputs={})
                if is_valid(operator, found, types):
                    yield found
                    break


def widen(operator: Operator, sample: Sample, types: Types) -> Iterator[Sample]:
    """Yield a sample with one size of dims so long that its largest tensor has just more than `VAST` elements."""
    sizes = {d for shape in sample.shapes.values() if _is_shape(shape) for d in shape if d > 1}
    for size in sorted(sizes, reverse=True):
        inputs, outputs = describe(operator, sample, types)
        most = max(d.numel for d in (*inputs, *outputs) if d is not None)
        length = -(-VAST * size // max(most, 1))
        found = (s for s in resize(operator, sample, types, length) if _is_vast(operator, s, types))
        kept = list(itertools.islice(found, 1))
        if kept:
            yield from kept
            return


def _is_vast(operator: Operator, sample: Sample, types: Types) -> bool:
    if not is_valid(operator, sample, types, 2 * VAST):
        return False
    inputs, outputs = describe(operator, sample, types)
    return any(d is not None and d.numel >= VAST for d in (*inputs, *outputs))
