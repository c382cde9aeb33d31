"""rms_norm: root-mean-square normalisation of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import rows
from ..dtypes import FLOATS, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument


def _reference(x: Any, w: Any, eps: float) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        y = x / np.sqrt(np.mean(np.square(x), -1, keepdims=True) + eps)
    return y if w is None else y * w


def scale(x: Any, w: Any, eps: float, compute: DType) -> Any:
    """Return the magnitude of rounding x / sqrt(...) to a subnormal before the product with w.

    The spacing of the compute type's subnormals is its eps · its least normal number.
    """
    return 0.0 if w is None else float(np.finfo(compute.numpy).tiny) * np.abs(w)


def _loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w = [*inputs, None][:2]
    assert x is not None
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    wide, rows = e.cast(x, y.dtype.compute), loops[:-1]
    squares = e.loop(f"{loops}->{rows}", "x0 * x0", wide, combine="sum")
    norm = f"x0 / sqrt(x1 / {constant(y.shape[-1])} + {constant(values['eps'])})"
    if w is None:
        return e.loop(f"{loops},{rows}->{loops}", norm, wide, squares, dtype=y.dtype)
    return e.loop(f"{loops},{rows},{loops[-1]}->{loops}", f"{norm} * x2", wide, squares, w, dtype=y.dtype)


rms_norm = declare(
    "rms_norm",
    "RMSN",
    "x: T[*b, d], w?: T[d] -> y: T[*b, d]",
    {"T": FLOATS},
    family="normalization",
    doc=(
        "x / sqrt(mean(x²) + eps) · w over the last dim (Zhang & Sennrich 2019); the mean is taken in the compute type."
    ),
    reference=_reference,
    tolerance=Tolerance(16, scale),
    attrs=attrs("RMS1", number("eps", 1e-6, "added to the mean square", minimum=0)),
    normal_form=rows,
    decompose=_loops,
    aliases=("x",),
    flops=lambda i, o: 4.0 * o[0].numel,
    samples=lambda: [
        *(
            Sample({"x": s, **({"w": s[-1:]} if weighted else {})}, {"eps": eps})
            for s, weighted, eps in [
                ((7,), True, 1e-6),
                ((7,), False, 1e-6),
                ((3, 5), True, 1e-5),
                ((2, 3, 4), True, 0.1),
                ((5, 1025), True, 1e-6),
                ((3, 4133), True, 1e-6),
                ((4, 33), False, 1e-6),
                ((0, 3), True, 1e-6),
                ((3, 0), True, 1e-6),
                ((1, 1), True, 1e-6),
                ((2, 1, 2, 1, 3, 1, 2, 2), True, 1e-6),
                ((6, 64), True, 1e-3),
            ]
        ),
        *(
            Sample({"x": s, "w": s[-1:]}, size=size)
            for s, size in [((64, 64), "small"), ((601, 1025), "wide"), ((512, 512), "medium"), ((4096, 4096), "large")]
        ),
        *(Sample({"x": (2, n), "w": (n,)}, size="long") for n in LENGTHS),
        Sample({"x": (40_000, 8), "w": (8,)}, size="long"),
    ],
    errors=[
        ErrorCase({"x": (3, 4), "w": (3,)}, BadTensorShape),
        ErrorCase({"x": ()}, BadTensorShape),
        ErrorCase({"x": (3, 4), "w": (4,)}, InvalidArgument, {"eps": -1}),
        ErrorCase({"x": (3, 4), "w": (4,)}, BadTensorShape, outputs={"y": (4, 3)}),
    ],
)
