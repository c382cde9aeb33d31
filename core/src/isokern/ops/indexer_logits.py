"""indexer_logits: how much each query of sparse attention wants each key (DeepSeek-V3.2's lightning indexer)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BOOL, F32, F64, FP8, I64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .gemm import accumulated_magnitude


def _logits(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    q, k, k_scale, weights = inputs[:4]
    starts, ends = find_optional(inputs, 4), find_optional(inputs, 5)
    m, h, d = q.spec.shape
    n = k.spec.shape[0]
    products = e("linear", e.cast(e.reshape(q, (m * h, d)), F32), e.cast(k, F32))
    parts = e.reshape(products, (m, h, n))
    total = e.loop("ahb,ah->ab", "maximum(x0, 0) * x1", parts, weights, combine="sum")
    logits = e.loop("ab,b->ab", "x0 * x1", total, k_scale)
    hidden = []
    if starts is not None:
        hidden.append(e.loop("a,b->ab", "x1 < x0", e.cast(starts, I64), e.iota(n, I64), dtype=BOOL))
    if ends is not None:
        hidden.append(e.loop("a,b->ab", "x1 >= x0", e.cast(ends, I64), e.iota(n, I64), dtype=BOOL))
    for mask in hidden:
        logits = e("where", mask, e.fill((), -math.inf, F32), logits)
    return logits


def _parts(q: Any, k: Any, weights: Any) -> tuple[Any, Any]:
    """Return the products [m, h, n], and the magnitude of their rounding."""
    m, h, d = q.shape
    rows = q.reshape(m * h, d)
    return (rows @ k.T).reshape(m, h, len(k)), accumulated_magnitude(rows, k.T).reshape(m, h, len(k))


def _reference(q: Any, k: Any, k_scale: Any, weights: Any, starts: Any, ends: Any) -> Any:
    products, _ = _parts(q, k, weights)
    logits = np.einsum("ahb,ah->ab", np.maximum(products, 0), weights) * k_scale
    at = np.arange(len(k))
    for hidden in (
        False if starts is None else at < starts[:, None],
        False if ends is None else at >= ends[:, None],
    ):
        logits = np.where(hidden, -np.inf, logits)
    return logits


def _scale(q: Any, k: Any, k_scale: Any, weights: Any, starts: Any, ends: Any) -> Any:
    products, rounding = _parts(q, k, weights)
    each = rounding + (4 + np.sqrt(q.shape[1])) * np.abs(products)
    each = np.where(np.isfinite(products), each, 0)  # -inf becomes 0, and others make the result what they are
    return 2 * np.einsum("ahb,ah->ab", each, np.abs(weights)) * np.abs(k_scale)


SAMPLES: SampleTable = [
    (2, 3, 32, 5, False, "small"),
    (1, 1, 7, 1, True, "small"),
    (5, 4, 33, 17, True, "small"),
    (3, 2, 128, 0, False, "small"),
    (0, 2, 16, 3, True, "small"),
    (2, 3, 0, 4, False, "small"),
    (61, 8, 128, 300, True, "wide"),
    (16, 32, 128, 1024, True, "medium"),
    (64, 64, 128, 4096, True, "large"),
]

declare(
    "indexer_logits",
    "IDXL",
    "q: Q[m, h, d], k: Q[n, d], k_scale: F32[n], weights: F32[m, h], starts?: I[m], ends?: I[m] -> y: F32[m, n]",
    {"Q": (*ACTIVATIONS, *FP8), "I": INDICES},
    family="contraction",
    doc=(
        "y[i, j] = k_scale[j] · Σ_h weights[i, h] · max(q[i, h] · k[j], 0), summed in F32, and -inf for keys before"
        " starts[i] or from ends[i] on (the lightning indexer of DeepSeek-V3.2, with queries and keys of 8 bits). The"
        " scales of q go into weights; k and k_scale are what dynamic_quantize makes. topk of y names the keys that"
        " sparse attention gathers."
    ),
    reference=_reference,
    tolerance=Tolerance(4, _scale),
    normal_form=as_given,
    decompose=_logits,
    flops=lambda i, o: 2.0 * o[0].numel * (i[0].shape[1] * i[0].shape[2] if i[0] is not None else 0),
    samples=lambda: [
        Sample(
            {
                "q": (m, h, d),
                "k": (n, d),
                "k_scale": (n,),
                "weights": (m, h),
                **({"starts": (m,), "ends": (m,)} if some else {}),
            },
            {},
            {"k_scale": "positive", "starts": f"length:{n}", "ends": f"length:{n}"},
            size=size,
        )
        for m, h, d, n, some, size in SAMPLES
    ],
    errors=[
        ErrorCase({"q": (2, 3, 4), "k": (5, 6), "k_scale": (5,), "weights": (2, 3)}, BadTensorShape),
        ErrorCase({"q": (2, 3, 4), "k": (5, 4), "k_scale": (4,), "weights": (2, 3)}, BadTensorShape),
        ErrorCase({"q": (2, 3, 4), "k": (5, 4), "k_scale": (5,), "weights": (3, 3)}, BadTensorShape),
        ErrorCase({"q": (2, 3, 4), "k": (5, 4), "k_scale": (5,), "weights": (2, 3), "ends": (3,)}, BadTensorShape),
        ErrorCase({"q": (2, 3, 4), "k": (5, 4), "k_scale": (5,)}, InvalidArgument),
        ErrorCase({"q": (2, 3, 4), "k": (5, 4), "k_scale": (5,), "weights": (2, 3)}, BadTensorDtype, dtypes={"Q": F64}),
    ],
)
