"""cast: conversion between element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..declare import ErrorCase, Sample, declare
from ..declare.conversion import convert
from ..dtypes import PLAIN
from ..layout import TensorDesc
from ..status import BadTensorShape


def _reference(x: Any, out: Sequence[TensorDesc]) -> Any:
    return convert(x, out[0].dtype.numpy)


def _samples() -> list[Sample]:
    shapes = [(), (1,), (7,), (1025,), (3, 5), (2, 3, 4), (4, 1, 33), (2, 1, 2, 1, 3, 1, 2, 2), (0,), (3, 0, 2)]
    sizes = {"small": 4096, "medium": 1 << 18, "large": 1 << 24}
    return [
        *(Sample({"x": s}) for s in shapes),
        Sample({"x": (600_001,)}, size="wide"),
        Sample({"x": (3, 2048)}, size="long"),
        *(Sample({"x": (n,)}, size=size) for size, n in sizes.items()),
    ]


cast = declare(
    "cast",
    "CAST",
    "x: S[*d] -> y: T[*d]",
    {"S": PLAIN, "T": PLAIN},
    family="conversion",
    doc=(
        "x in another element type. Float to float rounds to nearest even; float to integer truncates, saturates, and"
        " maps NaN to 0; integer to integer wraps; anything to BOOL is `!= 0`. A value too large for a float becomes"
        " infinite, and NaN in F8E4M3FN, which has no infinity (as in PyTorch and ml_dtypes, and in ONNX with"
        " saturate=0): clamp before the cast to saturate, or use quantize_linear."
    ),
    reference=_reference,
    samples=_samples,
    errors=[ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (4,)})],
    domains={"x": "any"},
    exact=True,
)
