"""fold_quantization: multiply the integers of a quantized model, not the numbers that they represent.

A model in QDQ form has float products between dequantize_linear and quantize_linear. A product of two tensors that are
dequantised is one of integers, whose sums are multiplied by both scales: `matmul_integer` or `conv_integer`, a cast and
a scale. Where nothing but a quantize_linear reads the result, apart from a relu between, and the bias is of integers in
the scale of the sums, it is `qlinear_matmul` or `qlinear_conv`. quantize_linear of what was dequantised by the same
scale is what it was.

The sums are exact, and those of floats are rounded, so that a result may be quantized to the next number. Scales and
zero points must be known, one for a tensor, or one for each channel of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import F32, I8, I32, U8
from ..graph.ir import PARAMETER, Op, TensorSpec, Value
from ..ops import find
from ..rewriting.rewriter import Array, Rewriter, State, only_user

BYTES = (U8, I8)
CONVOLUTIONS = ("conv1d", "conv2d")
PRODUCTS = ("matmul", "gemm", "linear", *CONVOLUTIONS)


@dataclass
class _Quantised:
    """Integers, in the order of `axes` if that is given, with their scale and zero point: of no dims or [channels].

    `axis` is that of the channels, after the reordering.
    """

    value: Value
    scale: Array
    zero: Array
    axis: int
    axes: tuple[int, ...] | None = None


@dataclass
class _Product:
    """A product of integers: what it multiplies, a bias in the scale of the sums, and the operators that it replaces.

    `written` is the quantize_linear after it, if the result is quantized again.
    """

    op: Op
    a: _Quantised
    b: _Quantised
    bias: Value | None = None
    relu: Op | None = None
    written: Op | None = None

    @property
    def last(self) -> Op:
        return self.op if self.written is None else self.written


def run(state: State) -> State:
    """Return the graph with products of integers if their operands were dequantized."""
    if not any(op.kind == "dequantize_linear" for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    found = [_find(state, rewriter, op) for op in state.graph.ops if op.kind in PRODUCTS]
    products = {p.last: p for p in found if p is not None}
    inner = {op for p in products.values() for op in (p.op, p.relu) if op is not None and op is not p.last}
    for op in state.graph.ops:
        same = _find_same(state, rewriter, op)
        if op in products:
            _emit(rewriter, products[op])
        elif same is not None:
            rewriter.put(op.outputs[0], rewriter.value(same))
        elif op not in inner:
            rewriter.copy(op)
    return rewriter.finish()


# Finding


def _read_number(rewriter: Rewriter, value: Value | None) -> Array | None:
    """Return a scale or zero point of no dims or [channels]."""
    found = rewriter.array(value)
    if found is None or found.ndim > 1:
        return None
    return found.reshape(()) if found.size == 1 else found


def _read(rewriter: Rewriter, op: Op) -> tuple[Array, Array] | None:
    """Return the scale and the zero point of a quantize_linear or dequantize_linear, None if they are not known."""
    if op.constraints or op.attrs["block_size"]:
        return None
    x, scale, zero = [*op.inputs, None][:3]
    factor = _read_number(rewriter, scale)
    offset = np.zeros(()) if zero is None else _read_number(rewriter, zero)
    if factor is None or offset is None or scale is None or scale.spec.dtype is not F32 or x is None:
        return None
    return factor, np.broadcast_to(offset, factor.shape) if offset.ndim == 0 else offset


def _source(rewriter: Rewriter, value: Value | None) -> _Quantised | None:
    """Return the integers that a value was dequantized from; a transpose may be between."""
    op = None if value is None else value.producer
    axes: tuple[int, ...] | None = None
    if op is not None and op.kind == "transpose" and not op.constraints:
        rank = op.outputs[0].spec.ndim
        axes = tuple(a % rank for a in op.attrs["axes"]) or tuple(range(rank))[::-1]
        op = None if op.inputs[0] is None else op.inputs[0].producer
    if op is None or op.kind != "dequantize_linear" or op.outputs[0].spec.dtype is not F32:
        return None
    x, parts = op.inputs[0], _read(rewriter, op)
    if x is None or parts is None or x.spec.dtype not in BYTES:
        return None
    axis = op.attrs["axis"] % max(1, x.spec.ndim) if parts[0].ndim else 0
    return _Quantised(x, *parts, axes.index(axis) if axes is not None and parts[0].ndim else axis, axes)


def _find(state: State, rewriter: Rewriter, op: Op) -> _Product | None:
    """Return the product of integers that a product of floats stands for."""
    a, b = _source(rewriter, op.inputs[0]), _source(rewriter, op.inputs[1])
    if a is None or b is None or a.scale.ndim or op.constraints or op.attrs.get("activation", "none") != "none":
        return None
    if a.value.spec.ndim < 2 or any(v is not None for v in op.inputs[3:]) or op.attrs.get("trans_a", False):
        return None
    columns = b.value.spec.ndim - 1
    if op.kind in CONVOLUTIONS:
        fits = b.scale.ndim == 0 or b.axis == 0
    else:
        if op.kind == "linear" or op.attrs.get("trans_b", False):
            order = (*range(columns - 1), columns, columns - 1)
            old = b.axes or tuple(range(columns + 1))
            b = _Quantised(b.value, b.scale, b.zero, order.index(b.axis), tuple(old[a] for a in order))
        fits = b.scale.ndim == 0 or b.axis == columns
    if not fits:
        return None
    made = _Product(op, a, b, _integer_bias(rewriter, op, a, b))
    _take_written(state, rewriter, made)
    return made if _legal(state, made) else None


def _integer_bias(rewriter: Rewriter, op: Op, a: _Quantised, b: _Quantised) -> Value | None:
    """Return the integers of a bias that was dequantised by the scale of the sums."""
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    maker = None if bias is None else bias.producer
    if maker is None or maker.kind != "dequantize_linear" or maker.inputs[0] is None:
        return None
    parts = _read(rewriter, maker)
    if parts is None or maker.inputs[0].spec.dtype is not I32 or parts[1].any():
        return None
    wanted = np.broadcast_to(a.scale * b.scale, np.broadcast_shapes(parts[0].shape, (a.scale * b.scale).shape))
    return maker.inputs[0] if np.allclose(parts[0], wanted, rtol=1e-6, atol=0) else None


def _take_written(state: State, rewriter: Rewriter, made: _Product) -> None:
    """Take the quantize_linear after a product, and a relu between, if its bias is of integers or there is none."""
    has_bias = len(made.op.inputs) > 2 and made.op.inputs[2] is not None
    alpha = float(made.op.attrs.get("alpha", 1.0))
    if alpha != 1 or (has_bias and (made.bias is None or made.op.kind not in CONVOLUTIONS)):
        return
    y = made.op.outputs[0]
    relu = only_user(y, "relu", state.graph)
    written = only_user(y if relu is None else relu.outputs[0], "quantize_linear", state.graph)
    if written is None or written.outputs[0].spec.dtype not in BYTES:
        return
    parts = _read(rewriter, written)
    if parts is not None and not parts[0].ndim:
        made.relu, made.written = relu, written


def _find_same(state: State, rewriter: Rewriter, op: Op) -> Value | None:
    """Return the integers that a quantize_linear gives again."""
    x = op.inputs[0] if op.kind == "quantize_linear" else None
    before = None if x is None else x.producer
    if before is None or before.kind != "dequantize_linear" or op.outputs[0] in state.graph.outputs:
        return None
    integers = before.inputs[0]
    if integers is None or integers.spec != op.outputs[0].spec:
        return None
    one, other = _read(rewriter, op), _read(rewriter, before)
    if one is None or other is None or any(not np.array_equal(p, q) for p, q in zip(one, other, strict=True)):
        return None
    return integers if one[0].ndim == 0 or op.attrs["axis"] == before.attrs["axis"] else None


def _legal(state: State, made: _Product) -> bool:
    """Return whether a target multiplies integers by kernels of its own.

    Windows of integers that are gathered for a product of matrices take longer than a convolution of floats.
    """
    if state.target is None:
        return True
    a, b, y = made.a.value.spec, made.b.value.spec, made.op.outputs[0].spec
    if made.op.kind not in CONVOLUTIONS:
        return _has(state, "matmul_integer", (a, a.shape[-2:]), (b, (a.shape[-1], y.shape[-1])), {})
    attrs = _window(made.op)
    if _has(state, "conv_integer", (a, _plane(a.shape)), (b, _plane(b.shape)), attrs):
        return True
    m, k, places = b.shape[0], math.prod(b.shape[1:]), math.prod(y.shape[2:])
    pointwise = math.prod(b.shape[2:]) == 1 and set(attrs["stride"]) == {1} and set(attrs["padding"]) == {0}
    return pointwise and attrs["groups"] == 1 and _has(state, "matmul_integer", (b, (m, k)), (a, (k, places)), {})


def _plane(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the dims of a tensor of planes, where rows are planes of one row."""
    return (*shape[:2], 1, *shape[2:]) if len(shape) == 3 else tuple(shape)


