"""Products with a matrix of weights in a type of its own: matmul_transposed and matmul_mixed. One kernel stem, `matmul_transposed`.

Normal form of matmul_transposed: y[*r, n], x[*r, k], w[n, k]; of matmul_mixed: y[*r, n], x[*r, k], w[k, n], the leading dims r merged where they
step together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..abi.records import attrs, choice
from ..blocks import dequantize, quantize
from ..dtypes import ACTIVATIONS, BLOCKS, F32, F64, Q8_0, WEIGHTS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from . import ErrorCase, Sample, Tolerance, declare
from .decomposition import Emitter, V
from .gemm import accumulated, lifted
from .views import Descs, coalesce


def _view(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    x, w = inputs
    (y,) = outputs
    assert x is not None
    if x.ndim == 1:
        x, y = lifted(x), lifted(y)
    else:
        x, y = (d for d in coalesce([x, y], keep=1) if d is not None)
    return [x, w], [y]


def _rounded(x: Any, activation: str) -> Any:
    """x as the products take it: through blocks of Q8_0 where that is asked for."""
    if activation == "float":
        return x
    return dequantize(quantize(x.astype(np.float32), Q8_0), Q8_0).astype(np.float64)


def _transposed(x: Any, w: Any, activation: str) -> Any:
    return _rounded(x, activation) @ w.T


def _transposed_scale(x: Any, w: Any, activation: str) -> Any:
    x = _rounded(x, activation)
    return 2 * (accumulated(x, w.T) if x.ndim > 1 else accumulated(x[None], w.T)[0])


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    x = inputs[0]
    return 2.0 * outputs[0].numel * (x.shape[-1] if x is not None else 0)


def _check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    w = inputs[1]
    if w is not None and values["activation"] == "q8_0" and w.dtype.block == 1:
        raise InvalidArgument(
            "matmul_transposed",
            f"activation=q8_0 with weights of {w.dtype}",
            allowed="Q4_0, Q4_1, Q8_0",
            hint="use activation=float",
        )


def _mixed_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w = inputs
    plain = w if w.spec.dtype.block == 1 else e("dequantize", w, dtypes={"T": F32})
    return e("matmul_transposed", x, e("transpose", plain, axes=(1, 0)))


matmul_transposed = declare(
    "matmul_transposed",
    "MMTR",
    "x: T[*b, k], w: W[n, k] -> y: T[*b, n]",
    {"W": WEIGHTS, "T": ACTIVATIONS},
    family="contraction",
    doc=(
        "x wᵀ, the weight one row an output, in a type of its own. activation=float takes x as it is; q8_0 quantises each row of x to Q8_0"
        " first (as `quantize` does, into the workspace) and sums products of integers: part of what is computed, not a choice of the device."
        " It goes with block types only."
    ),
    reference=_transposed,
    tolerance=Tolerance(2, _transposed_scale),
    attrs=attrs("MMT1", choice("activation", ("float", "q8_0"), "float", "how x enters the products")),
    check=_check,
    view=_view,
    constants=("w",),
    flops=_flops,
    samples=lambda: [
        *(
            Sample({"x": x, "w": w}, {"activation": a}, size=size, types={} if a == "float" else {"W": BLOCKS})
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
        ErrorCase({"x": (3, 64), "w": (4, 64)}, InvalidArgument, {"activation": "q8_0"}),
        ErrorCase({"x": (3, 64), "w": (4, 64)}, InvalidArgument, {"activation": "int8"}),
    ],
)


matmul_mixed = declare(
    "matmul_mixed",
    "MMMX",
    "x: T[*b, k], w: W[k, n] -> y: T[*b, n]",
    {"W": WEIGHTS, "T": ACTIVATIONS},
    family="contraction",
    stem="matmul_transposed",
    doc="x w, the weight in a type of its own, its blocks along n. `isokern.matmul(x, w)` is this where the types differ.",
    reference=lambda x, w: x @ w,
    tolerance=Tolerance(2, lambda x, w: 2 * (accumulated(x, w) if x.ndim > 1 else accumulated(x[None], w)[0])),
    view=_view,
    decompose=_mixed_parts,
    constants=("w",),
    flops=_flops,
    samples=lambda: [
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
    ],
    errors=[
        ErrorCase({"x": (3, 5), "w": (4, 32)}, BadTensorShape),
        ErrorCase({"x": (3, 5), "w": (5,)}, BadTensorShape),
        ErrorCase({"x": (3, 5), "w": (5, 32)}, BadTensorDtype, dtypes={"T": F64}),
    ],
)
