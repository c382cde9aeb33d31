"""The cases of a device, derived from the declarations.

Each (operator, dtypes) pair runs every small sample dense once and strided twice. It cycles through the layouts from a
start that depends on operator and dtypes, so that all pairs together cover every layout. Then come special values,
in-place calls, out-of-range indices, dims of 0 and 1, and the device's claims. Wide samples (for threads, and stores
that bypass the caches) and long rows run in a few dtypes. Variants that the device would not choose get a smaller set.
"""

from __future__ import annotations

import itertools
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..backend import Device
from ..declare.operator import LENGTHS, Operator, Sample
from ..declare.samples import assignments, describe, fits, slots
from ..dtypes import F16, F32, F64, I32, I64, Q4_0, STORED_BLOCKS, DType
from ..ops import all_operators
from ..oracle.cases import Case, dtype_text, samples
from ..oracle.layouts import DENSE, OVERLAPS, STRIDED, arrangements, place
from ..oracle.values import CHECKED
from . import edges
from .edges import resize

SPECIAL_SIZE = 512  # elements enough for every pair of special values of two operands
WIDE_TYPES = (F32, F16, I32, Q4_0)
# Lengths of rows whose contiguous cases are quick: held by one group, which are also quick with gaps between them, and
# cut into parts
ALIGNED = (2048, 40_000)
OTHERS = 12  # one in so many of the choices of dtypes after the first has quick cases
SHARED = 4  # quick calls in another choice, and of an operator that shares its kernel with others
SLICED = ("reduction", "normalization", "pooling", "attention", "loss", "sampling")  # families that look at rows
COMBINED = 3  # quick cases in which all dims have lengths at edges
EDGES = 8  # the place of the quick case among those of one kind is drawn from so many
PLAIN = ("elementwise", "movement", "conversion", "reduction", "normalization")  # families whose work is their elements
LOWERED = 3  # one in so many operators that a device has no kernel for has a quick call there


@dataclass(frozen=True)
class Shape:
    """The properties of a sample that do not depend on its dtypes.

    The most elements of one tensor, the layouts that make one of them strided, whether one can repeat along a dim, and
    the inputs that the output may alias.
    """

    sample: Sample
    elements: int
    strided: tuple[str, ...]
    repeats: bool
    aliases: tuple[str, ...]


def _shape(operator: Operator, sample: Sample, types: Mapping[str, DType]) -> Shape:
    _, outputs = describe(operator, sample, types)
    given = [(s.label, s.dtype, s.shape) for s in slots(operator, sample, types) if s.shape is not None]
    tensors = [*((o.dtype, o.shape) for o in outputs), *((dtype, shape) for _, dtype, shape in given)]

    def has_strides(layout: str) -> bool:
        kinds = arrangements(layout, len(outputs), len(given))
        return any(_is_strided(kind, *tensor) for kind, tensor in zip(kinds, tensors, strict=True))

    most = max(place("bare", *t)[0].numel for t in tensors)
    same = tuple(label for label, _, shape in given if label in operator.aliases and shape == outputs[0].shape)
    aliases = operator.aliases if operator.inout and most else same if outputs[0].numel else ()
    return Shape(sample, most, tuple(n for n in STRIDED if has_strides(n)), has_strides("repeated"), aliases)


def _count_elements(sample: Sample) -> int:
    """Return the elements of the tensors of a sample that are not variadic."""
    return sum(math.prod(s) for s in sample.shapes.values() if all(isinstance(d, int) for d in s))


def _list_dims(sample: Sample) -> set[int]:
    return {d for s in sample.shapes.values() for d in s if isinstance(d, int)}


@lru_cache(maxsize=65536)
def _is_strided(kind: str, element: DType, shape: tuple[int, ...]) -> bool:
    return not place(kind, element, shape)[0].is_contiguous


