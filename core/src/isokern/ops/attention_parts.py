"""What goes with attention: parts of the keys joined, ALiBi's slopes and biases, and masks of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, flag, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BF16, F16, F32, F64, FLOATS, I32, I64
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .attention import match_doubles
from .attention_reference import Extras, attend
from .paged_attention import FIELDS, check_heads

# Parts of the keys


def _shares(lse: Any) -> tuple[Any, Any, Any]:
    """Return (the share of each part, log-sum-exp of all, how far off the largest each part is)."""
    with np.errstate(invalid="ignore"):
        top = lse.max(0, initial=-np.inf)
        off = np.where(np.isneginf(lse), 0, lse - np.where(np.isneginf(top), 0, top))
        powers = np.where(np.isneginf(lse), 0, np.exp(off))
        total = powers.sum(0)
        return powers / np.where(total == 0, 1, total), top + np.log(total), np.abs(off)


def _merge(x: Any, lse: Any) -> tuple[Any, Any]:
    shares, merged, _ = _shares(lse)
    with np.errstate(invalid="ignore"):
        return np.where(shares[..., None] == 0, 0, shares[..., None] * x).sum(0), merged


def _merge_scale(x: Any, lse: Any) -> tuple[Any, Any]:
    shares, merged, off = _shares(lse)
    finite = np.abs(np.where(np.isfinite(x), x, 0))
    y = (shares[..., None] * finite * (8 + 2 * np.sqrt(len(lse)) + 2 * off[..., None])).sum(0)
    return y, 8 + 2 * np.sqrt(len(lse)) + 2 * np.abs(np.where(np.isfinite(merged), merged, 0))


def _merge_parts(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, V]:
    (x, lse), (y, merged) = inputs, outputs
    if y.numel == 0 and merged.numel == 0:
        return e.fill(y.shape, 0.0, y.dtype), e.fill(merged.shape, 0.0, F32)
    parts, n, d = lse.spec.shape[0], merged.numel, y.shape[-1]
    x, lse = e.reshape(x, (parts, n, d)), e.reshape(lse, (parts, n))
    top = e.loop("pn->n", "x0", lse, combine="maximum")
    powers = e.loop("pn,n->pn", "0 if x0 == -1e999 else exp(x0 - (0 if x1 == -1e999 else x1))", lse, top)
    total = e.loop("pn->n", "x0", powers, combine="sum")
    shares = e.loop("pn,n->pn", "x0 / (1 if x1 == 0 else x1)", powers, total)
    whole = e.loop("pn,pnd->nd", "0 if x0 == 0 else x0 * x1", shares, x, combine="sum", dtype=y.dtype)
    return e.reshape(whole, y.shape), e.reshape(e.loop("n,n->n", "x0 + log(x1)", top, total), merged.shape)


declare(
    "merge_attention_states",
    "MATS",
    "x: T[p, *b, e], lse: F32[p, *b] -> y: T[*b, e], merged: F32[*b]",
    {"T": ACTIVATIONS},
    family="attention",
    doc=(
        "The results of attention to p parts of the keys, and their log-sum-exps as attention_lse returns them, joined"
        " to those of attention to all of them: y = Σ e^(lse - merged) x with merged = ln Σ e^lse (Dao et al. 2023,"
        " flash decoding; FlashInfer's merge_states). A part whose lse is -∞ adds nothing; without others y is 0."
    ),
    reference=_merge,
    tolerance=Tolerance(4, _merge_scale),
    normal_form=as_given,
    decompose=_merge_parts,
    domains={"lse": "moderate"},
    samples=lambda: [
        Sample({"x": (p, *b, d), "lse": (p, *b)}, {}, {} if far is None else {"lse": far}, size=size)
        for p, b, d, far, size in [
            (2, (7,), 32, None, "small"),
            (3, (2, 3, 4), 5, None, "small"),
            (4, (9,), 8, "valleys", "small"),
            (1, (), 16, None, "small"),
            (2, (2, 1, 2, 1, 3, 2), 3, None, "small"),
            (0, (3,), 4, None, "small"),
            (2, (0, 3), 4, None, "small"),
            (2, (3,), 0, None, "small"),
            (8, (40, 32), 65, None, "wide"),
            (8, (32, 32), 128, None, "medium"),
            (8, (512, 32), 128, None, "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (2, 3, 4), "lse": (2, 4)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 4), "lse": (3, 3)}, BadTensorShape),
        ErrorCase({"x": (4,), "lse": (4,)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 4), "lse": (2, 3)}, BadTensorDtype, dtypes={"T": F64}),
        ErrorCase({"x": (2, 3, 4), "lse": (2, 3)}, BadTensorDtype, dtypes={"lse": F16}),
    ],
)


# ALiBi


def _slope_exponents(heads: int, max_bias: float) -> Any:
    whole = 1 << (heads.bit_length() - 1)
    i = np.arange(heads)
    return -max_bias * np.where(i < whole, (i + 1) / whole, (2 * (i - whole) + 1) / (2 * whole))


def _slopes(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    heads, bias = values["heads"], constant(-values["max_bias"])
    whole = 1 << (heads.bit_length() - 1)
    share = f"((x0 + 1) / {whole} if x0 < {whole} else (2 * (x0 - {whole}) + 1) / {2 * whole})"
    y = outputs[0].dtype
    return e.loop("h->h", f"exp2({bias} * {share})", e.iota(heads, y.compute), dtype=y)


declare(
    "alibi_slopes",
    "ALSL",
    " -> y: T[heads]",
    {"T": FLOATS},
    family="position",
    doc=(
        "The slope of each head by ALiBi (Press et al. 2022): 2^(-max_bias · (i + 1) / n) for the first n heads, n"
        " being the largest power of two that is at most `heads`; the other heads have every second slope of those that"
        " 2n heads would have."
    ),
    reference=lambda heads, max_bias: np.exp2(_slope_exponents(heads, max_bias)),
    tolerance=Tolerance(4, lambda heads, max_bias: 4 * np.abs(e := _slope_exponents(heads, max_bias)) * np.exp2(e)),
    attrs=attrs(
        "ALS1",
        integer("heads", doc="how many", minimum=1, maximum=1 << 20),
        number("max_bias", 8.0, "the exponent of the last of n heads", minimum=0, maximum=64),
    ),
    normal_form=as_given,
    decompose=_slopes,
    samples=lambda: [
        Sample({}, {"heads": n, **more}, size=size)
        for n, more, size in [
            (1, {}, "small"),
            (8, {}, "small"),
            (12, {}, "small"),
            (33, {"max_bias": 4.0}, "small"),
            (300, {}, "small"),
            (1025, {}, "wide"),
            (65536, {}, "medium"),
            (1 << 20, {}, "large"),
        ]
    ],
    errors=[
        ErrorCase({}, InvalidArgument),
        ErrorCase({}, InvalidArgument, {"heads": 0}),
        ErrorCase({}, InvalidArgument, {"heads": 4, "max_bias": -1.0}),
        ErrorCase({}, BadTensorShape, {"heads": 4}, outputs={"y": (5,)}),
    ],
)


def _distances(queries: int, keys: int) -> Any:
    return np.abs(keys - queries + np.arange(queries)[:, None] - np.arange(keys))


def _bias(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (slopes,), y, wide = inputs, outputs[0], outputs[0].dtype.compute
    place = constant(values["keys"] - values["queries"])
    own, key = e.iota(values["queries"], wide), e.iota(values["keys"], wide)
    return e.loop("h,m,s->hms", f"-x0 * abs({place} + x1 - x2)", e.cast(slopes, wide), own, key, dtype=y.dtype)


declare(
    "alibi_bias",
    "ALBI",
    "slopes: F32[h] -> y: T[h, queries, keys]",
    {"T": FLOATS},
    family="position",
    doc=(
        "The mask that ALiBi adds to scores (Press et al. 2022): y[h, i, j] = -slopes[h] · |keys - queries + i - j|,"
        " the last query being at the last key. attention computes it itself if it is given slopes as alibi."
    ),
    reference=lambda slopes, queries, keys: -slopes[:, None, None] * _distances(queries, keys),
    tolerance=Tolerance(1),
    attrs=attrs(
        "ALB1",
        integer("queries", doc="how many", minimum=0, maximum=1 << 24),
        integer("keys", doc="how many", minimum=0, maximum=1 << 24),
    ),
    normal_form=as_given,
    decompose=_bias,
    samples=lambda: [
        Sample({"slopes": (h,)}, {"queries": m, "keys": s}, size=size)
        for h, m, s, size in [
            (2, 3, 5, "small"),
            (1, 7, 4, "small"),
            (5, 1, 33, "small"),
            (0, 3, 4, "small"),
            (2, 0, 4, "small"),
            (2, 3, 0, "small"),
            (4, 301, 403, "wide"),
            (8, 128, 512, "medium"),
            (32, 512, 1024, "large"),
        ]
    ],
    errors=[
        ErrorCase({"slopes": (2,)}, InvalidArgument, {"queries": 3}),
        ErrorCase({"slopes": (2,)}, InvalidArgument, {"queries": 3, "keys": -1}),
        ErrorCase({"slopes": (2, 3)}, BadTensorShape, {"queries": 3, "keys": 4}),
        ErrorCase({"slopes": (2,)}, BadTensorDtype, {"queries": 3, "keys": 4}, dtypes={"slopes": I32}),
        ErrorCase({"slopes": (2,)}, BadTensorShape, {"queries": 3, "keys": 4}, outputs={"y": (2, 4, 3)}),
    ],
)


# Masks of blocks


def _block_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, k, v, blocks = inputs
    check_heads("block_sparse_attention", q, k)
    b, m, h, _ = q
    size = values["block"]
    full, given = (b, h, -(-m // size), -(-k[1] // size)), (1,) * (4 - len(blocks)) + blocks
    if len(blocks) < 2 or len(blocks) > 4 or any(a not in (1, f) for a, f in zip(given[:2], full[:2], strict=True)):
        raise BadTensorShape(
            "block_sparse_attention", f"blocks is {list(blocks)}", allowed=f"what broadcasts to {list(full)}"
        )
    if given[2:] != full[2:]:
        raise BadTensorShape("block_sparse_attention", f"blocks is {list(blocks)}", allowed=f"{list(full)}")
    return [(*q[:3], v[3])]


def _spread(blocks: Any, m: int, s: int, size: int) -> Any:
    return np.repeat(np.repeat(blocks, size, -2)[..., :m, :], size, -1)[..., :s]


def _block_sparse(q: Any, k: Any, v: Any, blocks: Any, values: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    seen = _spread(blocks, q.shape[1], k.shape[1], values["block"])
    return attend(q, k, v, Extras(seen=seen), values)


def _block_reference(q: Any, k: Any, v: Any, blocks: Any, **values: Any) -> Any:
    return _block_sparse(q, k, v, blocks, values)[0]


def _block_scale(q: Any, k: Any, v: Any, blocks: Any, **values: Any) -> Any:
    return _block_sparse(q, k, v, blocks, values)[2]


def _block_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    q, k, v, seen = inputs
    size = values["block"]
    for axis, count in ((-2, q.spec.shape[1]), (-1, k.spec.shape[1])):
        own = e.loop("a->a", f"quotient(x0, {size})", e.iota(count, I64))
        seen = e("gather", seen, own, axis=axis)
    rest = {name: value for name, value in values.items() if name != "block"}
    return e("attention", q, k, v, None, None, seen, **rest)


_BLOCKS = {"q": (2, 5, 4, 32), "k": (2, 9, 2, 32), "v": (2, 9, 2, 32), "blocks": (2, 3)}

_BLOCK_SAMPLES: SampleTable = [
    (1, 5, 7, 2, 1, 32, 32, (2, 2), 4, {}, "small"),
    (2, 6, 40, 4, 2, 32, 64, (2, 1, 2, 10), 4, {"causal": True}, "small"),
    (2, 9, 33, 4, 4, 5, 7, (4, 3, 11), 3, {"softcap": 2.0, "window": 8}, "small"),
    (1, 3, 5, 2, 2, 32, 32, (2, 3, 5), 1, {}, "small"),
    (2, 3, 0, 2, 1, 32, 32, (1, 0), 4, {}, "small"),
    (0, 3, 4, 2, 1, 32, 32, (1, 1), 4, {}, "small"),
    (1, 33, 130, 4, 2, 64, 64, (4, 3, 9), 16, {"causal": True}, "wide"),
    (1, 256, 256, 8, 2, 64, 64, (8, 8), 32, {"causal": True}, "medium"),
    (1, 512, 512, 32, 8, 128, 128, (32, 8, 8), 64, {"causal": True}, "large"),
]

declare(
    "block_sparse_attention",
    "BSAT",
    "q: T[b, m, h, d], k: K[b, s, g, d], v: K[b, s, g, e], blocks: BOOL[*w] -> y: T[b, m, h, e]",
    {"K": (F32, F16, BF16, F64), "T": (*ACTIVATIONS, F64)},
    family="attention",
    doc=(
        "attention by a mask of blocks: query i may see key j where blocks[…, i // block, j // block] is true (block"
        " sparse attention, Child et al. 2019; Zaheer et al. 2020). blocks broadcasts along sequences and heads."
    ),
    reference=_block_reference,
    tolerance=Tolerance(16, _block_scale),
    attrs=attrs(
        "BSA1",
        integer("block", doc="queries, and keys, of a block", minimum=1),
        flag("causal", False, "a query sees no key behind it, the last query being at the last key"),
        *FIELDS,
    ),
    shapes=_block_shapes,
    combinations=match_doubles,
    normal_form=as_given,
    decompose=_block_parts,
    domains={"q": "unit", "k": "unit"},
    samples=lambda: [
        Sample({"q": (b, m, h, d), "k": (b, s, g, d), "v": (b, s, g, e), "blocks": w}, {"block": n, **more}, size=size)
        for b, m, s, h, g, d, e, w, n, more, size in _BLOCK_SAMPLES
    ],
    errors=[
        ErrorCase({**_BLOCKS, "q": (5, 4, 32)}, BadTensorShape, {"block": 3}),
        ErrorCase({**_BLOCKS, "k": (2, 9, 3, 32), "v": (2, 9, 3, 32)}, BadTensorShape, {"block": 3}),
        ErrorCase({**_BLOCKS, "blocks": (2, 2)}, BadTensorShape, {"block": 3}),
        ErrorCase({**_BLOCKS, "blocks": (3, 2, 3)}, BadTensorShape, {"block": 3}),
        ErrorCase(_BLOCKS, InvalidArgument, {"block": 0}),
        ErrorCase(_BLOCKS, InvalidArgument),
        ErrorCase(_BLOCKS, BadTensorDtype, {"block": 3}, dtypes={"blocks": F32}),
        ErrorCase(_BLOCKS, BadTensorDtype, {"block": 3}, dtypes={"T": F64, "K": F32}),
    ],
)
