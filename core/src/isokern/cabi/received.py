"""What a kernel receives: the tensors of a call in normal form, its attributes' record, and what else goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..declare.operator import Operator, Resolved
from ..declare.samples import assignments, describe, fits
from ..layout import TensorDesc
from ..ops import all_operators


@dataclass(frozen=True)
class ReceivedTensor:
    """A tensor of the plan: its number in the table, its operand, and its layout in normal form (None: absent)."""

    position: int
    name: str
    written: bool
    desc: TensorDesc | None


@dataclass(frozen=True)
class ReceivedField:
    """A field of the record of attributes; `nbytes` from `offset` on, little-endian."""

    name: str
    kind: str
    offset: int
    nbytes: int
    value: Any


def list_tensors(resolved: Resolved) -> list[ReceivedTensor]:
    """Return the tensors of the plan, outputs first."""
    op, outputs = resolved.operator, len(resolved.operator.signature.outputs)
    names = [o.name for o in op.signature.outputs] + op.operand_names(len(resolved.table) - outputs)
    named = zip(names, resolved.table, strict=False)
    return [ReceivedTensor(i, name, i < outputs, desc) for i, (name, desc) in enumerate(named)]


def list_fields(op: Operator, values: dict[str, Any]) -> list[ReceivedField]:
    """Return the fields of the attributes' record with their values."""
    rows = op.attrs.layout
    starts = [offset for _, _, offset in rows] + [op.attrs.nbytes]
    return [
        ReceivedField(name, kind, offset, end - offset, values[name])
        for (name, kind, offset), end in zip(rows, starts[1:], strict=True)
    ]


def find_siblings(op: Operator) -> list[str]:
    """Return the other operators that kernels of the same stem compute."""
    return [o.name for o in all_operators() if o.stem == op.stem and o is not op]


def say_normal_form(op: Operator) -> str:
    """Return the sentences that say what the operator's normal form is."""
    return " ".join((op.normal_form.__doc__ or "").split())


@dataclass(frozen=True)
class OperandFacts:
    """What the samples of an operator show of an operand in normal form."""

    name: str
    written: bool
    dtypes: tuple[str, ...]
    ranks: tuple[int, ...]
    may_be_absent: bool
    may_repeat: bool  # whether a stride of 0 occurs: the operand is broadcast


def summarise_operands(op: Operator) -> list[OperandFacts]:
    """Return what kernels of an operator's stem receive for it over all its samples, one entry an operand."""
    seen: dict[str, list[TensorDesc | None]] = {}
    for types in _choices(op):
        for sample in op.samples():
            if sample.size != "small" or not fits(op, sample, types):
                continue
            resolved = op.resolve(*describe(op, sample, types), sample.attrs)
            for tensor in list_tensors(resolved):
                seen.setdefault(tensor.name, []).append(tensor.desc)
    outputs = {o.name for o in op.signature.outputs}
    return [
        OperandFacts(
            o.name,
            o.name in outputs,
            tuple(d.name for d in op.signature.dtypes_of(o)),
            tuple(sorted({d.ndim for d in seen.get(o.name, []) if d is not None})),
            None in seen.get(o.name, []) or o.optional,
            any(_repeats(d) for d in seen.get(o.name, []) if d is not None),
        )
        for o in (*op.signature.outputs, *op.signature.inputs)
    ]


def _choices(op: Operator) -> Sequence[Any]:
    """Return the first and the last choice of dtypes: block types have samples of their own."""
    every = assignments(op)
    return every[:1] + every[1:][-1:]


def _repeats(desc: TensorDesc) -> bool:
    return any(stride == 0 and dim > 1 for dim, stride in zip(desc.shape, desc.strides, strict=True))
