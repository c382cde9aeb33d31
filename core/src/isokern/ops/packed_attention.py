"""Attention to sequences of several lengths that are packed one after another, over a cache of pages or packed keys.

Both operators have the kernel stem `attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BF16, BOOL, F16, F32, F64, I64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape
from .attention import match_doubles
from .attention_reference import Extras, attend
from .paged_attention import (
    CAUSAL,
    FIELDS,
    PAGE_ERROR,
    PAGES,
    TYPES,
    check_heads,
    check_pages,
    emit_pages,
    emit_rows,
    find_held,
    page_errors,
    read_pages,
)

# Queries of sequence i are rows cu_seqlens[i] to cu_seqlens[i + 1] - 1 of q, its keys in pages

PACKED: SampleTable = [
    # tokens, sequences, pages of each, pages, rows of a page, heads, heads of k, d, e, attributes
    (5, 2, 3, 5, 4, 2, 1, 32, 32, {}, "small"),
    (9, 3, 2, 4, 8, 4, 2, 32, 64, {"softcap": 2.0}, "small"),
    (7, 1, 2, 3, 5, 4, 4, 32, 32, {"window": 4}, "small"),
    (12, 4, 2, 3, 4, 6, 2, 5, 7, {"causal": False, "scale": 0.3}, "small"),
    (0, 2, 2, 3, 4, 2, 1, 32, 32, {}, "small"),
    (3, 0, 2, 3, 4, 2, 1, 32, 32, {}, "small"),
    (3, 2, 0, 3, 4, 2, 1, 32, 32, {}, "small"),
    (3, 2, 2, 3, 0, 2, 1, 32, 32, {}, "small"),
    (60, 5, 4, 20, 16, 4, 2, 64, 64, {}, "wide"),
    (256, 4, 16, 64, 16, 8, 2, 64, 64, {}, "medium"),
    (512, 2, 32, 64, 16, 32, 8, 128, 128, {}, "large"),
]
OFFSETS = (
    "A token from cu_seqlens[b] on belongs to no sequence and gives zeros. cu_seqlens has to rise; it is not checked,"
    " and numbers that do not are taken as they are: the sequence of token t is the number of entries behind the first"
    " that are at most t."
)


def find_sequences(offsets: Any, count: int) -> tuple[Any, Any]:
    """Return the sequence of each of `count` tokens, and how far the end of that sequence is from it."""
    own = (offsets[1:, None] <= np.arange(count)).sum(0)
    ends = np.append(offsets[1:], 0)[own] - np.arange(count)
    return own, ends


def emit_sequences(e: Emitter[V], offsets: V, count: int) -> tuple[V, V]:
    """Emit what find_sequences returns; the distance is that of the last sequence where a token belongs to none."""
    b = offsets.spec.shape[0] - 1
    last = e.cast(e("slice", offsets, starts=(1,), ends=(b + 1,)), I64)
    number = e.iota(count, I64)
    own = e.loop("t,b->t", "1 if x1 <= x0 else 0", number, last, combine="sum")
    ends = e("gather", last, e.loop("t->t", f"minimum(x0, {b - 1})", own), axis=0)
    return own, e.loop("t,t->t", "x0 - x1", ends, number)


def sees(values: Mapping[str, Any], key: str, place: str) -> str:
    """Return the condition that a query at a place sees a key, by the names that a loop has for both."""
    text = f" and {key} <= {place}" if values["causal"] else ""
    if values["window"]:
        size = int(values["window"])
        text = f"{text} and {key} > {place} - {size} and {key} < {place} + {size}"
    return text


def _prefill_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, k, v = inputs[:3]
    check_heads("paged_attention_prefill", q, k)
    check_pages("paged_attention_prefill", k)
    return [(*q[:2], v[3])]


def _prefill(
    q: Any, k: Any, v: Any, table: Any, lengths: Any, offsets: Any, sinks: Any, values: Mapping[str, Any]
) -> tuple[Any, Any]:
    held = find_held(table, lengths, *k.shape[:2])
    own, ends = find_sequences(offsets, len(q))
    y, bound = np.zeros((*q.shape[:2], v.shape[3])), np.zeros((*q.shape[:2], v.shape[3]))
    for token in range(len(q)):
        b = own[token]
        if b < len(held):
            keys, rows = (read_pages(cache, table[b : b + 1])[:, : held[b]] for cache in (k, v))
            y[token], bound[token] = _attend_token(q[token], keys, rows, held[b] - ends[token], sinks, values)
    return y, bound


def _attend_token(q: Any, k: Any, v: Any, place: int, sinks: Any, values: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the result of one query at a place among the keys [1, s, g, d], and its bound."""
    at = np.arange(k.shape[1])
    seen = np.ones(at.shape, bool)
    if values["causal"]:
        seen &= at <= place
    if values["window"]:
        seen &= np.abs(at - place) < values["window"]
    plain = {**values, "causal": False, "window": 0}
    y, _, bound, _ = attend(q[None, None], k, v, Extras(None, None, seen, sinks, None), plain)
    return y[0, 0], bound[0, 0]


