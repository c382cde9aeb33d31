"""fold_constants: compute what depends on parameters alone once, at compile time, and make it a parameter.

The declaration's reference computes it, in float64 if the operator is not exact, and it is rounded to the value's
dtype.

These operators stay: those whose output is a result of the graph, is not dense or has a block type; those
with constraints; those that a device checks or that update the content of an output; and those whose outputs take more
than `GROWTH` times the bytes of the parameters that they come from, since reading that much each time is slower than
computing it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import blocks
from ..declare.conversion import convert
from ..graph.ir import PARAMETER, Op, Value
from ..rewriting.rewriter import Array, Rewriter, State, is_plain

GROWTH = 4


def run(state: State) -> State:
    """Return the graph without operators of known parameters alone; an operator of unknown values stays."""
    constants = _Constants(state)
    taken = {op for op in state.graph.ops if constants.take(op)}
    if not taken:
        return state
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op in taken:
            continue
        for value in op.given:
            if value in constants.made and value not in constants.placed:
                constants.placed.add(value)
                assert value.producer is not None
                name = f"{value.name or value.producer.kind} constant"
                rewriter.put(value, rewriter.parameter(value.spec.dtype, name, constants.made[value]))
        rewriter.copy(op)
    return rewriter.finish()


class _Constants:
    """The known values: `made` are outputs of folded operators, `placed` those of them that are parameters now."""

    def __init__(self, state: State) -> None:
        self.made: dict[Value, Array] = {}
        self.placed: set[Value] = set()
        self._state = state
        self._given: dict[Value, Array] = {}
        self._bytes: dict[Value, int] = {}  # size of the parameters that a value comes from

    def take(self, op: Op) -> bool:
        """Compute an operator if that is possible here and worth it; return whether it was."""
        if not list(op.given) or not all(self._evaluate(v) for v in op.given) or not self._folds(op):
            return False
        origin = sum(self._bytes.get(v, v.spec.nbytes) for v in dict.fromkeys(op.given))
        if sum(v.spec.nbytes for v in op.outputs) > GROWTH * origin:
            return False
        from ..graph.reference import results  # with the oracle, which a graph without constants does not need

        arrays = [None if v is None else self._array(v) for v in op.declared]
        for value, array in zip(op.outputs, results(op, arrays), strict=True):
            self.made[value] = array
            self._bytes[value] = origin
        return True

    def _evaluate(self, value: Value) -> bool:
        if value in self.made:
            return True
        given: Any = self._state.parameters.get(value.name) if value.role == PARAMETER else None
        return isinstance(given, np.ndarray) and given.shape == value.spec.shape

    def _folds(self, op: Op) -> bool:
        if op.operator.inout or op.operator.device_error or op.constraints:
            return False
        kept = self._state.graph.outputs
        return all(v not in kept and v.spec.dtype.block == 1 and is_plain(v.spec) for v in op.outputs)

    def _array(self, value: Value) -> Array:
        """Return what the device would hold: a parameter's elements in its dtype, raw blocks of block types."""
        if value in self.made:
            return self.made[value]
        if value not in self._given:
            array, dtype = np.asarray(self._state.parameters[value.name]), value.spec.dtype
            if dtype.numpy is None:
                self._given[value] = blocks.quantize(array, dtype)
            else:
                self._given[value] = array if array.dtype == dtype.numpy else convert(array, dtype.numpy)
        return self._given[value]
