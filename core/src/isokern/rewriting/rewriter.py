"""Rewriter: a graph copied operator by operator, with something else in the place of some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..graph.builder import Builder
from ..graph.ir import INPUT, PARAMETER, Graph, Op, TensorSpec, Value
from .target import Target

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class State:
    """A graph, the values of its parameters, as far as they are known, and what it is for, if that is known."""

    graph: Graph
    parameters: Mapping[str, Any]
    target: Target | None = None


class Rewriter:
    """Makes a new graph of an old one: `copy` an operator, or `emit` others and say by `put` what stands for its outputs.

    All inputs are taken over, parameters when something reads them. Every pass goes through the operators in order once.
    """

    def __init__(self, state: State) -> None:
        self._state, self.old = state, state.graph
        self.known = dict(state.parameters)
        self.builder = Builder(state.graph.name)
        self._map: dict[Value, Value] = {}
        for value in state.graph.inputs:
            self._map[value] = self.builder.value(value.spec, value.name, INPUT)

    def value(self, old: Value) -> Value:
        """What stands for a value of the old graph."""
        if old not in self._map and old.role == PARAMETER:
            self._map[old] = self.builder.value(old.spec, old.name, PARAMETER)
        return self._map[old]

    def values(self, old: Sequence[Value | None]) -> list[Value | None]:
        """The same of operands."""
        return [None if v is None else self.value(v) for v in old]

    def put(self, old: Value, new: Value) -> None:
        """Let `new` stand for `old`."""
        self._map[old] = new

    def copy(self, op: Op) -> tuple[Value, ...]:
        """The operator as it is, of what stands for its operands."""
        made = self.builder.emit(
            op.kind,
            self.values(op.inputs),
            op.attrs,
            name=op.name,
            outputs=[v.spec for v in op.outputs],
            constraints=op.constraints,
            hints=op.hints,
        )
        for old, new in zip(op.outputs, made, strict=True):
            self.put(old, new)
        return made

    def array(self, old: Value | None) -> Array | None:
        """A parameter's elements in float64, None where they are not known here."""
        if old is None or old.role != PARAMETER or not isinstance(self.known.get(old.name), np.ndarray):
            return None
        return np.asarray(self.known[old.name], np.float64)

    def parameter(self, like: Value, name: str, array: Array) -> Value:
        """A new parameter of the dtype of another, with these elements."""
        there = (self.old, self.builder.graph)
        while name in {v.name for g in there for v in (*g.inputs, *g.parameters)}:
            name += "'"
        assert like.spec.dtype.numpy is not None
        self.known[name] = np.array(array, like.spec.dtype.numpy, order="C")
        return self.builder.parameter(name, array.shape, like.spec.dtype)

    def finish(self) -> State:
        """The new graph, with what is known of the parameters that it reads."""
        self.builder.output(*[self.value(v) for v in self.old.outputs])
        graph = self.builder.graph
        known = {v.name: self.known[v.name] for v in graph.parameters if v.name in self.known}
        return replace(self._state, graph=graph, parameters=known)


def only_user(value: Value, kind: str, graph: Graph) -> Op | None:
    """The one operator that reads a value, if it is of that kind, without constraints that would be lost, and the value is no result."""
    if len(value.users) != 1 or value in graph.outputs or value.users[0].kind != kind or value.users[0].constraints:
        return None
    return value.users[0]


def is_plain(spec: TensorSpec) -> bool:
    """Whether a layout is what a shape alone says."""
    return spec == TensorSpec(spec.dtype, spec.shape)
