"""What a model says of its inputs and results."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..arguments import integer
from ..status import BadTensorShape, InvalidArgument, quote
from .elements import MAX_ELEMENTS, element_name
from .node import UnsupportedModel

Dim = int | str


@dataclass(frozen=True)
class TensorInfo:
    """An input or a result: its name, the type of its elements in ONNX's words, and dims.

    A name stands for any dim; where a model does not say the dims of a result, they are one name, `...`. A result that
    is a map for each row, from `labels` to numbers, is a table of the numbers, whose columns have the labels' order.
    """

    name: str
    element: str
    shape: tuple[Dim, ...]
    labels: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.element}[{', '.join(map(str, self.shape))}]"


def dims_of(value: Any) -> list[Dim]:
    """Return the dims of a declared input, of which those without number and name are named after their place.

    Some exporters write -1 or `?` for them.
    """
    if not value.type.tensor_type.HasField("shape"):
        return ["..."]
    found: list[Dim] = []
    for n, dim in enumerate(value.type.tensor_type.shape.dim):
        known, named = dim.HasField("dim_value") and dim.dim_value != -1, dim.dim_param not in ("", "?", "-1")
        found.append(int(dim.dim_value) if known else dim.dim_param if named else f"{value.name}.{n}")
    return found


def describe_tensor(where: str, value: Any, dims: Mapping[str, int], *, result: bool = False) -> TensorInfo:
    """Return what a model says of an input or a result, whose type need not be told."""
    at = f"{where}: {quote(value.name)}"
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value")
        raise UnsupportedModel(at, f"a value of type {kind or 'unknown'}", allowed="tensors")
    number = value.type.tensor_type.elem_type
    element = "UNDEFINED" if result and not number else element_name(at, number)
    shape = [integer(at, str(d), dims[d], 0) if isinstance(d, str) and d in dims else d for d in dims_of(value)]
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise BadTensorShape(at, f"dims {shape}", allowed="none below 0")
    if not result and math.prod(d for d in shape if isinstance(d, int)) >= MAX_ELEMENTS:
        raise BadTensorShape(at, f"dims {shape}", allowed=f"fewer than {MAX_ELEMENTS} elements")
    return TensorInfo(value.name, element, tuple(shape))


def describe_result(where: str, value: Any, dims: Mapping[str, int], nodes: Iterable[Any]) -> TensorInfo:
    """Return what a model says of a result, which may be what a ZipMap among the nodes gives."""
    if value.type.HasField("sequence_type"):
        for node in nodes:
            if node.op_type == "ZipMap" and value.name in node.output:
                words = (s.decode("utf-8", "replace") for a in node.attribute for s in a.strings)
                labels = [*(v for a in node.attribute for v in a.ints), *words]
                return TensorInfo(value.name, "FLOAT", (f"{value.name}.0", len(labels)), tuple(labels))
    return describe_tensor(where, value, dims, result=True)


def free_leading(where: str, inputs: tuple[TensorInfo, ...], dynamic: bool | Collection[str]) -> tuple[TensorInfo, ...]:
    """Return the inputs with one name in the place of the leading dims that are free."""
    if dynamic is False:
        return inputs
    known = [t.name for t in inputs if t.shape]
    wanted = known if dynamic is True else [dynamic] if isinstance(dynamic, str) else list(dynamic)
    if strange := [n for n in wanted if n not in known]:
        allowed = f"of {', '.join(known) or 'none'}, with a leading dim"
        raise InvalidArgument(where, f"dynamic input {', '.join(map(quote, strange))}", allowed=allowed)
    taken = {d for t in inputs for d in t.shape if isinstance(d, str)}
    said = dict.fromkeys(t.shape[0] for t in inputs if t.name in wanted and isinstance(t.shape[0], str))
    name = next(iter(said), "rows")
    while name in taken and name not in said:
        name += "'"
    return tuple(TensorInfo(t.name, t.element, (name, *t.shape[1:])) if t.name in wanted else t for t in inputs)


def free_results(results: tuple[TensorInfo, ...]) -> tuple[TensorInfo, ...]:
    """Return what is said of results, of which leading dims that are numbers follow from those that are free."""
    names = [f"{t.name}.0" if t.shape and isinstance(t.shape[0], int) else None for t in results]
    return tuple(
        t if name is None else replace(t, shape=(name, *t.shape[1:])) for t, name in zip(results, names, strict=True)
    )
