"""Native sparse attention (Yuan et al. 2025) over a cache of pages: its compressed keys, and its three branches.

Which blocks a query selects is an input: they are the largest sums of the compressed branch's softmax over the blocks
that overlap each, which `softmax`, a sum and `topk` make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer, number
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BF16, BOOL, F16, F32, F64, FLOATS, I64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .attention import FARTHEST, match_doubles
from .attention_reference import Extras, attend
from .paged_attention import PAGE_ERROR, PAGES, check_heads, check_pages, emit_pages, emit_rows, find_held, read_pages

BLOCK = integer("block", 32, "keys of a compressed block", minimum=1)
STRIDE = integer("stride", 16, "keys from one compressed block to the next", minimum=1)


# Compressed blocks


def _compress_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    cache, table, _, weight = [*inputs, None][:4]
    check_pages("nsa_compress_paged_cache", cache)
    if weight is not None and weight != (values["block"],):
        allowed = f"[{values['block']}], one a key of a block"
        raise BadTensorShape("nsa_compress_paged_cache", f"weight is {list(weight)}", allowed=allowed)
    keys = table[1] * cache[1]
    count = (keys - values["block"]) // values["stride"] + 1 if keys >= values["block"] else 0
    return [(table[0], count, *cache[2:])]


def _compress_weights(weight: Any, block: int) -> Any:
    return np.full(block, 1 / block) if weight is None else weight


def _compress(cache: Any, table: Any, lengths: Any, weight: Any, block: int, stride: int) -> Any:
    held, rows = find_held(table, lengths, *cache.shape[:2]), read_pages(cache, table)
    count = max(0, (rows.shape[1] - block) // stride + 1)
    y = np.zeros((len(held), count, *cache.shape[2:]))
    for b, length in enumerate(held):
        for i in range(count):
            if i * stride + block <= length:
                y[b, i] = np.tensordot(_compress_weights(weight, block), rows[b, i * stride : i * stride + block], 1)
    return y


def _compress_scale(cache: Any, table: Any, lengths: Any, weight: Any, block: int, stride: int) -> Any:
    finite = np.abs(np.where(np.isfinite(cache), cache, 0))
    weights = np.abs(_compress_weights(weight, block))
    return (4 + np.sqrt(block)) * _compress(finite, table, lengths, weights, block, stride)


def _compress_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    cache, table, lengths = inputs[:3]
    y, weight = outputs[0], find_optional(inputs, 3)
    chosen, held = emit_pages(e, table, lengths, *cache.spec.shape[:2])
    rows = emit_rows(e, cache, chosen, y.dtype.compute)
    block, stride, size = values["block"], values["stride"], rows.spec.shape[1]
    # Of a length out of range gather reports it here; it would count a negative one from the end
    checked = e.loop("b->b", f"x0 if x0 >= 0 else x0 - {size + 1}", held)
    held = e("gather", e.iota(size + 1, I64), checked, axis=0)
    if weight is None:
        weight = e.fill((block,), 1 / block, y.dtype.compute)
    number_ = e.iota(y.shape[1], I64)
    places = e.loop("c,j->cj", f"x0 * {stride} + x1", number_, e.iota(block, I64))
    whole = e.loop("c,b->bc", f"x0 * {stride} + {block} <= x1", number_, held, dtype=BOOL)
    taken = e("gather", rows, places, axis=1)
    return e.loop("bcjgd,j,bc->bcgd", "x0 * x1 if x2 != 0 else 0", taken, weight, whole, combine="sum", dtype=y.dtype)


_COMPRESS: SampleTable = [
    # sequences, pages of each, pages, rows of a page, heads, d, weighted, attributes
    (1, 3, 5, 4, 1, 32, False, {"block": 4, "stride": 2}, "small"),
    (2, 4, 5, 8, 2, 16, True, {"block": 8, "stride": 4}, "small"),
    (3, 3, 4, 5, 2, 7, True, {"block": 3, "stride": 5}, "small"),
    (2, 1, 3, 4, 1, 8, False, {}, "small"),
    (2, 0, 3, 4, 1, 8, False, {"block": 2}, "small"),
    (0, 2, 3, 4, 1, 8, False, {"block": 2}, "small"),
    (3, 16, 40, 16, 4, 64, False, {}, "wide"),
    (2, 32, 64, 16, 4, 64, False, {}, "medium"),
    (4, 256, 1024, 16, 4, 128, False, {}, "large"),
]
_CACHE = {"cache": (5, 4, 2, 32), "block_table": (2, 3), "lengths": (2,)}
_SIZES = {"block": 4, "stride": 2}

declare(
    "nsa_compress_paged_cache",
    "NSAC",
    "cache: T[p, s, g, d], block_table: I[b, n], lengths: I[b], weight?: T[w] -> y: T[b, c, g, d]",
    {"T": FLOATS, "I": INDICES},
    family="attention",
    doc=(
        "Compressed keys (or values) of native sparse attention (Yuan et al. 2025): y[b, i] = Σ_j weight[j] · row"
        " i · stride + j of sequence b, over `block` rows; their mean without weight. Rows lie in pages as those of"
        f" paged_attention do. A block that passes the end of its sequence is 0. {PAGES}"
    ),
    reference=lambda cache, block_table, lengths, weight, **values: _compress(
        cache, block_table, lengths, weight, **values
    ),
    tolerance=Tolerance(
        2,
        lambda cache, block_table, lengths, weight, **values: _compress_scale(
            cache, block_table, lengths, weight, **values
        ),
    ),
    attrs=attrs("NSC1", BLOCK, STRIDE),
    shapes=_compress_shapes,
    normal_form=as_given,
    decompose=_compress_parts,
    samples=lambda: [
        Sample(
            {
                "cache": (p, s, g, d),
                "block_table": (b, n),
                "lengths": (b,),
                **({"weight": (values["block"],)} if weighted else {}),
            },
            values,
            {"block_table": f"length:{p - 1}", "lengths": f"length:{n * s}"},
            size=size,
        )
        for b, n, p, s, g, d, weighted, values, size in _COMPRESS
    ],
    errors=[
        ErrorCase({**_CACHE, "cache": (5, 4, 32)}, BadTensorShape, _SIZES),
        ErrorCase({**_CACHE, "cache": (0, 4, 2, 32)}, BadTensorShape, _SIZES),
        ErrorCase({**_CACHE, "lengths": (3,)}, BadTensorShape, _SIZES),
        ErrorCase({**_CACHE, "weight": (3,)}, BadTensorShape, _SIZES),
        ErrorCase(_CACHE, InvalidArgument, {"block": 0}),
        ErrorCase(_CACHE, InvalidArgument, {"stride": 0}),
        ErrorCase(_CACHE, BadTensorDtype, _SIZES, dtypes={"block_table": F32}),
        ErrorCase(_CACHE, BadTensorShape, _SIZES, outputs={"y": (2, 4, 2, 32)}),
    ],
    device_error=PAGE_ERROR,
)


# The three branches


def _attention_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, k, v = inputs[:3]
    check_heads("nsa_paged_attention", q, k)
    check_pages("nsa_paged_attention", k)
    return [(*q[:3], v[3])]


def _branches(given: Sequence[Any], values: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return (y, its error bound) of the inputs in the signature's order."""
    q, k, v, table, lengths, ck, cv, chosen, gates = given
    held = find_held(table, lengths, *k.shape[:2])
    m, share = q.shape[1], q.shape[2] // k.shape[2] if k.shape[2] else 1
    place = held[:, None] - m + np.arange(m)
    ends = np.arange(ck.shape[1]) * values["stride"] + values["block"] - 1
    shown = (ends <= place[..., None])[:, None]
    keys, rows = (read_pages(cache, table) for cache in (k, v))
    own = np.arange(keys.shape[1]) // values["size"]
    picked = np.repeat((chosen[..., None] == own).any(3), share, 2).swapaxes(1, 2)
    plain = {"scale": values["scale"], "softcap": 0.0, "causal": True, "window": 0}
    parts = [
        attend(q, ck, cv, Extras(seen=shown), {**plain, "causal": False}),
        attend(q, keys, rows, Extras(lengths=held, seen=picked), plain),
        attend(q, keys, rows, Extras(lengths=held), {**plain, "window": values["window"]}),
    ]
    weights = [gates[..., i : i + 1] for i in range(3)]
    y = sum(g * part[0] for g, part in zip(weights, parts, strict=True))
    size = [np.abs(np.where(np.isfinite(part[0]), part[0], 0)) for part in parts]
    bound = sum(np.abs(g) * (16 * part[2] + 24 * s) for g, part, s in zip(weights, parts, size, strict=True))
    return y, bound