class _Derivation:
    """The cases of one operator, for dtypes with the same samples."""

    def __init__(self, operator: Operator, types: Mapping[str, DType]) -> None:
        self.operator = operator
        self.small = [_shape(operator, s, types) for s in samples(operator, "small", types)]
        self.long = [_shape(operator, s, types) for s in samples(operator, "long", types)]
        self.wide = [_shape(operator, s, types) for s in samples(operator, "wide", types)]
        self.large = max(self.small, key=lambda s: (min(s.elements, SPECIAL_SIZE), -s.elements))
        self.longest = max(self.small, key=lambda s: s.elements)  # in F64 it shows intermediate rounding
        varied = [s for s in self.small if len(s.strided) >= len(STRIDED) - 1]
        self.spread = max(varied or [self.large], key=lambda s: min(s.elements, SPECIAL_SIZE))
        # A sample's own values, such as matrices that have an inverse, would be wrong if they repeated
        repeated = (s.sample for s in (self.spread, *self.small) if s.repeats and not s.sample.values)
        self.repeated = next(repeated, None)
        alike = [o for o in all_operators() if o.stem == operator.stem]
        self.leads = operator.name == min(o.name for o in alike)
        inputs = len(operator.signature.inputs)
        self.stands = operator.name == min(o.name for o in alike if len(o.signature.inputs) == inputs)

    def pair(self, types: tuple[DType, ...], position: int, quick: bool) -> list[Case]:
        """Return the cases of one (operator, dtypes) pair with the device's own choice of variant; at least the quick.

        Types that are only stored are moved like integers and widened like other floats: of their cases those of the
        largest sample and those with special values are quick.
        """
        turn = zlib.crc32(self.operator.name.encode()) + position
        cases = self._balance(
            unique(
                [
                    *self._plain(types, position, turn),
                    *self._values(types, position, turn),
                    *self._wide(types),
                    *self._long(types),
                ]
            )
        )
        if any(d.storage for d in types):
            large = self.large.sample.text
            cases = [replace(c, quick=c.quick and c.sample.text == large and not c.alias) for c in cases]
        if F64 in types and types[0] is F64:
            cases += [Case(self.operator, types, s, "offset") for s in self._refine_attributes(types)]
        return [*cases, *self._short(types, turn, quick)] if position == 0 else cases

    def _refine_attributes(self, types: tuple[DType, ...]) -> Iterator[Sample]:
        bound = dict(zip(self.operator.signature.types, types, strict=True))
        return edges.refine_attributes(self.operator, self.large.sample, bound)

    def edges(self, types: tuple[DType, ...], alone: bool) -> Iterator[Case]:
        """Yield the cases of isokern.conformance.edges.

        They are all of products, and of the first operator of a kernel with so many inputs, and one in `EDGES` of the
        others. One of each kind is quick, but for the two that need much memory. `alone` leaves out the others.
        """
        op, turn = self.operator, zlib.crc32(self.operator.name.encode())
        whole = self.stands or op.family == "contraction"
        bound = dict(zip(op.signature.types, types, strict=True))
        small, base = [s.sample for s in self.small], self.spread.sample
        several = [s for s in small if len(next(iter(s.shapes.values()), ())) > 1 and not {0, 1} & _list_dims(s)]
        smallest = min(several, key=_count_elements, default=base)
        known = {s.text for s in small}

        def each(samples: Iterable[Sample], *layouts: str, values: str = "drawn", quick: bool = True) -> Iterator[Case]:
            new = (s for s in samples if values != "drawn" or s.text not in known or layouts == ("far",))
            first = list(itertools.islice(new, EDGES))
            for n, sample in enumerate(first if alone else itertools.chain(first, new)):
                chosen = n == turn % len(first)
                if chosen or (whole and not alone):
                    own = replace(sample, size="edge")
                    yield Case(op, types, own, layouts[n % len(layouts)], values, quick=quick and chosen)

        for n in range(COMBINED if self.stands else 1):
            for s in edges.lengthen_all(op, base, bound, turn + n):
                yield Case(op, types, replace(s, size="edge"), DENSE[n % len(DENSE)], quick=True)
        yield from each(edges.lengthen(op, base, bound), "contiguous", "offset", "rows")
        yield from each(edges.deepen(op, smallest, bound), "gaps")
        yield from each(edges.pair_attributes(op, small, bound), "offset")
        yield from each(edges.turn_axes(op, small, bound), "offset", "gaps")
        for name in [o.name for o in op.signature.inputs]:
            having = [
                s
                for s in small
                if name in s.shapes and not {**op.domains, **s.values}.get(name, "").startswith(CHECKED)
            ]
            yield from each(edges.neutralise_attributes(op, having, bound), "contiguous", values=f"nan_{name}")
        if not alone and self.stands:
            yield from each([base], "far", quick=False)
            for w in self.wide[:1] if op.family in PLAIN else ():
                yield from each(edges.widen(op, w.sample, bound), "contiguous", quick=False)

    def _short(self, types: tuple[DType, ...], turn: int, alone: bool) -> Iterator[Case]:
        """Yield the small samples with dims of 0 and 1, dense and strided in turn.

        Those of the sample with most layouts are quick: with dims of 0 for half of the operators, of 1 for the others.
        `alone` leaves out the others.
        """
        bound = dict(zip(self.operator.signature.types, types, strict=True))
        known = {s.sample.text for s in self.small}
        for s, length in itertools.product(self.small, (0, 1)):
            quick = s is self.spread and length == turn % 2
            if alone and not quick:
                continue
            for n, sample in enumerate(resize(self.operator, s.sample, bound, length)):
                if sample.text not in known:
                    yield Case(self.operator, types, sample, ("contiguous", "gaps")[n % 2], quick=quick)

    def _plain(self, types: tuple[DType, ...], position: int, turn: int) -> Iterator[Case]:
        # Quick samples of this dtype: all dtypes together cover every sample; of the first dtype they are dense, too
        often = 4 if self.operator.attrs.attrs else 2
        turned = {(position * often + n) % len(self.small) for n in range(often)}
        for i, s in enumerate(self.small):
            quick = s is self.large or (s is self.longest and F64 in types)
            quick |= i in turned and (position == 0 or not s.strided)
            yield Case(self.operator, types, s.sample, DENSE[(turn + i) % len(DENSE)], quick=quick)
            for k in range(min(2, len(s.strided))):
                layout = s.strided[(turn + i * 3 + k * 4) % len(s.strided)]
                yield Case(self.operator, types, s.sample, layout, quick=k == 0 and (s is self.spread or i in turned))
        yield Case(self.operator, types, self.spread.sample, "offset", quick=True)
        yield Case(self.operator, types, self.spread.sample, "mixed", quick=turn % 2 == 0)
        if "crossed" in self.spread.strided:
            yield Case(self.operator, types, self.spread.sample, "crossed", quick=turn % 2 == 1)
        if self.repeated is not None:
            yield Case(self.operator, types, self.repeated, "repeated", quick=position == 0)

    def _values(self, types: tuple[DType, ...], position: int, turn: int) -> Iterator[Case]:
        """Yield cases with special values, out-of-range values, and in-place calls."""
        op, large, spread = self.operator, self.large.sample, self.spread.sample
        if op.signature.inputs:
            yield Case(op, types, large, DENSE[turn % 2], "special", quick=True)
            yield Case(op, types, spread, "rows" if "rows" in self.spread.strided else "gaps", "special")
        if op.family == "contraction":
            yield Case(op, types, large, "contiguous", "special_2", quick=True)
        if op.family in SLICED:
            yield Case(op, types, large, DENSE[turn % 2], "special_slices", quick=position == 0)
        wrong = [
            s.sample
            for s in (self.spread, self.large, *self.small)
            if s.elements and self._has_checked_values(s.sample)
        ]
        if op.device_error:
            yield Case(op, types, wrong[0], "contiguous", "out_of_range", quick=True)
            yield Case(op, types, wrong[1], "gaps", "out_of_range")
        at = self.spread if self.spread.aliases else next((s for s in self.small if s.aliases), None)
        if at is None:
            return
        ways = OVERLAPS if op.inout else OVERLAPS[:3]
        often = {0, turn % len(ways)} if op.inout else {0}
        often |= set(range(len(ways))) if op.inout and position == 0 else set()
        for n, alias in enumerate(at.aliases):
            for k, layout in enumerate(ways):
                yield Case(op, types, at.sample, layout, alias=alias, quick=n == 0 and k in often)
        if self.large.aliases and self.large is not at:
            yield Case(op, types, large, "contiguous", alias=self.large.aliases[turn % len(self.large.aliases)])

    def _has_checked_values(self, sample: Sample) -> bool:
        """Return whether a sample has a non-empty operand whose values the device checks."""
        domains = {**self.operator.domains, **sample.values}
        return any(0 not in shape and domains.get(n, "").startswith(CHECKED) for n, shape in sample.shapes.items())

    def _computes(self, types: tuple[DType, ...], allowed: Sequence[DType]) -> bool:
        """Return whether all dtypes are allowed ones.

        Those of indices, and of variables that have none of the allowed ones, have to be the first of theirs.
        """
        for (name, choices), own in zip(self.operator.signature.types.items(), types, strict=True):
            narrow = name in self.operator.index_types or not set(choices) & set(allowed)
            if own is not choices[0] if narrow else own not in allowed:
                return False
        return True

    def _wide(self, types: tuple[DType, ...]) -> Iterator[Case]:
        """Yield cases large enough for several threads; the quick one stands for all operators of its kernel."""
        if not self._computes(types, WIDE_TYPES):
            return
        quick = self.leads and self._computes(types, (F32, I32, Q4_0))
        for s in self.wide:
            yield Case(self.operator, types, s.sample, "offset", quick=quick)
            yield Case(self.operator, types, s.sample, "rows" if "rows" in s.strided else "gaps")
            if self.operator.family == "movement" and types[0] is F32:
                yield Case(self.operator, types, s.sample, "gaps_out", quick=self.operator.name == self.operator.stem)
            if s.aliases and F32 in types:
                yield Case(self.operator, types, s.sample, "contiguous", alias=s.aliases[0])

    def _long(self, types: tuple[DType, ...]) -> Iterator[Case]:
        """Yield long rows; those of a power of two, the longest, and short ones with extremes are quick in F32.

        Kernels that move several elements at once take other ways where rows begin at multiples of 16 bytes, as they
        only do in the contiguous cases. In F64 there are only those with extremes, and those that no other dtype has.
        """
        extremes_alone = types[0] is F64
        if not extremes_alone and not self._computes(types, (F32, F16, I32)):
            return
        for s in self.long:
            length = max(next(iter(s.sample.shapes.values())))
            exact = length & (length - 1) == 0 or length == max(LENGTHS) or length < min(LENGTHS)
            if extremes_alone:
                if exact and "peaks" in s.sample.values.values():
                    yield Case(self.operator, types, s.sample, "contiguous", quick=True)
                elif (F64,) in s.sample.types.values():
                    yield Case(self.operator, types, s.sample, "contiguous")
                continue
            yield Case(self.operator, types, s.sample, "offset", quick=exact and types[0] is F32)
            if self.operator.device_error and self._has_checked_values(s.sample):
                yield Case(self.operator, types, s.sample, "contiguous", "out_of_range", quick=types[0] is F32)
            if exact:
                quick = length in ALIGNED or length < min(LENGTHS)
                yield Case(self.operator, types, s.sample, "contiguous", quick=quick and types[0] is F32)
                apart = "rows" if "rows" in s.strided else "gaps"
                yield Case(self.operator, types, s.sample, apart, quick=length == ALIGNED[0] and types[0] is F32)

    def _balance(self, cases: list[Case]) -> list[Case]:
        """Return the cases, with more strided ones added until there are as many as dense ones."""
        places = {s.sample.text: s.strided for s in (*self.small, *self.wide, *self.long)}
        lacking = len(cases) - 2 * sum(c.layout in places[c.sample.text] for c in cases)
        known, first = {c.id for c in cases}, cases[0]
        unused = (Case(first.operator, first.types, s.sample, n) for s in self.small for n in s.strided)
        return cases + list(itertools.islice((c for c in unused if c.id not in known), max(0, lacking)))

    def force_variant(self, pair: Sequence[Case], variant: str, quick: bool) -> Iterator[Case]:
        """Yield the pair's quick cases and a wide one with a variant forced."""
        picks = [c for c in pair if c.quick or (c.sample.size == "wide" and c.layout == "offset" and c.types[0] is F32)]
        for n, case in enumerate(picks):
            yield replace(case, variant=variant, quick=quick and n < 2)


