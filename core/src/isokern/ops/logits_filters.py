"""What random_sample does to logits, as operators of their own: filters that hide tokens by -inf, and penalties.

The filters compare the integer weights of `random_sample` (steps 2 and 3 there, at temperature 1), so all devices and
`random_sample` itself keep the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import Attr, attrs, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BOOL, F32, F64, I64, INDICES, U64
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .random_sample import POWERS, fraction, weights

LEAST = integer("min_tokens", 1, "tokens that are kept in any case", minimum=1)
NOTHING = 32 << 24  # the distance from the largest logit, times 2^24 / ln(2), from which on a token weighs nothing
LOG2_E = float(np.float32(1.442695))
HIDDEN = 1 << 62  # deviation of a token that weighs nothing


# The same in NumPy and as operators: weights of rows [r, v] of F32 logits


def _row_weights(logits: Any) -> tuple[Any, Any]:
    """Return the weights, and the distances from the largest logit in units of 2^-24, of one row."""
    top = logits.max()
    with np.errstate(invalid="ignore", over="ignore"):
        z = np.where(logits == top, np.float32(0), (logits - top) * np.float32(1.442695)).astype(np.float32)
        far = np.where(z > np.float32(-32), -z * np.float32(1 << 24), np.float32(NOTHING))
    return weights(logits, 1.0), far.astype(np.uint64)


def _target(total: int, share: float) -> int:
    part = fraction(share)
    return (total >> 32) * part + ((total & 0xFFFFFFFF) * part >> 32)


def _emit_distances(e: Emitter[V], logits: V, top: V) -> V:
    """Emit how far each logit lies below the largest one of its row, as `_row_weights` does."""
    z = e.loop("rv,r->rv", f"0 if x0 == x1 else (x0 - x1) * {constant(LOG2_E)}", logits, top)
    return e.cast(e.loop("rv->rv", f"x0 * -16777216 if x0 > -32 else {NOTHING}", z), U64)


def _emit_weights(e: Emitter[V], far: V) -> V:
    rest, text = "(16777216 - bitand(x0, 16777215))", str(POWERS[0])
    for power in POWERS[1:]:
        text = f"(shift_right({text} * {rest}, 24) + {power})"
    return e.loop("rv->rv", f"shift_right({text}, shift_right(x0, 24)) if x0 < {NOTHING} else 0", far)


def _emit_prefix(e: Emitter[V], weighed: V, share: float, least: int) -> V:
    """Emit which tokens, whose weights are given in the order of keeping, are the fewest that weigh the share."""
    total, before = (
        e.loop("rv->r", "x0", weighed, combine="sum"),
        e("scan", None, weighed, body="x0 + x1", exclusive=True),
    )
    part = fraction(share)
    low = f"shift_right(bitand(x0, 4294967295) * {part}, 32)"
    target = e.loop("r->r", f"shift_right(x0, 32) * {part} + {low}", total)
    number_ = e.cast(e.iota(weighed.spec.shape[1], I64), U64)
    return e.loop("rv,r,v->rv", f"x0 < x1 or x2 < {least}", before, target, number_, dtype=BOOL)


def _put_back(e: Emitter[V], kept: V, order: V) -> V:
    """Emit flags in the order of tokens, which are given in another order."""
    return e("scatter_elements", e.fill(kept.spec.shape, 0.0, BOOL), order, kept, axis=1)


def _first(e: Emitter[V], x: V) -> V:
    return e.collapse(e("slice", x, starts=(0,), ends=(1,), axes=(1,)), (2,))


# Which tokens a filter keeps: in NumPy of one row, and as operators of all rows

Keep = Callable[[Any, Mapping[str, Any]], Any]


def _keep_prefix(order: Any, weighed: Any, share: float, least: int) -> Any:
    kept, before = np.zeros(len(order), bool), 0
    target = _target(sum(int(w) for w in weighed), share)
    for place, token in enumerate(order.tolist()):
        kept[token] = before < target or place < least
        before += int(weighed[token])
    return kept


def _falling(logits: Any) -> Any:
    """Return the tokens by falling logits; NaN counts as largest, and equal ones stay in order."""
    size = len(logits)
    return size - 1 - np.argsort(logits[::-1], kind="stable")[::-1]


def _keep_top_k(logits: Any, values: Mapping[str, Any]) -> Any:
    kept = np.zeros(len(logits), bool)
    kept[_falling(logits)[: values["k"]]] = True
    return kept


def _emit_top_k(e: Emitter[V], logits: V, values: Mapping[str, Any]) -> V:
    _, order = e.all("sort", logits, axis=1, descending=True)
    r, v = logits.spec.shape
    number_ = e.loop("v->v", f"x0 < {min(values['k'], v)}", e.iota(v, I64), dtype=BOOL)
    return _put_back(e, e.repeat(number_, (r, v)), order)


def _keep_top_p(logits: Any, values: Mapping[str, Any]) -> Any:
    return _keep_prefix(_falling(logits), weights(logits, 1.0), values["p"], values["min_tokens"])


def _emit_top_p(e: Emitter[V], logits: V, values: Mapping[str, Any]) -> V:
    falling, order = e.all("sort", logits, axis=1, descending=True)
    weighed = _emit_weights(e, _emit_distances(e, falling, _first(e, falling)))
    return _put_back(e, _emit_prefix(e, weighed, values["p"], values["min_tokens"]), order)


def _keep_min_p(logits: Any, values: Mapping[str, Any]) -> Any:
    weighed = [int(w) for w in weights(logits, 1.0)]
    least = max(weighed) * fraction(values["p"]) >> 32
    kept = np.array([w >= least for w in weighed])
    kept[_falling(logits)[: values["min_tokens"]]] = True
    return kept


def _emit_min_p(e: Emitter[V], logits: V, values: Mapping[str, Any]) -> V:
    falling, order = e.all("sort", logits, axis=1, descending=True)
    weighed = _emit_weights(e, _emit_distances(e, falling, _first(e, falling)))
    least, number_ = values["min_tokens"], e.cast(e.iota(logits.spec.shape[1], I64), U64)
    body = f"x0 >= shift_right(x1 * {fraction(values['p'])}, 32) or x2 < {least}"
    return _put_back(e, e.loop("rv,r,v->rv", body, weighed, _first(e, weighed), number_, dtype=BOOL), order)


def _keep_typical(logits: Any, values: Mapping[str, Any]) -> Any:
    weighed, far = _row_weights(logits)
    far = far >> np.uint64(8)
    total = max(1, sum(int(w) for w in weighed))
    mean = sum(int(w) * int(d) for w, d in zip(weighed, far, strict=True)) // total
    off = np.array([abs(int(d) - mean) if w else HIDDEN for w, d in zip(weighed, far, strict=True)], np.uint64)
    return _keep_prefix(np.argsort(off, kind="stable"), weighed, values["mass"], values["min_tokens"])


def _emit_typical(e: Emitter[V], logits: V, values: Mapping[str, Any]) -> V:
    top = e.loop("rv->r", "x0", logits, combine="maximum")
    far = _emit_distances(e, logits, top)
    weighed = _emit_weights(e, far)
    total = e.loop("rv->r", "x0", weighed, combine="sum")
    moment = e.loop("rv,rv->r", "x0 * shift_right(x1, 8)", weighed, far, combine="sum")
    mean = e.loop("r,r->r", "quotient(x0, maximum(x1, 1))", moment, total)
    near, low = "maximum(shift_right(x1, 8), x2)", "minimum(shift_right(x1, 8), x2)"
    off = e.loop("rv,rv,r->rv", f"{near} - {low} if x0 > 0 else {HIDDEN}", weighed, far, mean)
    _, order = e.all("sort", off, axis=1)
    weighed = e("gather_elements", weighed, order, axis=1)
    return _put_back(e, _emit_prefix(e, weighed, values["mass"], values["min_tokens"]), order)


SHAPES: SampleTable = [
    ((7,), "small"),
    ((3, 50), "small"),
    ((2, 3, 301), "small"),
    ((3, 1), "small"),
    ((2, 1, 2, 1, 3, 1, 2, 5), "small"),
    ((0, 5), "small"),
    ((3, 0), "small"),
    ((5, 1025), "small"),
    ((9, 32000), "wide"),
    ((1, 32000), "medium"),
    ((64, 128256), "large"),
]


def _filter(
    name: str, kind: str, keep: Keep, emit: Any, fields: Sequence[Attr], tried: Sequence[Mapping[str, Any]],
    wrong: Sequence[Mapping[str, Any]], doc: str,
) -> Operator:  # fmt: skip
    """Declare a filter of logits, by the tokens that it keeps of a row; samples take the attributes `tried` in turn."""

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        (x,), y = inputs, outputs[0]
        if y.numel == 0:
            return e("copy", x)
        rows = e.reshape(x, (y.numel // y.shape[-1], y.shape[-1]))
        kept = emit(e, e.cast(rows, F32), values)
        return e.reshape(e("where", kept, rows, e.fill((), -math.inf, y.dtype)), y.shape)

    def reference(logits: Any, **values: Any) -> Any:
        flat = logits.reshape(-1, logits.shape[-1]) if logits.size else logits.reshape(0, 1)
        kept = [keep(row.astype(np.float32), values) for row in flat]
        hidden = np.asarray(-np.inf).astype(logits.dtype)
        return np.where(np.asarray(kept, bool).reshape(logits.shape), logits, hidden)

    return declare(
        name,
        kind,
        "logits: T[*b, v] -> y: T[*b, v]",
        {"T": ACTIVATIONS},
        family="sampling",
        doc=f"{doc} The others become -∞. A row with NaN keeps that, as the largest.",
        reference=reference,
        attrs=attrs(kind[:3] + "1", *fields),
        normal_form=as_given,
        decompose=decompose,
        domains={"logits": "moderate"},
        samples=lambda: [
            Sample({"logits": s}, dict(tried[i % len(tried)]), size=size) for i, (s, size) in enumerate(SHAPES)
        ],
        errors=[
            ErrorCase({"logits": ()}, BadTensorShape, tried[0]),
            ErrorCase({"logits": (3, 5)}, BadTensorDtype, tried[0], dtypes={"T": F64}),
            ErrorCase({"logits": (3, 5)}, BadTensorShape, tried[0], outputs={"y": (3, 4)}),
            *(ErrorCase({"logits": (3, 5)}, InvalidArgument, values) for values in wrong),
        ],
        exact=True,
    )


_filter(
    "top_k_filter",
    "TKFL",
    _keep_top_k,
    _emit_top_k,
    [integer("k", doc="tokens that are kept", minimum=1)],
    [{"k": 3}, {"k": 40}, {"k": 1}],
    [{}, {"k": 0}],
    "Keep the k largest logits of each row, of equal ones the first (Fan et al. 2018).",
)
_filter(
    "top_p_filter",
    "TPFL",
    _keep_top_p,
    _emit_top_p,
    [number("p", doc="the share that the tokens weigh together", minimum=0, maximum=1), LEAST],
    [{"p": 0.8}, {"p": 0.95, "min_tokens": 3}, {"p": 0.3}, {"p": 1.0}],
    [{}, {"p": 1.5}, {"p": 0.5, "min_tokens": 0}],
    "Keep the fewest largest logits of each row whose softmax weighs p together, of equal ones the first (nucleus"
    " sampling, Holtzman et al. 2020).",
)
_filter(
    "min_p_filter",
    "MPFL",
    _keep_min_p,
    _emit_min_p,
    [number("p", doc="the share of the largest token's weight", minimum=0, maximum=1), LEAST],
    [{"p": 0.05}, {"p": 0.3, "min_tokens": 3}, {"p": 1.0}],
    [{}, {"p": -0.5}, {"p": 0.5, "min_tokens": 0}],
    "Keep the logits of each row whose softmax weighs at least p times that of the largest one (Nguyen et al. 2024).",
)
_filter(
    "typical_filter",
    "TYFL",
    _keep_typical,
    _emit_typical,
    [number("mass", doc="the share that the tokens weigh together", minimum=0, maximum=1), LEAST],
    [{"mass": 0.8}, {"mass": 0.3, "min_tokens": 2}, {"mass": 0.95}],
    [{}, {"mass": 1.5}, {"mass": 0.5, "min_tokens": 0}],
    "Keep the fewest logits of each row whose softmax weighs `mass` together, those whose surprise -log p is nearest to"
    " the entropy first (locally typical sampling, Meister et al. 2023); surprise is counted in units of 2^-16 bit.",
)


# Penalties


def _penalty_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    logits, history = inputs
    if len(history) != len(logits) or history[:-1] != logits[:-1]:
        raise BadTensorShape("repetition_penalty", f"history is {list(history)}", allowed=f"{[*logits[:-1], 'any']}")
    if values["penalty"] == 0:
        raise InvalidArgument("repetition_penalty", "penalty=0", allowed="above 0")
    return [logits]


def _count(logits: Any, history: Any) -> Any:
    """Return how often each token is in its row of the history; entries that are no token are passed over."""
    flat = history.reshape(-1, history.shape[-1]) if history.size else np.zeros((0, 0), np.int64)
    counts = np.zeros((logits[..., :1].size if logits.size else 0, logits.shape[-1]))
    for row, tokens in zip(counts, flat, strict=False):
        known = tokens[(tokens >= 0) & (tokens < len(row))].astype(np.int64)
        row += np.bincount(known, minlength=len(row))
    return counts.reshape(logits.shape)


def _penalise(logits: Any, history: Any, penalty: float, frequency: float, presence: float) -> Any:
    counts = _count(logits, history)
    scaled = np.where(logits > 0, logits / penalty, logits * penalty)
    return np.where(counts > 0, scaled - counts * frequency - presence, logits)


def _penalty_scale(logits: Any, history: Any, penalty: float, frequency: float, presence: float) -> Any:
    counts = _count(logits, history)
    finite = np.where(np.isfinite(logits), np.abs(logits), 0)
    return 4 * (finite * max(penalty, 1 / penalty) + counts * abs(frequency) + abs(presence)) * (counts > 0)


def _penalties(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit counts of tokens, one place more for entries that are none, and the penalties of those that are counted."""
    (logits, history), y = inputs, outputs[0]
    v, h = y.shape[-1], history.spec.shape[-1]
    if y.numel == 0 or h == 0:
        return e("copy", logits)
    r = y.numel // v
    x, past = e.reshape(logits, (r, v)), e.cast(e.reshape(history, (r, h)), I64)
    place = e.loop("rh,r->rh", f"x0 + x1 * {v} if x0 >= 0 and x0 < {v} else {r * v}", past, e.iota(r, I64))
    ones = e.fill((r, h), 1.0, I64)
    counts = e("scatter", e.fill((r * v + 1,), 0.0, I64), place, ones, axis=0, reduction="add")
    counts = e.reshape(e("slice", counts, starts=(0,), ends=(r * v,)), (r, v))
    by = constant(values["penalty"])
    scaled = f"(x0 / {by} if x0 > 0 else x0 * {by})"
    body = f"{scaled} - x1 * {constant(values['frequency'])} - {constant(values['presence'])} if x1 > 0 else x0"
    return e.reshape(e.loop("rv,rv->rv", body, x, counts, dtype=y.dtype), y.shape)


