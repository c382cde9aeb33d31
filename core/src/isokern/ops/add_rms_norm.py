"""add_rms_norm: a residual sum and its root-mean-square normalization, in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, number
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import rows
from ..dtypes import FLOATS, I32, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .rms_norm import rms_norm, scale


def _reference(x: Any, residual: Any, w: Any, eps: float, out: Sequence[TensorDesc]) -> tuple[Any, Any]:
    total = x + residual
    held = total.astype(out[1].dtype.compute.numpy).astype(out[1].dtype.numpy)
    return rms_norm.reference(held.astype(np.float64), w, eps), total


def _scale(x: Any, residual: Any, w: Any, eps: float, compute: DType) -> tuple[Any, Any]:
    return scale(x, w, eps, compute), 0.0


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, V]:
    x, residual, *w = inputs
    total = e("add", x, residual)
    return e("rms_norm", total, *w, eps=values["eps"]), total


add_rms_norm = declare(
    "add_rms_norm",
    "ADRN",
    "x: T[*b, d], residual: T[*b, d], w?: T[d] -> y: T[*b, d], sum: T[*b, d]",
    {"T": FLOATS},
    family="normalization",
    doc=(
        "sum = x + residual, and y = rms_norm of sum as it was written (added in the compute type, rounded to its"
        " type). The residual stream of a transformer stays in place with sum on residual."
    ),
    reference=_reference,
    tolerance=Tolerance(16, _scale),
    attrs=attrs("ARN1", number("eps", 1e-6, "added to the mean square", minimum=0)),
    normal_form=rows,
    decompose=_parts,
    aliases=("x", "residual"),
    flops=lambda i, o: 5.0 * o[0].numel,
    samples=lambda: [
        *(
            Sample({"x": s, "residual": s, **({"w": s[-1:]} if weighted else {})}, {"eps": eps}, size=size)
            for s, weighted, eps, size in [
                ((7,), True, 1e-6, "small"),
                ((3, 5), True, 1e-5, "small"),
                ((3, 5), False, 0.1, "small"),
                ((2, 3, 4), True, 1e-6, "small"),
                ((5, 1025), True, 1e-6, "small"),
                ((0, 3), True, 1e-6, "small"),
                ((2, 1, 2, 1, 3, 1, 2, 2), True, 1e-6, "small"),
                ((6, 64), False, 1e-6, "small"),
                ((601, 1025), True, 1e-6, "wide"),
                ((3, 16_411), True, 1e-6, "wide"),
                ((512, 512), True, 1e-6, "medium"),
                ((4096, 4096), True, 1e-6, "large"),
            ]
        ),
        *(Sample({"x": (2, n), "residual": (2, n), "w": (n,)}, size="long") for n in LENGTHS),
    ],
    errors=[
        ErrorCase({"x": (3, 4), "residual": (4,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "residual": (3, 4), "w": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "residual": (3, 4), "w": (4,)}, InvalidArgument, {"eps": -1}),
        ErrorCase({"x": (3, 4), "residual": (3, 4)}, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase({"x": (3, 4), "residual": (3, 4)}, BadTensorShape, outputs={"y": (3, 4), "sum": (4, 3)}),
    ],
)
