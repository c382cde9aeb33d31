"""The tensors and dtypes of an operator's samples, for conformance, docs, `isokern bench` and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from types import MappingProxyType
from typing import TypeVar

from ..dtypes import DType, wider
from ..layout import TensorDesc
from .operator import Operator, Sample
from .signature import Operand

Choice = tuple[DType, ...]  # a dtype for each type variable, in the signature's order
Descs = list[TensorDesc | None]
T = TypeVar("T")


def principal(op: Operator) -> tuple[str, tuple[DType, ...]]:
    """Return the type variable by which an operator is tabulated (its first), and the dtypes it ranges over."""
    return next(iter(op.signature.types.items()))


@dataclass(frozen=True)
class Slot:
    """One input of a sample: absent where `shape` is None; `label` is x, or x[1] for a variadic one."""

    operand: Operand
    label: str
    dtype: DType
    shape: tuple[int, ...] | None

    @property
    def desc(self) -> TensorDesc | None:
        """The contiguous tensor; None where it is absent."""
        return None if self.shape is None else TensorDesc(self.dtype, self.shape)


def slots(op: Operator, sample: Sample, types: Mapping[str, DType]) -> list[Slot]:
    """Return the inputs of a sample in the signature's order, with the dtypes of type variables from `types`."""
    result = []
    for operand in op.signature.inputs:
        element = types.get(operand.type, op.signature.dtypes_of(operand)[0])
        given = sample.shapes.get(operand.name)
        if operand.variadic:
            each = sample.each.get(operand.name, (element,) * len(given or ()))
            result += [
                Slot(operand, f"{operand.name}[{i}]", own, tuple(s))
                for i, (own, s) in enumerate(zip(each, given or (), strict=True))
            ]
        else:
            result.append(Slot(operand, operand.name, element, None if given is None else tuple(given)))
    return result


def describe(op: Operator, sample: Sample, types: Mapping[str, DType]) -> tuple[Descs, list[TensorDesc]]:
    """Return the contiguous inputs and outputs of a sample; absent inputs are None, and left out at the end."""
    inputs = [s.desc for s in slots(op, sample, types)]
    while inputs and inputs[-1] is None:
        inputs.pop()
    if not sample.outputs:
        return inputs, list(op.infer(inputs, sample.attrs, types))
    return inputs, [
        TensorDesc(types.get(o.type, op.signature.dtypes_of(o)[0]), sample.outputs[o.name])
        for o in op.signature.outputs
    ]


def fits(op: Operator, sample: Sample, types: Mapping[str, DType]) -> bool:
    """Return whether a sample goes with these dtypes.

    It must allow them in its own `types` and `goes`, and block types need rows of whole blocks. An absent index input
    goes only with the first dtype of its type variable, dtypes for each tensor with what they bind it to.
    """
    if any(types[variable] not in allowed for variable, allowed in sample.types.items()):
        return False
    if sample.goes is not None and not sample.goes(types):
        return False
    variables = {o.name: o.type for o in op.signature.inputs}
    if any(types[variables[name]] is not reduce(wider, each) for name, each in sample.each.items()):
        return False
    every = slots(op, sample, types)
    absent = {s.operand.type for s in every if s.shape is None} - {s.operand.type for s in every if s.shape is not None}
    if any(types[v] is not op.signature.types[v][0] for v in absent & set(op.index_types)):
        return False
    given = [(s.dtype.block, s.shape) for s in every if s.shape is not None]
    given += [
        (types[o.type].block, sample.outputs[o.name])
        for o in op.signature.outputs
        if o.type in types and o.name in sample.outputs
    ]
    return all(block == 1 or (shape and shape[-1] % block == 0) for block, shape in given)


def first_sample(op: Operator, types: Mapping[str, DType]) -> Sample:
    """Return the first sample that goes with these dtypes."""
    return next(sample for sample in op.samples() if fits(op, sample, types))


def assignments(op: Operator, given: Mapping[str, DType] = MappingProxyType({})) -> list[dict[str, DType]]:
    """Return every choice of dtypes for the type variables that includes the `given` ones.

    Where an operand is mixed, it is every choice that a sample goes with.
    """
    every = (dict(zip(op.signature.types, chosen, strict=True)) for chosen in product(*op.signature.types.values()))
    together = (types for types in every if op.combinations is None or op.combinations(types))
    asked = [types for types in together if all(types[name] is element for name, element in given.items())]
    if not op.signature.mixed:
        return asked
    samples = op.samples()  # those of a mixed operand are a choice of the combinations
    return [types for types in asked if any(fits(op, s, types) for s in samples)]


def products(choices: Iterable[tuple[T, ...]]) -> list[tuple[tuple[T, ...], ...]]:
    """Return the same choices as products of sets, one set per variable.

    {F32, F16} × {I8, U8} is shorter than four pairs.
    """
    rest: dict[T, list[tuple[T, ...]]] = {}
    for first, *others in choices:
        rest.setdefault(first, []).append(tuple(others))
    alike: dict[tuple[tuple[T, ...], ...], list[T]] = {}
    for first, of_it in rest.items():
        alike.setdefault(tuple(of_it), []).append(first)
    return [
        (tuple(firsts), *product_)
        for of_them, firsts in alike.items()
        for product_ in (products(of_them) if of_them[0] else [()])
    ]
