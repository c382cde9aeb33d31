"""Activations beyond those of elementwise.py: rectifiers with parameters, shrinkages, and the gates of GLU variants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..declare.attributes import Record, attrs, number
from ..declare.elementwise import binary, row, samples, unary
from ..dtypes import FLOATS, NUMBERS, SIGNED

_SQRT_8_OVER_PI = math.sqrt(8 / math.pi)
_TANH_GELU = f"{{0}} * ({_SQRT_8_OVER_PI} + {0.044715 * _SQRT_8_OVER_PI} * {{0}} * {{0}})"  # twice tanh's argument


def _swish(z: str, x: str) -> str:
    """Return the expression of x · sigmoid(z), whose exponential cannot overflow; -0 where z is far below 0."""
    return f"(-0.0 if {z} < -10000 else {x} * (1 if {z} >= 0 else exp(-abs({z}))) / (1 + exp(-abs({z}))))"


def _sigmoid(z: Any) -> Any:
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1, small) / (1 + small)


def _gate(z: Any, x: Any) -> Any:
    """Return x · sigmoid(z), or -0 where z is far below 0, as an infinite x needs it."""
    return np.where(z < -10000, -0.0, x * _sigmoid(z))


def _gelu_tanh(x: Any) -> Any:
    return _gate(x * (_SQRT_8_OVER_PI + 0.044715 * _SQRT_8_OVER_PI * x * x), x)


def _clamp(a: Any, b: Any, alpha: float, limit: float) -> Any:
    gate = np.minimum(a, limit)
    return _gate(alpha * gate, gate) * (np.clip(b, -limit, limit) + 1)


def _xielu(x: Any, alpha_p: float, alpha_n: float, beta: float, eps: float) -> Any:
    below = alpha_n * np.expm1(np.minimum(x, eps)) + (beta - alpha_n) * x
    return np.where(x > 0, (alpha_p * x + beta) * x, below)


def _shrink(x: Any, lambd: float, bias: float) -> Any:
    return np.where(x > lambd, x - bias, np.where(x < -lambd, x + bias, 0 * x))


def _threshold(schema: str, name: str, default: float, doc: str) -> Record:
    return attrs(schema, number(name, default, doc, minimum=0))


# Rectifiers
unary(
    "relu6",
    "REL6",
    "minimum(maximum(x, 0), 6)",
    lambda x: np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6)),
    (*FLOATS, *SIGNED),
    doc="min(max(x, 0), 6) (Howard et al. 2017); NaN stays NaN.",
    ulps=0,
)
unary(
    "relu_squared",
    "RLSQ",
    "maximum(x, 0) * maximum(x, 0)",
    lambda x: np.square(np.maximum(x, 0)),
    doc="max(x, 0)² (So et al. 2021).",
    ulps=1,
)
unary(
    "step",
    "STEP",
    "1 if x > 0 else 0",
    lambda x: np.where(x > 0, x.dtype.type(1), x.dtype.type(0)),
    NUMBERS,
    doc="1 above 0, else 0, for NaN too; ggml's step.",
    ulps=0,
)
unary(
    "selu",
    "SELU",
    "1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * expm1(x))",
    lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    doc="λx above 0, else λα(eˣ - 1), with the λ and α that keep mean 0 and variance 1 (Klambauer et al. 2017).",
    ulps=None,
)
unary(
    "celu",
    "CELU",
    "x if x > 0 else alpha * expm1(x / alpha)",
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)),
    doc="x above 0, else α(e^(x/α) - 1) (Barron 2017).",
    ulps=None,
    record=attrs("CEL1", number("alpha", 1.0, "minus the limit below", minimum=1e-30)),
    samples=lambda: samples(["x"], {"alpha": 0.3}, {"alpha": 2.5}),
)
row(
    "prelu",
    "PREL",
    "x slope",
    "slope * x if x < 0 else x",
    lambda x, slope: np.where(x < 0, slope * x, x),
    FLOATS,
    doc=(
        "x above 0, else slope · x, where slope broadcasts by NumPy's rule (He et al. 2015); PyTorch's slopes are those"
        " of axis 1."
    ),
    ulps=1,
)
unary(
    "hardtanh",
    "HTAN",
    "minimum(maximum(x, min), max)",
    lambda x, min, max: np.minimum(np.maximum(x, min), max),
    doc="x limited to [min, max]: `clip` of floats by another name; NaN stays NaN.",
    ulps=1,
    record=attrs("HTN1", number("min", -1.0, "lower limit"), number("max", 1.0, "upper limit")),
    samples=lambda: samples(["x"], {"min": -0.3, "max": 2.0}),
)
unary(
    "thresholded_relu",
    "THRL",
    "0 if x <= alpha else x",
    lambda x, alpha: np.where(x <= alpha, 0, x),
    doc="x above α, else 0 (Konda et al. 2014); NaN stays NaN.",
    ulps=None,
    record=attrs("TRL1", number("alpha", 1.0, "the threshold")),
    samples=lambda: samples(["x"], {"alpha": 0.3}, {"alpha": -1.5}),
)
unary(
    "threshold",
    "THRS",
    "value if x <= threshold else x",
    lambda x, threshold, value: np.where(x <= threshold, value, x),
    doc="x above the threshold, else the value; NaN stays NaN.",
    ulps=None,
    record=attrs("THR1", number("threshold", 0.0, "largest x that is replaced"), number("value", 0.0, "its successor")),
    samples=lambda: samples(["x"], {"threshold": 0.3, "value": -2.7}),
)
unary(
    "xielu",
    "XIEL",
    "(alpha_p * x + beta) * x if x > 0 else alpha_n * expm1(minimum(x, eps)) + (beta - alpha_n) * x",
    _xielu,
    doc=(
        "α₊x² + βx above 0, else α₋(e^min(x, ε) - 1 - x) + βx (Huang & Schlag 2024), with both α as they enter the"
        " formula: after the softplus of the trained ones."
    ),
    ulps=None,
    record=attrs(
        "XIE1",
        number("alpha_p", 0.8, "α₊, the factor of x² above 0"),
        number("alpha_n", 1.3, "α₋, the factor of the exponential below 0"),
        number("beta", 0.5, "the slope at 0"),
        number("eps", -1e-6, "the largest argument of the exponential"),
    ),
    samples=lambda: samples(["x"], {"alpha_p": 1.5, "alpha_n": 0.25, "beta": 1.0, "eps": 0.0}),
)

# Shrinkages
unary(
    "hardshrink",
    "HSHR",
    "0 if abs(x) <= lambd else x",
    lambda x, lambd: np.where(np.abs(x) <= lambd, 0, x),
    doc="x where |x| > λ, else 0; NaN stays NaN.",
    ulps=None,
    record=_threshold("HSH1", "lambd", 0.5, "λ, the largest magnitude that becomes 0"),
    samples=lambda: samples(["x"], {"lambd": 1.3}),
)
unary(
    "softshrink",
    "SSHR",
    "x - lambd if x > lambd else x + lambd if x < -lambd else 0 * x",
    lambda x, lambd: _shrink(x, lambd, lambd),
    doc="x moved towards 0 by λ, and 0 where |x| ≤ λ: the proximal map of λ|x|.",
    ulps=None,
    record=_threshold("SSH1", "lambd", 0.5, "λ"),
    samples=lambda: samples(["x"], {"lambd": 1.3}),
)
unary(
    "shrink",
    "SHRK",
    "x - bias if x > lambd else x + bias if x < -lambd else 0 * x",
    _shrink,
    doc="x moved towards 0 by the bias where |x| > λ, else 0: ONNX's Shrink.",
    ulps=None,
    record=attrs("SHR1", number("lambd", 0.5, "λ", minimum=0), number("bias", 0.0, "taken from |x|")),
    samples=lambda: samples(["x"], {"lambd": 1.3, "bias": 0.7}),
)
unary(
    "tanhshrink",
    "TSHR",
    "x - tanh(x)",
    lambda x: x - np.tanh(x),
    doc="x - tanh(x); the error is relative to x, since the terms cancel near 0.",
    ulps=None,
)

# Smooth activations
unary(
    "log_sigmoid",
    "LGSG",
    "minimum(x, 0) - log1p(exp(-abs(x)))",
    lambda x: -np.logaddexp(0, -x),
    doc="ln σ(x), without overflow.",
    ulps=None,
)
unary(
    "swish",
    "SWSH",
    _swish("beta * x", "x"),
    lambda x, beta: _gate(beta * x, x),
    doc="x · sigmoid(βx) (Ramachandran et al. 2017); `silu` where β is 1.",
    ulps=None,
    record=attrs("SWS1", number("beta", 1.0, "β")),
    samples=lambda: samples(["x"], {"beta": 0.3}, {"beta": 2.5}),
)
unary(
    "quick_gelu",
    "QGEL",
    _swish("1.702 * x", "x"),
    lambda x: _gate(1.702 * x, x),
    doc="x · sigmoid(1.702x), the sigmoid approximation of GELU (Hendrycks & Gimpel 2016).",
    ulps=None,
)
unary(
    "gelu_tanh",
    "GELT",
    _swish(_TANH_GELU.format("x"), "x"),
    _gelu_tanh,
    doc=(
        "The tanh approximation of GELU, x/2 · (1 + tanh(√(2/π) · (x + 0.044715x³))) (Hendrycks & Gimpel 2016), as"
        " x · sigmoid of twice that argument, which does not cancel below 0; -0 at -∞, where PyTorch's is NaN."
    ),
    ulps=None,
)
unary(
    "softcap",
    "SCAP",
    "cap * tanh(x / cap)",
    lambda x, cap: cap * np.tanh(x / cap),
    doc="cap · tanh(x / cap), which bounds logits (Gemma 2).",
    ulps=None,
    record=attrs("SCP1", number("cap", 30.0, "the limit of |y|", minimum=1e-30)),
    samples=lambda: samples(["x"], {"cap": 0.7}),
)

# Gates of two inputs
binary(
    "relu_mul",
    "RLML",
    "maximum(a, 0) * b",
    lambda a, b: np.maximum(a, 0) * b,
    doc="relu(a) · b, the gate of ReGLU (Shazeer 2020).",
    ulps=1,
)
binary(
    "sigmoid_mul",
    "SGML",
    "(1 if a >= 0 else exp(-abs(a))) / (1 + exp(-abs(a))) * b",
    lambda a, b: _sigmoid(a) * b,
    doc="sigmoid(a) · b, the gate of GLU (Dauphin et al. 2017).",
    ulps=None,
)
binary(
    "quick_gelu_mul",
    "QGML",
    f"{_swish('1.702 * a', 'a')} * b",
    lambda a, b: _gate(1.702 * a, a) * b,
    doc="quick_gelu(a) · b: GEGLU with the sigmoid approximation of GELU.",
    ulps=None,
)
binary(
    "gelu_tanh_mul",
    "GTML",
    f"{_swish(_TANH_GELU.format('a'), 'a')} * b",
    lambda a, b: _gelu_tanh(a) * b,
    doc="gelu_tanh(a) · b: GEGLU as GPT-2's and Gemma's GELU have it.",
    ulps=None,
)
binary(
    "swiglu_clamped",
    "SWCL",
    f"{_swish('alpha * minimum(a, limit)', 'minimum(a, limit)')} * (minimum(maximum(b, -limit), limit) + 1)",
    _clamp,
    doc=(
        "g · sigmoid(αg) · (u + 1), with g = min(a, limit) and u = b limited to [-limit, limit]: the gate of gpt-oss"
        " (OpenAI 2025); ggml's swiglu_oai."
    ),
    ulps=None,
    record=attrs("SWC1", number("alpha", 1.702, "α"), number("limit", 7.0, "bounds g above and |u|", minimum=0)),
    samples=lambda: samples(["a", "b"], {"alpha": 1.0, "limit": 0.7}),
)
