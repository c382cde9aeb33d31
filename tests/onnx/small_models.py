"""Small ONNX models for the tests, made in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape: Any, kind: int = FLOAT) -> Any:
    """Return the declaration of an input or a result."""
    return helper.make_tensor_value_info(name, kind, shape)


def tensor(name: str, array: Any) -> Any:
    """Return an initialiser."""
    return numpy_helper.from_array(np.asarray(array), name)


def model(nodes: Any, inputs: Any, outputs: Any, initialisers: Any = (), opset: int = OPSET, **more: Any) -> Any:
    """Return a model of nodes."""
    graph = helper.make_graph(list(nodes), "small", list(inputs), list(outputs), list(initialisers))
    domains = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in more.pop("domains", ()))]
    return helper.make_model(graph, opset_imports=domains, ir_version=10, **more)


def node(kind: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    """Return a node; names are separated by spaces, and `_` is an absent one."""
    names = [["" if n == "_" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(kind, *names, **attrs)


def classifier(batch: Any = "batch", width: int = 8) -> Any:
    """Return a small network whose reshape is computed from the shape of its input, as exporters write it."""
    random = np.random.default_rng(0)
    w = random.standard_normal((4, 3, 3, 3)).astype(np.float32)
    rows = 4 * width * width
    dense = random.standard_normal((rows, 5)).astype(np.float32)
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1], name="conv"),
        node("Relu", "c", "r"),
        node("Shape", "r", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 rest", "to", axis=0),
        node("Reshape", "r to", "flat"),
        node("MatMul", "flat dense", "y", name="head"),
    ]
    constants = [
        tensor("w", w),
        tensor("dense", dense),
        tensor("zero", np.int64(0)),
        tensor("axes", np.int64([0])),
        tensor("rest", np.int64([-1])),
    ]
    return model(nodes, [value("x", [batch, 3, width, width])], [value("y", [batch, 5])], constants)
