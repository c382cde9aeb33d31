"""Arithmetic beyond that of elementwise.py: rows of one to three inputs, some with numbers as attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..declare.attributes import attrs, number
from ..declare.elementwise import binary, row, samples, unary
from ..dtypes import FLOATS, INTEGERS, NUMBERS
from ..expr.evaluate import function

_LN_2, _LOG2_E, _LOG10_E = 0.6931471805599453, 1.4426950408889634, 0.4342944819032518
_NEAR = "rint(x)"
_SIGN = f"(1 - 2 * ({_NEAR} - 2 * floor({_NEAR} / 2)))"  # the sign of sin(πx), by the parity of the integer near x
_M, _N = "maximum(abs(a), abs(b))", "minimum(abs(a), abs(b))"
# The angle of the quotient, and π to the left of the second axis
ATAN2 = (
    "atan(copysign(1, a) * copysign(1, b) if abs(a) == 1e999 and abs(b) == 1e999 else"
    " a * copysign(1, b) if a == 0 and b == 0 else a / b)"
    " + copysign(3.141592653589793 if copysign(1, b) < 0 else 0, a)"
)


def _trunc_divide(a: Any, b: Any) -> Any:
    with np.errstate(over="ignore"):
        exact = (a - function("fmod")(a, b)).astype(a.dtype)
        return np.where(b == 0, b, np.floor_divide(exact, np.where(b == 0, b.dtype.type(1), b)))


def _sinc(x: Any) -> Any:
    """Return sin(πx) / (πx), with the angle reduced before it is multiplied by π."""
    near = np.rint(x)
    sign = 1 - 2 * (near - 2 * np.floor(near / 2))
    return np.where(x == 0, 1.0, sign * np.sin(np.pi * (x - near)) / (np.pi * x))


def _heaviside(x: Any, h: Any) -> Any:
    one = x.dtype.type(1)
    return np.where(x < 0, 0 * one, np.where(x == 0, h, np.where(x > 0, one, x)))


def _logical(zero: Callable[[Any], Any], log: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the reference of a · log(b), 0 if a is 0 and b a number."""
    return lambda a, b: np.where(np.isnan(b), b, np.where(zero(a), 0.0, a * log(b)))


# Remainders
binary(
    "remainder",
    "REMN",
    "remainder(a, b)",
    function("remainder"),
    NUMBERS,
    doc=(
        "a - b · floor(a / b), which has b's sign (NumPy's rule; PyTorch's zero has a's); where b is 0, a for integers"
        " and NaN for floats."
    ),
    ulps=1,
)
binary(
    "fmod",
    "FMOD",
    "fmod(a, b)",
    function("fmod"),
    NUMBERS,
    doc="a - b · trunc(a / b) exactly, which has a's sign (C's fmod); where b is 0, a for integers and NaN for floats.",
    ulps=0,
)
binary(
    "trunc_divide",
    "TDIV",
    "quotient(a, b) + (1 if a - quotient(a, b) * b != 0 and (a < 0) != (b < 0) and b != 0 else 0)",
    _trunc_divide,
    INTEGERS,
    doc="a / b rounded towards 0, as in C; 0 where b is 0.",
)
binary(
    "left_shift",
    "LSHF",
    "shift_left(a, b)",
    np.left_shift,
    INTEGERS,
    doc="a · 2ᵇ without what leaves the dtype; 0 where b is negative or at least the number of bits.",
)
binary(
    "right_shift",
    "RSHF",
    "shift_right(a, b)",
    np.right_shift,
    INTEGERS,
    doc="floor(a / 2ᵇ); where b is negative or at least the number of bits 0, or -1 for a negative a.",
)
unary("frac", "FRAC", "x - trunc(x)", lambda x: x - np.trunc(x), doc="x - trunc(x), with x's sign.", ulps=0)

