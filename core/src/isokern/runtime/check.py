"""Checking a program, one operator at a time.

Each is compared with its declaration's float64 reference, on the operands that the device itself had. Every value is
copied to the host when it is computed. So an error is found in the operator that makes it, before it grows; and a
value that has changed by the time it is read shows that a memory plan or a kernel writes to the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..declare.samples import slots
from ..graph.builder import error_context
from ..graph.ir import Op, Value
from ..graph.reference import case_of
from ..oracle.expected import judge, keeps_bits, problem
from .inspectable import Inspectable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Checked:
    """The result for one operator: its worst error, as a number and as a share of the bound.

    `wrong` is empty if the operator is right. Otherwise it names the value, how many elements are wrong and the
    first of them, and the worst of them with its bound.
    """

    name: str
    kind: str
    variant: str
    error: float
    share: float
    wrong: str = ""

    def __str__(self) -> str:
        called = f"{self.name}: {self.kind}" if self.name else self.kind
        by = f" by {self.variant}" if self.variant else ""
        verdict = self.wrong or f"right, {self.share:.3g} of the bound"
        return f"{called}{by}: {verdict}"


@dataclass
class Check:
    """The results for a program.

    `operators` are in order; `first` is the first that is wrong, or None. `values` has, by number, each value of the
    graph as it was when it was made.
    """

    operators: list[Checked] = field(default_factory=list)
    values: dict[int, Array] = field(default_factory=dict)

    @property
    def first(self) -> Checked | None:
        """The first operator that is wrong."""
        return next((c for c in self.operators if c.wrong), None)


def check(program: Inspectable) -> Check:
    """Run the program on its current inputs, one operator after the other.

    An error in one operator does not count against the next.
    """
    graph, found = program.graph, Check()
    kept: dict[Value, Array] = {**{v: program.read(v) for v in graph.inputs}, **program.read_parameters()}
    packed = {v for v in graph.parameters if v.name not in program.parameters}  # which no operator can write to
    for op in graph.ops:
        wrong = _find_changed(program, kept, [v for v in op.given if v not in packed], "before it was read")
        now = {v: kept[v] if v in packed else program.read(v) for v in op.given}
        with error_context(op.name):
            program.step(op)
        made = {v: program.read(v) for v in op.outputs}
        kept |= made
        error, share, faults = _judge(program, op, now, made)
        wrong += faults
        descriptor = program.descriptors.get(op)
        variant = "" if descriptor is None else descriptor.variant
        found.operators.append(Checked(op.name, op.kind, variant, error, share, "; ".join(wrong)))
    wrong = _find_changed(program, kept, graph.outputs, "before the end")
    if wrong:
        found.operators.append(Checked("", "return", "", 0.0, 0.0, "; ".join(wrong)))
    found.values = {v.vid: array for v, array in kept.items()}
    return found


def _find_changed(program: Inspectable, kept: Mapping[Value, Array], values: Any, when: str) -> list[str]:
    """Return a message for each value whose memory no longer has its bits."""
    told = []
    for value in dict.fromkeys(values):
        differ = _bits(program.read(value)) != _bits(kept[value])
        if differ.any():
            told.append(f"{value!r} was overwritten {when}: {int(differ.sum())} of its {differ.size} bytes are others")
    return told


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _judge(
    program: Inspectable, op: Op, now: Mapping[Value, Array], made: Mapping[Value, Array]
) -> tuple[float, float, list[str]]:
    case = case_of(op)
    given = slots(case.operator, case.sample, case.bound_types)
    arrays = [None if v is None else now[v] for v in op.declared]
    arrays += [None] * (len(given) - len(arrays))
    asked = problem(case, arrays, [v.spec for v in op.outputs], [now[old] for old, _ in op.updated])
    flushes = "flushes_denormals" in program.device.conditions
    results = [
        (v, judge(made[v], asked, n, strict_nan=keeps_bits(case.operator), flushes=flushes))
        for n, v in enumerate(op.outputs)
    ]
    wrong = [f"{v!r}: {j.wrong}" + (f"; {j.worst}" if j.worst else "") for v, j in results if j.wrong]
    return max(j.error for _, j in results), max(j.share for _, j in results), wrong
