"""A graph as an ONNX model, for ONNX Runtime to run beside it.

It knows the operators of convolutional networks, in F32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..dtypes import F32
from ..graph.ir import Graph, Op, Value
from ..ops.conv2d import pair, sides

Node = tuple[str, Sequence[str], Mapping[str, Any]]  # ONNX's kind, operands, attributes
OPSET = 17  # what ONNX Runtime 1.14 and later read


class NoPeer(Exception):
    """Why a graph is not measured beside ONNX Runtime."""


def session(graph: Graph, parameters: Mapping[str, Any], threads: int) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Return a function from feeds by name to the results of ONNX Runtime on the CPU.

    Raises NoPeer where ONNX Runtime, or its counterpart of an operator, is missing.
    """
    try:
        onnx, onnxruntime = (import_module(name) for name in ("onnx", "onnxruntime"))
    except ImportError as error:
        raise NoPeer(f"{error.name} is not installed") from None
    helper = onnx.helper
    floats = onnx.TensorProto.FLOAT
    if any(v.spec.dtype is not F32 for v in graph.values.values()):
        raise NoPeer("not all of it is F32")
    nodes = []
    for op in graph.ops:
        kind, operands, attrs = _node(op)
        nodes.append(helper.make_node(kind, operands, [_name(v) for v in op.outputs], **attrs))
    made = helper.make_graph(
        nodes,
        graph.name,
        [helper.make_tensor_value_info(_name(v), floats, v.spec.shape) for v in graph.inputs],
        [helper.make_tensor_value_info(_name(v), floats, v.spec.shape) for v in graph.outputs],
        [onnx.numpy_helper.from_array(np.asarray(parameters[v.name]), _name(v)) for v in graph.parameters],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    found = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = {v.name: _name(v) for v in graph.inputs}
    return lambda feeds: list(found.run(None, {names[n]: x for n, x in feeds.items()}))


def _name(value: Value | None) -> str:
    return "" if value is None else f"v{value.vid}"


def _node(op: Op) -> Node:
    make = NODES.get(op.kind)
    if make is None:
        raise NoPeer(f"no ONNX operator is known here for {op.kind}")
    return make(op, [_name(v) for v in op.inputs])


def _conv(op: Op, operands: list[str]) -> Node:
    if op.attrs["activation"] != "none" or len(operands) > 3:
        raise NoPeer("ONNX's Conv has no epilogue: give the graph as it was built")
    steps = {f"{n}s": pair("conv2d", n, op.attrs[n]) for n in ("stride", "dilation")}
    return "Conv", operands, {**steps, "pads": sides("conv2d", op.attrs["padding"]), "group": op.attrs["groups"]}


def _max_pool(op: Op, operands: list[str]) -> Node:
    kernel = pair("pool", "kernel", op.attrs["kernel"])
    steps = {
        "strides": pair("pool", "stride", op.attrs["stride"] or kernel),
        "dilations": pair("pool", "dilation", op.attrs["dilation"]),
    }
    return (
        "MaxPool",
        operands,
        {"kernel_shape": kernel, "pads": sides("pool", op.attrs["padding"]), **steps},
    )


def _average(op: Op, operands: list[str]) -> Node:
    if set(op.outputs[0].spec.shape[2:]) != {1}:
        raise NoPeer("ONNX has no adaptive pool but the global one")
    return "GlobalAveragePool", operands, {}


def _norm(op: Op, operands: list[str]) -> Node:
    x, mean, var, scale, shift = [*operands, "", ""][:5]
    if not scale or not shift:
        raise NoPeer("ONNX's BatchNormalization has a scale and a shift")
    return "BatchNormalization", [x, scale, shift, mean, var], {"epsilon": op.attrs["eps"]}


def _plain(kind: str, **attrs: Any) -> Callable[[Op, list[str]], Node]:
    return lambda op, operands: (kind, operands, attrs)


NODES: dict[str, Callable[[Op, list[str]], Node]] = {
    "add": _plain("Add"),
    "adaptive_avg_pool2d": _average,
    "batch_norm": _norm,
    "conv2d": _conv,
    "flatten": _plain("Flatten"),
    "linear": _plain("Gemm", transB=1),
    "max_pool2d": _max_pool,
    "relu": _plain("Relu"),
}