def choices(operator: Operator) -> list[dict[str, DType]]:
    """Return the choices of dtypes to judge.

    The computation does not depend on the dtype of indices. So every choice of the other dtypes is judged with the
    first dtype of indices, and each further index dtype only with the first and the last of those choices. Blocks that
    are only decoded become floats first, in one way for each type: the first of these types meets every choice of the
    other dtypes, each further one only their first.
    """
    first = {name: operator.signature.types[name][0] for name in operator.index_types}
    rest = [bound for bound in assignments(operator, first) if _is_judged(operator, bound)]
    others = [(name, other) for name in first for other in operator.signature.types[name][1:]]
    ends = rest[:1] + rest[1:][-1:]
    return rest + [{**bound, name: other} for name, other in others for bound in ends]


def _is_judged(operator: Operator, bound: Mapping[str, DType]) -> bool:
    """Return whether no dtype is a further one of the blocks that are only decoded, or all others are their first."""
    others = [element is operator.signature.types[name][0] for name, element in bound.items() if element.block == 1]
    return all(others) or not set(bound.values()) & set(STORED_BLOCKS[1:])


def operator_cases(
    operator: Operator,
    variants: Sequence[str] = (),
    quick: Collection[tuple[DType, ...]] | None = None,
    at_edges: bool = True,
) -> Iterator[Case]:
    """Yield all cases of one operator, or at least those that are quick in some dtypes; force the `variants`.

    `at_edges` also has those of isokern.conformance.edges, which follow a kernel's loops.
    """
    kept: dict[tuple[int, ...], _Derivation] = {}
    every = operator.samples()
    for position, bound in enumerate(choices(operator)):
        types = tuple(bound.values())
        if quick is not None and types not in quick:
            continue
        blocks = tuple(d.block for d in types)
        # Layouts of blocks have other strides
        key = tuple(i for i, s in enumerate(every) if fits(operator, s, bound)) + blocks
        if key not in kept:
            kept[key] = _Derivation(operator, bound)
        derivation = kept[key]
        pair = derivation.pair(types, position, quick is not None)
        yield from pair
        if at_edges and position == 0:
            yield from derivation.edges(types, quick is not None)
        yield Case(operator, types, derivation.small[0].sample, values="claim", quick=True)
        for variant in variants:
            yield from derivation.force_variant(pair, variant, quick=position == 0)
    for error in operator.errors:
        yield Case(operator, (), Sample({}), values="error", error=error, quick=True)


