"""paged_attention: attention over a cache of pages (Kwon et al. 2023), and what all operators on such caches share.

It has the kernel stem `attention`. Normal form: the signature's dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag, number
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BF16, F16, F32, F64, I64, INDICES, Q8_0
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape
from .attention import CACHED, WINDOW, match_doubles
from .attention_reference import Extras, attend

FIELDS = (
    number("scale", 0.0, "factor of the scores; 0 for 1/sqrt(d)"),
    WINDOW,
    number("softcap", 0.0, "scores become softcap · tanh(scores / softcap); 0 for not", minimum=0),
)
CAUSAL = flag("causal", True, "a query sees no key behind it, the last query being at the last key")
PAGES = (
    "A length beyond the pages, or a page out of range before its sequence's end, has that sequence count as one"
    " without keys, and raises InvalidArgument at the call on a synchronous device, else at the next synchronise; the"
    " table behind the end of a sequence is not read."
)
PAGE_ERROR = "entry {at} of block_table or lengths is {value}, out of range for the cache"
TYPES = {"K": CACHED, "T": (*ACTIVATIONS, F64), "I": INDICES}


def check_heads(where: str, q: Sequence[int], k: Sequence[int]) -> None:
    """Raise BadTensorShape unless the heads of k divide those of q, and there is a page."""
    h, g = q[-2], k[-2]
    if (h % g if g else h) != 0:
        raise BadTensorShape(where, f"{h} heads of q share {g} of k", allowed=f"a divisor of {h}")


def check_pages(where: str, k: Sequence[int]) -> None:
    """Raise BadTensorShape for a cache without pages."""
    if k[0] == 0:
        raise BadTensorShape(where, f"k is {list(k)}", allowed="at least one page")


# What the references and decompositions share


def find_held(table: Any, lengths: Any, pages: int, size: int) -> Any:
    """Return how many keys each sequence has: 0 where its length or one of its pages is out of range."""
    used = np.arange(table.shape[1]) * size < lengths[:, None]
    wrong = (used & ((table < 0) | (table >= pages))).any(1)
    return np.where((lengths < 0) | (lengths > table.shape[1] * size) | wrong, 0, lengths).astype(np.int64)


def read_pages(cache: Any, table: Any) -> Any:
    """Return the rows that a table names, [b, keys, …]; those of page 0 where it names none."""
    known = np.where((table >= 0) & (table < cache.shape[0]), table, 0).astype(np.int64)
    return cache[known].reshape((table.shape[0], table.shape[1] * cache.shape[1], *cache.shape[2:]))


def emit_pages(e: Emitter[V], table: V, lengths: V, pages: int, size: int) -> tuple[V, V]:
    """Emit the pages that each sequence uses, 0 for others, and its length, 0 where one of its pages is out of range.

    A page out of range stays so, and is counted from no end: the gather that reads it reports it.
    """
    given, number = e.cast(table, I64), e.iota(table.spec.shape[1], I64)
    counts = e.cast(lengths, I64)
    # Pages without rows hold no key: a length is out of range then, which attention reports, whatever the pages are
    maps, used = "bp,p,b->bp", f"x1 * {size} < x2" if size > 0 else "x1 < 0"
    fits = e.loop(
        "bp,p,b->b", f"0 if {used} and (x0 < 0 or x0 >= {pages}) else 1", given, number, counts, combine="minimum"
    )
    named = f"(x0 if x0 >= 0 else x0 - {pages}) if {used} else 0"
    chosen = e.loop(maps, named, given, number, counts)
    return chosen, e.loop("b,b->b", "x0 if x1 != 0 else 0", counts, fits)


def emit_rows(e: Emitter[V], cache: V, chosen: V, wide: Any) -> V:
    """Emit the rows of the chosen pages of a cache: [b, keys, g, d]."""
    if cache.spec.dtype.block > 1:
        cache = e("dequantize", cache, dtypes={"T": wide})
    return e.collapse(e("gather", cache, chosen, axis=0), (1, 2, 1, 1))


# One block of queries for each sequence


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, k, v = inputs[:3]
    check_heads("paged_attention", q, k)
    check_pages("paged_attention", k)
    return [(*q[:3], v[3])]


def _attend_pages(
    q: Any, k: Any, v: Any, table: Any, lengths: Any, sinks: Any, alibi: Any, values: Mapping[str, Any]
) -> tuple[Any, Any, Any, Any]:
    given = Extras(None, find_held(table, lengths, *k.shape[:2]), None, sinks, alibi)
    return attend(q, read_pages(k, table), read_pages(v, table), given, values)


def _reference(q: Any, k: Any, v: Any, block_table: Any, lengths: Any, sinks: Any, alibi: Any, **values: Any) -> Any:
    return _attend_pages(q, k, v, block_table, lengths, sinks, alibi, values)[0]


def _scale(q: Any, k: Any, v: Any, block_table: Any, lengths: Any, sinks: Any, alibi: Any, **values: Any) -> Any:
    return _attend_pages(q, k, v, block_table, lengths, sinks, alibi, values)[2]


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    q, k, v, table, lengths = inputs[:5]
    chosen, held = emit_pages(e, table, lengths, *k.spec.shape[:2])
    k, v = (emit_rows(e, cache, chosen, outputs[0].dtype.compute) for cache in (k, v))
    return e("attention", q, k, v, None, held, None, find_optional(inputs, 5), find_optional(inputs, 6), **values)


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    q, k, table = inputs[0], inputs[1], inputs[3]
    assert q is not None and k is not None and table is not None
    return 2.0 * outputs[0].numel * table.shape[1] * k.shape[1] + 2.0 * q.numel * table.shape[1] * k.shape[1]


def _sample(
    b: int,
    m: int,
    pages: int,
    p: int,
    s: int,
    h: int,
    g: int,
    d: int,
    e: int,
    size: str = "small",
    extra: str = "",
    some: bool = True,
    **values: Any,
) -> Sample:
    """Return a sample with a cache of p pages of s rows, and a table of `pages` for each of b sequences."""
    shapes = {"q": (b, m, h, d), "k": (p, s, g, d), "v": (p, s, g, e), "block_table": (b, pages), "lengths": (b,)}
    shapes |= dict.fromkeys(extra.split(), (h,))
    domains = {"block_table": f"length:{p - 1}", "lengths": f"length:{pages * s}"}
    types = {"K": (F32, F16, Q8_0, F64), "T": (F32, BF16, F64)} if some else {}
    return Sample(shapes, values, domains, size=size, types=types)


def page_errors(q: tuple[int, ...], more: Mapping[str, Any]) -> list[ErrorCase]:
    """Return what operators refuse whose queries are q, beside a cache of 5 pages, with further inputs."""
    k = (5, 4, 2, 32)
    plain = {"q": q, "k": k, "v": k, "block_table": (2, 3), "lengths": (2,), **more}
    changed: list[dict[str, Any]] = [
        {"q": q[1:]},
        {"k": (5, 4, 3, 32), "v": (5, 4, 3, 32)},
        {"k": (5, 4, 2, 64)},
        {"v": (5, 3, 2, 32)},
        {"k": (0, 4, 2, 32), "v": (0, 4, 2, 32)},
        {"block_table": (3, 3)},
        {"lengths": (3,)},
        {"sinks": (3,)},
    ]
    return [
        *(ErrorCase({**plain, **shapes}, BadTensorShape) for shapes in changed),
        ErrorCase(plain, BadTensorDtype, dtypes={"T": F64, "K": F32}),
        ErrorCase(plain, BadTensorDtype, dtypes={"block_table": F32}),
        ErrorCase(plain, BadTensorShape, outputs={"y": (*q[:-1], 31)}),
    ]


declare(
    "paged_attention",
    "PATN",
    (
        "q: T[b, m, h, d], k: K[p, s, g, d], v: K[p, s, g, e], block_table: I[b, n], lengths: I[b], sinks?: T[h],"
        " alibi?: F32[h] -> y: T[b, m, h, e]"
    ),
    TYPES,
    family="attention",
    stem="attention",
    doc=(
        "attention over a cache of p pages of s keys (Kwon et al. 2023): key j of sequence b is row j mod s of page"
        f" block_table[b, j // s], and it has lengths[b] keys. The m queries of a sequence are its last ones. {PAGES}"
    ),
    reference=_reference,
    tolerance=Tolerance(16, _scale),
    attrs=attrs("PAT1", CAUSAL, *FIELDS),
    shapes=_shapes,
    combinations=match_doubles,
    normal_form=as_given,
    decompose=_parts,
    flops=_flops,
    domains={"q": "unit", "k": "unit"},
    samples=lambda: [
        _sample(1, 1, 3, 5, 4, 2, 1, 32, 32, some=False),
        _sample(2, 3, 2, 5, 8, 4, 2, 32, 64, some=False, softcap=2.0),
        _sample(3, 1, 3, 7, 16, 4, 4, 32, 32, some=False, window=9),
        _sample(2, 5, 4, 3, 2, 4, 1, 32, 32, causal=False, scale=0.3),
        _sample(2, 4, 2, 3, 5, 4, 2, 32, 32, extra="sinks alibi"),
        _sample(1, 3, 3, 4, 4, 6, 2, 5, 7),
        _sample(2, 3, 0, 4, 4, 2, 1, 32, 32),
        _sample(2, 3, 2, 4, 0, 2, 1, 32, 32),
        _sample(0, 3, 2, 4, 4, 2, 1, 32, 32),
        _sample(3, 2, 9, 40, 16, 4, 2, 64, 64, "wide"),
        _sample(4, 1, 64, 256, 16, 8, 2, 64, 64, "medium"),
        _sample(1, 1, 256, 256, 16, 32, 8, 128, 128, "large"),
        _sample(1, 512, 32, 32, 16, 32, 8, 128, 128, "large"),
    ],
    errors=page_errors((2, 3, 4, 32), {}),
    device_error=PAGE_ERROR,
)
