"""Nodes of the domain com.microsoft: those of ONNX Runtime's quantiser, and those that are several in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..dtypes import F32
from ..status import InvalidArgument, quote
from .attributes import definition_of
from .nests import square_distances
from .node import Handler, Node, Operand, Output, dtype_of, shape_of
from .nodes_cached_attention import MICROSOFT as CACHED
from .nodes_fused import MICROSOFT as FUSED
from .recurrence import unroll
from .table import NODES as DEFAULT

OPSET = 21  # of the nodes that these consist of
KINDS = {"FLOAT": float, "INT": int, "STRING": str, "FLOATS": list, "INTS": list}
OWN = {"channels_last": "INT", "opset": "INT"}  # attributes that the default domain does not have


def _complete(node: Node, kind: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes and the defaults of a node of the default domain; InvalidArgument for those of a wrong type."""
    definition = definition_of(kind, "", {"": OPSET})
    assert definition is not None
    told = {name: (a.type.name, a.required) for name, a in definition.schema.attributes.items()}
    told |= {name: (own, False) for name, own in OWN.items()}
    for name, (wanted, required) in told.items():
        if name not in attrs and required:
            raise InvalidArgument(node.op_type, f"attribute {name} is not given", allowed=f"one of type {wanted}")
        if name in attrs and wanted in KINDS and not isinstance(attrs[name], KINDS[wanted]):
            raise InvalidArgument(node.op_type, f"attribute {name} is {quote(attrs[name])}", allowed=f"type {wanted}")
    return {**definition.defaults, **attrs}


def _call(node: Node, kind: str, *inputs: Operand | None, **attrs: Any) -> Operand:
    """Return what a node of the default domain gives."""
    attrs = _complete(node, kind, attrs)
    absent: list[str | None] = [None] * len(inputs)
    called = replace(
        node, op_type=kind, version=OPSET, inputs=list(inputs), attrs=attrs, wanted=[True], elements=absent
    )
    return cast("Operand", DEFAULT[kind](called))


def _read(node: Node, first: int, **attrs: Any) -> Operand:
    """Return the numbers that an input, with its scale and zero point behind it, stands for."""
    return _call(node, "DequantizeLinear", *(node.tensor(first + n) for n in range(3)), **attrs)


def _write(node: Node, y: Operand, scale: int, x: int = 0) -> Operand:
    """Return numbers quantised by input `scale` and the zero point behind it, by default 0 of the type of input `x`."""
    zero = node.tensor(scale + 1)
    held = np.zeros(node.shape(scale), dtype_of(node.x(x)).numpy) if zero is None else zero
    return _call(node, "QuantizeLinear", y, node.x(scale), held)


def wrap(kind: str, count: int = 1, **defaults: Any) -> Handler:
    """Return the handler of a node between `count` dequantised inputs and a quantised result."""

    def handle(node: Node) -> Output:
        attrs = _complete(node, kind, {**defaults, **node.attrs})
        opset = attrs.pop("opset", OPSET)
        if attrs.pop("channels_last", 0):
            raise node.refuse("channels_last 1", "0")
        if kind == "Softmax" and opset < 13 and node.axis(attrs["axis"]) != node.rank - 1:
            raise node.refuse(f"axis {attrs['axis']} of opset {opset}", "the last axis")
        return _write(node, _call(node, kind, *(_read(node, 3 * n) for n in range(count)), **attrs), 3 * count)

    return handle


def concat(node: Node) -> Output:
    """Join tensors, each with a scale and a zero point, along an axis."""
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise InvalidArgument(node.op_type, f"{len(node.inputs)} inputs", allowed="2, and 3 for each tensor")
    parts = [_read(node, n) for n in range(2, len(node.inputs), 3)]
    return _write(node, _call(node, "Concat", *parts, **node.attrs), 0, 2)


