"""causal_softmax: softmax of attention scores, in which each query sees the keys up to its own position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Sample, Tolerance, declare
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import Descs, coalesce
from ..dtypes import FLOATS, I32
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape


def _causal_mask(x: Any) -> Any:
    m, s = x.shape[-2:]
    return np.arange(s) <= (s - m + np.arange(m))[:, None]


def _reference(x: Any) -> Any:
    seen = _causal_mask(x)
    top = np.max(np.where(seen, x, -np.inf), -1, keepdims=True, initial=-np.inf)
    none = np.broadcast_to(~seen.any(-1, keepdims=True), top.shape)
    with np.errstate(invalid="ignore"):
        e = np.where(seen, np.exp(x - np.where(none, 0, top)), 0)
        return np.where(seen, e / np.where(none, 1, e.sum(-1, keepdims=True)), 0)


def _scale(x: Any) -> Any:
    """Return the softmax times (2 + the distance of x below its row's maximum).

    exp converts the rounding error of that distance to a relative error.
    """
    finite = np.where(np.isfinite(x) & _causal_mask(x), x, -np.inf)
    below = np.abs(finite - np.max(finite, -1, keepdims=True, initial=-np.inf))
    return (2 + np.where(np.isfinite(below), below, 0)) * _reference(x)


def _normal_form(inputs: Descs, outputs: Any, values: Any) -> tuple[Descs, Descs]:
    """Return x and y as [*b, m, s] with the dims before the last two merged."""
    y, x = coalesce([*outputs, *inputs], keep=2)
    return [x], [y]


def _loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the softmax of what each query sees: keys up to s - m + its number."""
    y = outputs[0]
    loops, (m, s) = LETTERS[: y.ndim], y.shape[-2:]
    rows, compute = loops[:-1], y.dtype.compute
    x, keys, queries = e.cast(inputs[0], compute), e.iota(s, compute), e.iota(m, compute)
    sees = f"x1 <= x2 + {constant(s - m)}"
    given = f"{loops},{loops[-1]},{loops[-2]}"
    seen = e.loop(f"{given}->{loops}", f"x0 if {sees} else -1e999", x, keys, queries)
    top = e.loop(f"{loops}->{rows}", "x0", seen, combine="maximum")
    powers = e.loop(f"{given},{rows}->{loops}", f"exp(x0 - x3) if {sees} else 0", x, keys, queries, top)
    total = e.loop(f"{loops}->{rows}", "x0", powers, combine="sum")
    share = f"x0 / x3 if {sees} else 0"
    return e.loop(f"{given},{rows}->{loops}", share, powers, keys, queries, total, dtype=y.dtype)


causal_softmax = declare(
    "causal_softmax",
    "CSMX",
    "x: T[*b, m, s] -> y: T[*b, m, s]",
    {"T": FLOATS},
    family="normalization",
    doc=(
        "softmax over the last dim of what query i of m sees: keys up to s - m + i, the last query seeing all; 0 for"
        " the others, and for a query that sees none. A row with NaN, or with nothing but -∞, among what it sees is NaN"
        " there."
    ),
    reference=_reference,
    tolerance=Tolerance(16, _scale),
    normal_form=_normal_form,
    decompose=_loops,
    aliases=("x",),
    flops=lambda i, o: 5.0 * o[0].numel,
    samples=lambda: [
        *(
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
        ),
        Sample({"x": (200, 200)}, values={"x": "peaks"}, size="long"),
        *(Sample({"x": (2, n)}, size="long") for n in LENGTHS),
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4, 3)}),
        ErrorCase({"x": (3, 4)}, BadTensorDtype, dtypes={"T": I32}),
    ],
)