def _reference(
    q: Any, k: Any, v: Any, block_table: Any, lengths: Any, ck: Any, cv: Any, chosen: Any, gates: Any, **values: Any
) -> Any:
    return _branches([q, k, v, block_table, lengths, ck, cv, chosen, gates], values)[0]


def _scale(
    q: Any, k: Any, v: Any, block_table: Any, lengths: Any, ck: Any, cv: Any, chosen: Any, gates: Any, **values: Any
) -> Any:
    return _branches([q, k, v, block_table, lengths, ck, cv, chosen, gates], values)[1]


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    q, k, v, table, lengths, ck, cv, chosen, gates = inputs
    y, wide = outputs[0], outputs[0].dtype.compute
    m, h, g = q.spec.shape[1], q.spec.shape[2], k.spec.shape[2]
    if y.numel == 0:
        return e.fill(y.shape, 0.0, y.dtype)
    pages, held = emit_pages(e, table, lengths, *k.spec.shape[:2])
    rows = [emit_rows(e, cache, pages, wide) for cache in (k, v)]
    size, q = rows[0].spec.shape[1], e.cast(q, wide)
    known = e.loop("b->b", f"x0 if x0 >= 0 and x0 <= {size} else 0", held)
    behind = values["block"] - 1 + m
    seen = e.loop("c,b,m->bmc", f"x0 * {values['stride']} + {behind} <= x1 + x2", e.iota(ck.spec.shape[1], I64), known,
                  e.iota(m, I64), dtype=BOOL)  # fmt: skip
    seen = e("expand_shape", seen, groups=(2, 1, 1), shape=(y.shape[0], 1, m, ck.spec.shape[1]))
    rest = {"scale": values["scale"]}
    coarse = e("attention", q, ck, cv, None, None, seen, **rest)
    is_own = f"1 if x0 == quotient(x1, {values['size']}) else 0"
    picked = e.loop("bmgt,s->bgms", is_own, e.cast(chosen, I64), e.iota(size, I64), combine="maximum")
    picked = e.loop("bgms->bgms", "x0 > 0", picked, dtype=BOOL)
    picked = e("gather", picked, e.loop("a->a", f"quotient(x0, {h // g})", e.iota(h, I64)), axis=1)
    fine = e("attention", q, *rows, None, held, picked, causal=True, **rest)
    near = e("attention", q, *rows, None, held, causal=True, window=values["window"], **rest)
    each = [e.collapse(e("slice", gates, starts=(i,), ends=(i + 1,), axes=(3,)), (1, 1, 2)) for i in range(3)]
    body, letters = "x0 * x1 + x2 * x3 + x4 * x5", ",".join(["bmh,bmhe"] * 3)
    return e.loop(f"{letters}->bmhe", body, each[0], coarse, each[1], fine, each[2], near, dtype=y.dtype)


