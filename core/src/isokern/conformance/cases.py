"""Cases, derived from the declarations: operator × dtypes × sample × layout × values × in-place × variant, each with a stable id.

An id reads `softmax/F32/x=3x5,axis=1/gaps/special@portable`: operator, type variables in the signature's order, the sample, the layout,
what the tensors hold, and the variant that is forced (none: the device chooses).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..backend import Device
from ..dtypes import DType
from ..layout import TensorDesc
from ..ops import ErrorCase, Operator, Sample, all_operators
from ..ops.signature import Operand
from .layouts import DENSE, STRIDED, arrangements, place

SPECIAL_SIZE = 512


@dataclass(frozen=True)
class Case:
    """One thing to try.

    `values` is drawn, special, special_2 (the second operand's) or out_of_range; error where create must refuse, and claim where only the
    device's answers at create are looked at. `alias` is the input whose memory the output takes; `variant` the forced one, empty for the device's choice; `quick` whether `--quick` runs it.
    """

    operator: Operator
    types: tuple[DType, ...]
    sample: Sample
    layout: str = "contiguous"
    values: str = "drawn"
    alias: str = ""
    variant: str = ""
    quick: bool = False
    error: ErrorCase | None = None

    @property
    def problem_id(self) -> str:
        """What fixes the values: cases that share it share inputs and reference, unless the layout repeats elements."""
        return f"{self.operator.name}/{self.dtype}/{sample_text(self.sample)}/{self.values}"

    @property
    def dtype(self) -> str:
        """The type variables' dtypes, as in the id."""
        return dtype_text(self.types)

    @property
    def id(self) -> str:
        """The stable id."""
        called = [sample_text(self.error or self.sample), "" if self.error else self.layout]
        where = self.alias and f"inplace:{self.alias}"
        parts = [self.operator.name, self.dtype, *([] if self.values == "claim" else called), where, self.values]
        return "/".join(p for p in parts if p) + (f"@{self.variant}" if self.variant else "")

    @property
    def calls(self) -> bool:
        """Whether the operator is run at all."""
        return self.values not in ("error", "claim")

    @property
    def bound_types(self) -> dict[str, DType]:
        """Type variable → dtype."""
        return dict(zip(self.operator.signature.types, self.types, strict=True))


@lru_cache(maxsize=4096)
def _text_of(shapes: str, attrs: str, outputs: str) -> str:
    return ",".join(p for p in (shapes, attrs, outputs and f"->{outputs}") if p) or "none"


def sample_text(sample: Sample | ErrorCase) -> str:
    """A sample in an id: `x=3x5,axis=1`, and after `->` the outputs that are not inferred."""
    shapes = ",".join(
        f"{n}={'+'.join(map(_dims, s)) if isinstance(s, list) else _dims(s)}" for n, s in sample.shapes.items()
    )
    attrs = ",".join(f"{n}={_plain(v)}" for n, v in sample.attrs.items())
    outputs = ",".join(f"{n}={_dims(s)}" for n, s in sample.outputs.items())
    given = ",".join(f"{n}:{d.name}" for n, d in sample.dtypes.items()) if isinstance(sample, ErrorCase) else ""
    return _text_of(shapes, ",".join(p for p in (attrs, given) if p), outputs)


def dtype_text(types: Sequence[DType]) -> str:
    """The dtypes of the type variables in an id: `F32`, `F32-I64`."""
    return "-".join(d.name for d in types) or "any"


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _plain(value: Any) -> str:
    return "+".join(map(str, value)) or "()" if isinstance(value, (tuple, list)) else str(value)


@dataclass(frozen=True)
class Slot:
    """One input as a case gives it: absent where `shape` is None; `label` is x, or x[1] for a variadic one."""

    operand: Operand
    label: str
    dtype: DType
    shape: tuple[int, ...] | None


def slots(operator: Operator, types: Mapping[str, DType], sample: Sample) -> list[Slot]:
    """The inputs in the signature's order."""
    result = []
    for operand in operator.signature.inputs:
        dtype = types.get(operand.type) or operator.signature.allowed(operand)[0]
        given = sample.shapes.get(operand.name)
        if operand.variadic:
            result += [Slot(operand, f"{operand.name}[{i}]", dtype, tuple(s)) for i, s in enumerate(given or ())]
        else:
            result.append(Slot(operand, operand.name, dtype, None if given is None else tuple(given)))
    return result


def output_descs(operator: Operator, types: Mapping[str, DType], sample: Sample) -> list[TensorDesc]:
    """Contiguous outputs of a sample."""
    inputs = [None if s.shape is None else TensorDesc(s.dtype, s.shape) for s in slots(operator, types, sample)]
    inferred = (
        None if len(sample.outputs) == len(operator.signature.outputs) else operator.infer(inputs, sample.attrs, types)
    )
    result = []
    for i, operand in enumerate(operator.signature.outputs):
        if operand.name in sample.outputs:
            dtype = types.get(operand.type) or operator.signature.allowed(operand)[0]
            result.append(TensorDesc(dtype, sample.outputs[operand.name]))
        else:
            assert inferred is not None
            result.append(inferred[i])
    return result


def assignments(operator: Operator) -> list[tuple[DType, ...]]:
    """Every choice of a dtype for each type variable."""
    return list(itertools.product(*operator.signature.types.values()))


def small_samples(operator: Operator) -> list[Sample]:
    """The samples that are cases, each once."""
    return list({sample_text(s): s for s in operator.samples() if s.size == "small"}.values())


class _Geometry:
    """Which layouts make a difference for the samples of one operator (dtypes do not matter to that)."""

    def __init__(self, operator: Operator) -> None:
        types = dict(zip(operator.signature.types, assignments(operator)[0], strict=True))
        self.samples = small_samples(operator)
        self.elements: list[int] = []
        self.strided: list[list[str]] = []
        self.aliases: list[list[str]] = []
        for sample in self.samples:
            inputs, outputs = slots(operator, types, sample), output_descs(operator, types, sample)
            given = [s for s in inputs if s.shape is not None]
            shapes = [*(o.shape for o in outputs), *(s.shape for s in given if s.shape is not None)]
            self.elements.append(
                max([o.numel for o in outputs] + [TensorDesc(s.dtype, s.shape or ()).numel for s in given])
            )
            self.strided.append([n for n in STRIDED if _any_strided(n, len(outputs), shapes)])
            same = [s.label for s in given if s.label in operator.aliases and s.shape == outputs[0].shape]
            self.aliases.append(
                list(operator.aliases) if operator.inout and self.elements[-1] else same if outputs[0].numel else []
            )
        self.large = max(
            range(len(self.samples)), key=lambda i: (min(self.elements[i], SPECIAL_SIZE), -self.elements[i])
        )
        wide = [i for i in range(len(self.samples)) if len(self.strided[i]) >= len(STRIDED) - 1]
        self.spread = max(wide or [self.large], key=lambda i: min(self.elements[i], SPECIAL_SIZE))

    def balanced(self, cases: list[Case]) -> list[Case]:
        """As many strided cases as dense ones: more layouts of the samples that have them, where too few came about."""
        places = {sample_text(s): layouts for s, layouts in zip(self.samples, self.strided, strict=True)}
        lacking = len(cases) - 2 * sum(c.layout in places[sample_text(c.sample)] for c in cases)
        known = {c.id for c in cases}
        first = cases[0]
        unused = (
            Case(first.operator, first.types, s, n)
            for s, layouts in zip(self.samples, self.strided, strict=True)
            for n in layouts
        )
        return cases + list(itertools.islice((c for c in unused if c.id not in known), max(0, lacking)))


def _any_strided(layout: str, outputs: int, shapes: Sequence[tuple[int, ...]]) -> bool:
    from ..dtypes import F32

    kinds = arrangements(layout, outputs, len(shapes) - outputs)
    return any(not place(k, F32, s)[0].is_contiguous for k, s in zip(kinds, shapes, strict=True))


def operator_cases(operator: Operator, variants: Sequence[str] = ()) -> Iterator[Case]:
    """All cases of one operator; `variants` are the ones to force in a smaller set of their own."""
    geometry = _Geometry(operator)
    combos = assignments(operator)
    for position, types in enumerate(combos):
        plain = geometry.balanced(unique(_best(operator, types, geometry, position)))
        yield from plain
        yield Case(operator, types, geometry.samples[0], values="claim", quick=True)
        for variant in variants:
            yield from _forced(plain, variant, quick=position == 0)
    for error in operator.errors:
        yield Case(operator, (), Sample({}), values="error", error=error, quick=True)


def _best(operator: Operator, types: tuple[DType, ...], g: _Geometry, position: int) -> Iterator[Case]:
    """The cases of one (operator, dtypes) pair with the device's own choice of variant.

    Every sample dense once and strided twice, turning through the layouts with a start that differs by operator and dtype.
    """
    turn = zlib.crc32(operator.name.encode()) + position
    count = len(g.samples)
    often = (
        4 if operator.attrs.attrs else 2
    )  # samples that are quick with this dtype: with all dtypes together, each one is
    turned = {(position * often + n) % count for n in range(often)}
    for i, sample in enumerate(g.samples):
        usable = g.strided[i]
        yield Case(
            operator, types, sample, DENSE[(turn + i) % len(DENSE)], quick=i == g.large or (i in turned and not usable)
        )
        for k in range(min(2, len(usable))):
            chosen = usable[(turn + i * 3 + k * 4) % len(usable)]
            yield Case(operator, types, sample, chosen, quick=k == 0 and (i == g.spread or i in turned))
    large, spread = g.samples[g.large], g.samples[g.spread]
    yield Case(operator, types, spread, "offset", quick=True)
    yield Case(operator, types, spread, "mixed", quick=turn % 2 == 0)
    if operator.signature.inputs:
        yield Case(operator, types, large, DENSE[turn % 2], "special", quick=True)
        yield Case(operator, types, spread, "rows" if "rows" in g.strided[g.spread] else "gaps", "special")
    if operator.family == "contraction":
        yield Case(operator, types, large, "contiguous", "special_2", quick=True)
    if operator.device_error:
        yield Case(operator, types, spread, "contiguous", "out_of_range", quick=True)
        yield Case(operator, types, large, "gaps", "out_of_range")
    yield from _in_place(operator, types, g, turn)


def _in_place(operator: Operator, types: tuple[DType, ...], g: _Geometry, turn: int) -> Iterator[Case]:
    at = g.spread if g.aliases[g.spread] else next((i for i in range(len(g.samples)) if g.aliases[i]), None)
    if at is None:
        return
    for n, alias in enumerate(g.aliases[at]):
        for k, layout in enumerate(("offset", "negative", "gaps")):
            yield Case(operator, types, g.samples[at], layout, "drawn", alias, quick=n == k == 0)
    if g.aliases[g.large] and g.large != at:
        yield Case(
            operator,
            types,
            g.samples[g.large],
            "contiguous",
            "drawn",
            g.aliases[g.large][turn % len(g.aliases[g.large])],
        )


def _forced(plain: Sequence[Case], variant: str, quick: bool) -> Iterator[Case]:
    """A few of the pair's cases with a variant forced: one that is large and dense, a strided one, one in place, one with special values."""
    picks: list[Case] = [c for c in plain if c.quick]
    for n, case in enumerate(picks):
        yield replace(case, variant=variant, quick=quick and n < 2)


def unique(cases: Iterable[Case]) -> list[Case]:
    """Each id once, in order; a case that any derivation wants quick is quick."""
    found: dict[str, Case] = {}
    for case in cases:
        known = found.get(case.id)
        if known is None or (case.quick and not known.quick):
            found[case.id] = case
    return list(found.values())


def device_cases(device: Device, operators: Sequence[Operator] | None = None) -> list[Case]:
    """All cases for a device: every operator by its own choice of variant, and each other variant of a stem forced."""
    result: list[Case] = []
    for operator in all_operators() if operators is None else operators:
        ranked = sorted(device.variants(operator.stem), key=lambda v: -v.priority)
        result += unique(operator_cases(operator, [v.name for v in ranked[1:]]))
    return result
