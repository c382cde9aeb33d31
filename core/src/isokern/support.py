"""Which dtypes of an operator a device takes, found by asking its variants; the command line, docs and conformance share it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from .backend import Device
from .dispatch import consider, refusal
from .dtypes import DType
from .layout import TensorDesc
from .ops import Operator, Sample

Descs = list[TensorDesc | None]


def principal(op: Operator) -> tuple[str, tuple[DType, ...]]:
    """The type variable by which an operator is tabulated (its first), and the dtypes it ranges over."""
    return next(iter(op.signature.types.items()))


def describe(op: Operator, sample: Sample, types: Mapping[str, DType]) -> tuple[Descs, list[TensorDesc]]:
    """The contiguous inputs and outputs of a sample, with the dtype of each type variable from `types`.

    Absent optional inputs are None; those at the end are left out.
    """
    inputs: Descs = []
    for operand in op.signature.inputs:
        element = types.get(operand.type, op.signature.allowed(operand)[0])
        shapes = sample.shapes.get(operand.name)
        if operand.variadic:
            inputs += [TensorDesc(element, s) for s in shapes or ()]
        else:
            inputs.append(None if shapes is None else TensorDesc(element, shapes))
    while inputs and inputs[-1] is None:
        inputs.pop()
    if not sample.outputs:
        return inputs, list(op.infer(inputs, sample.attrs, types))
    return inputs, [
        TensorDesc(types.get(o.type, op.signature.allowed(o)[0]), sample.outputs[o.name]) for o in op.signature.outputs
    ]


def assignments(op: Operator, element: DType) -> list[dict[str, DType]]:
    """Every choice of dtypes for the type variables that has `element` for the principal one."""
    name, _ = principal(op)
    others = {n: allowed for n, allowed in op.signature.types.items() if n != name}
    return [{name: element, **dict(zip(others, chosen, strict=True))} for chosen in product(*others.values())]


def support(device: Device, op: Operator) -> dict[DType, str | None]:
    """Each dtype of the principal type variable → None where `device` takes the first sample in it, else why not.

    Where an operator has more type variables (`cast`), a dtype counts when it goes with every dtype of the others.
    """
    allowed = principal(op)[1]
    return {element: _reason(device, op, element) for element in allowed}


def _reason(device: Device, op: Operator, element: DType) -> str | None:
    sample = op.samples()[0]
    for types in assignments(op, element):
        inputs, outputs = describe(op, sample, types)
        _, chosen, answers = consider(device, op.resolve(inputs, outputs, sample.attrs))
        if chosen is None:
            more = ", ".join(f"{n} = {d.name}" for n, d in list(types.items())[1:])
            return refusal(device, op.stem, answers) + (f" (with {more})" if more else "")
    return None
