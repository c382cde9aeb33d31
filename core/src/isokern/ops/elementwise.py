"""The elementwise family: one row per operator; a new row needs no other change, in core or in any backend.

A row is a name, its four-character kind, an expression in the scalar language (see expr/tree.py), the NumPy reference
in float64, and the dtypes. `ulps` bounds the error of the expression in its compute type; `scale` is the magnitude to
which rounding errors are relative where terms cancel (by default, that of the result). `ulps=None` computes the bound
from the expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..declare.attributes import attrs, integer, number
from ..declare.conversion import convert
from ..declare.decomposition import LETTERS, Emitter, V
from ..declare.elementwise import binary, row, samples, unary
from ..declare.normal_form import Descs, axis_of, pointwise
from ..declare.operator import ErrorCase, Sample
from ..dtypes import BOOL, COMPUTED, F64, FLOATS, INTEGERS, NUMBERS, PLAIN, SIGNED
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

INTEGRAL = (*INTEGERS, BOOL)
_SQRT_HALF = math.sqrt(0.5)
_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _silu(x: Any) -> Any:
    return np.where(np.isneginf(x), -0.0, x * _sigmoid(x))


_FAR = "; in F64 NaN beyond |x| = 2⁵⁰, where adjacent numbers are a quarter apart"


def _clip(x: Any, min: float, max: float) -> Any:
    """Return x limited to [min, max], each in x's type."""
    least, most = (convert(np.array(limit), x.dtype) for limit in (min, max))
    return np.minimum(np.maximum(x, least), most)


