"""The choices of dtypes of an operator that a device has kernels for, found by asking it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..declare.operator import Operator
from ..declare.samples import Choice, assignments, describe, first_sample
from ..dtypes import DType, dtype
from ..status import InvalidArgument
from .dispatch import HasVariants, consider, refusal


def support(
    device: HasVariants, op: Operator, given: Mapping[str, Any] = MappingProxyType({})
) -> dict[Choice, str | None]:
    """Map each choice of dtypes that has the `given` ones to None if a kernel of `device` takes it, else to the reason.

    The kernels are asked about the first sample with these dtypes.
    """
    variables = op.signature.types
    if not given.keys() <= variables.keys():
        raise InvalidArgument(op.name, f"dtypes of {', '.join(given)}", allowed=f"of {', '.join(variables)}")
    choices = assignments(op, {name: dtype(element) for name, element in given.items()})
    return {tuple(types.values()): _reason(device, op, types) for types in choices}


def _reason(device: HasVariants, op: Operator, types: Mapping[str, DType]) -> str | None:
    sample = first_sample(op, types)
    inputs, outputs = describe(op, sample, types)
    _, chosen, answers = consider(device, op.resolve(inputs, outputs, sample.attrs))
    return None if chosen is not None else refusal(device, op.stem, answers)
