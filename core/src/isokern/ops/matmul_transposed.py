"""Products with weights in a dtype of their own: matmul_transposed, linear_mixed and matmul_mixed.

All are computed by the kernel stem `matmul_transposed`. Normal form of matmul_transposed: y[*r, n], x[*r, k], w[n, k];
linear_mixed also has bias[n] and c[*r, n] at the end; matmul_mixed: y[*r, n], x[*r, k], w[k, n]. The leading dims r are
merged where they step together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..blocks import dequantize, quantize
from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice
from ..declare.decomposition import LETTERS, Emitter, V
from ..declare.epilogue import ACTIVATION, activate, finish
from ..declare.normal_form import Descs, coalesce
from ..dtypes import ACTIVATIONS, ALL_WEIGHTS, BLOCKS, F16, F32, F64, Q8_0, STORED_BLOCKS, names
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .gemm import accumulated_magnitude, as_matrix


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return x[*b, k] and y[*b, n] with rows merged that step together; w[n, k] and the bias as given."""
    x, w, *rest = inputs
    bias, c = [*rest, None, None][:2]
    y = outputs[0]
    assert x is not None
    if x.ndim == 1:
        x, y, c = as_matrix(x), as_matrix(y), None if c is None else as_matrix(c)
        return [x, w, *[bias, c][: len(rest)]], [y]
    rows = coalesce([x, y, c], keep=1)
    return [rows[0], w, *[bias, rows[2]][: len(rest)]], rows[1:2]


QUANTISED = (*BLOCKS, *STORED_BLOCKS)  # weights that meet rows in Q8_0
LHS_QUANTIZATION = choice("lhs_quantization", ("float", "q8_0"), "float", "how x enters the products")


def round_lhs(x: Any, how: str) -> Any:
    """Return x as it enters the products: through blocks of Q8_0 where `how` is q8_0."""
    if how == "float":
        return x
    return dequantize(quantize(x.astype(np.float32), Q8_0), Q8_0).astype(np.float64)