def _window(op: Op) -> dict[str, Any]:
    """Return how a convolution of planes slides its window."""
    held = {n: op.attrs[n] for n in ("stride", "padding", "dilation", "groups")}
    if op.kind == "conv1d":
        end = op.attrs["end_padding"]
        ends = (0, held["padding"], 0, held["padding"] if end < 0 else end)
        held |= {"stride": (1, held["stride"]), "padding": ends, "dilation": (1, held["dilation"])}
    return held


def _has(
    state: State,
    kind: str,
    a: tuple[TensorSpec, Sequence[int]],
    b: tuple[TensorSpec, Sequence[int]],
    attrs: Mapping[str, Any],
) -> bool:
    """Return whether a target has a kernel for an operator of two operands, of these dtypes and dims."""
    assert state.target is not None
    operator, specs = find(kind), [TensorSpec(spec.dtype, shape) for spec, shape in (a, b)]
    full = operator.attrs.check(kind, attrs)
    return state.target.why_not(operator, specs, operator.infer(specs, full, None), full) is None


# Emitting


def _emit(rewriter: Rewriter, made: _Product) -> None:
    op, builder = made.op, rewriter.builder
    is_conv = op.kind in CONVOLUTIONS
    kind = "conv" if is_conv else "matmul"
    attrs = _window(op) if is_conv else {}

    def emit(name: str, inputs: list[Value | None], **more: Any) -> Value:
        (found,) = builder.emit(name, inputs, more, name=op.name)
        return found

    def put_in_order(x: _Quantised) -> Value:
        if x.axes is None:
            return rewriter.value(x.value)
        known = rewriter.known.get(x.value.name) if x.value.role == PARAMETER else None
        if isinstance(known, np.ndarray):
            return rewriter.parameter(x.value.spec.dtype, f"{x.value.name} transposed", known.transpose(x.axes))
        return emit("transpose", [rewriter.value(x.value)], axes=x.axes)

    def number(array: Array, dtype: Any, name: str) -> Value:
        return rewriter.parameter(dtype, f"{op.name or op.kind}.{name}", np.asarray(array))

    def zero(x: _Quantised, name: str) -> Value:
        return number(x.zero, x.value.spec.dtype, name)

    def reshape(x: Value, shape: tuple[int, ...]) -> Value:
        return x if x.spec.shape == shape else emit("reshape", [x], shape=shape)

    a, b = put_in_order(made.a), put_in_order(made.b)
    if is_conv:
        a, b = reshape(a, _plane(a.spec.shape)), reshape(b, _plane(b.spec.shape))
    y = made.last.outputs[0]
    if made.written is not None:
        parts = _read(rewriter, made.written)
        assert parts is not None
        scale, offset = parts
        given: list[Value | None] = [
            *(a, number(made.a.scale, F32, "x_scale"), zero(made.a, "x_zero_point")),
            *(b, number(made.b.scale, F32, "w_scale"), zero(made.b, "w_zero_point")),
            *(number(scale, F32, "y_scale"), number(offset, y.spec.dtype, "y_zero_point")),
        ]
        if made.bias is not None:
            given.append(rewriter.value(made.bias))
        found = emit(f"qlinear_{kind}", given, **attrs)
        if made.relu is not None and float(offset) > (0 if y.spec.dtype is U8 else -128):
            found = emit("maximum", [found, number(offset, y.spec.dtype, "least")])
        rewriter.put(y, reshape(found, y.spec.shape))
        return
    zeros = [
        zero(x, name) if x.zero.any() else None for x, name in ((made.a, "x_zero_point"), (made.b, "w_zero_point"))
    ]
    given = [a, b, *zeros]
    while given[-1] is None:
        given.pop()
    sums = emit(f"{kind}_integer", given, **attrs)
    (wide,) = builder.emit("cast", [sums], dtypes={"T": F32}, name=op.name)
    factor = made.a.scale * made.b.scale * float(op.attrs.get("alpha", 1.0))
    if factor.ndim == 0:
        found = emit("scale", [wide], value=float(factor))
    else:
        shape = (-1, 1, 1) if is_conv else (-1,)
        found = emit("mul", [wide, number(factor.reshape(shape), F32, "scale")])
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    if bias is not None:
        found = emit("bias_add", [found, rewriter.value(bias)], axis=1 if is_conv else y.spec.ndim - 1)
    rewriter.put(y, reshape(found, y.spec.shape))
