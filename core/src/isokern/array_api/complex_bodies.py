"""Bodies of elementwise functions of complex numbers: expressions of the real and imaginary parts x, y (and u, v).

Values at zeros, infinities, NaN and branch cuts are those of the standard, which are C99's (Annex G). The sources are
Kahan, "Branch cuts for complex elementary functions" (1987), for inverse functions, tanh and sqrt, and Smith's division
(1962) with the larger part of the divisor as the scale, so that nothing overflows whose result does not.
"""

from __future__ import annotations

import math
import re

from ..ops.arithmetic import ATAN2

Bodies = tuple[str, str]  # of the real and the imaginary part

_HALF_PI = repr(math.pi / 2)
_FAR = "(abs(x) == 1e999 or abs(y) == 1e999)"
_WILD = "y - y != 0"  # y is infinite or NaN
_M, _N = "maximum(abs(x), abs(y))", "minimum(abs(x), abs(y))"


def _choose(*cases: str) -> str:
    """Return the body that is the value of the first true one of (condition, value) pairs, or the last value.

    Such a chain holds one value for each condition on the stack; the other way round, it would hold two.
    """
    *pairs, chosen = cases
    for at in range(len(pairs) - 2, -1, -2):
        chosen = f"({chosen} if not ({pairs[at]}) else {pairs[at + 1]})"
    return chosen


def _rename(body: str, **names: str) -> str:
    """Return a body with other inputs."""
    return re.sub(rf"\b({'|'.join(names)})\b", lambda name: names[name[0]], body)


def _atan2(a: str, b: str) -> str:
    """Return the body of the operator `atan2` for two bodies."""
    return f"({_rename(ATAN2, a=f'({a})', b=f'({b})')})"


def swap(bodies: Bodies) -> Bodies:
    """Return f with f(x + iy) = u + iv where the given g(y + ix) = v + iu, as sin is of sinh."""
    real, imag = (_rename(body, x="y", y="x") for body in bodies)
    return imag, real


# e^x is a product of two, either of which is finite where a part of the result is
_E, _H = "exp(0.5 * x)", "exp(0.5 * abs(x))"
EXP: Bodies = (
    _choose(f"x == 1e999 and {_WILD}", "x", f"x == -1e999 and {_WILD}", "0", f"{_E} * cos(y) * {_E}"),
    _choose("y == 0", "y", f"x == -1e999 and {_WILD}", "0", f"{_E} * sin(y) * {_E}"),
)
_EXPM1: Bodies = (
    # (e^x - 1) cos(y) - (1 - cos(y)) cancels nothing where x is small; adding 0 makes 0 of -0
    _choose("abs(x) > 1", f"{EXP[0]} - 1", "expm1(x) * cos(y) - sin(0.5 * y) * sin(0.5 * y) * 2 + 0"),
    EXP[1],
)
_SINH: Bodies = (
    _choose(
        f"(x == 0 or abs(x) == 1e999) and {_WILD}",
        "x",
        "abs(x) > 40",
        f"{_H} * cos(y) * copysign(0.5, x) * {_H}",
        "sinh(x) * cos(y)",
    ),
    _choose("y == 0", "y", "abs(x) > 40", f"{_H} * sin(y) * 0.5 * {_H}", "cosh(x) * sin(y)"),
)
_COSH: Bodies = (
    _choose(f"abs(x) == 1e999 and {_WILD}", "abs(x)", "abs(x) > 40", f"{_H} * cos(y) * 0.5 * {_H}", "cosh(x) * cos(y)"),
    _choose(
        "y == 0",
        "copysign(1, x) * y",
        f"x == 0 and {_WILD}",
        "x",
        "abs(x) > 40",
        f"{_H} * sin(y) * copysign(0.5, x) * {_H}",
        "sinh(x) * sin(y)",
    ),
)
_COS = swap(_COSH)
_S, _B = "sinh(x)", "(tan(y) * tan(y) + 1)"
_T = f"({_B} * {_S} * {_S} + 1)"
_TANH: Bodies = (
    _choose(
        "x == 0",
        "x",
        f"abs(x) > 20 and not ({_WILD} and abs(x) != 1e999)",
        "copysign(1, x)",
        f"sqrt({_S} * {_S} + 1) * {_B} * {_S} / {_T}",
    ),
    _choose(
        "y == 0",
        "y",
        "abs(x) == 1e999",
        "copysign(0, y)",
        "abs(x) > 20",
        "sin(y) * cos(y) * 4 * exp(-2 * abs(x))",
        f"tan(y) / {_T}",
    ),
)


def _write_quotient(x: str, y: str) -> Bodies:
    """Return the bodies of (x + iy) / (u + iv), which first divide by the larger part of the divisor.

    By an infinity a finite number is 0, and by 0 a number is infinite.
    """
    m = "maximum(abs(u), abs(v))"
    a, b = (_choose(f"{m} == 1e999", f"copysign(1 if abs({w}) == 1e999 else 0, {w})", f"{w} / {m}") for w in "uv")
    size = f"({a} * {a} + {b} * {b})"
    return (
        _choose(f"{m} == 0", f"{x} / u", f"({x} / {m} * {a} + {y} / {m} * {b}) / {size}"),
        _choose(f"{m} == 0", f"{y} / u", f"({y} / {m} * {a} - {x} / {m} * {b}) / {size}"),
    )


_INVERSE = _write_quotient("1", "0")
_SIGN = _choose(f"{_M} == 0", "0", f"x / {_M} / sqrt({_N} / {_M} * ({_N} / {_M}) + 1)")


