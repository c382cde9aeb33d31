"""The expected result of an operator of a graph.

Its call becomes a case of conformance, which the declaration's reference computes.
"""

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
    """Return the operator's call as a case of conformance."""
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
    """Compute the outputs, of plain dtypes, from the elements of the declared inputs.

    `arrays` has None for an absent input and raw blocks for block types. The reference computes in float64 unless the
    operator is exact, and the result is rounded once.
    """
    case = case_of(op)
    absent = len(slots(case.operator, case.sample, case.bound_types)) - len(arrays)
    with warnings.catch_warnings():  # the mean of no elements and the like are valid results here
        warnings.simplefilter("ignore", RuntimeWarning)
        found = reference(case, [*arrays, *[None] * absent], [v.spec for v in op.outputs], [])
    return [
        array if array.dtype == v.spec.dtype.numpy else convert(array, v.spec.dtype.numpy)
        for array, v in zip(found, op.outputs, strict=True)
    ]
