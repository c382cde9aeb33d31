"""Build: from a model, dims for its inputs and what must be known of them, to a graph and a list of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..graph.ir import Value
from ..status import BadTensorDtype, BadTensorShape
from .elements import NARROW, Array, element_name, name_of, our_dtype
from .importer import Importer
from .node import Maps, Operand, OperandScope, Parts, Ragged, UnsupportedModel, ValueNeeded, dtype_of, shape_of
from .reader import Source
from .segments import Segment
from .tensor_info import Dim, TensorInfo


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
    asks: str = ""  # why the one result has to be known before the rest is built


def build(
    source: Source,
    elements: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    known: Mapping[str, Array],
    declared: Sequence[TensorInfo],
    bound: Mapping[str, int],
    answers: Sequence[Array] = (),
) -> Built:
    """Import a model: `elements` are the types of its inputs, `known` those inputs whose content is built in.

    `declared` is what the model says of its results, and `bound` what the names of dims stand for. `answers` are the
    values that the building asks for, in turn. If there are more, the graph ends with the next one as its result.
    """
    importer, scope = Importer(source, answers), OperandScope()
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
    try:
        importer.run_graph(source.message.graph, scope)
    except ValueNeeded as needed:
        asked = Result("", None, _keep(importer, needed.value))
        return Built(tuple(importer.segments), (asked,), needed.problem)
    results = []
    for value, told in zip(source.message.graph.output, declared, strict=True):
        found, narrow = scope.find(value.name, value.name), scope.narrow.get(value.name)
        if isinstance(found, Maps) and value.type.HasField("sequence_type"):
            found = found.value
        if found is None or isinstance(found, (Parts, Maps)):
            raise UnsupportedModel(value.name, "the result is no tensor", allowed="tensors")
        _check_type(value, found.value if isinstance(found, Ragged) else found, narrow)
        _check_dims(told, found, bound)
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


def _check_dims(told: TensorInfo, found: Operand | Ragged, bound: Mapping[str, int]) -> None:
    """Raise BadTensorShape if a result has other dims than the model says: one of the two is wrong.

    A name that no input binds may be any number, and so may the dim of a result whose size depends on numbers.
    """
    if "..." in told.shape:
        return
    whole = found.value if isinstance(found, Ragged) else found
    shape: list[Dim] = list(shape_of(whole))
    if isinstance(found, Ragged):
        shape[found.axis] = "?"
    said = [bound.get(d, "?") if isinstance(d, str) else d for d in told.shape]
    if len(said) != len(shape) or any("?" not in (s, d) and s != d for s, d in zip(said, shape, strict=True)):
        names = {d: bound[d] for d in told.shape if isinstance(d, str) and d in bound}
        allowed = f"{told}" + "".join(f", {name} = {size}" for name, size in names.items()) + ", as it is declared"
        hint = "if the declaration is wrong, take the shape out of the model's output"
        raise BadTensorShape(
            told.name, f"the result has dims [{', '.join(map(str, shape))}]", allowed=allowed, hint=hint
        )


def _keep(importer: Importer, value: Value) -> Value:
    """Make a value a result of the last segment, and return it."""
    placed = importer.place(value)
    importer.segments[-1].keep(placed)
    return placed
