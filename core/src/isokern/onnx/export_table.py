"""What nodes an operator becomes: a row for each that has a counterpart in ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..dtypes import BOOL
from ..graph.ir import Op
from .export_attention import attention, rope
from .export_layers import (
    Row,
    adaptive_pool,
    batch_norm,
    convolution,
    gemm,
    linear,
    of_columns,
    pool,
    rms_norm,
    type_of,
    with_weights,
)
from .export_nodes import NodeWriter, activate
from .library import proto
from .nodes_elementwise import SAME


def same(kind: str, **attrs: str) -> Row:
    """Return the row of an operator that is one node; `attrs` are the node's attributes and what ours are called."""

    def row(w: NodeWriter, op: Op) -> Sequence[str]:
        found = {theirs: op.attrs[ours] for theirs, ours in attrs.items()}
        return w.add_all(kind, w.names(op.inputs), len(op.outputs), found)

    return row


def with_number(kind: str, attribute: str = "value", left: bool = False) -> Row:
    """Return the row of an operator of a tensor and a number, which stands on the left or on the right."""

    def row(w: NodeWriter, op: Op) -> str:
        x, number = w.name(op.inputs[0]), w.number(op.attrs[attribute], op.outputs[0])
        return w.add(kind, *((number, x) if left else (x, number)))

    return row


def activation(kind: str) -> Row:
    """Return the row of an activation that an epilogue may have, too."""
    return lambda w, op: activate(w, op, w.name(op.inputs[0]), kind)


def gate(kind: str) -> Row:
    """Return the row of an activation of the first operand times the second."""
    return lambda w, op: w.add("Mul", activate(w, op, w.name(op.inputs[0]), kind), w.name(op.inputs[1]))


def reshape(w: NodeWriter, op: Op) -> str:
    """Give other dims of as many elements."""
    return w.reshape(w.name(op.inputs[0]), op.outputs[0].spec.shape)


def reduction(kind: str) -> Row:
    """Return the row of a reduction over axes."""

    def row(w: NodeWriter, op: Op) -> str:
        x = op.inputs[0]
        assert x is not None
        axes = w.integers(op.attrs["axes"]) if op.attrs["axes"] else ""
        return w.add(kind, w.name(x), axes, keepdims=int(op.attrs["keepdims"]))

    return row


def bias_add(w: NodeWriter, op: Op) -> str:
    """Add a bias along an axis."""
    y, (x, bias) = op.outputs[0].spec, w.names(op.inputs)
    axis = op.attrs["axis"] % y.ndim
    return w.add("Add", x, w.reshape(bias, [-1, *[1] * (y.ndim - axis - 1)]) if axis < y.ndim - 1 else bias)


def cast(w: NodeWriter, op: Op) -> str:
    """Convert to another type."""
    return w.add("Cast", w.name(op.inputs[0]), to=type_of(op))


def transpose(w: NodeWriter, op: Op) -> str:
    """Put axes in another order."""
    rank = op.outputs[0].spec.ndim
    axes = [a % rank for a in op.attrs["axes"]] or list(range(rank))[::-1]
    if not rank:
        return w.add("Identity", w.name(op.inputs[0]))
    return w.add("Transpose", w.name(op.inputs[0]), perm=axes)


def slice_(w: NodeWriter, op: Op) -> str:
    """Take parts along axes."""
    starts = op.attrs["starts"]
    axes, steps = op.attrs["axes"] or range(len(starts)), op.attrs["steps"] or [1] * len(starts)
    return w.add("Slice", w.name(op.inputs[0]), *map(w.integers, (starts, op.attrs["ends"], axes, steps)))


def pad(w: NodeWriter, op: Op) -> str:
    """Surround by a number."""
    x = op.inputs[0]
    assert x is not None
    if not x.spec.ndim:
        return w.add("Identity", w.name(x))
    pads = w.integers([*op.attrs["low"], *op.attrs["high"]])
    return w.add("Pad", w.name(x), pads, w.number(op.attrs["value"], x))


def stack(w: NodeWriter, op: Op) -> str:
    """Join along a new axis."""
    axis = op.attrs["axis"] % op.outputs[0].spec.ndim
    parts = [w.add("Unsqueeze", name, w.integers([axis])) for name in w.names(op.inputs)]
    return w.add("Concat", *parts, axis=axis)


def embedding(w: NodeWriter, op: Op) -> str:
    """Take rows of a table."""
    table, indices = op.inputs[:2]
    assert table is not None
    found = w.add("Gather", w.name(table), w.name(indices), axis=0)
    return found if table.spec.dtype is op.outputs[0].spec.dtype else w.add("Cast", found, to=type_of(op))


def move(kind: str, attribute: str) -> Row:
    """Return the row of a movement whose attribute is an input of the node."""
    return lambda w, op: w.add(kind, w.name(op.inputs[0]), w.integers(op.attrs[attribute]))


def clip(w: NodeWriter, op: Op) -> str:
    """Limit to a range."""
    bounds = [op.attrs["min"], op.attrs["max"]]
    names = ["" if math.isinf(b) else w.number(b, op.outputs[0]) for b in bounds]
    return w.add("Clip", w.name(op.inputs[0]), *names)


def square(w: NodeWriter, op: Op) -> str:
    """Multiply by itself."""
    return w.add("Mul", *[w.name(op.inputs[0])] * 2)


def rsqrt(w: NodeWriter, op: Op) -> str:
    """Return one over the root."""
    return w.add("Reciprocal", w.add("Sqrt", w.name(op.inputs[0])))