def _write_log(x: str, log: str, factor: float) -> str:
    """Return the body of the logarithm of the magnitude of a number whose real part is a body."""
    m, n = f"maximum(abs({x}), abs(y))", f"minimum(abs({x}), abs(y))"
    half, scale = repr(0.5 * factor), "" if factor == 1 else f" * {factor!r}"
    return _choose(
        f"abs({x}) == 1e999 or abs(y) == 1e999",
        "1e999",
        f"{n} == 0",
        f"{log}({m})",
        f"log1p({n} / {m} * ({n} / {m})) * {half} + log({m}){scale}",
    )


def _declare_log(log: str, factor: float = 1.0) -> Bodies:
    angle = _atan2("y", "x")
    return _write_log("x", log, factor), angle if factor == 1 else f"{angle} * {factor!r}"


_LOG1P: Bodies = (
    _choose(
        "abs(x) < 0.5 and abs(y) < 0.5",
        "log1p((x + 2) * x + y * y) * 0.5",
        _write_log("(x + 1)", "log", 1.0),
    ),
    _atan2("y", "x + 1"),
)

# With u = √((|x| + |z|) / 2), which is the root's larger part
ROOT = _choose(
    f"{_M} == 0 or {_M} == 1e999",
    _M,
    f"sqrt((sqrt({_N} / {_M} * ({_N} / {_M}) + 1) + abs(x) / {_M}) * 0.5) * sqrt({_M})",
)
SQRT: Bodies = (
    _choose("abs(y) == 1e999 or x == 1e999", "1e999", "x < 0 and u != 0", "abs(y) / (u + u)", "u"),
    _choose("abs(y) == 1e999 or u == 0", "y", "x < 0", "copysign(-x if x == -1e999 else u, y)", "y / (u + u)"),
)

_HUGE = f"{_M} > 1e16"  # where 1 is nothing beside the square of the larger part
_LOG_DOUBLE = f"log1p({_N} / {_M} * ({_N} / {_M})) * 0.5 + log({_M}) + {math.log(2)!r}"  # of 2|z|

# With u + iv = √(1 - z) and p + iq = √(1 + z); where the root of 1 - z² is ±iz, its parts are those of z
ASIN: Bodies = (
    _choose("x == 0", "x", _atan2("x", _choose(f"{_FAR} or {_HUGE}", "abs(y)", "u * p - v * q"))),
    _choose(_FAR, "copysign(1e999, y)", _HUGE, f"copysign({_LOG_DOUBLE}, y)", "asinh(u * q - v * p)"),
)
ACOS: Bodies = (
    _choose(
        "x == 0",
        _HALF_PI,
        _atan2(*(_choose(f"{_FAR} or {_HUGE}", far, near) for far, near in (("abs(y)", "u"), ("x", "p"))))
        + f" * (1 if {_FAR} or {_HUGE} else 2)",
    ),
    _choose(_FAR, "-copysign(1e999, y)", _HUGE, f"-copysign({_LOG_DOUBLE}, y)", "asinh(p * v - q * u)"),
)
ACOSH: Bodies = f"abs({ACOS[1]})", f"copysign({ACOS[0]}, y)"
ATANH: Bodies = (
    _choose(
        _FAR,
        "copysign(0, x)",
        "x == 0",
        "x",
        _HUGE,
        f"x / {_M} / {_M} / ({_N} / {_M} * ({_N} / {_M}) + 1)",
        "abs(x) == 1 and abs(y) < 1e-10",
        "copysign(log(2 / abs(y)) * 0.5, x)",
        "copysign(log1p(abs(x) / ((1 - abs(x)) * (1 - abs(x)) + y * y) * 4) * 0.25, x)",
    ),
    _choose(
        f"{_FAR} or {_HUGE}",
        f"(y if y != y else copysign({_HALF_PI}, y))",
        f"{_atan2('2 * y', '(1 - abs(x)) * (1 + abs(x)) - y * y')} * 0.5",
    ),
)

# e^(w log z), with the logarithm in x, y and the exponent w in u, v; z^0 is 1
PRODUCT: Bodies = ("u * x - v * y", "u * y + v * x")
POWER: Bodies = tuple(_choose("u == 0 and v == 0", one, body) for one, body in zip("10", EXP, strict=True))  # type: ignore[assignment]

UNARY: dict[str, Bodies] = {
    "atanh": ATANH,
    "conj": ("x", "-y"),
    "cos": (_COS[1], f"-{_COS[0]}"),
    "cosh": _COSH,
    "exp": EXP,
    "expm1": _EXPM1,
    "log": _declare_log("log"),
    "log10": _declare_log("log10", 1 / math.log(10)),
    "log1p": _LOG1P,
    "log2": _declare_log("log2", 1 / math.log(2)),
    "reciprocal": (_rename(_INVERSE[0], u="x", v="y"), _rename(_INVERSE[1], u="x", v="y")),
    "sign": (_SIGN, swap((_SIGN, ""))[1]),
    "sin": swap(_SINH),
    "sinh": _SINH,
    "square": ("(x - y) * (x + y)", "x * y + x * y"),
    "tan": swap(_TANH),
    "tanh": _TANH,
}
BINARY: dict[str, Bodies] = {
    "add": ("x + u", "y + v"),
    "div": _write_quotient("x", "y"),
    "mul": ("x * u - y * v", "x * v + y * u"),
    "sub": ("x - u", "y - v"),
}
TESTS = {
    "isfinite": "x - x == 0 and y - y == 0",
    "isinf": _FAR,
    "isnan": "isnan(x) or isnan(y)",
    "logical_not": "x == 0 and y == 0",
}
COMPARISONS = {"equal": "x == u and y == v", "not_equal": "x != u or y != v"}
