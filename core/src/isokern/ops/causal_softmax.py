"""causal_softmax: softmax of attention scores, each query seeing the keys up to its own place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import ACTIVATIONS, F64
from ..status import BadTensorDtype, BadTensorShape
from . import ErrorCase, Sample, Tolerance, declare
from .views import Descs, coalesce


def _seen(x: Any) -> Any:
    m, s = x.shape[-2:]
    return np.arange(s) <= (s - m + np.arange(m))[:, None]


def _reference(x: Any) -> Any:
    seen = _seen(x)
    top = np.max(np.where(seen, x, -np.inf), -1, keepdims=True, initial=-np.inf)
    none = np.broadcast_to(~seen.any(-1, keepdims=True), top.shape)
    with np.errstate(invalid="ignore"):
        e = np.where(seen, np.exp(x - np.where(none, 0, top)), 0)
        return np.where(seen, e / np.where(none, 1, e.sum(-1, keepdims=True)), 0)


def _scale(x: Any) -> Any:
    """How far x lies below its row's maximum: exp turns the rounding of that difference into relative error."""
    finite = np.where(np.isfinite(x) & _seen(x), x, -np.inf)
    below = np.abs(finite - np.max(finite, -1, keepdims=True, initial=-np.inf))
    return (2 + np.where(np.isfinite(below), below, 0)) * _reference(x)


def _view(inputs: Descs, outputs: Any, values: Any) -> tuple[Descs, Descs]:
    y, x = coalesce([*outputs, *inputs], keep=2)
    return [x], [y]


causal_softmax = declare(
    "causal_softmax",
    "CSMX",
    "x: T[*b, m, s] -> y: T[*b, m, s]",
    {"T": ACTIVATIONS},
    family="normalization",
    doc=(
        "softmax over the last dim of what query i of m sees: keys up to s - m + i, the last query seeing all; 0 for the others, and for a"
        " query that sees none. A row with NaN, or with nothing but -∞, among what it sees is NaN there."
    ),
    reference=_reference,
    tolerance=Tolerance(16, _scale),
    view=_view,
    aliases=("x",),
    flops=lambda i, o: 5.0 * o[0].numel,
    samples=lambda: [
        Sample({"x": s}, size=size)
        for s, size in [
            ((1, 1), "small"),
            ((3, 5), "small"),
            ((5, 3), "small"),
            ((2, 4, 4), "small"),
            ((2, 3, 7, 33), "small"),
            ((3, 1025), "small"),
            ((2, 0, 4), "small"),
            ((2, 3, 0), "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), "small"),
            ((4, 300, 601), "wide"),
            ((8, 128, 512), "medium"),
            ((32, 512, 1024), "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4, 3)}),
        ErrorCase({"x": (3, 4)}, BadTensorDtype, dtypes={"T": F64}),
    ],
)
