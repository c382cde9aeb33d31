"""What an operator of a graph must make: its call as a case of conformance, and what the declaration's reference makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..declare.conversion import convert
from ..declare.operator import Sample
from ..declare.samples import slots
from ..oracle.cases import Case
from ..oracle.expected import reference
from .ir import Op, specs_of

Array = np.ndarray[Any, Any]


def case_of(op: Op) -> Case:
    """The operator's call as a case of conformance."""
    signature = op.operator.signature
    told = {o.type: v.spec.dtype for o, v in zip(signature.outputs, op.outputs, strict=True)}
    shapes: dict[str, Any] = {}
    for operand, desc in signature.arrange(op.kind, specs_of(op.declared)):
        if desc is None:
            continue
        told[operand.type] = desc.dtype
        if operand.variadic:
            shapes.setdefault(operand.name, []).append(desc.shape)
        else:
            shapes[operand.name] = desc.shape
    types = tuple(told.get(name, allowed[0]) for name, allowed in signature.types.items())
    return Case(op.operator, types, Sample(shapes, op.attrs))


def results(op: Op, arrays: Sequence[Array | None]) -> list[Array]:
    """The outputs, of plain dtypes, for what the declared inputs hold (None where absent, raw blocks of block types).

    Computed by the reference, in float64 unless the operator is exact, and rounded once.
    """
    case = case_of(op)
    absent = len(slots(case.operator, case.sample, case.bound_types)) - len(arrays)
    with warnings.catch_warnings():  # means of nothing and the like are values here
        warnings.simplefilter("ignore", RuntimeWarning)
        found = reference(case, [*arrays, *[None] * absent], [v.spec for v in op.outputs], [])
    return [
        array if array.dtype == v.spec.dtype.numpy else convert(array, v.spec.dtype.numpy)
        for array, v in zip(found, op.outputs, strict=True)
    ]
