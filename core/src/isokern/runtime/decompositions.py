"""The cost of decompositions: the primitives that a composite operator becomes, and the memory between them.

Each operator is decomposed for one of its own samples, without a device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..declare.operator import Operator, Sample
from ..declare.samples import Descs, assignments, describe
from ..dtypes import DType
from ..layout import TensorDesc
from ..ops import all_operators, find
from ..oracle.cases import samples
from ..passes import run
from ..rewriting.conversion import single
from ..rewriting.rewriter import State
from ..status import InvalidArgument
from .memory_plan import plan_memory

SIZES = ("small", "medium")
PASSES = "to_primitives,common_subexpressions,dead_code"


@dataclass(frozen=True)
class Decomposition:
    """An operator on one sample, as primitives.

    `primitives` counts them by kind, `calls` those that are run: a view of a dense tensor needs no call. `peak` is the
    number of bytes that the memory plan needs for the values between them, `naive` the same without reuse; `operands`
    is that of the operator's own inputs and outputs, which count in neither.
    """

    name: str
    sample: str
    dtypes: tuple[str, ...]
    primitives: Mapping[str, int]
    calls: int
    peak: int
    naive: int
    operands: int


def decompositions(names: Sequence[str] | None = None) -> list[Decomposition]:
    """Return the decomposition of every composite operator, or of those named.

    InvalidArgument for one that has none.
    """
    if not names:
        return [decomposition(op) for op in all_operators() if op.decompose is not None]
    return [decomposition(find(name)) for name in names]


def decomposition(op: Operator) -> Decomposition:
    """Return an operator's decomposition for its largest small or medium sample, in bytes.

    The dtypes are the first ones that have such a sample.
    """
    if op.decompose is None:
        composite = ", ".join(o.name for o in all_operators() if o.decompose is not None)
        raise InvalidArgument(op.name, "it has no decomposition", allowed=composite)
    types, sample, inputs, outputs = _largest(op)
    graph = single(op, inputs, outputs, op.attrs.check(op.name, sample.attrs))
    lowered = run(State(graph, {}), PASSES).graph
    made = plan_memory(lowered)
    return Decomposition(
        op.name,
        sample.text,
        tuple(d.name for d in types.values()),
        dict(Counter(o.kind for o in lowered.ops).most_common()),
        len(made.calls),
        made.arena,
        plan_memory(lowered, reuse=False).arena,
        _bytes(inputs, outputs),
    )


def _largest(op: Operator) -> tuple[Mapping[str, DType], Sample, Descs, Sequence[TensorDesc]]:
    for types in assignments(op):
        found = [(s, *describe(op, s, types)) for size in SIZES for s in samples(op, size, types)]
        if found:
            return types, *max(found, key=lambda f: _bytes(f[1], f[2]))
    raise InvalidArgument(op.name, "it has no small or medium sample", hint="add one to its declaration")


def _bytes(inputs: Descs, outputs: Sequence[TensorDesc]) -> int:
    return sum(d.nbytes for d in (*inputs, *outputs) if d is not None)
