"""Which experts compute a token: topk_router; and moe_sum, which adds up what they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice, flag, integer, number
from ..declare.decomposition import Emitter, V, constant, find_optional
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, F16, F32, F64
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .softmax import _distance, _softmax
from .topk import topk

TINY = 1e-20  # keeps shares of nothing but zeros at 0


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    rows, experts = inputs[0]
    groups, best, top = values["groups"], values["top_groups"], values["top"]
    if experts % groups != 0:
        raise InvalidArgument("topk_router", f"groups={groups} of {experts} experts", allowed="groups of one size")
    if best > groups:
        raise InvalidArgument("topk_router", f"top_groups={best} of {groups} groups", allowed=f"up to {groups}")
    size = experts // groups
    if top > best * size:
        given = f"top={top} of {best * size} experts in {best} groups"
        raise InvalidArgument("topk_router", given, allowed=f"up to {best * size}")
    if groups > 1 and values["group_score"] == "top2" and size < 2:
        given = f"group_score=top2 of groups of {size}"
        raise InvalidArgument("topk_router", given, allowed="groups of at least 2 experts, or group_score=max")
    return [(rows, top), (rows, top)]


def _uses_logits(bias: Any, values: Mapping[str, Any]) -> bool:
    """Return whether logits choose as scores would: they are in the same order, without ties from rounding."""
    return bias is None and (values["groups"] == 1 or values["group_score"] == "max")


def _route(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, V]:
    logits, bias = e.cast(inputs[0], F32), find_optional(inputs, 1)
    top, share, softmax = values["top"], values["normalize"], values["scoring"] == "softmax"
    (rows, experts), groups = logits.spec.shape, values["groups"]
    if outputs[0].numel == 0:
        return e.fill(outputs[0].shape, 0.0, F32), e.fill(outputs[1].shape, 0.0, outputs[1].dtype)
    direct = _uses_logits(bias, values)
    scores = None
    if not direct or (softmax and not share):
        scores = e("softmax", logits) if softmax else e("sigmoid", logits)
    ranks = logits if direct else scores
    assert ranks is not None
    if bias is not None:
        ranks = e.loop("ab,b->ab", "x0 + x1", ranks, bias)
    if groups > 1:
        ranks = _hide_groups(e, e.reshape(ranks, (rows, groups, experts // groups)), values)
        ranks = e.reshape(ranks, (rows, experts))
    best, ids = e.all("topk", ranks, k=top)
    if softmax and not share:
        assert scores is not None
        weights = e("gather_elements", scores, ids, axis=1)
    else:
        chosen = best if direct and groups == 1 else e("gather_elements", logits, ids, axis=1)
        weights = e("softmax", chosen) if softmax else e("sigmoid", chosen)
    if share and not softmax:
        total = e.loop("ab->a", "x0", weights, combine="sum")
        weights = e.loop("ab,a->ab", f"x0 / (x1 + {TINY})", weights, total)
    if values["scale"] != 1:
        weights = e.loop("ab->ab", f"x0 * {constant(values['scale'])}", weights)
    return weights, ids


def _hide_groups(e: Emitter[V], ranks: V, values: Mapping[str, Any]) -> V:
    """Emit -inf for the experts of all groups but the best."""
    best = e("topk", ranks, k=2 if values["group_score"] == "top2" else 1)
    _, chosen = e.all("topk", e.loop("abc->ab", "x0", best, combine="sum"), k=values["top_groups"])
    numbers = e.iota(ranks.spec.shape[1], chosen.spec.dtype)
    found = e.loop("ac,b->ab", "1 if x0 == x1 else 0", chosen, numbers, combine="sum")
    return e.loop("abc,ab->abc", "x0 if x1 > 0 else -1e999", ranks, e.cast(found, F32))


def _route_reference(logits: Any, bias: Any, scoring: str, normalize: bool, scale: float, **values: Any) -> Any:
    top, groups = values["top"], values["groups"]
    scores = _softmax(logits, 1) if scoring == "softmax" else 1 / (1 + np.exp(-logits))
    # The choice is made by scores in F32
    ranks = (logits if _uses_logits(bias, values) else scores).astype(np.float32)
    ranks = ranks if bias is None else ranks + bias.astype(np.float32)
    if groups > 1:
        split = ranks.reshape(ranks.shape[0], groups, ranks.shape[1] // groups)
        best, _ = topk.reference(split, 2 if values["group_score"] == "top2" else 1, 2)
        _, chosen = topk.reference(best.sum(2), values["top_groups"], 1)
        shown = (chosen[:, None] == np.arange(groups)[:, None]).any(2)
        ranks = np.where(shown[:, :, None], split, np.float32(-np.inf)).reshape(ranks.shape)
    _, ids = topk.reference(ranks, top, 1)
    if normalize and scoring == "softmax":
        weights = _softmax(np.take_along_axis(logits, ids, 1), 1)
    else:
        weights = np.take_along_axis(scores, ids, 1)
        weights = weights / (weights.sum(1, keepdims=True) + TINY) if normalize else weights
    return weights * scale, ids


def _route_scale(logits: Any, bias: Any, scoring: str, normalize: bool, scale: float, **values: Any) -> Any:
    weights, ids = _route_reference(logits, bias, scoring, normalize, scale, **values)
    chosen = np.take_along_axis(logits, ids, 1)
    away = _distance(chosen if normalize else logits, 1)
    away = away if normalize else np.take_along_axis(away, ids, 1)
    factor = 20 + away if scoring == "softmax" else np.full(weights.shape, 20.0 + values["top"])
    return factor * np.abs(weights), np.zeros(ids.shape)


ROUTES: SampleTable = [
    (3, 8, {"top": 2}, False, "small"),
    (5, 33, {"top": 4, "normalize": True}, False, "small"),
    (7, 16, {"top": 3, "scoring": "sigmoid", "normalize": True, "scale": 2.5}, False, "small"),
    (
        9,
        32,
        {"top": 6, "scoring": "sigmoid", "normalize": True, "scale": 2.5, "groups": 8, "top_groups": 4},
        True,
        "small",
    ),
    (4, 12, {"top": 3, "groups": 4, "top_groups": 2, "group_score": "max", "scale": 16.0}, False, "small"),
    (4, 12, {"top": 3, "groups": 3, "top_groups": 2}, True, "small"),
    (6, 10, {"top": 2, "scoring": "sigmoid"}, True, "small"),
    (3, 6, {"top": 6, "normalize": True}, True, "small"),
    (1, 1, {"top": 1}, False, "small"),
    (0, 4, {"top": 2}, False, "small"),
    (3, 4, {"top": 0}, False, "small"),
    (2003, 257, {"top": 8, "normalize": True}, False, "wide"),
    (
        2003,
        256,
        {"top": 8, "scoring": "sigmoid", "normalize": True, "scale": 2.5, "groups": 8, "top_groups": 4},
        True,
        "wide",
    ),
    (512, 128, {"top": 8, "normalize": True}, False, "medium"),
    (8192, 256, {"top": 8, "normalize": True}, False, "large"),
]

declare(
    "topk_router",
    "TKRT",
    "logits: T[m, e], bias?: F32[e] -> weights: F32[m, top], ids: I64[m, top]",
    {"T": ACTIVATIONS},
    family="reduction",
    doc=(
        "The `top` experts of each token and their weights. Scores are the softmax or the sigmoid of the logits; chosen"
        " are those with the largest score + bias, in F32, largest first, of equal ones the first; without a bias the"
        " logits themselves are compared. With `groups`, only experts of the `top_groups` best groups are chosen: a"
        " group counts as its two best experts together (top2), or as its best (max). Weights are the scores, without"
        f" the bias; with `normalize` divided by their sum (+ {TINY:g} of sigmoids), which makes a softmax that of the"
        " chosen logits; times `scale`. These are the routers of Mixtral (softmax, normalize), DeepSeek-V2 (softmax,"
        " groups by max) and DeepSeek-V3 (sigmoid, bias, groups by top2, normalize, scale 2.5)."
    ),
    reference=_route_reference,
    tolerance=Tolerance(4, _route_scale),
    attrs=attrs(
        "TKR1",
        integer("top", doc="experts of a token", minimum=0),
        choice("scoring", ("softmax", "sigmoid"), "softmax", "what makes scores of logits"),
        flag("normalize", False, "weights are shares of the chosen scores"),
        number("scale", 1.0, "the factor of the weights"),
        integer("groups", 1, "groups of consecutive experts", minimum=1),
        integer("top_groups", 1, "groups that experts are chosen from", minimum=1),
        choice("group_score", ("top2", "max"), "top2", "what ranks the groups"),
    ),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_route,
    domains={"logits": "moderate", "bias": "unit"},
    flops=lambda i, o: 5.0 * (i[0].numel if i[0] is not None else 0),
    samples=lambda: [
        Sample({"logits": (m, experts), **({"bias": (experts,)} if biased else {})}, values, size=size)
        for m, experts, values, biased, size in ROUTES
    ],
    errors=[
        ErrorCase({"logits": (3, 4)}, InvalidArgument),
        ErrorCase({"logits": (3, 4)}, InvalidArgument, {"top": 5}),
        ErrorCase({"logits": (3, 4)}, InvalidArgument, {"top": 2, "groups": 3}),
        ErrorCase({"logits": (3, 4)}, InvalidArgument, {"top": 2, "groups": 2, "top_groups": 3}),
        ErrorCase({"logits": (3, 4)}, InvalidArgument, {"top": 1, "groups": 4}),
        ErrorCase({"logits": (3, 4)}, InvalidArgument, {"top": 3, "groups": 2}),
        ErrorCase({"logits": (3, 4)}, InvalidArgument, {"top": 2, "scoring": "relu"}),
        ErrorCase({"logits": (3, 4), "bias": (3,)}, BadTensorShape, {"top": 2}),
        ErrorCase({"logits": (4,)}, BadTensorShape, {"top": 2}),
        ErrorCase({"logits": (3, 4)}, BadTensorDtype, {"top": 2}, dtypes={"T": F64}),
        ErrorCase({"logits": (3, 4), "bias": (4,)}, BadTensorDtype, {"top": 2}, dtypes={"bias": F16}),
    ],
)


# moe_sum


def _sum(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, weights = inputs[0], find_optional(inputs, 1)
    element, wide = outputs[0].dtype, e.cast(inputs[0], F32)
    if weights is None:
        return e.loop("abc->ac", "x0", wide, combine="sum", dtype=element)
    assert x.spec.ndim == 3
    return e.loop("abc,ab->ac", "x0 * x1", wide, weights, combine="sum", dtype=element)


def _sum_reference(x: Any, weights: Any) -> Any:
    return x.sum(1) if weights is None else (x * weights[:, :, None]).sum(1)


def _sum_scale(x: Any, weights: Any) -> Any:
    return (2 + x.shape[1] / 2) * _sum_reference(np.abs(x), None if weights is None else np.abs(weights))


declare(
    "moe_sum",
    "MOSM",
    "x: T[m, top, d], weights?: F32[m, top] -> y: T[m, d]",
    {"T": ACTIVATIONS},
    family="reduction",
    doc="y[i] = Σ weights[i, t] x[i, t]: what a token's experts returned, added up in F32; without weights their sum.",
    reference=_sum_reference,
    tolerance=Tolerance(1, _sum_scale),
    normal_form=as_given,
    decompose=_sum,
    flops=lambda i, o: 2.0 * (i[0].numel if i[0] is not None else 0),
    samples=lambda: [
        Sample({"x": x, **({"weights": x[:2]} if weighted else {})}, size=size)
        for x, weighted, size in [
            ((3, 2, 33), True, "small"),
            ((5, 4, 7), False, "small"),
            ((1, 1, 1), True, "small"),
            ((0, 2, 5), True, "small"),
            ((3, 0, 5), True, "small"),
            ((3, 2, 0), False, "small"),
            ((103, 6, 1025), True, "wide"),
            ((512, 8, 512), True, "medium"),
            ((4096, 8, 2048), True, "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (3, 2, 4), "weights": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (3, 2, 4), "weights": (3, 2)}, BadTensorDtype, dtypes={"weights": F16}),
        ErrorCase({"x": (3, 2, 4)}, BadTensorDtype, dtypes={"T": F64}),
    ],
)
