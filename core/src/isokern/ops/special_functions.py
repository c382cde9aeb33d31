"""Special functions that the scalar language lacks: inverse of erf, log of gamma, digamma, all made of loop nests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Tolerance, declare
from ..declare.decomposition import Emitter, V, constant
from ..declare.elementwise import samples
from ..dtypes import F64, FLOATS, I32, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape

# Of the emitter and x in the compute type
Steps = Callable[[Emitter[V], V], V]

_FAR = 8.5  # from here on the asymptotic series has all digits of an F64


def _function(
    name: str, kind: str, steps: Steps[Any], reference: Callable[[Any], Any], doc: str, **fields: Any
) -> Operator:
    """Declare one function of x; `steps` emits it in the compute type."""

    def decompose(e: Emitter[V], inputs: Sequence[V], attrs: Any, outputs: Sequence[TensorDesc]) -> V:
        dtype = inputs[0].spec.dtype
        return e.cast(steps(e, e.cast(inputs[0], dtype.compute)), dtype)

    return declare(
        name,
        kind,
        "x: T[*d] -> y: T[*d]",
        {"T": FLOATS},
        family="elementwise",
        doc=doc,
        reference=reference,
        decompose=decompose,
        flops=lambda i, o: float(o[0].numel),
        samples=lambda: samples(["x"]),
        errors=[
            ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (4,)}),
            ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": I32}),
        ],
        **fields,
    )


def _horner(coefficients: Sequence[float], x: str, inner: str = "0") -> str:
    """Return the polynomial whose coefficients are given from the constant on; `inner` continues it."""
    text = inner
    for c in reversed(coefficients):
        text = f"({text} * {x} + {constant(c)})" if text != "0" else constant(c)
    return text


def _emit_series(e: Emitter[V], coefficients: Sequence[float], x: V) -> V:
    """Emit a polynomial by halves: a whole one of 29 terms is more than the code of a body holds."""
    middle = len(coefficients) // 2
    upper = e.pointwise(_horner(coefficients[middle:], "x0"), x)
    return e.pointwise(_horner(coefficients[:middle], "x0", "x1"), x, upper)


# The inverse of erf: a start (Winitzki 2008) and two steps of Halley's method, on erf near 0 and on erfc elsewhere
_START = (
    (
        "(abs(x0) * (0.8862269254527580 + 0.2320136665346545 * x0 * x0) if abs(x0) < 0.3 else"
        " sqrt(sqrt({k} * {k} - {l} / 0.147) - {k}))"
    )
    .replace("{k}", "(4.330746750799873 + {l} / 2)")
    .replace("{l}", "log((1 - abs(x0)) * (1 + abs(x0)))")
)
_EXCESS = "(erf(x1) - abs(x0) if abs(x0) < 0.5 else (1 - abs(x0)) - erfc(x1)) * exp(x1 * x1) * 0.8862269254527580"
_LAST = "(x0 / (1 - abs(x0)) if abs(x0) == 1 else copysign(x1 - x2 / (1 + x1 * x2), x0))"


def _emit_erfinv(e: Emitter[V], x: V) -> V:
    y = e.pointwise(_START, x)
    y = e.pointwise("x0 - x1 / (1 + x0 * x1)", y, e.pointwise(_EXCESS, x, y))
    return e.pointwise(_LAST, x, y, e.pointwise(_EXCESS, x, y))


def _find_erfinv(x: float) -> float:
    """Bisect erf, or erfc where erf has lost digits."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    a, low, high = abs(x), 0.0, 1.0 if abs(x) < 1e-3 else 6.0
    if a < 1e-9:
        return x * math.sqrt(math.pi) / 2
    while low < (middle := (low + high) / 2) < high:
        below = math.erf(middle) < a if a < 0.5 else math.erfc(middle) > 1 - a
        low, high = (middle, high) if below else (low, middle)
    return math.copysign(low, x)


_function(
    "erfinv",
    "ERFI",
    _emit_erfinv,
    np.vectorize(_find_erfinv, otypes=[np.float64]),
    "The y whose erf is x; ±infinity at ±1 and NaN beyond (Halley's method from the start of Winitzki 2008).",
    domains={"x": "unit"},
    tolerance=Tolerance(8),
)


# The logarithm of gamma and its derivative: the series around 2 (DLMF 5.7.3), which recurrences reach from [0, 8.5),
# Stirling's series above (DLMF 5.11.1), and the reflection below 0 (DLMF 5.5.3)
def _zeta_less_one(k: int) -> float:
    """Return ζ(k) - 1 by the first terms of Euler and Maclaurin's sum."""
    n = 300.0
    tail = n ** (1 - k) / (k - 1) - n**-k / 2 + k * n ** (-k - 1) / 12 - k * (k + 1) * (k + 2) * n ** (-k - 3) / 720
    return math.fsum([*(m**-k for m in range(2, int(n) + 1)), tail])


_EULER = 0.5772156649015329
_SERIES = [1 - _EULER, *((-1) ** k * _zeta_less_one(k) for k in range(2, 30))]
_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798]
_SQUARE = "(1 / (x0 * x0))"
_STIRLING = _horner([b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI, 1)], _SQUARE)
_SLOPE = _horner([b / (2 * n) for n, b in enumerate(_BERNOULLI, 1)], _SQUARE)
_FRACTION = "x0 - floor(x0 + 0.5)"  # of x in [0, 8.5), to the nearest whole number
_STEPS = range(2, 8)  # x - 1, …, x - 6 are at least 1.5 where x rounds to as much as the step


