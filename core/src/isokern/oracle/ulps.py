"""Errors in units in the last place, and exact values of functions of one number to measure them against."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..dtypes import DType
from ..status import DeviceNotAvailable
from .values import limits_of

Array = np.ndarray[Any, Any]
Exact = Callable[..., Any]  # of mpmath's numbers: x, then the attributes by name
DIGITS = 40  # decimal digits of exact values
FAR = -20000.0  # e to this power is smaller than a longdouble's smallest number


def ulp_errors(got: Array, exact: Array, dtype: DType) -> Array:
    """Return the distance of each result from its exact value, in units in the last place of the exact value.

    `got` has elements of `dtype`, `exact` is float64 or longdouble. Subnormal numbers have the unit of the smallest
    normal one. A correctly rounded result is at most 0.5 off. The distance is 0 where both are NaN or the same
    infinity, and where an exact value beyond the largest number became the infinity that it rounds to; it is infinite
    where one of the two alone is NaN or infinite.
    """
    limits = limits_of(dtype)
    largest = float(limits.max)
    with np.errstate(all="ignore"):
        exponent = np.where(exact == 0, limits.minexp, np.frexp(exact)[1] - 1)
        exponent = np.clip(exponent, limits.minexp, math.frexp(largest)[1] - 1)
        unit = np.ldexp(np.ones_like(exact), exponent - limits.nmant)
        wide = got.astype(exact.dtype)
        off = np.abs(wide - exact) / unit
        rounds_up = np.abs(exact) >= largest * (1 + float(limits.eps) / 4)
        right = (np.isnan(wide) & np.isnan(exact)) | (wide == exact)
        right |= np.isinf(wide) & rounds_up & (np.sign(wide) == np.sign(exact))
        found: Array = np.where(right, 0.0, np.where(np.isnan(off), np.inf, off)).astype(np.float64)
    return found


def load_mpmath() -> Any:
    """Return the module; raise DeviceNotAvailable, with what to install, where it is not there."""
    try:
        import mpmath
    except ImportError:
        raise DeviceNotAvailable(
            "accuracy", "mpmath is not installed", hint='pip install "isokern[accuracy]"'
        ) from None
    return mpmath


def exact_values(operator: str, attrs: Mapping[str, float], values: Iterable[float]) -> Array:
    """Return what an operator of one number gives for finite `values`, computed with 40 digits, as longdouble.

    Raises KeyError for an operator that has no exact function here.
    """
    mpmath = load_mpmath()
    with mpmath.workdps(DIGITS):
        function = exact_functions(mpmath)[operator]
        fixed = {name: mpmath.mpf(value) for name, value in attrs.items()}
        return np.array([_evaluate(mpmath, function, mpmath.mpf(float(x)), fixed) for x in values], np.longdouble)


def _evaluate(mpmath: Any, function: Exact, x: Any, attrs: Mapping[str, Any]) -> Any:
    try:
        found = function(x, **attrs)
    except (ValueError, ZeroDivisionError, OverflowError):
        return np.longdouble("nan")
    if isinstance(found, mpmath.mpc):  # outside the function's real domain
        return np.longdouble("nan")
    if not mpmath.isfinite(found):
        return np.longdouble(float(found))
    fraction, exponent = mpmath.frexp(found)
    high = float(fraction)
    low = float(fraction - high)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(np.longdouble(high) + np.longdouble(low), max(-40000, min(40000, int(exponent))))


def exact_functions(mp: Any) -> dict[str, Exact]:
    """Return the functions by operator, from mpmath's; they are the definitions, not the expressions of the rows."""

    def decay(x: Any) -> Any:  # e^x for x <= 0; far below 0 it is smaller than any dtype's smallest number
        return mp.exp(x) if x > FAR else mp.mpf(0)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + decay(-x)) if x >= 0 else decay(x) / (1 + decay(x))

    def softplus(x: Any) -> Any:
        return max(x, 0) + mp.log1p(decay(-abs(x)))

    def clamp(x: Any) -> Any:
        return min(max(x, mp.mpf(0)), mp.mpf(6))

    same: tuple[str, ...] = (
        "sqrt",
        "exp",
        "expm1",
        "log",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
    )
    same += ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc")
    own = {name: getattr(mp, name) for name in same}
    tanh_gelu = mp.sqrt(2 / mp.pi)
    return {
        **own,
        "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
        "square": lambda x: x * x,
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "reciprocal": lambda x: 1 / x,
        "exp2": lambda x: mp.power(2, x),
        "log2": lambda x: mp.log(x, 2),
        "sigmoid": sigmoid,
        "silu": lambda x: x * sigmoid(x),
        "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2 if x > FAR else mp.mpf(0),
        "gelu_tanh": lambda x: x * sigmoid(2 * tanh_gelu * (x + mp.mpf("0.044715") * x**3)),
        "softplus": softplus,
        "softsign": lambda x: x / (1 + abs(x)),
        "mish": lambda x: x * mp.tanh(softplus(x)),
        "hardsigmoid": lambda x: clamp(x + 3) / 6,
        "hardswish": lambda x: x * clamp(x + 3) / 6,
        "elu": lambda x, alpha: x if x > 0 else alpha * mp.expm1(x),
        "leaky_relu": lambda x, alpha: alpha * x if x < 0 else x,
    }