def _prefill_reference(
    q: Any, k: Any, v: Any, block_table: Any, lengths: Any, cu_seqlens: Any, sinks: Any, **values: Any
) -> Any:
    return _prefill(q, k, v, block_table, lengths, cu_seqlens, sinks, values)[0]


def _prefill_scale(
    q: Any, k: Any, v: Any, block_table: Any, lengths: Any, cu_seqlens: Any, sinks: Any, **values: Any
) -> Any:
    return _prefill(q, k, v, block_table, lengths, cu_seqlens, sinks, values)[1]


def attend_all(
    e: Emitter[V], q: V, k: V, v: V, seen: V | None, sinks: V | None, values: Mapping[str, Any], element: Any
) -> V:
    """Emit attention of all tokens [t, h, d] to all keys [u, g, d], of which `seen` [t, u] says who sees what."""
    t, h, _ = q.spec.shape
    if seen is None or 0 in (t, h, v.spec.shape[2]):
        return e.fill((t, h, v.spec.shape[2]), 0.0, element)
    one = [e("expand_shape", x, groups=(2, 1, 1), shape=(1, *x.spec.shape)) for x in (q, k, v)]
    rest = {"scale": values["scale"], "softcap": values["softcap"]}
    return e.collapse(e("attention", *one, None, None, seen, sinks, **rest), (2, 1, 1))


