"""Draft: a graph under construction; an operator of arrays alone is computed at once where its result is small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType
from ..graph.builder import Builder
from ..graph.ir import TensorSpec, Value
from ..graph.reference import results
from ..ops import find
from ..rewriting.rewriter import VIEWS
from ..status import InvalidArgument
from .operand import Array, Operand

FOLDED = 1 << 16  # elements of a result that is computed at once
MAX_OPERATORS = 100_000  # of a graph with its loops unrolled


class Draft:
    """A graph under construction: `parameters` are its constants, `origins` the inputs that a value depends on.

    `label` is the name of the operators that are emitted next; `named` has names of arrays by their `id`.
    """

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)
        self.parameters: dict[str, Any] = {}
        self.origins: dict[Value, frozenset[str]] = {}
        self.named: dict[int, str] = {}
        self.label = ""
        self._placed: dict[int, tuple[Array, Value]] = {}
        self._taken: set[str] = set()

    def emit(
        self, kind: str, inputs: Sequence[Operand | None], attrs: Mapping[str, Any], to: object = None
    ) -> tuple[Operand, ...]:
        """Emit an operator, or compute it where all inputs are arrays and the result is small."""
        operator = find(kind)
        dtypes = None if to is None else {_free_type(kind): to}
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        known = [x for x in inputs if not isinstance(x, Value)]
        # Quantised weights are left to the pass that multiplies integers
        quantised = kind == "dequantize_linear" and any(x is not None and x.ndim > 0 for x in known[:1])
        if len(known) == len(inputs) and not operator.inout and not quantised:
            specs = [None if x is None else TensorSpec(x.dtype, x.shape) for x in known]
            made = operator.infer(specs, attrs, dtypes)
            # Large ones are left to the pass that folds constants
            if all(spec is None or spec.numel <= FOLDED for spec in (*specs, *made)):
                if operator.name in VIEWS and known[0] is not None:
                    return (known[0].reshape(made[0].shape),)
                return _compute(kind, known, attrs, dtypes)
        if len(self.builder.graph.ops) >= MAX_OPERATORS:
            raise InvalidArgument(kind, "the graph is too long", allowed=f"{MAX_OPERATORS} operators")
        values = [None if x is None else self.place(x) for x in inputs]
        found = self.builder.emit(kind, values, attrs, name=self.label, dtypes=dtypes)
        origins = frozenset[str]().union(*(self.origins[v] for v in values if v is not None))
        self.enter(found, origins)
        return found

    def enter(self, values: Sequence[Value], origins: frozenset[str]) -> None:
        """Enter values of the graph, with the inputs that they depend on."""
        self.origins |= dict.fromkeys(values, origins)

    def place(self, x: Operand) -> Value:
        """Return the value of an operand; an array becomes a parameter, once."""
        if isinstance(x, Value):
            return x
        if id(x) not in self._placed:
            said = self.named.get(id(x)) or "constant"
            name = f"{said}.{len(self.parameters)}" if said == "constant" or said in self._taken else said
            # With the array, whose number nobody else gets meanwhile
            self._placed[id(x)] = (x, self.parameter(name, x.shape, x.dtype, x))
        return self._placed[id(x)][1]

    def parameter(self, name: str, shape: Sequence[int], dtype: object, held: Any) -> Value:
        """Declare a parameter, under a name of its own that begins with `name`; `held` is what it holds."""
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        value = self.builder.parameter(name, shape, dtype)
        self.parameters[name] = held
        self.enter([value], frozenset())
        return value

    def input(self, name: str, shape: Sequence[int], dtype: DType) -> Value:
        """Declare an input."""
        value = self.builder.input(name, shape, dtype)
        self._taken.add(name)
        self.enter([value], frozenset([name]))
        return value


def _compute(
    kind: str, inputs: Sequence[Array | None], attrs: Mapping[str, Any], dtypes: Mapping[str, Any] | None
) -> tuple[Array, ...]:
    """Compute an operator by its reference, on arrays."""
    scratch = Builder("constants")
    values = [None if x is None else scratch.parameter(f"p{n}", x.shape, x.dtype) for n, x in enumerate(inputs)]
    found = scratch.emit(kind, values, attrs, dtypes=dtypes)
    op = found[0].producer
    assert op is not None
    made = results(op, list(inputs))
    return tuple(np.asarray(a).reshape(v.spec.shape) for a, v in zip(made, found, strict=True))


def _free_type(kind: str) -> str:
    """Return the type parameter of an operator's first output."""
    return find(kind).signature.outputs[0].type
