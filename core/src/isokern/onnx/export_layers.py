"""Products, convolutions, norms and pools as nodes of ONNX, epilogues behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..dtypes import F32
from ..graph.ir import Op
from ..ops.conv2d import pair, sides
from .elements import name_of
from .export_nodes import NodeWriter, activate, each, refuse
from .library import proto

Row = Callable[[NodeWriter, Op], str | Sequence[str]]


def convolution(dims: int, transposed: bool = False) -> Row:
    """Return the row of a convolution of planes of so many dims."""

    def row(w: NodeWriter, op: Op) -> str:
        a = op.attrs
        if dims == 1 and not transposed:
            low, high = a["padding"], a["padding"] if a["end_padding"] < 0 else a["end_padding"]
            steps, pads = {"strides": [a["stride"]], "dilations": [a["dilation"]]}, [low, high]
        else:
            steps = {f"{n}s": each(a[n], dims) for n in ("stride", "dilation")}
            given = a["padding"]
            pads = list(sides(op.kind, given)) if dims == 2 else _pads(given, dims)
        more = {"output_padding": each(a["output_padding"], dims)} if transposed else {}
        if any(p >= s and p > 0 for p, s in zip(more.get("output_padding", []), steps["strides"], strict=False)):
            raise refuse(op, "an output_padding that is no less than the stride")
        kind = "ConvTranspose" if transposed else "Conv"
        y = w.add(kind, *w.names(op.inputs[:3]), pads=pads, group=a["groups"], **steps, **more)
        if len(op.inputs) > 3:
            y = w.add("Add", y, w.name(op.inputs[3]))
        return activate(w, op, y)

    return row


def _pads(given: Sequence[int], dims: int) -> list[int]:
    return list(given) if len(given) == 2 * dims else each(given, dims) * 2


def linear(w: NodeWriter, op: Op) -> str:
    """Return x wᵀ + bias; Gemm has it for matrices."""
    x, weight, bias = [*w.names(op.inputs), ""][:3]
    if op.outputs[0].spec.ndim == 2:
        return w.add("Gemm", x, weight, bias, transB=1)
    y = w.add("MatMul", x, w.add("Transpose", weight, perm=[1, 0]))
    return w.add("Add", y, bias) if bias else y


def gemm(w: NodeWriter, op: Op) -> str:
    """Return activation(alpha · op(a) op(b) + beta · c + bias)."""
    attrs, y = op.attrs, op.outputs[0]
    operands = []
    for value, turned in zip(op.inputs[:2], (attrs["trans_a"], attrs["trans_b"]), strict=True):
        assert value is not None
        rank = value.spec.ndim
        name = w.name(value)
        operands.append(w.add("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2]) if turned else name)
    found = w.add("MatMul", *operands)
    if attrs["alpha"] != 1:
        found = w.add("Mul", found, w.number(attrs["alpha"], y))
    bias, c = [*w.names(op.inputs[2:]), "", ""][:2]
    if c and attrs["beta"]:
        found = w.add("Add", found, c if attrs["beta"] == 1 else w.add("Mul", c, w.number(attrs["beta"], y)))
    return activate(w, op, w.add("Add", found, bias) if bias else found)


def of_columns(kind: str, *of_rows: int) -> Row:
    """Return the row of a product of integers, of which nobody runs scales and zero points of each row."""

    def row(w: NodeWriter, op: Op) -> str:
        if any(v is not None and v.spec.numel > 1 for v in (op.inputs[n] for n in of_rows if n < len(op.inputs))):
            raise refuse(op, "a scale or a zero point for each row")
        return w.add(kind, *w.names(op.inputs))

    return row


def batch_norm(w: NodeWriter, op: Op) -> str:
    """Normalise channels by given moments."""
    x, mean, var, *rest = op.inputs
    assert mean is not None
    scale, bias = [*rest, None, None][:2]
    count = mean.spec.shape
    names = [w.name(v) or w.constant(np.full(count, n), mean.spec.dtype) for v, n in ((scale, 1), (bias, 0))]
    return w.add("BatchNormalization", w.name(x), *names, w.name(mean), w.name(var), epsilon=op.attrs["eps"])


def with_weights(kind: str, over_channels: bool, **attrs: str) -> Row:
    """Return the row of a norm whose node must have weights; the last dim's or the channels'."""

    def row(w: NodeWriter, op: Op) -> str:
        y = op.outputs[0].spec
        count = y.shape[1 if over_channels else -1]
        scale, bias = [*op.inputs[1:], None, None][:2]
        names = [w.name(v) or w.constant(np.full(count, n), y.dtype) for v, n in ((scale, 1), (bias, 0))]
        found = {theirs: op.attrs[ours] for theirs, ours in attrs.items()}
        return w.add(kind, w.name(op.inputs[0]), *names, **found)

    return row


def rms_norm(w: NodeWriter, op: Op) -> str:
    """Divide by the root of the mean square, in F32 as ours is."""
    y, scale = op.outputs[0], w.name(op.inputs[1]) if len(op.inputs) > 1 else ""
    narrow = y.spec.dtype.itemsize < 4
    x = w.add("Cast", w.name(op.inputs[0]), to=proto.TensorProto.FLOAT) if narrow else w.name(op.inputs[0])
    eps = w.constant(np.asarray(op.attrs["eps"]), F32 if narrow else y.spec.dtype)
    mean = w.add("ReduceMean", w.add("Mul", x, x), w.integers([-1]), keepdims=1)
    found = w.add("Div", x, w.add("Sqrt", w.add("Add", mean, eps)))
    found = w.add("Cast", found, to=type_of(op)) if narrow else found
    return w.add("Mul", found, scale) if scale else found


def type_of(op: Op) -> int:
    """Return ONNX's number of the type of a result."""
    return int(getattr(proto.TensorProto, name_of(op.outputs[0].spec.dtype)))


def pool(kind: str) -> Row:
    """Return the row of a pool of planes of two dims."""

    def row(w: NodeWriter, op: Op) -> str:
        kernel = pair(op.kind, "kernel", op.attrs["kernel"])
        steps = {
            "strides": pair(op.kind, "stride", op.attrs["stride"] or kernel),
            "dilations": pair(op.kind, "dilation", op.attrs["dilation"]),
        }
        more = {"count_include_pad": int(op.attrs["count_include_pad"])} if kind == "AveragePool" else {}
        pads = sides(op.kind, op.attrs["padding"])
        return w.add(kind, w.name(op.inputs[0]), kernel_shape=kernel, pads=pads, **steps, **more)

    return row


def adaptive_pool(w: NodeWriter, op: Op) -> str:
    """Average windows that divide the plane evenly; others have no counterpart."""
    x, y = op.inputs[0], op.outputs[0].spec.shape
    assert x is not None
    dims = x.spec.shape
    if any(d == 0 or d % e for d, e in zip(dims[2:], y[2:], strict=True)):
        raise refuse(op, f"windows of different sizes: {list(dims[2:])} to {list(y[2:])}")
    if math.prod(y[2:]) == 1:
        return w.add("GlobalAveragePool", w.name(x))
    kernel = [d // e for d, e in zip(dims[2:], y[2:], strict=True)]
    return w.add("AveragePool", w.name(x), kernel_shape=kernel, strides=kernel)