def gemm(node: Node) -> Output:
    """Multiply quantised matrices, with a bias of integers in the scale of the sums; of floats without a scale."""
    attrs, c = _complete(node, "Gemm", node.attrs), node.tensor(6)
    if c is not None:
        scale = node.emit("scale", node.emit("mul", node.x(1), node.x(4)), value=attrs["alpha"])
        c = _call(node, "DequantizeLinear", c, scale, None, axis=len(shape_of(c)) - 1)
    y = _call(node, "Gemm", _read(node, 0), _read(node, 3, axis=1 - attrs["transB"]), c, **attrs)
    return _write(node, y, 7) if node.has(7) else y


def _multiply(node: Node, given: list[Operand | None], a_scale: Operand, b_scale: Operand, bias: int) -> Operand:
    """Return a product of integers, less their zero points, times both scales, and with a bias that is an input."""
    sums = node.cast(node.emit("matmul_integer", *given), F32)
    y, added = node.emit("mul", sums, node.emit("mul", a_scale, b_scale)), node.tensor(bias)
    return y if added is None else node.emit("add", y, added)


def matmul_integer_to_float(node: Node) -> Output:
    """Multiply integers to floats."""
    return _multiply(node, [node.x(), node.x(1), node.tensor(4), node.tensor(5)], node.x(2), node.x(3), 6)


def dynamic_quantize_matmul(node: Node) -> Output:
    """Quantise floats to U8 by their range, and multiply by quantised weights."""
    a, scale, zero = node.emit_all("dynamic_quantize_linear", node.x())
    return _multiply(node, [a, node.x(1), zero, node.tensor(3)], scale, node.x(2), 4)


def dynamic_quantize_lstm(node: Node) -> Output | list[Output]:
    """Run an LSTM whose weights are quantised and transposed; what they multiply is quantised to U8 by its range."""
    weights = []
    for w, scale in ((1, 8), (2, 10)):
        x, dims = node.x(w), node.shape(scale)
        zero = node.cast(node.x(scale + 1), F32) if node.has(scale + 1) else node.full(dims, 0, F32)
        spread = (dims[0], 1, dims[1] if len(dims) > 1 else 1)
        wide = node.emit("sub", node.cast(x, F32), node.reshape(zero, spread))
        wide = node.emit("mul", wide, node.reshape(node.x(scale), spread))
        weights.append(node.transpose(wide, (0, 2, 1)))

    def read(x: Operand) -> Operand:
        return node.emit("dequantize_linear", *node.emit_all("dynamic_quantize_linear", x))

    attrs = _complete(node, "LSTM", node.attrs)
    attrs.pop("layout")
    inner = replace(node, op_type="LSTM", attrs=attrs)
    given = [node.x(), *weights, *(node.tensor(n) for n in range(3, 8))]
    return list(unroll(inner, given, ["Sigmoid", "Tanh", "Tanh"], read))


def distances(node: Node) -> Output:
    """Return the distance of each row of the first input from each of the second, or its square."""
    metric = node.attrs.get("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise InvalidArgument(node.op_type, f"metric {quote(metric)}", allowed="euclidean or sqeuclidean")
    y = square_distances(node, node.x(), node.x(1))
    return node.emit("sqrt", y) if metric == "euclidean" else y


NODES: dict[str, Handler] = {
    **CACHED,
    **FUSED,
    "CDist": distances,
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "MatMulIntegerToFloat": matmul_integer_to_float,
    "QGemm": gemm,
    "QLinearAdd": wrap("Add", 2),
    "QLinearAveragePool": wrap("AveragePool"),
    "QLinearConcat": concat,
    "QLinearGlobalAveragePool": wrap("GlobalAveragePool"),
    "QLinearLeakyRelu": wrap("LeakyRelu"),
    "QLinearMul": wrap("Mul", 2),
    "QLinearSigmoid": wrap("Sigmoid"),
    "QLinearSoftmax": wrap("Softmax", axis=-1),
}
