"""The nodes of an ONNX model under construction, with names and initialisers of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..graph.ir import Graph, Op, Value
from .library import proto
from .node import UnsupportedModel


class NodeWriter:
    """The nodes of a model under construction; rows of the table add to them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._known: dict[tuple[Any, ...], str] = {}
        self.label = ""  # of the operator whose nodes are added
        for value in (*graph.inputs, *graph.parameters):
            self._names[value] = self._free(value.name)

    def _free(self, wanted: str) -> str:
        name, n = wanted or "value", 1
        while name in self._taken:
            name, n = f"{wanted or 'value'}.{n}", n + 1
        self._taken.add(name)
        return name

    def put(self, value: Value, name: str) -> None:
        """Let a name stand for a value."""
        self._names[value] = name

    def name(self, value: Value | None) -> str:
        """Return the name of a value, "" for an absent one."""
        return "" if value is None else self._names[value]

    def names(self, values: Sequence[Value | None]) -> list[str]:
        """Return the names of operands."""
        return [self.name(v) for v in values]

    def add(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """Add a node of one output, and return the output's name."""
        return self.add_all(kind, inputs, 1, attrs)[0]

    def add_all(self, kind: str, inputs: Sequence[str], count: int, attrs: Mapping[str, Any]) -> list[str]:
        """Add a node, and return the names of its outputs."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        made = [self._free(self.label or kind.lower()) for _ in range(count)]
        self.nodes.append(proto.helper.make_node(kind, given, made, name=f"{kind}_{len(self.nodes)}", **attrs))
        return made

    def constant(self, array: Any, dtype: DType | None = None) -> str:
        """Return the name of an initialiser, which equal ones share."""
        held = np.array(array if dtype is None else np.asarray(array).astype(dtype.numpy), order="C")
        key = (held.dtype.str, held.dtype.name, held.shape, held.tobytes())
        if key not in self._known:
            self._known[key] = self._free("constant")
            self.initializers.append(proto.numpy_helper.from_array(held, self._known[key]))
        return self._known[key]

    def number(self, value: float, like: Value) -> str:
        """Return the name of one number of a value's dtype."""
        return self.constant(np.asarray(value), like.spec.dtype)

    def integers(self, values: Sequence[int]) -> str:
        """Return the name of a vector of I64."""
        return self.constant(np.asarray(values, np.int64))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Give a tensor other dims."""
        return self.add("Reshape", x, self.integers(shape))


ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "hardswish": ("HardSwish", {}),
    "hardsigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
}


def activate(w: NodeWriter, op: Op, x: str, kind: str = "") -> str:
    """Add the activation of an epilogue, or the one that is named."""
    kind = kind or str(op.attrs.get("activation", "none"))
    if kind == "none":
        return x
    if kind == "silu":
        return w.add("Mul", x, w.add("Sigmoid", x))
    if kind == "relu6":
        return w.add("Clip", x, *(w.number(n, op.outputs[0]) for n in (0, 6)))
    name, attrs = ACTIVATIONS[kind]
    return w.add(name, x, **attrs)


def each(values: Sequence[int], count: int) -> list[int]:
    """Return one number for each dim of a window."""
    return list(values) if len(values) == count else list(values) * count


def refuse(op: Op, problem: str) -> UnsupportedModel:
    """Return the error for a use of an operator that ONNX has no counterpart for."""
    return UnsupportedModel(op.kind, problem)
