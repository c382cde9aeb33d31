"""NumPy's own call for the operators where it has the same one; None where it has none, or not for these arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ops import Operator

Array = np.ndarray[Any, Any]
Call = Callable[[], object]
Attrs = Mapping[str, Any]

# operator → ufunc of the same inputs, called with out=
UFUNCS: dict[str, np.ufunc] = {
    "neg": np.negative, "abs": np.absolute, "sign": np.sign, "square": np.square, "sqrt": np.sqrt, "cbrt": np.cbrt, "reciprocal": np.reciprocal,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "logical_not": np.logical_not, "bitwise_not": np.invert,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floor_divide": np.floor_divide, "pow": np.power,
    "minimum": np.minimum, "maximum": np.maximum, "copysign": np.copysign,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "matmul": np.matmul,
}  # fmt: skip


def _gemm(ins: Sequence[Array], y: Array, attrs: Attrs) -> Call | None:
    plain = len(ins) == 2 and attrs["alpha"] == 1 and attrs["activation"] == "none"
    a, b = (ins[0].T if attrs["trans_a"] else ins[0]), (ins[1].T if attrs["trans_b"] else ins[1])
    return (lambda: np.matmul(a, b, out=y)) if plain else None


def _linear(ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    x, w = ins[0], ins[1].T
    if len(ins) == 2:
        return lambda: np.matmul(x, w, out=y)
    bias = ins[2]
    return lambda: np.add(np.matmul(x, w, out=y), bias, out=y)


def _reduction(function: Callable[..., Any]) -> Callable[[Sequence[Array], Array, Attrs], Call]:
    def peer(ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
        (x,), axes, keepdims = ins, tuple(attrs["axes"]) or None, attrs["keepdims"]
        return lambda: function(x, axis=axes, out=y, keepdims=keepdims)

    return peer


def _bias_add(ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    x, bias = ins
    lifted = bias.reshape(-1, *[1] * (x.ndim - attrs["axis"] % x.ndim - 1))
    return lambda: np.add(x, lifted, out=y)


def _pad(ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    (x,), value = ins, attrs["value"]
    width = list(zip(attrs["low"], attrs["high"], strict=True))
    return lambda: np.pad(x, width, constant_values=value)


def _slice(ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    (x,) = ins
    axes = attrs["axes"] or range(len(attrs["starts"]))
    steps = attrs["steps"] or [1] * len(attrs["starts"])
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, attrs["starts"], attrs["ends"], steps, strict=True):
        index[axis] = slice(start, end, step)
    view = x[tuple(index)]
    return lambda: np.copyto(y, view)


def _copy_slice(ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    count = attrs["count"]
    source, target = ins[0][attrs["x_offset"] :][:count], y[attrs["y_offset"] :][:count]
    return lambda: np.copyto(target, source)


# operator → maker of NumPy's call from (inputs, output, attributes)
OTHERS: dict[str, Callable[[Sequence[Array], Array, Attrs], Call | None]] = {
    "relu": lambda ins, y, attrs: lambda: np.maximum(ins[0], 0, out=y),
    "clip": lambda ins, y, attrs: lambda: np.clip(ins[0], attrs["min"], attrs["max"], out=y),
    "scale": lambda ins, y, attrs: lambda: np.multiply(ins[0], attrs["value"], out=y),
    "where": lambda ins, y, attrs: lambda: np.where(*ins),
    "bias_add": _bias_add,
    "gemm": _gemm,
    "linear": _linear,
    "reduce_sum": _reduction(np.sum),
    "reduce_mean": _reduction(np.mean),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "argmax": lambda ins, y, attrs: lambda: np.argmax(ins[0], axis=attrs["axis"], out=y, keepdims=attrs["keepdims"]),
    "cast": lambda ins, y, attrs: lambda: np.copyto(y, ins[0], casting="unsafe"),
    "copy": lambda ins, y, attrs: lambda: np.copyto(y, ins[0]),
    "rearrange": lambda ins, y, attrs: lambda: np.copyto(y, ins[0]),
    "flatten": lambda ins, y, attrs: lambda: np.copyto(y, ins[0].reshape(y.shape)),
    "slice": _slice,
    "copy_slice": _copy_slice,
    "fill": lambda ins, y, attrs: lambda: y.fill(attrs["value"]),
    "pad": _pad,
    "concat": lambda ins, y, attrs: lambda: np.concatenate(ins, axis=attrs["axis"], out=y),
    "gather": lambda ins, y, attrs: lambda: np.take(ins[0], ins[1], axis=attrs["axis"], out=y, mode="wrap"),
}


def numpy_call(op: Operator, inputs: Sequence[Array], output: Array, attrs: Attrs) -> Call | None:
    """NumPy's call for the same work into `output`, tried once; None where NumPy has none or refuses the dtype."""
    if op.name in UFUNCS:
        ufunc = UFUNCS[op.name]
        call: Call | None = lambda: ufunc(*inputs, out=output)  # noqa: E731  # the same form as in OTHERS
    else:
        call = OTHERS[op.name](inputs, output, attrs) if op.name in OTHERS else None
    if call is None:
        return None
    try:
        with np.errstate(all="ignore"):
            call()
    except TypeError:  # NumPy's answer to a dtype that its function has no loop for
        return None
    return call
