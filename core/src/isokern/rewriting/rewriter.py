"""Rewriter: copies a graph operator by operator, and replaces some of the operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..declare.attributes import CheckedAttributes
from ..dtypes import DType
from ..graph.builder import Builder
from ..graph.ir import INPUT, PARAMETER, Graph, Op, TensorSpec, Value, specs_of
from .target import Target

Array = np.ndarray[Any, Any]
VIEWS = ("reshape", "collapse_shape", "expand_shape", "flatten")  # the same elements in the same order


@dataclass(frozen=True)
class State:
    """A graph, the values of its parameters as far as they are known, and its target, if that is known."""

    graph: Graph
    parameters: Mapping[str, Any]
    target: Target | None = None


class Rewriter:
    """Makes a new graph from an old one.

    `copy` an operator, or `emit` others with `builder` and call `put` with the values that replace its outputs. All
    inputs are kept; a parameter is kept if something reads it. Every pass goes through the operators in order once.
    """

    def __init__(self, state: State) -> None:
        self._state, self.old = state, state.graph
        self.known = dict(state.parameters)
        self.builder = Builder(state.graph.name)
        self._map: dict[Value, Value] = {}
        for value in state.graph.inputs:
            self._map[value] = self.builder.value(value.spec, value.name, INPUT)

    def value(self, old: Value) -> Value:
        """Return the value that stands for a value of the old graph."""
        if old not in self._map and old.role == PARAMETER:
            self._map[old] = self.builder.value(old.spec, old.name, PARAMETER)
        return self._map[old]

    def values(self, old: Sequence[Value | None]) -> list[Value | None]:
        """Return the values that stand for operands, None for an absent one."""
        return [None if v is None else self.value(v) for v in old]

    def put(self, old: Value, new: Value) -> None:
        """Let `new` stand for `old`."""
        self._map[old] = new

    def copy(self, op: Op) -> tuple[Value, ...]:
        """Emit the operator unchanged, on the values that stand for its operands, and return its outputs."""
        inputs, outputs = self.values(op.inputs), [v.spec for v in op.outputs]
        if specs_of(inputs) == specs_of(op.inputs) and type(op.attrs) is CheckedAttributes:
            made = self.builder.repeat(op, inputs)  # it was checked on these layouts
        else:
            how: dict[str, Any] = {"name": op.name, "constraints": op.constraints, "hints": op.hints}
            made = self.builder.emit(op.kind, inputs, op.attrs, outputs=outputs, **how)
        self.builder.graph.ops[-1].origin = op.origin
        for old, new in zip(op.outputs, made, strict=True):
            self.put(old, new)
        return made

    def array(self, old: Value | None) -> Array | None:
        """Return a parameter's elements in float64, None where they are not known here."""
        if old is None or old.role != PARAMETER or not isinstance(self.known.get(old.name), np.ndarray):
            return None
        return np.asarray(self.known[old.name], np.float64)

    def parameter(self, dtype: DType, name: str, array: Array) -> Value:
        """Add a parameter with these elements."""
        there = (self.old, self.builder.graph)
        while name in {v.name for g in there for v in (*g.inputs, *g.parameters)}:
            name += "'"
        assert dtype.numpy is not None
        self.known[name] = np.array(array, dtype.numpy, order="C")
        return self.builder.parameter(name, array.shape, dtype)

    def finish(self) -> State:
        """Return the new graph, with the known values of the parameters that it reads."""
        self.builder.output(*[self.value(v) for v in self.old.outputs])
        graph = self.builder.graph
        known = {v.name: self.known[v.name] for v in graph.parameters if v.name in self.known}
        return replace(self._state, graph=graph, parameters=known)


def only_user(value: Value, kind: str, graph: Graph) -> Op | None:
    """Return the one operator that reads a value, if it is of that kind and has no constraints, which would be lost.

    None otherwise, and where the value is a result of the graph.
    """
    if len(value.users) != 1 or value in graph.outputs or value.users[0].kind != kind or value.users[0].constraints:
        return None
    return value.users[0]


def is_plain(spec: TensorSpec) -> bool:
    """Return whether a layout is the one that dtype and shape alone imply."""
    return spec == TensorSpec(spec.dtype, spec.shape)


def find_updated(graph: Graph) -> set[Value]:
    """Return the values that operators change in place: none may be read later than it was."""
    return {old for op in graph.ops for old, _ in op.updated}


def is_of_any(updated: Collection[Value], *values: Value) -> bool:
    """Return whether one of the values is among the updated, or may be a view of one."""
    for value in values:
        root: Value | None = value
        while root is not None:
            if root in updated:
                return True
            op = root.producer
            moves = op is not None and (op.kind in VIEWS or op.operator.stem == "rearrange")
            root = op.inputs[0] if op is not None and moves else None
    return False
