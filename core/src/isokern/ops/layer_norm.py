"""layer_norm: rows shifted to mean 0 and scaled to variance 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..abi.records import attrs, number
from ..dtypes import FLOATS
from ..status import BadTensorShape, InvalidArgument
from . import ErrorCase, Sample, Tolerance, declare
from .views import rows


def _spread(x: Any, eps: float) -> Any:
    return np.sqrt(np.var(x, -1, keepdims=True) + eps)


def _reference(x: Any, w: Any, bias: Any, eps: float) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        y = (x - np.mean(x, -1, keepdims=True)) / _spread(x, eps)
    y = y if w is None else y * w
    return y if bias is None else y + bias


def _scale(x: Any, w: Any, bias: Any, eps: float) -> Any:
    """Subtracting the mean cancels: the error is relative to |x| + |mean|, over the spread."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = 8 * (np.abs(x) + np.mean(np.abs(x), -1, keepdims=True)) / _spread(x, eps)
    size = size if w is None else size * np.abs(w)
    return size if bias is None else size + np.abs(bias)


layer_norm = declare(
    "layer_norm",
    "LAYN",
    "x: T[*b, d], w?: T[d], bias?: T[d] -> y: T[*b, d]",
    {"T": FLOATS},
    family="normalization",
    doc="(x - mean) / sqrt(variance + eps) · w + bias over the last dim (Ba et al. 2016), the variance of the population.",
    reference=_reference,
    tolerance=Tolerance(16, _scale),
    attrs=attrs("LYN1", number("eps", 1e-5, "added to the variance", minimum=0)),
    view=rows,
    aliases=("x",),
    flops=lambda i, o: 7.0 * o[0].numel,
    samples=lambda: [
        *(
            Sample({"x": s, **({"w": s[-1:]} if n > 0 else {}), **({"bias": s[-1:]} if n > 1 else {})}, {"eps": eps})
            for s, n, eps in [
                ((7,), 2, 1e-5),
                ((7,), 0, 1e-5),
                ((3, 5), 1, 1e-5),
                ((2, 3, 4), 2, 0.1),
                ((5, 1025), 2, 1e-5),
                ((4, 33), 2, 1e-6),
                ((0, 3), 2, 1e-5),
                ((3, 0), 2, 1e-5),
                ((1, 1), 2, 1e-5),
                ((2, 1, 2, 1, 3, 1, 2, 2), 2, 1e-5),
                ((6, 64), 2, 1e-3),
            ]
        ),
        *(
            Sample({"x": s, "w": s[-1:], "bias": s[-1:]}, size=size)
            for s, size in [((64, 64), "small"), ((601, 1025), "wide"), ((512, 512), "medium"), ((4096, 4096), "large")]
        ),
    ],
    errors=[
        ErrorCase({"x": (3, 4), "w": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "w": (4,), "bias": (4, 1)}, BadTensorShape),
        ErrorCase({"x": ()}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"eps": -1}),
    ],
)
