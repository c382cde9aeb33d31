"""Nodes that ONNX Runtime's optimiser and its quantiser of weights write: several operators in one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..importing.products import multiply
from ..status import InvalidArgument
from .elements import Array
from .node import Handler, Maps, Node, Operand, Output, Parts, dtype_of
from .nodes_normalisation import layer_normalization, rms_normalization
from .nodes_products import conv

BITS = (2, 4, 8)  # of a weight


# Normalisation


def skip_normalization(count: int, handler: Handler) -> Handler:
    """Return the handler of a normalisation of a sum: of the input, what skipped layers, and perhaps a bias.

    `count` is how many weights stand before the bias. The sum is the fourth result.
    """

    def handle(node: Node) -> Output | list[Output]:
        if any(node.wanted[1:3]):
            raise node.refuse("the mean or the deviation as a result", "the first result and the sum")
        total = node.emit("add", node.x(), node.x(1))
        if node.has(2 + count):
            total = node.emit("add", total, node.x(2 + count))
        attrs = {"axis": -1, "epsilon": node.attrs.get("epsilon", 1e-12)}
        given: list[Operand | Parts | Maps | None] = [total, *(node.tensor(2 + n) for n in range(count))]
        inner = replace(node, inputs=given, attrs=attrs, wanted=[True])
        return [handler(inner), None, None, total]  # type: ignore[list-item]  # one result, as one is wanted

    return handle


def normalize_simplified(node: Node) -> Output:
    """Divide by the root of the mean square, under the name that older exporters gave it."""
    if any(node.wanted[1:]):
        raise node.refuse("the deviation as a result", "the first result")
    node.attrs = {"axis": -1, "epsilon": 1e-5, **node.attrs}
    return rms_normalization(node)


# Activations


def activate_biased(kind: str) -> Handler:
    """Return the handler of an activation of an input to which a vector is added, if there is one."""

    def handle(node: Node) -> Output:
        x = node.emit("add", node.x(), node.x(1)) if node.has(1) else node.x()
        return node.emit(kind, x)

    return handle


def quick_gelu(node: Node) -> Output:
    """Return x sigmoid(alpha x)."""
    return node.emit("swish", node.x(), beta=float(node.attrs.get("alpha", 1.702)))


def activate(node: Node, y: Operand) -> Operand:
    """Return the activation that a fused node names, of what it computed."""
    kind, given = node.attrs.get("activation", ""), [float(v) for v in node.attrs.get("activation_params") or []]
    if kind in ("", "Relu", "Sigmoid", "Tanh"):
        return node.emit(kind.lower(), y) if kind else y
    if kind == "LeakyRelu":
        return node.emit("leaky_relu", y, alpha=given[0] if given else 0.01)
    if kind == "Clip" and len(given) == 2:
        return node.emit("clip", y, min=given[0], max=given[1])
    if kind == "HardSigmoid" and len(given) == 2:
        line = node.emit("add_scalar", node.emit("scale", y, value=given[0]), value=given[1])
        return node.emit("clip", line, min=0.0, max=1.0)
    raise node.refuse(f"activation {kind!r} with {given}", "Relu, Sigmoid, Tanh, LeakyRelu, Clip or HardSigmoid")


# Products


def fused_conv(node: Node) -> Output:
    """Convolve, add another tensor, and apply an activation."""
    y = conv(replace(node, inputs=node.inputs[:3], attrs={"auto_pad": "NOTSET", "group": 1, **node.attrs}))
    assert y is not None and not isinstance(y, (list, tuple))
    found: Operand = y  # type: ignore[assignment]  # one tensor
    return activate(node, node.emit("add", found, node.x(3)) if node.has(3) else found)


def fused_matmul(node: Node) -> Output:
    """Multiply matrices that may be transposed, and batches whose first dim stands second, times a number."""
    given = []
    for i, side in enumerate("AB"):
        x, rank = node.x(i), len(node.shape(i))
        if node.attrs.get(f"transBatch{side}", 0) and rank > 2:
            x = node.transpose(x, (*range(1, rank - 1), 0, rank - 1))
        if node.attrs.get(f"trans{side}", 0) and rank > 1:
            x = node.transpose(x, (*range(rank - 2), rank - 1, rank - 2))
        given.append(x)
    y, alpha = multiply(node, *given), float(node.attrs.get("alpha", 1.0))
    return y if alpha == 1.0 else node.emit("scale", y, value=alpha)


def matmul_n_bits(node: Node) -> Output:
    """Multiply by weights of 2, 4 or 8 bits in blocks along the rows, each with a scale and a zero point."""
    attrs = node.attrs
    rows, columns, block = int(attrs["N"]), int(attrs["K"]), int(attrs["block_size"])
    bits = int(attrs.get("bits", 4))
    if bits not in BITS or block < 1 or rows < 0 or columns < 0:
        raise node.refuse(f"{bits} bits in blocks of {block}", f"{', '.join(map(str, BITS))} bits")
    if node.has(4):
        raise node.refuse("g_idx, an order of its own", "blocks of neighbours")
    count = -(-columns // block)
    packed, scales = node.constant(1), node.constant(2).astype(np.float64)
    if packed.dtype != np.uint8 or packed.size * 8 != rows * count * block * bits or scales.size != rows * count:
        given = f"B {list(packed.shape)} and scales {list(scales.shape)}"
        raise InvalidArgument(node.op_type, given, allowed=f"{rows} × {count} blocks of {block} weights")
    codes = _unpack(packed.reshape(rows * count, -1), bits)[:, :block]
    zero: Array | float = float(1 << (bits - 1))
    if node.has(3):
        told = node.constant(3)
        zero = _unpack(told.reshape(rows, -1), bits)[:, :count] if told.dtype == np.uint8 else told
        if zero.size != rows * count:
            raise InvalidArgument(node.op_type, f"zero_points {list(told.shape)}", allowed=f"{rows} × {count}")
        zero = zero.reshape(-1, 1).astype(np.float64)
    weights = ((codes - zero) * scales.reshape(-1, 1)).reshape(rows, count * block)[:, :columns]
    x = node.x()
    y = multiply(node, x, node.cast(np.ascontiguousarray(weights.T).astype(np.float32), dtype_of(x)))
    return node.emit("add", y, node.x(5)) if node.has(5) else y


def _unpack(packed: Array, bits: int) -> Array:
    """Return the numbers in bytes, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    wide: Array = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return wide.reshape(*packed.shape[:-1], math.prod(packed.shape[-1:]) * len(shifts)).astype(np.float64)


MICROSOFT: dict[str, Handler] = {
    "BiasGelu": activate_biased("gelu"),
    "FastGelu": activate_biased("gelu_tanh"),
    "FusedConv": fused_conv,
    "FusedMatMul": fused_matmul,
    "Gelu": activate_biased("gelu"),
    "MatMulNBits": matmul_n_bits,
    "QuickGelu": quick_gelu,
    "SkipLayerNormalization": skip_normalization(2, layer_normalization),
    "SkipSimplifiedLayerNormalization": skip_normalization(1, rms_normalization),
}
# In ONNX's own domain, without a definition there
NODES: dict[str, Handler] = {"SimplifiedLayerNormalization": normalize_simplified}