_PENALTIES = {"penalty": 1.3, "frequency": 0.25, "presence": -0.5}

declare(
    "repetition_penalty",
    "RPEN",
    "logits: T[*b, v], history: I[*p] -> y: T[*b, v]",
    {"T": ACTIVATIONS, "I": INDICES},
    family="sampling",
    doc=(
        "Logits of the tokens in each row of `history`: divided by `penalty` where above 0, else multiplied by it"
        " (Keskar et al. 2019, as in random_sample); then less `frequency` for each time that the token is there, and"
        " less `presence` (OpenAI's and llama.cpp's penalties). Entries of history that are no token are passed over."
    ),
    reference=_penalise,
    tolerance=Tolerance(2, _penalty_scale),
    attrs=attrs(
        "RPN1",
        number("penalty", 1.0, "divides logits above 0 and multiplies others; above 0", minimum=0),
        number("frequency", 0.0, "subtracted for each time"),
        number("presence", 0.0, "subtracted once"),
    ),
    shapes=_penalty_shapes,
    normal_form=as_given,
    decompose=_penalties,
    domains={"logits": "logits"},
    samples=lambda: [
        Sample({"logits": s, "history": (*s[:-1], h)}, values, {"history": "moderate"}, size=size)
        for s, h, values, size in [
            ((7,), 4, {"penalty": 1.3}, "small"),
            ((3, 50), 20, _PENALTIES, "small"),
            ((2, 3, 301), 40, {"frequency": 0.5}, "small"),
            ((3, 1), 5, {"presence": 1.5}, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 5), 3, _PENALTIES, "small"),
            ((3, 5), 0, _PENALTIES, "small"),
            ((0, 5), 2, _PENALTIES, "small"),
            ((3, 0), 2, _PENALTIES, "small"),
            ((9, 32000), 64, _PENALTIES, "wide"),
            ((1, 32000), 64, _PENALTIES, "medium"),
            ((64, 128256), 64, _PENALTIES, "large"),
        ]
    ],
    errors=[
        ErrorCase({"logits": (), "history": ()}, BadTensorShape),
        ErrorCase({"logits": (3, 5), "history": (2, 4)}, BadTensorShape),
        ErrorCase({"logits": (3, 5), "history": (3,)}, BadTensorShape),
        ErrorCase({"logits": (3, 5), "history": (3, 4)}, InvalidArgument, {"penalty": 0}),
        ErrorCase({"logits": (3, 5), "history": (3, 4)}, BadTensorDtype, dtypes={"T": F64}),
        ErrorCase({"logits": (3, 5), "history": (3, 4)}, BadTensorDtype, dtypes={"history": F32}),
    ],
)
