"""PyTorch's elementwise functions, activations and losses, made of our operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_rows import FLOATS, Elsewhere, Row, extremes, ik, wide

UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil cosh deg2rad digamma erf erfc erfinv exp exp2 expm1
    floor frac isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not neg rad2deg reciprocal
    rsqrt sigmoid signbit sinc sinh sqrt square tanh trunc"""
FUNCTIONAL = "hardsigmoid relu relu6 selu tanhshrink"
BINARY = """copysign fmax fmin hypot logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum mul
    pow xlogy bitwise_and bitwise_or bitwise_xor"""
RENAMED = {
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "max.binary": "maximum",
    "min.binary": "minimum",
    "ne": "not_equal",
    "special.xlog1py": "xlog1py",
    "div.no_rounding_mode": "div",
}


def same(name: str) -> Callable[..., Any]:
    return lambda *given: getattr(ik, name)(*given)


def scaled(x: Any, alpha: float) -> Any:
    """Return alpha · x in x's type, in which PyTorch's alpha of integers wraps."""
    if x.dtype.kind == "u":
        alpha %= 256**x.dtype.itemsize
    return x if alpha == 1 else ik.mul(x, alpha)


def divide(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    return {None: ik.div, "floor": ik.floor_divide, "trunc": ik.trunc_divide}[rounding_mode](x, y)


def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    if any(limit is not None and limit.dtype is not x.dtype for limit in (min, max)):
        raise Elsewhere("limits of another type")
    x = x if min is None else ik.maximum(x, min)
    return x if max is None else ik.minimum(x, max)


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    found = ik.isclose(a, b, rtol=rtol, atol=atol)
    return ik.logical_or(found, ik.logical_and(ik.isnan(a), ik.isnan(b))) if equal_nan else found


def nan_to_num(x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    most = float(np.finfo(x.dtype.numpy).max)
    return ik.nan_to_num(
        x, nan=nan or 0.0, posinf=most if posinf is None else posinf, neginf=-most if neginf is None else neginf
    )


def logit(x: Any, eps: float | None = None) -> Any:
    return ik.logit(x if eps is None else ik.clip(x, min=eps, max=1 - eps))


def softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    """PyTorch's is βx, and so not smooth, where βx is above the threshold; ours has none."""
    if threshold < 20:
        raise Elsewhere("the identity above a threshold")
    return ik.softplus(x) if beta == 1 else ik.div_scalar(ik.softplus(ik.scale(x, value=beta)), value=beta)


def prelu(x: Any, weight: Any) -> Any:
    """PyTorch's slopes are those of channels, axis 1; ours broadcast."""
    channels = weight.shape[0] if weight.ndim else 1
    shape = (channels, *(1,) * (x.ndim - 2)) if x.ndim > 1 else (channels,) if x.ndim else ()
    return ik.prelu(x, ik.reshape(weight, shape=shape))


def rrelu(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Any:
    if training:
        raise Elsewhere("random slopes")
    return ik.leaky_relu(x, alpha=(lower + upper) / 2)


def glu(x: Any, dim: int = -1) -> Any:
    half = x.shape[dim] // 2
    value, gate = (ik.slice(x, starts=(i,), ends=(i + half,), axes=(dim,)) for i in (0, half))
    return ik.sigmoid_mul(gate, value)


def hardshrink(x: Any, lambd: float = 0.5) -> Any:
    if lambd < 0:
        raise Elsewhere("a threshold below 0")
    return ik.hardshrink(x, lambd=lambd)


def reverse_sub(x: Any, y: Any, alpha: float = 1) -> Any:
    y = y if hasattr(y, "dtype") else ik.fill(value=y, shape=x.shape, dtype=x.dtype)
    return ik.sub(y, scaled(x, alpha))


UNARIES = [
    *(Row(name, name, same(name), special=1, inputs=extremes(1)) for name in UNARY.split()),
    *(Row(f"nn.functional.{name}", name, same(name), special=1) for name in FUNCTIONAL.split()),
    *(Row(f"nn.functional.{name}", name, same(name), special=1, apart=(-math.inf,)) for name in ("mish", "silu")),
    Row("nn.functional.hardswish", "hardswish", lambda x: ik.hardswish(x), special=1, apart=(-math.inf, 1e38)),
    Row("nn.functional.softsign", "softsign", lambda x: ik.softsign(x), special=1, apart=(math.inf, -math.inf)),
    *(Row(name, name, same(name), special=1, apart=(1e38, -1e38)) for name in ("cos", "sin", "tan")),
    Row("sign", "sign", lambda x: ik.sign(x), special=1, apart=(math.nan,)),
    Row("positive", "copy", lambda x: ik.copy(x), special=1),
    Row("special.entr", "entr", lambda x: ik.entr(x), special=1),
    Row("round", "round", lambda x: ik.round(x), special=1),
    Row("nan_to_num", "nan_to_num", nan_to_num, special=1),
    Row("logit", "logit", logit, special=1),
    Row("nn.functional.logsigmoid", "log_sigmoid", lambda x: ik.log_sigmoid(x), special=1),
    Row(
        "nn.functional.gelu",
        "gelu gelu_tanh",
        lambda x, approximate="none": ik.gelu(x) if approximate == "none" else ik.gelu_tanh(x),
        special=1,
        apart=(-math.inf, math.inf),  # at ∞ PyTorch's vectorised F32 is NaN, its scalar code ∞
    ),
    Row("nn.functional.celu", "celu", lambda x, alpha=1.0, inplace=False: ik.celu(x, alpha=alpha), special=1),
    Row("nn.functional.elu", "elu", lambda x, alpha=1.0, inplace=False: ik.elu(x, alpha=alpha), special=1),
    Row(
        "nn.functional.leaky_relu",
        "leaky_relu",
        lambda x, negative_slope=0.01, inplace=False: ik.leaky_relu(x, alpha=negative_slope),
        special=1,
    ),
    Row(
        "nn.functional.hardtanh",
        "hardtanh",
        lambda x, min_val=-1.0, max_val=1.0, inplace=False: ik.hardtanh(x, min=min_val, max=max_val),
        dtypes=FLOATS,
        special=1,
    ),
    Row("nn.functional.hardshrink", "hardshrink", hardshrink, share=0.8, special=1),
    Row("nn.functional.softshrink", "softshrink", lambda x, lambd=0.5: ik.softshrink(x, lambd=lambd), special=1),
    Row(
        "nn.functional.threshold",
        "threshold",
        lambda x, threshold, value, inplace=False: ik.threshold(x, threshold=threshold, value=value),
        dtypes=FLOATS,
    ),
    Row("nn.functional.softplus", "softplus", softplus, share=0.2, slack=100, special=1),
    Row("nn.functional.prelu", "prelu", prelu),
    Row("nn.functional.rrelu", "leaky_relu", rrelu, share=0.4),
    Row("nn.functional.glu", "sigmoid_mul", glu),
    *(
        Row(name, "cast", lambda x, memory_format=None, to=to: ik.cast(x, dtype=to))
        for name, to in {
            "bool": "BOOL",
            "byte": "U8",
            "char": "I8",
            "double": "F64",
            "float": "F32",
            "int": "I32",
            "long": "I64",
            "short": "I16",
        }.items()
    ),
]

BINARIES = [
    *(Row(name, name, same(name), special=2, inputs=extremes(2)) for name in BINARY.split()),
    *(Row(name, ours, same(ours), special=2, inputs=extremes(2)) for name, ours in RENAMED.items()),
    Row("add", "add", lambda x, y, alpha=1: ik.add(x, scaled(y, alpha)), special=2, inputs=extremes(2)),
    Row("sub", "sub", lambda x, y, alpha=1: ik.sub(x, scaled(y, alpha)), special=2, inputs=extremes(2)),
    Row("rsub", "sub", reverse_sub),
    # Of a divisor below the normal numbers PyTorch's vectorised F32 makes NaN, its scalar code what we have
    *(
        Row(name, name, same(name), special=2, apart=(1e-40,), inputs=extremes(2, divisor=True))
        for name in ("fmod", "remainder")
    ),
    Row("heaviside", "heaviside", lambda x, y: ik.heaviside(x, y), special=2, apart=(math.nan,)),
    Row("float_power", "pow", lambda x, y: ik.pow(wide(x, "F64"), wide(y, "F64")), dtypes=FLOATS),
    Row("true_divide", "div", lambda x, y: ik.div(x, y), special=2),
    Row("div.floor_rounding", "floor_divide", divide, inputs=extremes(2, divisor=True, rounding_mode="floor")),
    Row("div.trunc_rounding", "trunc_divide", divide, inputs=extremes(2, divisor=True, rounding_mode="trunc")),
    Row("floor_divide", "floor_divide", lambda x, y: ik.floor_divide(x, y)),
    Row("isclose", "isclose", isclose, special=2),
    Row("clamp", "maximum minimum", clamp, share=0.7),
    Row("clamp_max", "minimum", lambda x, y: ik.minimum(x, y), special=2),
    Row("clamp_min", "maximum", lambda x, y: ik.maximum(x, y), special=2),
    Row("lerp", "lerp", lambda a, b, weight: ik.lerp(a, b, weight)),
    Row("addcmul", "addcmul", lambda x, a, b, value=1: ik.addcmul(x, a, b, value=value)),
    Row("addcdiv", "addcdiv", lambda x, a, b, value=1: ik.addcdiv(x, a, b, value=value)),
    Row("where", "where", lambda a, c, b: ik.where(c, a, b)),
]

ROWS = [*UNARIES, *BINARIES]