_ATTENTION: SampleTable = [
    # sequences, queries, pages of each, pages, rows of a page, heads, heads of k, d, e, compressed, selected
    (1, 1, 3, 5, 4, 2, 1, 32, 32, 5, 2, {"block": 4, "stride": 2, "size": 4, "window": 4}, "small"),
    (2, 3, 4, 5, 8, 4, 2, 32, 16, 7, 3, {"block": 8, "stride": 4, "size": 8, "window": 9}, "small"),
    (2, 4, 3, 4, 5, 6, 2, 5, 7, 4, 1, {"block": 3, "stride": 3, "size": 2, "window": 3, "scale": 0.3}, "small"),
    (2, 1, 3, 4, 4, 2, 2, 8, 8, 0, 0, {"size": 4, "window": 2}, "small"),
    (0, 2, 3, 4, 4, 2, 1, 8, 8, 1, 1, {}, "small"),
    (2, 2, 0, 4, 4, 2, 1, 8, 8, 1, 1, {}, "small"),
    (3, 2, 16, 40, 16, 8, 2, 64, 64, 15, 4, {"window": 64}, "wide"),
    (1, 1, 64, 64, 16, 16, 2, 64, 64, 63, 8, {"window": 256}, "medium"),
    (1, 1, 256, 256, 16, 64, 4, 128, 128, 255, 16, {}, "large"),
]
_GIVEN = {
    "q": (2, 3, 4, 32),
    "k": (5, 4, 2, 32),
    "v": (5, 4, 2, 16),
    "block_table": (2, 3),
    "lengths": (2,),
    "ck": (2, 3, 2, 32),
    "cv": (2, 3, 2, 16),
    "chosen": (2, 3, 2, 2),
    "gates": (2, 3, 4, 3),
}