def emit_rounded(e: Emitter[V], x: V) -> V:
    """Emit x as it is once it has been quantised to Q8_0, in F32; no blocks lie between the parts of an operator."""
    wide = e.reshape(e.cast(x, F32), (x.spec.numel // 32, 32))
    d = e.loop("a->a", "x0 / 127", e.loop("ab->a", "abs(x0)", wide, combine="maximum"))
    scaled = e.loop("ab,a->ab", "x0 * x1", wide, e.loop("a->a", "1 / x0 if x0 != 0 else 0", d))
    # Half away from zero; what is not finite is 0
    size = "floor(abs(x0)) + floor(2 * (abs(x0) - floor(abs(x0))))"
    near = e.loop("ab->ab", f"copysign({size}, x0) if abs(x0) < 256 else 0", scaled)
    return e.reshape(e.loop("ab,a->ab", "x0 * x1", near, e.cast(e.cast(d, F16), F32)), x.spec.shape)


def _multiply(x: Any, w: Any, lhs_quantization: str) -> Any:
    return round_lhs(x, lhs_quantization) @ w.T


def _scale(x: Any, w: Any, lhs_quantization: str) -> Any:
    x = round_lhs(x, lhs_quantization)
    return 2 * (accumulated_magnitude(x, w.T) if x.ndim > 1 else accumulated_magnitude(x[None], w.T)[0])


def _linear(x: Any, w: Any, bias: Any, c: Any, lhs_quantization: str, activation: str) -> Any:
    y = round_lhs(x, lhs_quantization) @ w.T
    y = y if c is None else y + c
    return activate(activation, y if bias is None else y + bias)


def _linear_scale(x: Any, w: Any, bias: Any, c: Any, lhs_quantization: str, activation: str) -> Any:
    size = _scale(x, w, lhs_quantization)
    size = size if c is None else size + 2 * np.abs(c)
    return 2 * (size if bias is None else size + 2 * np.abs(bias))


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    x = inputs[0]
    return 2.0 * outputs[0].numel * (x.shape[-1] if x is not None else 0)


def _check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    check_lhs_quantization("matmul_transposed", inputs[1], values)


def _check_linear(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    check_lhs_quantization("linear_mixed", inputs[1], values)


def check_lhs_quantization(where: str, w: TensorDesc | None, values: Mapping[str, Any]) -> None:
    """Refuse Q8_0 beside weights that are not of a block type."""
    if w is not None and values["lhs_quantization"] == "q8_0" and w.dtype.block == 1:
        given = f"lhs_quantization=q8_0 with weights of {w.dtype}"
        raise InvalidArgument(where, given, allowed=names(QUANTISED), hint="use lhs_quantization=float")


def _linear_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit matmul_transposed in the compute type, and the epilogue."""
    x, w, bias, c = [*inputs, None, None][:4]
    assert x is not None and w is not None
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    product = e("matmul_transposed", e.cast(x, y.dtype.compute), w, lhs_quantization=values["lhs_quantization"])
    return finish(e, product, [(c, loops, 1.0), (bias, loops[-1], 1.0)], values["activation"], y.dtype)


def _mixed_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w = inputs
    plain = w if w.spec.dtype.block == 1 else e("dequantize", w, dtypes={"T": F32})
    return e("matmul_transposed", x, e("transpose", plain, axes=(1, 0)))


matmul_transposed = declare(
    "matmul_transposed",
    "MMTR",
    "x: T[*b, k], w: W[n, k] -> y: T[*b, n]",
    {"W": ALL_WEIGHTS, "T": ACTIVATIONS},  # no F64: `linear` and `matmul` have it, and no block type comes with it
    family="contraction",
    doc=(
        "x wᵀ, the weight one row an output, in a type of its own. lhs_quantization=float takes x as it is; q8_0"
        " quantises each row of x to Q8_0 first (as `quantize` does, into the workspace) and sums products of integers:"
        " part of what is computed, not a choice of the device. It goes with block types only."
    ),
    reference=_multiply,
    tolerance=Tolerance(2, _scale),
    attrs=attrs("MMT2", LHS_QUANTIZATION),
    check=_check,
    normal_form=_normal_form,
    constants=("w",),
    flops=_flops,
    samples=lambda: [
        *(
            Sample({"x": x, "w": w}, {"lhs_quantization": a}, size=size, types={} if a == "float" else {"W": QUANTISED})
            for a in ("float", "q8_0")
            for x, w, size in [
                ((3, 64), (5, 64), "small"),
                ((32,), (7, 32), "small"),
                ((1, 1024), (37, 1024), "small"),
                ((17, 160), (33, 160), "small"),
                ((2, 1, 3, 96), (9, 96), "small"),
                ((0, 32), (4, 32), "small"),
                ((2, 0), (3, 0), "small"),
                ((130, 256), (131, 256), "wide"),
                ((1, 2048), (2048, 2048), "medium"),
                ((1, 4096), (4096, 4096), "large"),
                ((64, 4096), (4096, 4096), "large"),
            ]
        ),
        Sample({"x": (3, 5), "w": (4, 5)}),
        Sample({"x": (1, 70), "w": (37, 70)}),
    ],
    errors=[
        ErrorCase({"x": (3, 64), "w": (4, 32)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (64,)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (4, 64)}, BadTensorDtype, dtypes={"W": F64}),
        ErrorCase({"x": (3, 64), "w": (4, 64)}, InvalidArgument, {"lhs_quantization": "q8_0"}),
        ErrorCase({"x": (3, 64), "w": (4, 64)}, InvalidArgument, {"lhs_quantization": "int8"}),
    ],
)


LINEAR_SAMPLES: SampleTable = [
    ({"x": (3, 64), "w": (5, 64), "bias": (5,)}, {"activation": "relu"}),
    ({"x": (32,), "w": (7, 32), "bias": (7,), "c": (7,)}, {"activation": "gelu"}),
    ({"x": (2, 17, 96), "w": (33, 96), "bias": (33,), "c": (2, 17, 33)}, {"activation": "silu"}),
    ({"x": (2, 0), "w": (3, 0), "bias": (3,)}, {"activation": "tanh"}),
    ({"x": (3, 32), "w": (9, 32), "bias": (9,)}, {"activation": "hardsigmoid"}),
]


linear_mixed = declare(
    "linear_mixed",
    "LNMX",
    "x: T[*b, k], w: W[n, k], bias?: T[n], c?: T[*b, n] -> y: T[*b, n]",
    {"W": ALL_WEIGHTS, "T": ACTIVATIONS},  # no F64: `linear` and `matmul` have it, and no block type comes with it
    family="contraction",
    stem="matmul_transposed",
    doc=(
        "activation(x wᵀ + c + bias): `matmul_transposed` with an epilogue, the weight in a type of its own."
        " lhs_quantization=q8_0 quantises each row of x first, as it does there; it goes with block types only."
    ),
    reference=_linear,
    tolerance=Tolerance(8, _linear_scale),
    attrs=attrs("LNM2", LHS_QUANTIZATION, ACTIVATION),
    check=_check_linear,
    normal_form=_normal_form,
    decompose=_linear_parts,
    constants=("w",),
    aliases=("c",),
    flops=_flops,
    samples=lambda: [
        *(
            Sample(shapes, {"lhs_quantization": q, **values}, types={} if q == "float" else {"W": QUANTISED})
            for q in ("float", "q8_0")
            for shapes, values in LINEAR_SAMPLES
        ),
        Sample(
            {"x": (130, 256), "w": (131, 256), "bias": (131,), "c": (130, 131)},
            {"activation": "gelu_tanh"},
            size="wide",
        ),
        *(
            Sample(
                {"x": (3, 512), "w": (5, 512), "bias": (5,), "c": (3, 5)},
                {"lhs_quantization": q, "activation": "relu"},
                types={"W": STORED_BLOCKS},
            )
            for q in ("float", "q8_0")
        ),
        Sample({"x": (1, 2048), "w": (2048, 2048), "bias": (2048,)}, {"activation": "relu"}, size="medium"),
        Sample({"x": (1, 4096), "w": (4096, 4096), "bias": (4096,)}, {"activation": "relu"}, size="large"),
        Sample({"x": (3, 5), "w": (4, 5), "c": (3, 4)}, {"activation": "sigmoid"}),
    ],
    errors=[
        ErrorCase({"x": (3, 64), "w": (4, 64), "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (4, 64), "c": (4,)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (4, 64)}, BadTensorDtype, dtypes={"W": F64}),
        ErrorCase({"x": (3, 64), "w": (4, 64)}, InvalidArgument, {"lhs_quantization": "q8_0"}),
        ErrorCase({"x": (3, 64), "w": (4, 64)}, InvalidArgument, {"lhs_quantization": "q8_0"}),
    ],
)


matmul_mixed = declare(
    "matmul_mixed",
    "MMMX",
    "x: T[*b, k], w: W[k, n] -> y: T[*b, n]",
    {"W": ALL_WEIGHTS, "T": ACTIVATIONS},  # no F64: `linear` and `matmul` have it, and no block type comes with it
    family="contraction",
    stem="matmul_transposed",
    doc=(
        "x w, the weight in a type of its own, its blocks along n. `isokern.matmul(x, w)` is this where the types"
        " differ."
    ),
    reference=lambda x, w: x @ w,
    tolerance=Tolerance(
        2, lambda x, w: 2 * (accumulated_magnitude(x, w) if x.ndim > 1 else accumulated_magnitude(x[None], w)[0])
    ),
    normal_form=_normal_form,
    decompose=_mixed_parts,
    constants=("w",),
    flops=_flops,
    samples=lambda: [
        Sample({"x": (9, 17), "w": (17, 256)}, types={"W": STORED_BLOCKS}),
        Sample({"x": (2, 3, 5), "w": (5, 512)}, types={"W": STORED_BLOCKS}),
        *(
            Sample({"x": x, "w": w}, size=size)
            for x, w, size in [
                ((3, 5), (5, 64), "small"),
                ((33,), (33, 32), "small"),
                ((1, 70), (70, 1024), "small"),
                ((17, 130), (130, 96), "small"),
                ((2, 1, 3, 9), (9, 160), "small"),
                ((3, 5), (5, 7), "small"),
                ((0, 3), (3, 32), "small"),
                ((2, 0), (0, 32), "small"),
                ((130, 257), (257, 160), "wide"),
                ((1, 2048), (2048, 2048), "medium"),
                ((64, 4096), (4096, 4096), "large"),
            ]
        ),
    ],
    errors=[
        ErrorCase({"x": (3, 5), "w": (4, 32)}, BadTensorShape),
        ErrorCase({"x": (3, 5), "w": (5,)}, BadTensorShape),
        ErrorCase({"x": (3, 5), "w": (5, 32)}, BadTensorDtype, dtypes={"T": F64}),
    ],
)