# Distances and mixtures
binary(
    "hypot",
    "HYPO",
    f"1e999 if abs(a) == 1e999 or abs(b) == 1e999 else {_M} if {_N} == 0 else"
    f" {_M} * sqrt(1 + {_N} / {_M} * ({_N} / {_M}))",
    np.hypot,
    doc="√(a² + b²) without overflow; ∞ if either is infinite (C99).",
    ulps=None,
)
binary(
    "atan2",
    "ATN2",
    ATAN2,
    np.arctan2,
    doc="The angle of the point (b, a) from the first axis, from -π to π, also of zeros and infinities (C99).",
    ulps=None,
)
row(
    "lerp",
    "LERP",
    "a b weight",
    "(1 - weight) * a + weight * b",
    lambda a, b, weight: (1 - weight) * a + weight * b,
    FLOATS,
    doc="(1 - weight) · a + weight · b: exactly a and b, where finite, at weights 0 and 1.",
    ulps=None,
)
row(
    "addcmul",
    "ADCM",
    "x a b",
    "x + value * a * b",
    lambda x, a, b, value: x + value * a * b,
    FLOATS,
    doc="x + value · a · b.",
    ulps=None,
    record=attrs("ACM1", number("value", 1.0, "the factor of the product")),
    samples=lambda: samples(["x", "a", "b"], {"value": -0.3}),
)
row(
    "addcdiv",
    "ADCD",
    "x a b",
    "x + value * a / b",
    lambda x, a, b, value: x + value * a / b,
    FLOATS,
    doc="x + value · a / b.",
    ulps=None,
    record=attrs("ACD1", number("value", 1.0, "the factor of the quotient")),
    samples=lambda: samples(["x", "a", "b"], {"value": -0.3}),
)

# Exponentials and logarithms
binary(
    "logaddexp",
    "LADE",
    f"a + {_LN_2} if a == b else maximum(a, b) + log1p(exp(-abs(a - b)))",
    np.logaddexp,
    doc="ln(eᵃ + eᵇ), without overflow.",
    ulps=None,
)
binary(
    "logaddexp2",
    "LAE2",
    f"a + 1 if a == b else maximum(a, b) + {_LOG2_E} * log1p(exp2(-abs(a - b)))",
    np.logaddexp2,
    doc="log₂(2ᵃ + 2ᵇ), without overflow.",
    ulps=None,
)
unary(
    "exp2m1",
    "EX2M",
    f"exp2(x) - 1 if abs(x) >= 1 else expm1({_LN_2} * x)",
    lambda x: np.where(np.abs(x) >= 1, np.exp2(x) - 1, np.expm1(_LN_2 * np.clip(x, -1, 1))),
    doc="2ˣ - 1, accurate near 0 (C23).",
    ulps=None,
)
unary(
    "log2p1",
    "LG2P",
    f"{_LOG2_E} * log1p(x)",
    lambda x: _LOG2_E * np.log1p(x),
    doc="log₂(1 + x), accurate near 0 (C23).",
    domain="positive",
    ulps=None,
)
unary(
    "log10p1",
    "LGTP",
    f"{_LOG10_E} * log1p(x)",
    lambda x: _LOG10_E * np.log1p(x),
    doc="log₁₀(1 + x), accurate near 0 (C23).",
    domain="positive",
    ulps=None,
)
unary(
    "logit",
    "LGIT",
    "log(x / (1 - x))",
    lambda x: np.log(x / (1 - x)),
    doc="ln(x / (1 - x)); NaN outside [0, 1].",
    domain="unit",
    ulps=None,
)
row(
    "xlogy",
    "XLGY",
    "a b",
    "b if isnan(b) else 0 if a == 0 else a * log(b)",
    _logical(lambda x: x == 0, np.log),
    FLOATS,
    doc="a · ln(b), and 0 if a is 0, unless b is NaN.",
    domain="positive",
    ulps=None,
)
row(
    "xlog1py",
    "XL1Y",
    "a b",
    "b if isnan(b) else 0 if a == 0 else a * log1p(b)",
    _logical(lambda x: x == 0, np.log1p),
    FLOATS,
    doc="a · ln(1 + b), and 0 if a is 0, unless b is NaN.",
    domain="positive",
    ulps=None,
)
unary(
    "entr",
    "ENTR",
    "-1e999 if x < 0 else 0 if x == 0 else -x * log(x)",
    lambda x: np.where(x < 0, -np.inf, np.where(x == 0, 0.0, -x * np.log(x))),
    doc="-x · ln(x), a term of an entropy; 0 at 0 and -∞ below.",
    domain="positive",
    ulps=None,
)

# Angles
unary(
    "sinc",
    "SINC",
    # Both terms are 1 more at 0: gcc would compute a quotient that it need not choose in a branch
    f"({_SIGN} * sin({math.pi} * (x - {_NEAR})) + (x == 0)) / ({math.pi} * x + (x == 0))",
    _sinc,
    doc="sin(πx) / (πx), and 1 at 0: exactly 0 at other integers; NaN at infinities.",
    domain="nonzero",
    ulps=None,
)
unary("deg2rad", "DGRD", f"x * {math.pi / 180}", np.deg2rad, doc="x · π / 180.", ulps=2)
unary("rad2deg", "RDDG", f"x * {180 / math.pi}", np.rad2deg, doc="x · 180 / π.", ulps=2)

