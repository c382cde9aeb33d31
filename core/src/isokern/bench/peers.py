"""NumPy as a peer of an operator, where it has the same one.

Libraries that have NumPy's functions for their own arrays share its table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..backend import Peer
from ..declare.operator import Operator
from ..tensors import Tensor

Array = Any  # of NumPy, or of a library like it
Call = Callable[[], object]
Attrs = Mapping[str, Any]

# operator → function of the same inputs, called with out=
UFUNCS: dict[str, str] = {
    "neg": "negative", "abs": "absolute", "sign": "sign", "square": "square", "sqrt": "sqrt", "cbrt": "cbrt",
    "reciprocal": "reciprocal",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint",
    "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite", "logical_not": "logical_not", "bitwise_not": "invert",
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "floor_divide": "floor_divide", "pow": "power",
    "minimum": "minimum", "maximum": "maximum", "copysign": "copysign",
    "equal": "equal", "not_equal": "not_equal", "less": "less", "less_equal": "less_equal",
    "greater": "greater", "greater_equal": "greater_equal",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "matmul": "matmul",
}  # fmt: skip


def _gemm(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call | None:
    plain = len(ins) == 2 and attrs["alpha"] == 1 and attrs["activation"] == "none"
    a = xp.swapaxes(ins[0], -1, -2) if attrs["trans_a"] else ins[0]
    b = xp.swapaxes(ins[1], -1, -2) if attrs["trans_b"] else ins[1]
    return (lambda: xp.matmul(a, b, out=y)) if plain else None


def _linear(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    x, w = ins[0], ins[1].T
    if len(ins) == 2:
        return lambda: xp.matmul(x, w, out=y)
    bias = ins[2]
    return lambda: xp.add(xp.matmul(x, w, out=y), bias, out=y)


def _reduction(name: str) -> Callable[[Any, Sequence[Array], Array, Attrs], Call]:
    def peer(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
        (x,), axes, keepdims = ins, tuple(attrs["axes"]) or None, attrs["keepdims"]
        function = getattr(xp, name)
        return lambda: function(x, axis=axes, out=y, keepdims=keepdims)

    return peer


def _bias_add(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    x, bias = ins
    lifted = bias.reshape(-1, *[1] * (x.ndim - attrs["axis"] % x.ndim - 1))
    return lambda: xp.add(x, lifted, out=y)


def _pad(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    (x,), value = ins, attrs["value"]
    width = list(zip(attrs["low"], attrs["high"], strict=True))
    return lambda: xp.pad(x, width, constant_values=value)


def _slice(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    (x,) = ins
    axes = attrs["axes"] or range(len(attrs["starts"]))
    steps = attrs["steps"] or [1] * len(attrs["starts"])
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, attrs["starts"], attrs["ends"], steps, strict=True):
        index[axis] = slice(start, end, step)
    view = x[tuple(index)]
    return lambda: xp.copyto(y, view)


def _copy_slice(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    count = attrs["count"]
    source, target = ins[0][attrs["x_offset"] :][:count], y[attrs["y_offset"] :][:count]
    return lambda: xp.copyto(target, source)


def _gather(xp: Any, ins: Sequence[Array], y: Array, attrs: Attrs) -> Call:
    wrap = {"mode": "wrap"} if xp is np else {}  # CuPy always wraps
    return lambda: xp.take(ins[0], ins[1], axis=attrs["axis"], out=y, **wrap)


# operator → maker of the call from (NumPy or a library like it, inputs, output, attributes)
OTHERS: dict[str, Callable[[Any, Sequence[Array], Array, Attrs], Call | None]] = {
    "relu": lambda xp, ins, y, attrs: lambda: xp.maximum(ins[0], 0, out=y),
    "clip": lambda xp, ins, y, attrs: lambda: xp.clip(ins[0], attrs["min"], attrs["max"], out=y),
    "scale": lambda xp, ins, y, attrs: lambda: xp.multiply(ins[0], attrs["value"], out=y),
    "where": lambda xp, ins, y, attrs: lambda: xp.where(*ins),
    "bias_add": _bias_add,
    "gemm": _gemm,
    "linear": _linear,
    "reduce_sum": _reduction("sum"),
    "reduce_mean": _reduction("mean"),
    "reduce_max": _reduction("max"),
    "reduce_min": _reduction("min"),
    "argmax": lambda xp, ins, y, attrs: (
        lambda: xp.argmax(ins[0], axis=attrs["axis"], out=y, keepdims=attrs["keepdims"])
    ),
    "cast": lambda xp, ins, y, attrs: lambda: xp.copyto(y, ins[0], casting="unsafe"),
    "copy": lambda xp, ins, y, attrs: lambda: xp.copyto(y, ins[0]),
    "rearrange": lambda xp, ins, y, attrs: lambda: xp.copyto(y, ins[0]),
    "flatten": lambda xp, ins, y, attrs: lambda: xp.copyto(y, ins[0].reshape(y.shape)),
    "slice": _slice,
    "copy_slice": _copy_slice,
    "fill": lambda xp, ins, y, attrs: lambda: y.fill(attrs["value"]),
    "pad": _pad,
    "concat": lambda xp, ins, y, attrs: lambda: xp.concatenate(ins, axis=attrs["axis"], out=y),
    "gather": _gather,
}


def array_call(
    xp: Any, op: Operator, inputs: Sequence[Array], output: Array, attrs: Attrs
) -> tuple[Call, Array] | None:
    """Return the call of `xp` for the same work, and what it computed when called once.

    `xp` is NumPy, or a library with its functions. None where the library has no such call, or refuses the dtype.
    """
    if op.name in UFUNCS:
        function = getattr(xp, UFUNCS[op.name])
        call: Call | None = lambda: function(*inputs, out=output)  # noqa: E731  # the same form as in OTHERS
    else:
        call = OTHERS[op.name](xp, inputs, output, attrs) if op.name in OTHERS else None
    if call is None:
        return None
    try:
        with np.errstate(all="ignore"):
            returned = call()
    except TypeError:  # the function has no loop for this dtype
        return None
    return call, output if returned is None else returned


class NumPy(Peer):
    """NumPy on the host, on the tensors themselves where they are in host memory."""

    name = "numpy"

    def make(
        self, op: Operator, inputs: Sequence[Tensor], output: Tensor, attrs: Attrs
    ) -> tuple[Call, np.ndarray[Any, Any]] | None:
        """Return a call by `array_call`, into an array of its own."""
        return array_call(np, op, [t.numpy() for t in inputs], np.zeros(output.shape, output.dtype.numpy), attrs)