def unique(cases: Iterable[Case]) -> list[Case]:
    """Return each id once, in order; a case is quick if any of its duplicates is."""
    found: dict[str, Case] = {}
    for case in cases:
        known = found.get(case.id)
        if known is None or (case.quick and not known.quick):
            found[case.id] = case
    return list(found.values())


def device_cases(device: Device, operators: Sequence[Operator] | None = None, quick: bool = False) -> list[Case]:
    """Return all cases for a device, or the quick ones: every operator by its own choice of variant, and the other
    variants forced.

    Operators that the device has no variant for are lowered to others, which are judged in every dtype and layout by
    themselves: of these all cases run in the first dtypes only. They, and the rows of a table that share one kernel,
    have wide samples in one choice of dtypes. The quick cases are thinned once more, see `_choose_types`, and of
    lowered operators only one in `LOWERED` has a quick call on a device.
    """
    result: list[Case] = []
    rows = [o.name for o in all_operators() if o.stem == "elementwise"]
    for operator in all_operators() if operators is None else operators:
        ranked = rank_variants(device, operator)
        lowered, shares = ranked == [], operator.name in rows[1:]
        every = [tuple(bound.values()) for bound in choices(operator)]
        chosen = _choose_types(operator, every, lowered, shares)
        needed = {*chosen, every[0]} if quick else None
        cases = unique(operator_cases(operator, (ranked or [])[1:], needed, at_edges=not lowered))
        if lowered or shares:
            cases = list(_once_wide(cases))
            cases = list(_thin(cases, every[0])) if lowered else cases
        called = not lowered or _share_of(operator.name) == _share_of(device.name)
        most = SHARED if shares else None if not lowered else int(called)
        result += [c for c in _thin_quick(operator, cases, chosen, most) if c.quick or not quick]
    return result


