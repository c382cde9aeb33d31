"""Build: from a model, dims for its inputs and what must be known of them, to a graph and a list of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import graph as graphs
from ..graph.ir import COMPUTED, Value
from ..status import BadTensorDtype
from .elements import NARROW, Array, element_name, name_of, our_dtype
from .importer import Importer
from .node import Operand, OperandScope, Parts, Ragged, UnsupportedModel, dtype_of
from .reader import Source


@dataclass(frozen=True)
class Result:
    """One result of a model: an array that is known, or output `index` of the graph, of which `count` says the size."""

    name: str
    known: Array | None = None
    index: int = -1
    count: int | None = None
    axis: int = 0
    narrow: str | None = None


@dataclass(frozen=True)
class Built:
    """A graph with its parameters, and the results of the model in order."""

    model: graphs.Model
    results: tuple[Result, ...]


def build(
    source: Source,
    elements: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    known: Mapping[str, Array],
) -> Built:
    """Import a model: `elements` are the types of its inputs, `known` those inputs whose content is built in."""
    importer, scope = Importer(source), OperandScope()
    for name, array in source.arrays.items():
        importer.define(scope, name, array)
    scope.narrow |= source.narrow
    for name, shape in shapes.items():
        if name in known:
            importer.define(scope, name, known[name])
        else:
            scope[name] = importer.input(name, shape, our_dtype(elements[name]))
        if elements[name] in NARROW:
            scope.narrow[name] = elements[name]
    importer.run_graph(source.message.graph, scope)
    outputs: dict[Value, int] = {}
    results = []
    for value in source.message.graph.output:
        found, narrow = scope.find(value.name, value.name), scope.narrow.get(value.name)
        if found is None or isinstance(found, Parts):
            raise UnsupportedModel(value.name, "the result is no tensor", allowed="tensors")
        _check_type(value, found.value if isinstance(found, Ragged) else found, narrow)
        if isinstance(found, Ragged):
            index, count = (_output(importer, outputs, v) for v in (found.value, found.count))
            results.append(Result(value.name, None, index, count, found.axis, narrow))
        elif isinstance(found, Value):
            results.append(Result(value.name, None, _output(importer, outputs, found), narrow=narrow))
        else:
            results.append(Result(value.name, found, narrow=narrow))
    model = graphs.Model(importer.builder.graph.name)
    model.builder, model.parameters = importer.builder, importer.parameters
    return Built(model, tuple(results))


def _check_type(declared: Any, found: Operand, narrow: str | None) -> None:
    """Raise BadTensorDtype where a result has another type than the model says."""
    number = declared.type.tensor_type.elem_type
    if not number:
        return
    said, name = element_name(declared.name, number), narrow or name_of(dtype_of(found))
    if said != name:
        raise BadTensorDtype(
            declared.name, f"the result has elements of type {name}", allowed=f"{said}, as it is declared"
        )


def _output(importer: Importer, outputs: dict[Value, int], value: Value) -> int:
    """Return the number of a value among the graph's outputs; a copy stands for an input or a parameter."""
    if value not in outputs:
        placed = value if value.role == COMPUTED else importer.builder.emit("copy", [value])[0]
        importer.builder.output(placed)
        outputs[value] = len(outputs)
    return outputs[value]
