"""layer_norm: rows shifted to mean 0 and scaled to variance 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import rows
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument


def _spread(x: Any, eps: float) -> Any:
    return np.sqrt(np.var(x, -1, keepdims=True) + eps)


def _reference(x: Any, w: Any, bias: Any, eps: float) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        y = (x - np.mean(x, -1, keepdims=True)) / _spread(x, eps)
    y = y if w is None else y * w
    return y if bias is None else y + bias


def _scale(x: Any, w: Any, bias: Any, eps: float) -> Any:
    """Return the magnitude of the error: (|x| + |mean|) over the spread, since subtracting the mean cancels."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = 8 * (np.abs(x) + np.mean(np.abs(x), -1, keepdims=True)) / _spread(x, eps)
    size = size if w is None else size * np.abs(w)
    return size if bias is None else size + np.abs(bias)


def _loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w, bias = [*inputs, None, None][:3]
    assert x is not None
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    wide, rows, d = e.cast(x, y.dtype.compute), loops[:-1], constant(y.shape[-1])
    total = e.loop(f"{loops}->{rows}", "x0", wide, combine="sum")
    centred = e.loop(f"{loops},{rows}->{loops}", f"x0 - x1 / {d}", wide, total)
    squares = e.loop(f"{loops}->{rows}", "x0 * x0", centred, combine="sum")
    body, given, maps = f"x0 / sqrt(x1 / {d} + {constant(values['eps'])})", [centred, squares], f"{loops},{rows}"
    for mark, operand in (("*", w), ("+", bias)):
        if operand is not None:
            body, maps = f"({body}) {mark} x{len(given)}", f"{maps},{loops[-1]}"
            given.append(operand)
    return e.loop(f"{maps}->{loops}", body, *given, dtype=y.dtype)


layer_norm = declare(
    "layer_norm",
    "LAYN",
    "x: T[*b, d], w?: T[d], bias?: T[d] -> y: T[*b, d]",
    {"T": FLOATS},
    family="normalization",
    doc=(
        "(x - mean) / sqrt(variance + eps) · w + bias over the last dim (Ba et al. 2016), the variance of the"
        " population."
    ),
    reference=_reference,
    tolerance=Tolerance(16, _scale),
    attrs=attrs("LYN1", number("eps", 1e-5, "added to the variance", minimum=0)),
    normal_form=rows,
    decompose=_loops,
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
                ((3, 4133), 2, 1e-5),
                ((4, 33), 2, 1e-6),
                ((0, 3), 2, 1e-5),
                ((3, 0), 2, 1e-5),
                ((1, 1), 2, 1e-5),
                ((2, 1, 2, 1, 3, 1, 2, 2), 2, 1e-5),
                ((6, 64), 2, 1e-3),
            ]
        ),
        Sample({"x": (3, 34), "bias": (34,)}),
        *(
            Sample({"x": s, "w": s[-1:], "bias": s[-1:]}, size=size)
            for s, size in [((64, 64), "small"), ((601, 1025), "wide"), ((512, 512), "medium"), ((4096, 4096), "large")]
        ),
        *(Sample({"x": (2, n), "w": (n,), "bias": (n,)}, size="long") for n in LENGTHS),
        Sample({"x": (40_000, 8), "w": (8,), "bias": (8,)}, size="long"),
    ],
    errors=[
        ErrorCase({"x": (3, 4), "w": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "w": (4,), "bias": (4, 1)}, BadTensorShape),
        ErrorCase({"x": ()}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"eps": -1}),
    ],
)