def _share_of(name: str) -> int:
    """Return which of `LOWERED` shares of the lowered operators an operator is in, or a device calls."""
    return zlib.crc32(name.encode()) % LOWERED


def _thin(cases: Sequence[Case], first: tuple[DType, ...]) -> Iterator[Case]:
    """Yield the cases of a lowered operator: all in the first dtypes, and in other dtypes a few calls of other kinds.

    Its parts are judged in every dtype by themselves: what is left to see is that they are the right ones.
    """
    calls = defaultdict[str, list[Case]](list)
    for c in cases:
        if c.calls:
            calls[c.dtype].append(c)
    judged = {c.id for dtype, of in calls.items() for c in _spread(of, SHARED, zlib.crc32(dtype.encode()))}
    known = {c.sample.text for c in calls[dtype_text(first)]}
    for c in cases:
        own = c.types in (first, ()) or not c.calls
        if own or c.id in judged or (c.sample.size != "small" and c.sample.text not in known):
            yield c


def _choose_types(
    operator: Operator, every: Sequence[tuple[DType, ...]], lowered: bool, shares: bool
) -> dict[tuple[DType, ...], None]:
    """Return the choices of dtypes that have quick calls, the first one first: F32 (or the first), and a few others.

    A device that compiles a program for each operator and dtypes spends its time on these. The other choices are one in
    `OTHERS`, at least one, spread over the operators; those of dtypes that no operator before this one takes; and for
    conversions all from F32, F64 and I64, and to F32, since each pair of dtypes has rules of its own. Other operators
    stand for one that is lowered, or that shares its kernel: they have fewer.
    """
    first = next((types for types in every if types[0] is F32), every[0])
    others = [types for types in every if types != first]
    start = zlib.crc32(operator.name.encode())
    count = 0 if lowered else int(start % SHARED == 0) if shares else -(-len(others) // OTHERS)
    chosen = dict.fromkeys(
        [first, *(others[(start + n * OTHERS) % len(others)] for n in range(min(count, len(others))))]
    )
    for element in _find_introduced().get(operator.name, ()):
        chosen[next(types for types in every if element in types)] = None
    if shares:  # rows have loops of their own for integers
        chosen.update(dict.fromkeys(types for types in every if types[0] is I32))
    if operator.family == "conversion":
        chosen.update(dict.fromkeys(t for t in every if t[0] in (F32, F64, I64) or t[-1] is F32))
    return chosen


def _thin_quick(
    operator: Operator, cases: Sequence[Case], chosen: Mapping[tuple[DType, ...], None], most: int | None
) -> list[Case]:
    """Return the cases, of which fewer are quick: `most` calls in each of the chosen dtypes.

    None stands for all in the first, and `SHARED` in each other one. Their claims are quick, and all errors.
    """
    kept: set[str] = set()
    start = zlib.crc32(operator.name.encode())
    for n, types in enumerate(chosen):
        calls = [c for c in cases if c.quick and c.calls and c.types == types]
        kept.update(
            c.id
            for c in (calls if most is None and n == 0 else _spread(calls, SHARED if most is None else most, start))
        )
        kept.update(c.id for c in cases if c.values == "claim" and c.types == types)
    return [replace(c, quick=c.quick and (c.values == "error" or c.id in kept)) for c in cases]


@lru_cache(maxsize=1)
def _find_introduced() -> dict[str, list[DType]]:
    """Operator → the dtypes that no primitive declared before it takes."""
    found: dict[DType, str] = {}
    for operator in all_operators():
        for bound in choices(operator) if operator.decompose is None else ():
            for element in bound.values():
                found.setdefault(element, operator.name)
    result = defaultdict[str, list[DType]](list)
    for element, name in found.items():
        result[name].append(element)
    return result


def _spread(calls: Sequence[Case], most: int, start: int) -> list[Case]:
    """Return up to `most` calls, each of a kind of its own: special values, strided, in place, broadcast, dense."""
    plain = [c for c in calls if c.values == "drawn" and not c.alias]
    kinds = [
        [c for c in calls if c.values in ("special", "special_slices")],
        [c for c in plain if c.layout in STRIDED and c.layout != "broadcast"],
        [c for c in calls if c.alias],
        [c for c in plain if c.layout == "broadcast"],
        [c for c in plain if c.layout in DENSE],
    ]
    found = [kind[start % len(kind)] for kind in kinds if kind]
    return (found[start % 2 :] + found[: start % 2] if most == 1 else found)[:most]


def _once_wide(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the cases, wide ones in one choice of dtypes: other operators also test the threads of these kernels."""
    first: dict[str, tuple[DType, ...]] = {}
    for c in cases:
        if c.sample.size != "wide" or c.types == first.setdefault(c.sample.text, c.types):
            yield c


def rank_variants(device: Device, operator: Operator) -> list[str] | None:
    """Return the names of the variants of an operator's kernel, the best first.

    It is None if a plug-in's `variants` raises or returns rubbish: each case fails by that then.
    """
    sys.audit("isokern.kernel", device.name, operator.name)
    try:
        return [v.name for v in sorted(device.variants(operator.stem), key=lambda v: -v.priority)]
    except Exception:
        return None