def _prefill_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the keys of all sequences one after another, of which each token sees those of its own."""
    q, k, v, table, lengths, offsets = inputs[:6]
    t, b = q.spec.shape[0], lengths.spec.shape[0]
    chosen, held = emit_pages(e, table, lengths, *k.spec.shape[:2])
    size = table.spec.shape[1] * k.spec.shape[1]
    # attention is not asked for lengths, which gather reports here; it would count a negative one from the end
    checked = e.loop("b->b", f"x0 if x0 >= 0 else x0 - {size + 1}", held)
    held = e("gather", e.iota(size + 1, I64), checked, axis=0)
    k, v = (e.collapse(emit_rows(e, cache, chosen, outputs[0].dtype.compute), (2, 1, 1)) for cache in (k, v))
    seen = None
    if b > 0:
        own, ends = emit_sequences(e, offsets, t)
        body = f"x0 == x3 and x4 < x2{sees(values, 'x4', '(x2 - x1)')}"
        seen = e.loop("t,t,b,b,s->tbs", f"1 if {body} else 0", own, ends, held, e.iota(b, I64), e.iota(size, I64))
        seen = e.cast(e.collapse(seen, (1, 2)), BOOL)
    return attend_all(e, q, k, v, seen, find_optional(inputs, 6), values, outputs[0].dtype)


declare(
    "paged_attention_prefill",
    "PAPF",
    (
        "q: T[t, h, d], k: K[p, s, g, d], v: K[p, s, g, e], block_table: I[b, n], lengths: I[b],"
        " cu_seqlens: I[b + 1], sinks?: T[h] -> y: T[t, h, e]"
    ),
    TYPES,
    family="attention",
    stem="attention",
    doc=(
        "paged_attention of sequences whose queries are packed one after another: those of sequence i are rows"
        " cu_seqlens[i] to cu_seqlens[i + 1] - 1 of q, and the last of its lengths[i] keys (vLLM's and FlashInfer's"
        f" prefill with cached keys). {OFFSETS} {PAGES}"
    ),
    reference=_prefill_reference,
    tolerance=Tolerance(16, _prefill_scale),
    attrs=attrs("PAT1", CAUSAL, *FIELDS),
    shapes=_prefill_shapes,
    combinations=match_doubles,
    normal_form=as_given,
    decompose=_prefill_parts,
    domains={"q": "unit", "k": "unit"},
    samples=lambda: [
        Sample(
            {
                "q": (t, h, d),
                "k": (p, s, g, d),
                "v": (p, s, g, e),
                "block_table": (b, n),
                "lengths": (b,),
                "cu_seqlens": (b + 1,),
                **({"sinks": (h,)} if values else {}),
            },
            values,
            {"block_table": f"length:{p - 1}", "lengths": f"length:{n * s}", "cu_seqlens": f"offsets:{t}"},
            size=size,
        )
        for t, b, n, p, s, h, g, d, e, values, size in PACKED
    ],
    errors=page_errors((7, 4, 32), {"cu_seqlens": (3,)}),
    device_error=PAGE_ERROR,
)


# Packed keys, too


def _varlen_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, k, v, _, offsets = inputs[:5]
    check_heads("varlen_attention", q, k)
    if len(offsets) != 1 or offsets[0] == 0:
        raise BadTensorShape("varlen_attention", f"cu_seqlens_k is {list(offsets)}", allowed="one entry or more")
    return [(*q[:2], v[2])]


def _varlen(
    q: Any, k: Any, v: Any, offsets: Any, key_offsets: Any, sinks: Any, values: Mapping[str, Any]
) -> tuple[Any, Any]:
    own, ends = find_sequences(offsets, len(q))
    of_keys, _ = find_sequences(key_offsets, len(k))
    y, bound = np.zeros((*q.shape[:2], v.shape[2])), np.zeros((*q.shape[:2], v.shape[2]))
    for token in range(len(q)):
        if own[token] < len(offsets) - 1:
            (at,) = np.nonzero(of_keys == own[token])
            place = key_offsets[own[token] + 1] - ends[token] - (at[0] if len(at) else 0)
            y[token], bound[token] = _attend_token(q[token], k[None, at], v[None, at], place, sinks, values)
    return y, bound


def _varlen_reference(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, sinks: Any, **values: Any) -> Any:
    return _varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, values)[0]


def _varlen_scale(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, sinks: Any, **values: Any) -> Any:
    return _varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, values)[1]


def _varlen_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    q, k, v, offsets, key_offsets = inputs[:5]
    t, u, b = q.spec.shape[0], k.spec.shape[0], offsets.spec.shape[0] - 1
    seen = None
    if b > 0:
        own, ends = emit_sequences(e, offsets, t)
        of_keys, _ = emit_sequences(e, key_offsets, u)
        last = e.cast(e("slice", key_offsets, starts=(1,), ends=(b + 1,)), I64)
        last = e("gather", last, e.loop("t->t", f"minimum(x0, {b - 1})", own), axis=0)
        body = f"x0 < {b} and x0 == x3{sees(values, 'x4', '(x2 - x1)')}"
        seen = e.loop("t,t,t,u,u->tu", f"1 if {body} else 0", own, ends, last, of_keys, e.iota(u, I64))
        seen = e.cast(seen, BOOL)
    return attend_all(e, q, k, v, seen, find_optional(inputs, 5), values, outputs[0].dtype)


def _varlen_sample(
    t: int, u: int, b: int, h: int, g: int, d: int, e: int, values: Mapping[str, Any], size: str
) -> Sample:
    shapes = {"q": (t, h, d), "k": (u, g, d), "v": (u, g, e), "cu_seqlens_q": (b + 1,), "cu_seqlens_k": (b + 1,)}
    shapes |= {"sinks": (h,)} if values else {}
    return Sample(shapes, values, {"cu_seqlens_q": f"offsets:{t}", "cu_seqlens_k": f"offsets:{u}"}, size=size)


_VARLEN = {"q": (7, 4, 32), "k": (9, 2, 32), "v": (9, 2, 32), "cu_seqlens_q": (3,), "cu_seqlens_k": (3,)}

declare(
    "varlen_attention",
    "VATN",
    (
        "q: T[t, h, d], k: K[u, g, d], v: K[u, g, e], cu_seqlens_q: I[b], cu_seqlens_k: I[b], sinks?: T[h]"
        " -> y: T[t, h, e]"
    ),
    {"K": (F32, F16, BF16, F64), "T": (*ACTIVATIONS, F64), "I": INDICES},
    family="attention",
    stem="attention",
    doc=(
        "attention of sequences of several lengths packed one after another: the queries of sequence i are rows"
        " cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1 of q, its keys and values rows of k and v by cu_seqlens_k; its"
        f" last query is at its last key (Dao et al. 2022, flash attention's varlen form). {OFFSETS}"
    ),
    reference=_varlen_reference,
    tolerance=Tolerance(16, _varlen_scale),
    attrs=attrs("PAT1", CAUSAL, *FIELDS),
    shapes=_varlen_shapes,
    combinations=match_doubles,
    normal_form=as_given,
    decompose=_varlen_parts,
    domains={"q": "unit", "k": "unit"},
    samples=lambda: [
        _varlen_sample(5, 7, 2, 2, 1, 32, 32, {}, "small"),
        _varlen_sample(9, 30, 3, 4, 2, 32, 64, {"softcap": 2.0}, "small"),
        _varlen_sample(17, 17, 3, 4, 4, 32, 32, {"window": 3}, "small"),
        _varlen_sample(12, 9, 4, 6, 2, 5, 7, {"causal": False, "scale": 0.3, "window": 4}, "small"),
        _varlen_sample(0, 5, 2, 2, 1, 32, 32, {}, "small"),
        _varlen_sample(5, 0, 2, 2, 1, 32, 32, {}, "small"),
        _varlen_sample(3, 4, 0, 2, 1, 32, 32, {}, "small"),
        _varlen_sample(60, 300, 5, 4, 2, 64, 64, {}, "wide"),
        _varlen_sample(256, 1024, 4, 8, 2, 64, 64, {}, "medium"),
        _varlen_sample(512, 1024, 2, 32, 8, 128, 128, {}, "large"),
    ],
    errors=[
        ErrorCase({**_VARLEN, "q": (4, 32)}, BadTensorShape),
        ErrorCase({**_VARLEN, "k": (9, 3, 32), "v": (9, 3, 32)}, BadTensorShape),
        ErrorCase({**_VARLEN, "v": (8, 2, 32)}, BadTensorShape),
        ErrorCase({**_VARLEN, "cu_seqlens_k": (4,)}, BadTensorShape),
        ErrorCase({**_VARLEN, "cu_seqlens_q": (0,), "cu_seqlens_k": (0,)}, BadTensorShape),
        ErrorCase({**_VARLEN, "sinks": (3,)}, BadTensorShape),
        ErrorCase(_VARLEN, BadTensorDtype, dtypes={"T": F64, "K": F32}),
        ErrorCase(_VARLEN, BadTensorDtype, dtypes={"cu_seqlens_q": F32}),
    ],
)