# Choices
binary(
    "fmin",
    "FMIN",
    "b if isnan(a) else a if isnan(b) else minimum(a, b)",
    np.fmin,
    doc="The smaller; the number if one is NaN (C99).",
    ulps=0,
)
binary(
    "fmax",
    "FMAX",
    "b if isnan(a) else a if isnan(b) else maximum(a, b)",
    np.fmax,
    doc="The larger; the number if one is NaN (C99).",
    ulps=0,
)
row(
    "heaviside",
    "HEAV",
    "x h",
    "0 if x < 0 else h if x == 0 else 1 if x > 0 else x",
    _heaviside,
    NUMBERS,
    doc="0 below 0, h at 0, 1 above; NaN stays NaN (0 in PyTorch).",
    ulps=0,
)
unary(
    "nan_to_num",
    "NNUM",
    "nan if isnan(x) else posinf if x == 1e999 else neginf if x == -1e999 else x",
    lambda x, nan, posinf, neginf: np.where(
        np.isnan(x), nan, np.where(np.isposinf(x), posinf, np.where(np.isneginf(x), neginf, x))
    ),
    doc=(
        "x with other numbers in place of NaN and the infinities, which by default stay (NumPy and PyTorch have the"
        " dtype's limits)."
    ),
    ulps=1,
    record=attrs(
        "NTN1",
        number("nan", 0.0, "in place of NaN"),
        number("posinf", math.inf, "in place of ∞"),
        number("neginf", -math.inf, "in place of -∞"),
    ),
    samples=lambda: samples(["x"], {"nan": -1.5, "posinf": 1e4, "neginf": -1e4}),
)

# Predicates
unary("isposinf", "ISPI", "x == 1e999", np.isposinf, result="BOOL", doc="Whether x is ∞.")
unary("isneginf", "ISNI", "x == -1e999", np.isneginf, result="BOOL", doc="Whether x is -∞.")
unary("signbit", "SGNB", "copysign(1, x) < 0", np.signbit, result="BOOL", doc="Whether x has a minus sign, as -0 has.")
binary(
    "isclose",
    "ISCL",
    "a == b or (b - b == 0 and abs(a - b) <= atol + rtol * abs(b))",
    lambda a, b, rtol, atol: (a == b) | (np.isfinite(b) & (np.abs(a - b) <= atol + rtol * np.abs(b))),
    result="BOOL",
    doc="Whether |a - b| ≤ atol + rtol · |b|; infinities are close to themselves, and NaN to nothing.",
    ulps=None,
    record=attrs(
        "ICL1",
        number("rtol", 1e-5, "share of |b|", minimum=0),
        number("atol", 1e-8, "the least distance that counts", minimum=0),
    ),
    samples=lambda: samples(["a", "b"], {"rtol": 0.5, "atol": 0.25}),
)

# Numbers as attributes
_VALUE = "rounded to the compute type"
unary(
    "add_scalar",
    "ADSC",
    "x + value",
    lambda x, value: x + value,
    doc="x + value.",
    ulps=None,
    record=attrs("ADS1", number("value", 0.0, _VALUE)),
    samples=lambda: samples(["x"], {"value": -0.7}),
)
unary(
    "rsub_scalar",
    "RSSC",
    "value - x",
    lambda x, value: value - x,
    doc="value - x.",
    ulps=None,
    record=attrs("RSS1", number("value", 0.0, _VALUE)),
    samples=lambda: samples(["x"], {"value": -0.7}),
)
unary(
    "div_scalar",
    "DVSC",
    "x / value",
    lambda x, value: x / value,
    doc="x / value.",
    ulps=2,
    record=attrs("DVS1", number("value", 1.0, _VALUE)),
    samples=lambda: samples(["x"], {"value": -0.7}),
)
unary(
    "pow_scalar",
    "PWSC",
    # The signs cancel; for an exponent that all x share, gcc would make branches that keep the loop scalar
    "pow(x, value * copysign(1, x) * copysign(1, x))",
    lambda x, value: np.power(x, value),
    doc="x to the power of value, with C99's special values; PyTorch's of 0.5 is a square root, NaN at -∞.",
    domain="moderate",
    ulps=None,
    record=attrs("PWS1", number("value", 2.0, _VALUE)),
    samples=lambda: samples(["x"], {"value": 0.5}, {"value": -1.0}, {"value": 3.0}),
)