def _angle(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reference of a function of an angle: NaN for F64 beyond |x| = 2^50.

    F64 kernels do not have the 1,100 bits of π that such arguments need.
    """

    def reference(x: Any, out: Sequence[TensorDesc] | None = None) -> Any:
        far = 2.0**50 if out is not None and out[0].dtype is F64 else math.inf
        return np.where(np.abs(x) > far, np.nan, function(x))

    return reference


def _gelu(x: Any) -> Any:
    return np.where(np.isneginf(x), -0.0, 0.5 * x * _erfc(-x * _SQRT_HALF))


def _magnitude(x: Any, **_: Any) -> Any:
    return np.abs(x)


# Arithmetic, one input
unary("neg", "NEG_", "-x", np.negative, (*FLOATS, *SIGNED), doc="-x.", exact=True)
unary("abs", "ABS_", "abs(x)", np.abs, NUMBERS, doc="|x|; the smallest integer wraps to itself.", exact=True)
unary("sign", "SIGN", "sign(x)", np.sign, NUMBERS, doc="-1, 0 or 1; NaN stays NaN (0 in PyTorch).", ulps=0)
unary("square", "SQUA", "x * x", np.square, NUMBERS, doc="x².", ulps=1)
unary("sqrt", "SQRT", "sqrt(x)", np.sqrt, doc="Square root; NaN below 0.", domain="positive", ulps=1)
unary("rsqrt", "RSQR", "rsqrt(x)", lambda x: 1 / np.sqrt(x), doc="1/√x.", domain="positive", ulps=2)
unary("cbrt", "CBRT", "cbrt(x)", np.cbrt, doc="Cube root.")
unary("reciprocal", "RECI", "1 / x", lambda x: 1 / x, doc="1/x.", ulps=1)

# Exponentials and logarithms
unary("exp", "EXP_", "exp(x)", np.exp, doc="eˣ.")
unary("exp2", "EXP2", "exp2(x)", np.exp2, doc="2ˣ.")
unary("expm1", "EXM1", "expm1(x)", np.expm1, doc="eˣ - 1, exact near 0.")
unary("log", "LOG_", "log(x)", np.log, doc="Natural logarithm.", domain="positive")
unary("log2", "LOG2", "log2(x)", np.log2, doc="Logarithm to base 2.", domain="positive")
unary("log10", "LG10", "log10(x)", np.log10, doc="Logarithm to base 10.", domain="positive")
unary("log1p", "LG1P", "log1p(x)", np.log1p, doc="ln(1 + x), exact near 0.", domain="positive")

# Trigonometric and hyperbolic
unary("sin", "SIN_", "sin(x)", _angle(np.sin), doc=f"Sine of radians{_FAR}.", ulps=6)
unary("cos", "COS_", "cos(x)", _angle(np.cos), doc=f"Cosine of radians{_FAR}.", ulps=6)
unary("tan", "TAN_", "tan(x)", _angle(np.tan), doc=f"Tangent of radians{_FAR}.", ulps=8)
unary("asin", "ASIN", "asin(x)", np.arcsin, doc="Arc sine.", domain="unit", ulps=6)
unary("acos", "ACOS", "acos(x)", np.arccos, doc="Arc cosine.", domain="unit", ulps=6)
unary("atan", "ATAN", "atan(x)", np.arctan, doc="Arc tangent.", ulps=6)
unary("sinh", "SINH", "sinh(x)", np.sinh, doc="Hyperbolic sine.", ulps=6)
unary("cosh", "COSH", "cosh(x)", np.cosh, doc="Hyperbolic cosine.", ulps=6)
unary("tanh", "TANH", "tanh(x)", np.tanh, doc="Hyperbolic tangent.")
unary("asinh", "ASNH", "asinh(x)", np.arcsinh, doc="Inverse hyperbolic sine.", ulps=6)
unary("acosh", "ACSH", "acosh(x)", np.arccosh, doc="Inverse hyperbolic cosine.", domain="above_one", ulps=6)
unary("atanh", "ATNH", "atanh(x)", np.arctanh, doc="Inverse hyperbolic tangent.", domain="unit", ulps=6)
unary("erf", "ERF_", "erf(x)", _erf, doc="Error function.", ulps=8)
unary("erfc", "ERFC", "erfc(x)", _erfc, doc="1 - erf(x), accurate if that cancels.", ulps=8)

# Activations
unary(
    "relu",
    "RELU",
    "maximum(x, 0)",
    lambda x: np.maximum(x, x.dtype.type(0)),
    NUMBERS,
    doc="max(x, 0); NaN stays NaN.",
    ulps=0,
)
unary("sigmoid", "SIGM", "(1 if x >= 0 else exp(-abs(x))) / (1 + exp(-abs(x)))", _sigmoid, doc="1 / (1 + e⁻ˣ).", ulps=8)
unary(
    "silu",
    "SILU",
    "-0.0 if x < -10000 else x * (1 if x >= 0 else exp(-abs(x))) / (1 + exp(-abs(x)))",
    _silu,
    doc="x · sigmoid(x), also called swish (Elfwing et al. 2017); -0 at -∞, where PyTorch's is NaN.",
    ulps=8,
    scale=lambda x: np.minimum(np.abs(x), 1e-30),
)
unary(
    "gelu",
    "GELU",
    "-0.0 if x < -50 else 0.5 * x * erfc(x * -0.7071067811865476)",
    _gelu,
    doc="x · Φ(x), exact (Hendrycks & Gimpel 2016); -0 at -∞, where PyTorch's is NaN.",
    ulps=None,
)
unary(
    "softplus",
    "SPLU",
    "maximum(x, 0) + log1p(exp(-abs(x)))",
    lambda x: np.logaddexp(x, 0),
    doc="ln(1 + eˣ), without overflow. PyTorch's is x itself above its threshold, which is 20.",
    ulps=6,
)
unary(
    "softsign",
    "SSGN",
    "copysign(1, x) if abs(x) > 1e30 else x / (1 + abs(x))",
    lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))),
    doc="x / (1 + |x|); ±1 at the infinities, where PyTorch's is NaN.",
)
unary(
    "mish",
    "MISH",
    "-0.0 if x < -10000 else x * tanh(maximum(x, 0) + log1p(exp(-abs(x))))",
    lambda x: np.where(np.isneginf(x), -0.0, x * np.tanh(np.logaddexp(x, 0))),
    doc="x · tanh(softplus(x)) (Misra 2019); -0 at -∞, where PyTorch's is NaN.",
    ulps=10,
    scale=lambda x: np.minimum(np.abs(x), 1e-30),
)
unary(
    "hardsigmoid",
    "HSIG",
    "minimum(maximum(x / 6 + 0.5, 0), 1)",
    lambda x: np.clip(x / 6 + 0.5, 0, 1),
    doc="clip(x/6 + 1/2, 0, 1).",
    scale=lambda x: np.minimum(np.abs(x), 6),
)
unary(
    "hardswish",
    "HSWI",
    "-0.0 if x <= -3 else x if x >= 3 else x * (x + 3) / 6",
    lambda x: np.where(x <= -3, -0.0, np.where(x >= 3, x, x * (x + 3) / 6)),
    doc="x · clip(x + 3, 0, 6) / 6 (Howard et al. 2019); -0 at -∞, where PyTorch's is NaN.",
    scale=lambda x: np.minimum(np.abs(x), 3),
)
unary(
    "elu",
    "ELU_",
    "x if x > 0 else alpha * expm1(x)",
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    doc="x above 0, else α(eˣ - 1) (Clevert et al. 2015).",
    record=attrs("ELU1", number("alpha", 1.0, "slope at the limit")),
)
unary(
    "leaky_relu",
    "LRLU",
    "alpha * x if x < 0 else x",
    lambda x, alpha: np.where(x < 0, alpha * x, x),
    doc="x above 0, else αx.",
    ulps=2,
    record=attrs("LRL1", number("alpha", 0.01, "slope below 0")),
)
unary(
    "clip",
    "CLIP",
    "minimum(maximum(x, min), max)",
    _clip,
    NUMBERS,
    doc=(
        "x limited to [min, max], either of which may be infinite: no limit. NaN stays NaN, and where min > max the"
        " result is max (ONNX Clip). The limits of integers become x's type as `cast` does it: truncated, and what is"
        " beyond the type becomes the last one it has. `clamp` has the limits as tensors."
    ),
    ulps=1,
    record=attrs(
        "CLP2",
        number("min", -math.inf, "lower limit; -∞ for none"),
        number("max", math.inf, "upper limit; ∞ for none"),
    ),
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, {"max": 0.5}, outputs={"y": (4,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, {"max": 0.5}, dtypes={"T": BOOL}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"min": "x"}),
    ],
    samples=lambda: [
        *(replace(s, attrs={"min": -1.0, "max": 1.0}) for s in samples(["x"])),
        Sample({"x": (3, 5)}),
        *(
            Sample({"x": shape}, {"min": least, "max": most})
            for shape, least, most in [
                ((3, 5), -math.inf, 0.75),
                ((1025,), -2.5, math.inf),
                ((2, 3, 4), -1e30, 1e30),
                ((5, 33), 2.0, -2.0),
                ((2, 33), -(2.0**63), 2.0**63),
                ((2, 33), -20.5, math.inf),
                ((2, 33), 1.0, 100.0),
                ((3, 35), 1e20, math.inf),
                ((35,), -math.inf, -1e20),
            ]
        ),
    ],
)
unary(
    "scale",
    "SCAL",
    "x * value",
    lambda x, value: x * value,
    doc="x · value; in place with out=x.",
    ulps=2,
    record=attrs("SCL1", number("value", 1.0, "the factor, rounded to the compute type")),
)

# Rounding
unary("floor", "FLOR", "floor(x)", np.floor, doc="Largest integer not above x.", exact=True)
unary("ceil", "CEIL", "ceil(x)", np.ceil, doc="Smallest integer not below x.", exact=True)
unary("trunc", "TRNC", "trunc(x)", np.trunc, doc="x without its fraction.", exact=True)
unary("round", "RND_", "rint(x)", np.rint, doc="Nearest integer, ties to even.", exact=True)

# Predicates and logic
unary("isnan", "ISNA", "isnan(x)", np.isnan, result="BOOL", doc="Whether x is NaN.")
unary("isinf", "ISIN", "x - x != 0 and not isnan(x)", np.isinf, result="BOOL", doc="Whether x is infinite.")
unary("isfinite", "ISFI", "x - x == 0", np.isfinite, result="BOOL", doc="Whether x is neither NaN nor infinite.")
unary("logical_not", "LNOT", "x == 0", np.logical_not, COMPUTED, result="BOOL", doc="1 where x is 0.")
unary("bitwise_not", "BNOT", "bitnot(x)", np.invert, INTEGERS, doc="All bits flipped.")

# Arithmetic, two inputs
binary("add", "ADD_", "a + b", np.add, NUMBERS, doc="a + b; integers wrap.", ulps=1)
binary("sub", "SUB_", "a - b", np.subtract, NUMBERS, doc="a - b; integers wrap.", ulps=1)
binary("mul", "MUL_", "a * b", np.multiply, NUMBERS, doc="a · b; integers wrap.", ulps=1)
binary("div", "DIV_", "a / b", np.divide, doc="a / b.", ulps=1)
binary("floor_divide", "FDIV", "quotient(a, b)", np.floor_divide, INTEGERS, doc="a / b rounded down; 0 where b is 0.")
binary("pow", "POW_", "pow(a, b)", np.power, doc="aᵇ with C99's special values.", domain="moderate", ulps=8)
binary(
    "minimum", "MIN_", "minimum(a, b)", np.minimum, NUMBERS, doc="The smaller; NaN if either is (NumPy's rule).", ulps=0
)
binary(
    "maximum", "MAX_", "maximum(a, b)", np.maximum, NUMBERS, doc="The larger; NaN if either is (NumPy's rule).", ulps=0
)
binary(
    "squared_difference", "SQDF", "(a - b) * (a - b)", lambda a, b: np.square(a - b), NUMBERS, doc="(a - b)².", ulps=3
)
binary("copysign", "CSGN", "copysign(a, b)", np.copysign, doc="|a| with b's sign.", exact=True)
binary(
    "silu_mul",
    "SLML",
    "(-0.0 if a < -10000 else a * (1 if a >= 0 else exp(-abs(a))) / (1 + exp(-abs(a)))) * b",
    lambda a, b: _silu(a) * b,
    doc="silu(a) · b, the gate of SwiGLU (Shazeer 2020).",
    ulps=None,
)
binary(
    "gelu_mul",
    "GLML",
    "(-0.0 if a < -50 else 0.5 * a * erfc(a * -0.7071067811865476)) * b",
    lambda a, b: _gelu(a) * b,
    doc="gelu(a) · b, the gate of GEGLU (Shazeer 2020).",
    ulps=None,
)
# Comparisons
binary("equal", "EQ__", "a == b", np.equal, COMPUTED, result="BOOL", doc="a = b.")
binary("not_equal", "NE__", "a != b", np.not_equal, COMPUTED, result="BOOL", doc="a ≠ b.")
binary("less", "LT__", "a < b", np.less, COMPUTED, result="BOOL", doc="a < b.")
binary("less_equal", "LE__", "a <= b", np.less_equal, COMPUTED, result="BOOL", doc="a ≤ b.")
binary("greater", "GT__", "a > b", np.greater, COMPUTED, result="BOOL", doc="a > b.")
binary("greater_equal", "GE__", "a >= b", np.greater_equal, COMPUTED, result="BOOL", doc="a ≥ b.")
binary(
    "logical_and",
    "LAND",
    "a != 0 and b != 0",
    np.logical_and,
    COMPUTED,
    result="BOOL",
    doc="Whether both are non-zero.",
)
binary(
    "logical_or", "LOR_", "a != 0 or b != 0", np.logical_or, COMPUTED, result="BOOL", doc="Whether either is non-zero."
)
binary(
    "logical_xor",
    "LXOR",
    "(a != 0) != (b != 0)",
    np.logical_xor,
    COMPUTED,
    result="BOOL",
    doc="Whether exactly one is non-zero.",
)
binary("bitwise_and", "BAND", "bitand(a, b)", np.bitwise_and, INTEGRAL, doc="Bits set in both.")
binary("bitwise_or", "BOR_", "bitor(a, b)", np.bitwise_or, INTEGRAL, doc="Bits set in either.")
binary("bitwise_xor", "BXOR", "bitxor(a, b)", np.bitwise_xor, INTEGRAL, doc="Bits set in one of the two.")

row(
    "where",
    "WHER",
    "c a b",
    "a if c != 0 else b",
    np.where,
    PLAIN,
    signature="c: BOOL[*d], a: T[*d], b: T[*d] -> y: T[*d]",
    broadcast=("d",),
    aliases=("a", "b"),
    exact=True,
    doc="a where c is true, else b.",
)


def _bias_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise`, with the bias broadcast to x (stride 0) along all axes but its own."""
    x, bias = inputs
    assert x is not None and bias is not None
    axis = values["axis"] % x.ndim
    lifted = TensorDesc(
        bias.dtype,
        (bias.shape[0], *[1] * (x.ndim - axis - 1)),
        (bias.strides[0], *[0] * (x.ndim - axis - 1)),
        bias.offset,
    )
    return pointwise([x, lifted], outputs, values)


def _bias_shapes(inputs: Sequence[tuple[int, ...] | None], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, bias = inputs
    assert x is not None and bias is not None
    axis = axis_of("bias_add", values["axis"], len(x))
    if bias != (x[axis],):
        raise BadTensorShape("bias_add", f"bias is {list(bias)}", allowed=f"[{x[axis]}], dim {axis} of x")
    return [x]


def _bias_loop(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, bias = inputs
    loops = LETTERS[: x.spec.ndim]
    return e.loop(f"{loops},{loops[values['axis']]}->{loops}", "x0 + x1", x, bias)


row(
    "bias_add",
    "BADD",
    "x bias",
    "x + bias",
    lambda x, bias, axis: x + bias.reshape(-1, *[1] * (x.ndim - axis % x.ndim - 1)),
    FLOATS,
    signature="x: T[*d], bias: T[c] -> y: T[*d]",
    doc="x plus a bias along one axis.",
    ulps=1,
    record=attrs("BAD1", integer("axis", -1, "the axis of x that bias runs along")),
    shapes=_bias_shapes,
    normal_form=_bias_normal_form,
    decompose=_bias_loop,
    aliases=("x",),
    samples=lambda: (
        [
            Sample({"x": s, "bias": (s[a],)}, {"axis": a})
            for s, a in [
                ((7,), 0),
                ((3, 5), -1),
                ((3, 5), 0),
                ((2, 3, 4, 5), 1),
                ((2, 3, 4), -2),
                ((1, 1025), 1),
                ((2, 0), 0),
                ((0,), 0),
            ]
        ]
        + [Sample({"x": (601, 1025), "bias": (1025,)}, size="wide")]
        + [Sample({"x": (n, 1024), "bias": (1024,)}, size=size) for size, n in (("medium", 256), ("large", 16384))]
    ),
    errors=[
        ErrorCase({"x": (3, 4), "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": (3,), "bias": (3,)}, InvalidArgument, {"axis": 1}),
        ErrorCase({"x": (), "bias": (1,)}, InvalidArgument),
    ],
)
