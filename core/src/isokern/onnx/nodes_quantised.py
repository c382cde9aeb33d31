"""Nodes that quantise, dequantise, and multiply integers."""

from __future__ import annotations

import math

from ..dtypes import F32, U8
from ..importing.windows import widen
from .elements import NARROW, element_name, our_dtype
from .narrow_floats import FORMATS, round_floats
from .node import Handler, Node, Operand, Output, dtype_of, shape_of
from .windows import window_of


def quantize_linear(node: Node) -> Output:
    """Divide by scales, round and add zero points; narrow integers saturate at their own range."""
    name = element_name(node.op_type, node.attrs["output_dtype"]) if node.attrs.get("output_dtype") else None
    narrow = node.elements[2] if node.has(2) else name if name in NARROW else None
    held = our_dtype(name) if name is not None else dtype_of(node.x(2)) if node.has(2) else U8
    if held.storage and not node.attrs.get("saturate", 1):
        raise node.refuse("saturate=0", "1")
    x, scale = node.x(), node.x(1)
    if dtype_of(x) is not dtype_of(scale):
        scale = node.cast(scale, dtype_of(x))
    how = {"axis": _axis(node), "block_size": int(node.attrs.get("block_size", 0))}
    if narrow in FORMATS:
        node.made = narrow
        saturate = bool(node.attrs.get("saturate", 1))
        return round_floats(node, node.emit("div", x, _spread(node, scale)), narrow, saturate)
    y = _cut(
        node, node.emit("quantize_linear", _fill_blocks(node, x), scale, _zero(node, node.tensor(2)), to=held, **how)
    )
    if narrow is None:
        return y
    node.made = narrow
    _kind, _held, low, high = NARROW[narrow]
    return node.emit("clip", y, min=low, max=high)


def dequantize_linear(node: Node) -> Output:
    """Take zero points off and multiply by scales."""
    how = {"axis": _axis(node), "block_size": int(node.attrs.get("block_size", 0))}
    wanted = dtype_of(node.x(1))
    if node.attrs.get("output_dtype"):
        wanted = our_dtype(element_name(node.op_type, node.attrs["output_dtype"]))
    node.made = None
    if node.elements[0] in FORMATS:  # whose zero points are 0
        return node.cast(node.emit("mul", node.cast(node.x(), dtype_of(node.x(1))), _spread(node, node.x(1))), wanted)
    zero = _zero(node, node.tensor(2))
    if zero is not None and dtype_of(node.x()).storage:
        zero = None  # of floats it is 0
    y = node.emit("dequantize_linear", _fill_blocks(node, node.x()), node.x(1), zero, **how)
    return node.cast(_cut(node, y), wanted)


def _fill_blocks(node: Node, x: Operand) -> Operand:
    """Return numbers with zeros behind them where the last block along the axis is shorter than the others."""
    axis, block = _axis(node), int(node.attrs.get("block_size", 0))
    lacking = -node.shape()[axis] % block if block and node.rank else 0
    if not lacking:
        return x
    ends = [lacking if n == axis else 0 for n in range(node.rank)]
    return node.emit("pad", x, low=(0,) * node.rank, high=tuple(ends))


def _cut(node: Node, y: Operand) -> Operand:
    """Return numbers without what `_fill_blocks` added."""
    if shape_of(y) == node.shape():
        return y
    axis = _axis(node)
    return node.emit("slice", y, starts=(0,), ends=(node.shape()[axis],), axes=(axis,))


def _spread(node: Node, scale: Operand) -> Operand:
    """Return scales with dims that broadcast to the first input's."""
    if len(shape_of(scale)) <= 1 and math.prod(shape_of(scale)) == 1:
        return node.reshape(scale, ())
    axis, block = _axis(node), int(node.attrs.get("block_size", 0))
    if not block:
        return node.reshape(scale, [-1 if n == axis else 1 for n in range(node.rank)])
    wide = node.emit("repeat_interleave", scale, repeats=block, axis=axis)
    return node.emit("slice", wide, starts=(0,), ends=(node.shape()[axis],), axes=(axis,))


def _zero(node: Node, zero: Operand | None) -> Operand | None:
    """Return the zero point with the dims of the scale: one number may be a scalar or a vector."""
    return zero if zero is None or math.prod(shape_of(zero)) != 1 else node.reshape(zero, node.shape(1))


def _axis(node: Node) -> int:
    """Return the axis of the scales; a scale alone has none, whatever the attribute says."""
    if not node.shape(1) or not -node.rank <= node.attrs.get("axis", node.rank) < node.rank:
        return 0 if node.rank < 2 else 1
    return node.axis()


def dynamic_quantize_linear(node: Node) -> tuple[Output, ...]:
    """Quantise to U8 by the range of the elements."""
    return node.emit_all("dynamic_quantize_linear", node.x())


def matmul_integer(node: Node) -> Output:
    """Multiply integers of 8 bits to I32."""
    return node.emit("matmul_integer", *node.tensors)


def qlinear_matmul(node: Node) -> Output:
    """Multiply quantised matrices; scales are computed in F32."""
    inputs = [node.cast(x, F32) if n in (1, 4, 6) and x is not None else x for n, x in enumerate(node.tensors)]
    return node.emit("qlinear_matmul", *inputs)


def conv_integer(node: Node) -> Output:
    """Convolve integers of 8 bits to I32, in one or two dims."""
    return _convolve(node, "conv_integer", node.shape(1))


def qlinear_conv(node: Node) -> Output:
    """Convolve quantised planes of one or two dims."""
    return _convolve(node, "qlinear_conv", node.shape(3))


def _convolve(node: Node, kind: str, weights: tuple[int, ...]) -> Operand:
    if len(weights) not in (3, 4):
        raise node.refuse(f"planes of {len(weights) - 2} dims", "1 or 2")
    missing = 4 - len(weights)
    window = window_of(node, node.shape()[2:], tuple(weights[2:])).widen(missing)
    how = {"stride": window.stride, "padding": window.padding, "dilation": window.dilation}
    wide = [x if x is None or len(shape_of(x)) < 3 else widen(node, x, missing) for x in node.tensors]
    y = node.emit(kind, *wide, groups=int(node.attrs["group"]), **how)
    return node.reshape(y, (*shape_of(y)[:2], *shape_of(y)[2 + missing :]))


NODES: dict[str, Handler] = {
    "ConvInteger": conv_integer,
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
}
