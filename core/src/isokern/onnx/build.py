"""Build: from a model, dims for its inputs and what must be known of them, to a graph and a list of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..graph.ir import Value
from ..status import BadTensorDtype
from .elements import NARROW, Array, element_name, name_of, our_dtype
from .importer import Importer
from .node import Maps, Operand, OperandScope, Parts, Ragged, UnsupportedModel, dtype_of
from .reader import Source
from .segments import Segment


@dataclass(frozen=True)
class Result:
    """One result of a model: an array that is known, or a value of some segment, of which `count` says the size."""

    name: str
    known: Array | None = None
    source: Value | None = None
    count: Value | None = None
    axis: int = 0
    narrow: str | None = None


@dataclass(frozen=True)
class Built:
    """The segments of a model, which is one without long loops, and its results in order."""

    segments: tuple[Segment, ...]
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
    results = []
    for value in source.message.graph.output:
        found, narrow = scope.find(value.name, value.name), scope.narrow.get(value.name)
        if isinstance(found, Maps) and value.type.HasField("sequence_type"):
            found = found.value
        if found is None or isinstance(found, (Parts, Maps)):
            raise UnsupportedModel(value.name, "the result is no tensor", allowed="tensors")
        _check_type(value, found.value if isinstance(found, Ragged) else found, narrow)
        if isinstance(found, Ragged):
            whole, count = (_keep(importer, v) for v in (found.value, found.count))
            results.append(Result(value.name, None, whole, count, found.axis, narrow))
        elif isinstance(found, Value):
            results.append(Result(value.name, None, _keep(importer, found), narrow=narrow))
        else:
            results.append(Result(value.name, found, narrow=narrow))
    return Built(tuple(importer.segments), tuple(results))


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


def _keep(importer: Importer, value: Value) -> Value:
    """Make a value a result of the last segment, and return it."""
    placed = importer.place(value)
    importer.segments[-1].keep(placed)
    return placed
