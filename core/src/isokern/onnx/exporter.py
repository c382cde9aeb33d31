"""Exporter: a graph of ours as an ONNX model, one node or a few for each operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from ..declare.conversion import convert
from ..graph.builder import error_context
from ..graph.ir import Graph, Value
from ..graph.model import Model
from ..status import InvalidArgument
from .elements import OURS, Array, element_name, numpy_dtype
from .export_nodes import NodeWriter
from .export_table import ROWS
from .library import proto
from .node import UnsupportedModel

OPSET, IR = 21, 10  # the operators, and the format that goes with them
LARGEST = (1 << 31) - (1 << 26)  # bytes of initialisers of a message; with the nodes it is below 2 GiB


def export(model: Model | Graph, parameters: Mapping[str, Any] | None = None) -> Any:
    """Return a ModelProto of a graph: its values have the names of the graph's, its parameters are initialisers.

    The graph should be as it was built, since operators that passes make have no counterpart, or several. Raises
    UnsupportedModel, with all operators that have none, and InvalidArgument where a parameter is not given.
    """
    graph = model.graph if isinstance(model, Model) else model
    given = model.parameters if isinstance(model, Model) and parameters is None else parameters or {}
    if missing := [v.name for v in graph.parameters if v.name not in given]:
        raise InvalidArgument(graph.name, f"parameters {', '.join(missing)} are not given", allowed="all of them")
    unknown = [f"{op.kind} of {op.name or 'no layer'}" for op in graph.ops if op.kind not in ROWS or op.operator.inout]
    unknown += [f"values of {d}" for d in dict.fromkeys(v.spec.dtype for v in graph.values.values()) if d not in _NAMES]
    if unknown:
        raise UnsupportedModel(graph.name, f"no counterpart in ONNX: {'; '.join(dict.fromkeys(unknown))}")
    writer, refused = NodeWriter(graph), []
    for op in graph.ops:
        writer.label = op.name
        try:
            with error_context(op.name):
                found = ROWS[op.kind](writer, op)
        except UnsupportedModel as error:
            refused.append(f"{error.where}: {error.problem}")
            found = [f"refused {n}" for n, _ in enumerate(op.outputs)]
        for value, name in zip(op.outputs, [found] if isinstance(found, str) else found, strict=True):
            writer.put(value, name)
    if refused:
        raise UnsupportedModel(graph.name, f"no counterpart in ONNX: {'; '.join(refused)}")
    made = _finish(writer, given)
    if count_bytes(made) < LARGEST:  # what the checker takes; a larger one has no size
        proto.checker.check_model(made, full_check=True)
    return made


def count_bytes(model: Any) -> int:
    """Return the bytes of the initialisers of a model that `export` made: parameters, and constants such as masks."""
    held = model.graph.initializer
    return sum(math.prod(t.dims) * numpy_dtype(element_name(t.name, t.data_type)).itemsize for t in held)


_NAMES = {ours: name for name, ours in OURS.items()}


def _describe(name: str, value: Value) -> Any:
    kind = getattr(proto.TensorProto, _NAMES[value.spec.dtype])
    return proto.helper.make_tensor_value_info(name, kind, list(value.spec.shape))


def _array(given: Any, value: Value) -> Array:
    array = given.numpy() if hasattr(given, "numpy") else np.asarray(given)
    wanted = value.spec.dtype.numpy
    return np.ascontiguousarray(array if array.dtype == wanted else convert(array, wanted))


def _finish(writer: NodeWriter, parameters: Mapping[str, Any]) -> Any:
    """Return the model of a graph whose nodes are written."""
    graph = writer.graph
    held = [proto.numpy_helper.from_array(_array(parameters[v.name], v), writer.name(v)) for v in graph.parameters]
    taken: set[str] = set()
    outputs = []
    for value in graph.outputs:
        writer.label = ""
        name = writer.name(value)
        if value.producer is None or name in taken:  # a result is no input, and has a name of its own
            name = writer.add("Identity", name)
        taken.add(name)
        outputs.append(_describe(name, value))
    inputs = [_describe(writer.name(v), v) for v in graph.inputs]
    made = proto.helper.make_graph(writer.nodes, graph.name or "graph", inputs, outputs, [*held, *writer.initializers])
    opsets = [proto.helper.make_opsetid("", OPSET)]
    producer = {"producer_name": "isokern", "producer_version": version("isokern")}
    return proto.helper.make_model(made, opset_imports=opsets, ir_version=IR, **producer)