declare(
    "nsa_paged_attention",
    "NSAA",
    (
        "q: T[b, m, h, d], k: K[p, s, g, d], v: K[p, s, g, e], block_table: I[b, n], lengths: I[b], ck: K[b, c, g, d],"
        " cv: K[b, c, g, e], chosen: I[b, m, g, t], gates: T[b, m, h, 3] -> y: T[b, m, h, e]"
    ),
    {"K": (F32, F16, BF16, F64), "T": (*ACTIVATIONS, F64), "I": INDICES},
    family="attention",
    doc=(
        "Native sparse attention (Yuan et al. 2025): gates[…, 0] times attention to the compressed keys ck and values"
        " cv of blocks that end at or before the query (nsa_compress_paged_cache), plus gates[…, 1] times attention to"
        " the keys of the blocks that it has selected, chosen[b, m, g] of `size` keys each, plus gates[…, 2] times"
        " attention to the last `window` keys, all causal. A number of chosen that is no block's selects none. Keys lie"
        f" in pages as those of paged_attention do. {PAGES}"
    ),
    reference=_reference,
    tolerance=Tolerance(2, _scale),
    attrs=attrs(
        "NSA1",
        BLOCK,
        STRIDE,
        integer("size", 64, "keys of a selected block", minimum=1),
        integer("window", 512, "the last keys that a query sees in any case", minimum=1, maximum=FARTHEST),
        number("scale", 0.0, "factor of the scores; 0 for 1/sqrt(d)"),
    ),
    shapes=_attention_shapes,
    combinations=match_doubles,
    normal_form=as_given,
    decompose=_parts,
    domains={"q": "unit", "k": "unit", "ck": "unit", "chosen": "moderate", "gates": "unit"},
    samples=lambda: [
        Sample(
            {
                "q": (b, m, h, d),
                "k": (p, s, g, d),
                "v": (p, s, g, e),
                "block_table": (b, n),
                "lengths": (b,),
                "ck": (b, c, g, d),
                "cv": (b, c, g, e),
                "chosen": (b, m, g, t),
                "gates": (b, m, h, 3),
            },
            values,
            {"block_table": f"length:{p - 1}", "lengths": f"length:{n * s}"},
            size=size,
        )
        for b, m, n, p, s, h, g, d, e, c, t, values, size in _ATTENTION
    ],
    errors=[
        ErrorCase({**_GIVEN, "q": (3, 4, 32)}, BadTensorShape),
        ErrorCase({**_GIVEN, "k": (0, 4, 2, 32), "v": (0, 4, 2, 16)}, BadTensorShape),
        ErrorCase({**_GIVEN, "q": (2, 3, 3, 32), "gates": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({**_GIVEN, "cv": (2, 4, 2, 16)}, BadTensorShape),
        ErrorCase({**_GIVEN, "chosen": (2, 3, 4, 2)}, BadTensorShape),
        ErrorCase({**_GIVEN, "gates": (2, 3, 4, 2)}, BadTensorShape),
        ErrorCase(_GIVEN, InvalidArgument, {"size": 0}),
        ErrorCase(_GIVEN, InvalidArgument, {"window": 2**63 - 1}),
        ErrorCase(_GIVEN, BadTensorDtype, dtypes={"T": F64, "K": F32}),
        ErrorCase(_GIVEN, BadTensorDtype, dtypes={"chosen": F32}),
    ],
    device_error=PAGE_ERROR,
)