def topk(w: NodeWriter, op: Op) -> list[str]:
    """Return the largest elements and their places."""
    given = [w.name(op.inputs[0]), w.integers([op.attrs["k"]])]
    return w.add_all("TopK", given, 2, {"axis": op.attrs["axis"]})


def tile(w: NodeWriter, op: Op) -> str:
    """Repeat along each of the last axes."""
    x, repeats = op.inputs[0], op.attrs["repeats"]
    assert x is not None
    shape = [1] * (len(repeats) - x.spec.ndim) + list(x.spec.shape)
    name = w.name(x) if len(shape) == x.spec.ndim else w.reshape(w.name(x), shape)
    return w.add("Tile", name, w.integers([1] * (len(shape) - len(repeats)) + list(repeats)))


def logical(kind: str) -> Row:
    """Return the row of a truth of truths, of other numbers whether they are 0."""

    def row(w: NodeWriter, op: Op) -> str:
        truths = [
            name if v is None or v.spec.dtype is BOOL else w.add("Cast", name, to=proto.TensorProto.BOOL)
            for v, name in zip(op.inputs, w.names(op.inputs), strict=True)
        ]
        return w.add(kind, *truths)

    return row


def copy(w: NodeWriter, op: Op) -> str:
    """Return the same, repeated along new dims."""
    x, y = op.inputs[0], op.outputs[0].spec.shape
    assert x is not None
    return w.add("Identity", w.name(x)) if x.spec.shape == y else w.add("Expand", w.name(x), w.integers(y))


def prelu(w: NodeWriter, op: Op) -> str:
    """Scale what is negative; the node's slope broadcasts to x, ours each to the other."""
    x, slope = op.inputs[:2]
    assert x is not None
    y = op.outputs[0].spec.shape
    name = w.name(x) if x.spec.shape == y else w.add("Expand", w.name(x), w.integers(y))
    return w.add("PRelu", name, w.name(slope))


def quantise(kind: str) -> Row:
    """Return the row of a scale and a zero point along an axis."""
    return same(kind, axis="axis", block_size="block_size")


REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"]
ROWS: dict[str, Row] = {
    **{ours or theirs.lower(): same(theirs) for theirs, _, ours in (word.partition(":") for word in SAME.split())},
    **{kind: activation(kind) for kind in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "relu6")},
    **{kind: activation(kind) for kind in ("hardswish", "hardsigmoid")},
    **{f"{kind}_mul": gate(kind) for kind in ("gelu", "gelu_tanh", "relu", "sigmoid", "silu")},
    **{"reduce_" + kind[6:].lower(): reduction(kind) for kind in REDUCTIONS},
    **{f"conv{n}d": convolution(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": convolution(n, transposed=True) for n in (1, 2, 3)},
    **dict.fromkeys(("collapse_shape", "expand_shape", "flatten", "reshape", "squeeze", "unsqueeze"), reshape),
    "adaptive_avg_pool2d": adaptive_pool,
    "add": same("Add"),
    "add_scalar": with_number("Add"),
    "argmax": lambda w, op: w.add(
        "ArgMax", w.name(op.inputs[0]), axis=op.attrs["axis"], keepdims=int(op.attrs["keepdims"])
    ),
    "attention": attention,
    "avg_pool2d": pool("AveragePool"),
    "batch_norm": batch_norm,
    "bias_add": bias_add,
    "broadcast_to": move("Expand", "shape"),
    "cast": cast,
    "celu": same("Celu", alpha="alpha"),
    "clip": clip,
    "concat": same("Concat", axis="axis"),
    "copy": copy,
    "dequantize_linear": quantise("DequantizeLinear"),
    "div": same("Div"),
    "div_scalar": with_number("Div"),
    "elu": same("Elu", alpha="alpha"),
    "embedding": embedding,
    "gather": same("Gather", axis="axis"),
    "gather_elements": same("GatherElements", axis="axis"),
    "gemm": gemm,
    "global_avg_pool": same("GlobalAveragePool"),
    "group_norm": with_weights("GroupNormalization", True, epsilon="eps", num_groups="groups"),
    "instance_norm": with_weights("InstanceNormalization", True, epsilon="eps"),
    "layer_norm": with_weights("LayerNormalization", False, epsilon="eps"),
    "leaky_relu": same("LeakyRelu", alpha="alpha"),
    "linear": linear,
    "log_softmax": same("LogSoftmax", axis="axis"),
    **{f"logical_{kind.lower()}": logical(kind) for kind in ("And", "Not", "Or", "Xor")},
    "logsumexp": reduction("ReduceLogSumExp"),
    "matmul": same("MatMul"),
    "matmul_integer": of_columns("MatMulInteger", 2),
    "max_pool2d": pool("MaxPool"),
    "maximum": same("Max"),
    "minimum": same("Min"),
    "mul": same("Mul"),
    "pad": pad,
    "pow": same("Pow"),
    "pow_scalar": with_number("Pow"),
    "prelu": prelu,
    "qlinear_matmul": of_columns("QLinearMatMul", 1, 2),
    "quantize_linear": quantise("QuantizeLinear"),
    "rms_norm": rms_norm,
    "rope": rope,
    "rsqrt": rsqrt,
    "rsub_scalar": with_number("Sub", left=True),
    "scale": with_number("Mul"),
    "selu": same("Selu"),
    "slice": slice_,
    "softmax": same("Softmax", axis="axis"),
    "square": square,
    "stack": stack,
    "sub": same("Sub"),
    "tile": tile,
    "topk": topk,
    "transpose": transpose,
}