def _choose(zones: Sequence[tuple[str, str]], otherwise: str) -> str:
    for condition, text in reversed(zones):
        otherwise = f"({text} if {condition} else {otherwise})"
    return otherwise


def _emit_lgamma(e: Emitter[V], x: V) -> V:
    a = e.pointwise("abs(x0)", x)
    product = " * ".join(f"(x0 - {j - 1} if floor(x0 + 0.5) > {j} else 1)" for j in _STEPS)
    near = _emit_series(e, [0.0, *(c / k for k, c in enumerate(_SERIES, 1))], e.pointwise(_FRACTION, a))
    logs = _choose([("x0 < 0.5", "-log(x0 * (1 + x0))"), ("floor(x0 + 0.5) == 1", "-log(x0)")], "log(x2)")
    far = f"(x0 - 0.5) * (log(x0) - 1) + 0.4189385332046727 + {_STIRLING} / x0"
    y = e.pointwise(
        f"({far} if x0 >= {_FAR} else x1)", a, e.pointwise(f"x1 + {logs}", a, near, e.pointwise(product, a))
    )
    sine = "abs(sin(3.141592653589793 * (x0 - rint(x0))))"
    below = f"(1.1447298858494002 - log(-x0) - log({sine})) - x1"
    return e.pointwise(f"(x1 if x0 > -1e-20 or x1 == 1e999 else {below})", x, y)


def _emit_digamma(e: Emitter[V], x: V) -> V:
    a = e.pointwise("abs(x0)", x)
    near = _emit_series(e, _SERIES, e.pointwise(_FRACTION, a))
    terms = " + ".join(f"(1 / (x0 - {j - 1}) if floor(x0 + 0.5) > {j} else 0)" for j in _STEPS)
    steps = _choose([("x0 < 0.5", "-1 / (1 + x0)"), ("floor(x0 + 0.5) == 1", "-1 / x0")], "x2")
    far = f"log(x0) - 0.5 / x0 - {_SLOPE} * {_SQUARE}"
    y = e.pointwise(f"({far} if x0 >= {_FAR} else x1)", a, e.pointwise(f"x1 + {steps}", a, near, e.pointwise(terms, a)))
    fraction = "(x0 - rint(x0))"
    below = f"x1 - (1 / x0 if x0 <= -0.5 else 0) + 3.141592653589793 / tan(-3.141592653589793 * {fraction})"
    above = "x1 - (1 / x0 if x0 < 0.5 else 0)"
    return e.pointwise(f"({above} if x0 >= 0 else ((0 * 1e999) if {fraction} == 0 else {below}))", x, y)


def _find_lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (OverflowError, ValueError):  # a result past the largest number, or a pole
        return math.inf


def _find_digamma(x: float) -> float:
    """Go up to 30 by the recurrence, and from there by the asymptotic series."""
    if x == 0:
        return math.copysign(math.inf, -x)
    if not math.isfinite(x):
        return x if x > 0 else math.nan
    if x < 0:
        fraction = x - round(x)
        return _find_digamma(1 - x) - math.pi / math.tan(math.pi * fraction) if fraction else math.nan
    steps = range(max(0, math.ceil(30 - x)) if x < 30 else 0)
    top = x + len(steps)
    terms = [-b / (2 * n * top ** (2 * n)) for n, b in enumerate(_BERNOULLI[:6], 1)] if top < 1e20 else []
    return math.fsum([math.log(top), -0.5 / top, *terms, *(-1 / (x + k) for k in steps)])


def _sum_lgamma(x: Any, compute: DType) -> Any:
    """Return the magnitude of what cancels below 0, in units of one rounding.

    In F64 also what the reference is off by, which cancels near its roots at 1 and 2.
    """
    a = np.abs(x)
    with np.errstate(all="ignore"):
        parts = np.log(a), np.log(np.sin(np.pi * np.abs(x - np.rint(x)))), a * np.log(a), 1
        below = np.where(x < 0, 4 * sum(np.nan_to_num(np.abs(p), posinf=0.0) for p in parts), 0.0)
        return below + (16.0 if compute is F64 else 0.0)


def _sum_digamma(x: Any) -> Any:
    """Return the magnitude of what cancels at the roots, in units of one rounding."""
    a = np.abs(x)
    with np.errstate(all="ignore"):
        below = 1 / a, np.pi / np.tan(np.pi * np.abs(x - np.rint(x)))
        reflected = np.where(x < 0, sum(np.nan_to_num(np.abs(p), posinf=0.0) for p in below), 0.0)
        return 4 * (np.log(a + 1) + 1 + reflected)


_function(
    "lgamma",
    "LGAM",
    _emit_lgamma,
    np.vectorize(_find_lgamma, otypes=[np.float64]),
    "The logarithm of |gamma(x)|; infinity at 0 and at the negative whole numbers.",
    tolerance=Tolerance(8, _sum_lgamma),
)
_function(
    "digamma",
    "DGAM",
    _emit_digamma,
    np.vectorize(_find_digamma, otypes=[np.float64]),
    "The derivative of log gamma(x): ∓infinity at ±0, NaN at the negative whole numbers.",
    tolerance=Tolerance(8, _sum_digamma),
)
