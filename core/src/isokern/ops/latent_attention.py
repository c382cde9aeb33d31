"""Multi-head latent attention, absorbed: all heads share one row a key, whose first elements are its value.

Both operators have the kernel stem `attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, flag, integer
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BF16, F16, F32, F64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .attention import match_doubles
from .attention_reference import Extras, attend
from .paged_attention import FIELDS, PAGE_ERROR, PAGES, check_pages, emit_pages, find_held, read_pages

RANK = integer("rank", doc="how many elements of a row are its value: the rank of the latent", minimum=1)
CAUSAL = flag("causal", True, "a query sees no key behind it, the last query being at the last key")
TYPES = {"K": (F32, F16, BF16, F64), "T": (*ACTIVATIONS, F64), "I": INDICES}
_DOC = (
    "attention of h heads to keys that they all share, each the latent and the rotated part one after the other; the"
    " value of a key is its latent, its first `rank` elements (DeepSeek-V2, 2024: the form in which the projections"
    " from the latent are absorbed into those of the queries and the output). scale is that of the heads before them,"
    " 1/sqrt of their width; 0 would take c for it."
)


def _check_rank(where: str, cache: Sequence[int], rank: int) -> None:
    if rank > cache[-1]:
        raise InvalidArgument(where, f"rank={rank} of rows of {cache[-1]}", allowed=f"1..{cache[-1]}")


def _attend(q: Any, rows: Any, given: Extras, rank: int, values: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    return attend(q, rows[:, :, None], rows[:, :, None, :rank], given, values)


def _emit(e: Emitter[V], q: V, rows: V, lengths: V | None, sinks: V | None, values: Mapping[str, Any]) -> V:
    """Emit attention to rows [b, s, c]."""
    b, s, c = rows.spec.shape
    k = e("expand_shape", rows, groups=(1, 1, 2), shape=(b, s, 1, c))
    v = e("slice", k, starts=(0,), ends=(values["rank"],), axes=(3,))
    rest = {name: value for name, value in values.items() if name != "rank"}
    return e("attention", q, k, v, None, lengths, None, sinks, **rest)


# One run of rows for each sequence


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, cache = inputs[:2]
    _check_rank("mla_attention", cache, values["rank"])
    return [(*q[:3], values["rank"])]


def _reference(q: Any, cache: Any, lengths: Any, sinks: Any, rank: int, **values: Any) -> Any:
    return _attend(q, cache, Extras(lengths=lengths, sinks=sinks), rank, values)[0]


def _scale(q: Any, cache: Any, lengths: Any, sinks: Any, rank: int, **values: Any) -> Any:
    return _attend(q, cache, Extras(lengths=lengths, sinks=sinks), rank, values)[2]


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    return _emit(e, inputs[0], inputs[1], find_optional(inputs, 2), find_optional(inputs, 3), values)


_Q = (2, 3, 4, 48)
_RANK = {"rank": 32}

_SAMPLES: SampleTable = [
    (2, 1, 33, 4, 48, 32, True, {}, "small"),
    (1, 5, 7, 2, 48, 32, False, {}, "small"),
    (2, 3, 40, 16, 9, 5, True, {"window": 7}, "small"),
    (2, 4, 19, 3, 32, 32, True, {"softcap": 2.0, "causal": False}, "small"),
    (2, 3, 0, 2, 48, 32, False, {}, "small"),
    (0, 3, 4, 2, 48, 32, True, {}, "small"),
    (2, 3, 200, 16, 144, 128, True, {}, "wide"),
    (1, 1, 1024, 16, 576, 512, True, {}, "medium"),
    (1, 1, 4096, 128, 576, 512, True, {}, "large"),
]

declare(
    "mla_attention",
    "MLAA",
    "q: T[b, m, h, c], cache: K[b, s, c], lengths?: I[b], sinks?: T[h] -> y: T[b, m, h, rank]",
    TYPES,
    family="attention",
    stem="attention",
    doc=(
        f"{_DOC} A length out of range counts as 0 and raises InvalidArgument at the call on a synchronous device, else"
        " at the next synchronize."
    ),
    reference=_reference,
    tolerance=Tolerance(16, _scale),
    attrs=attrs("MLA1", RANK, CAUSAL, *FIELDS),
    shapes=_shapes,
    combinations=match_doubles,
    normal_form=as_given,
    decompose=_parts,
    domains={"q": "unit", "cache": "unit"},
    samples=lambda: [
        Sample(
            {
                "q": (b, m, h, c),
                "cache": (b, s, c),
                **({"lengths": (b,)} if held else {}),
                **({"sinks": (h,)} if "softcap" in more else {}),
            },
            {"rank": rank, "scale": 0.2, **more},
            {"lengths": f"length:{s}"},
            size=size,
        )
        for b, m, s, h, c, rank, held, more, size in _SAMPLES
    ],
    errors=[
        ErrorCase({"q": _Q[1:], "cache": (2, 5, 48)}, BadTensorShape, _RANK),
        ErrorCase({"q": _Q, "cache": (2, 5, 40)}, BadTensorShape, _RANK),
        ErrorCase({"q": _Q, "cache": (3, 5, 48)}, BadTensorShape, _RANK),
        ErrorCase({"q": _Q, "cache": (2, 5, 48), "lengths": (3,)}, BadTensorShape, _RANK),
        ErrorCase({"q": _Q, "cache": (2, 5, 48)}, InvalidArgument, {"rank": 49}),
        ErrorCase({"q": _Q, "cache": (2, 5, 48)}, InvalidArgument),
        ErrorCase({"q": _Q, "cache": (2, 5, 48)}, BadTensorDtype, _RANK, dtypes={"T": F64, "K": F32}),
        ErrorCase({"q": _Q, "cache": (2, 5, 48)}, BadTensorShape, _RANK, outputs={"y": (2, 3, 4, 48)}),
    ],
    device_error="lengths[{at}] is {value}, out of range for the keys",
)


# A cache of pages


def _paged_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, cache = inputs[:2]
    _check_rank("paged_mla_attention", cache, values["rank"])
    check_pages("paged_mla_attention", cache)
    return [(*q[:3], values["rank"])]


def _attend_pages(
    q: Any, cache: Any, table: Any, lengths: Any, sinks: Any, rank: int, values: Mapping[str, Any]
) -> tuple[Any, Any, Any, Any]:
    given = Extras(lengths=find_held(table, lengths, *cache.shape[:2]), sinks=sinks)
    return _attend(q, read_pages(cache, table), given, rank, values)


def _paged_reference(q: Any, cache: Any, block_table: Any, lengths: Any, sinks: Any, rank: int, **values: Any) -> Any:
    return _attend_pages(q, cache, block_table, lengths, sinks, rank, values)[0]


def _paged_scale(q: Any, cache: Any, block_table: Any, lengths: Any, sinks: Any, rank: int, **values: Any) -> Any:
    return _attend_pages(q, cache, block_table, lengths, sinks, rank, values)[2]


def _paged_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    q, cache, table, lengths = inputs[:4]
    chosen, held = emit_pages(e, table, lengths, *cache.spec.shape[:2])
    rows = e.collapse(e("gather", cache, chosen, axis=0), (1, 2, 1))
    return _emit(e, q, rows, held, find_optional(inputs, 4), values)


_PAGED = {"q": _Q, "cache": (5, 4, 48), "block_table": (2, 3), "lengths": (2,)}

_PAGED_SAMPLES: SampleTable = [
    (2, 1, 3, 5, 4, 4, 48, 32, {}, "small"),
    (1, 5, 2, 3, 8, 2, 48, 32, {}, "small"),
    (2, 3, 4, 4, 5, 16, 9, 5, {"window": 7}, "small"),
    (2, 4, 3, 4, 4, 3, 32, 32, {"softcap": 2.0, "causal": False}, "small"),
    (2, 3, 0, 4, 4, 2, 48, 32, {}, "small"),
    (2, 3, 2, 4, 0, 2, 48, 32, {}, "small"),
    (0, 3, 2, 4, 4, 2, 48, 32, {}, "small"),
    (2, 3, 13, 30, 16, 16, 144, 128, {}, "wide"),
    (1, 1, 64, 64, 16, 16, 576, 512, {}, "medium"),
    (1, 1, 256, 256, 16, 128, 576, 512, {}, "large"),
]

declare(
    "paged_mla_attention",
    "PMLA",
    "q: T[b, m, h, c], cache: K[p, s, c], block_table: I[b, n], lengths: I[b], sinks?: T[h] -> y: T[b, m, h, rank]",
    TYPES,
    family="attention",
    stem="attention",
    doc=(
        f"{_DOC} The keys are in pages like those of paged_attention do: key j of sequence b is row j mod s of page"
        f" block_table[b, j // s]. {PAGES}"
    ),
    reference=_paged_reference,
    tolerance=Tolerance(16, _paged_scale),
    attrs=attrs("MLA1", RANK, CAUSAL, *FIELDS),
    shapes=_paged_shapes,
    combinations=match_doubles,
    normal_form=as_given,
    decompose=_paged_parts,
    domains={"q": "unit", "cache": "unit"},
    samples=lambda: [
        Sample(
            {
                "q": (b, m, h, c),
                "cache": (p, s, c),
                "block_table": (b, n),
                "lengths": (b,),
                **({"sinks": (h,)} if "softcap" in more else {}),
            },
            {"rank": rank, "scale": 0.2, **more},
            {"block_table": f"length:{p - 1}", "lengths": f"length:{n * s}"},
            size=size,
        )
        for b, m, n, p, s, h, c, rank, more, size in _PAGED_SAMPLES
    ],
    errors=[
        ErrorCase({**_PAGED, "q": _Q[1:]}, BadTensorShape, _RANK),
        ErrorCase({**_PAGED, "cache": (5, 4, 40)}, BadTensorShape, _RANK),
        ErrorCase({**_PAGED, "cache": (0, 4, 48)}, BadTensorShape, _RANK),
        ErrorCase({**_PAGED, "block_table": (3, 3)}, BadTensorShape, _RANK),
        ErrorCase({**_PAGED, "lengths": (3,)}, BadTensorShape, _RANK),
        ErrorCase(_PAGED, InvalidArgument, {"rank": 49}),
        ErrorCase(_PAGED, InvalidArgument),
        ErrorCase(_PAGED, BadTensorDtype, _RANK, dtypes={"T": F64, "K": F32}),
        ErrorCase(_PAGED, BadTensorDtype, _RANK, dtypes={"block_table": F32}),
    ],
    device_error=PAGE_ERROR,
)
