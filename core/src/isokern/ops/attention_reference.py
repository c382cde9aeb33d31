"""The reference of attention in float64, with the bounds of its errors: what all forms of attention are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Extras:
    """The optional inputs of attention, each as its signature has it."""

    mask: Any = None
    lengths: Any = None
    seen: Any = None
    sinks: Any = None
    alibi: Any = None


def find_seen(batch: int, queries: int, keys: int, lengths: Any, values: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return (which keys each query sees, the place of each query among the keys): BOOL [b, m, s], [b, m]."""
    held = np.full(batch, keys) if lengths is None else np.where((lengths >= 0) & (lengths <= keys), lengths, 0)
    at, place = np.arange(keys), held.astype(np.int64)[:, None] - queries + np.arange(queries)
    seen = np.broadcast_to(at < held[:, None, None], (batch, queries, keys))
    if values["causal"]:
        seen = seen & (at <= place[..., None])
    if values["window"]:
        seen = seen & (at > place[..., None] - values["window"]) & (at < place[..., None] + values["window"])
    return seen, place


def _weights(q: Any, k: Any, given: Extras, values: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return (scores [b, h, m, s], which keys are seen, magnitude of the scores' rounding).

    Scores of keys that are not seen are -inf.
    """
    b, m, h, d = q.shape
    s, g = k.shape[1:3]
    scale = values["scale"] or max(d, 1) ** -0.5
    keys = np.repeat(k, h // g if g else 1, 2)
    scores = scale * np.einsum("bmhd,bshd->bhms", q, keys)
    with np.errstate(invalid="ignore"):
        rough = abs(scale) * np.einsum("bmhd,bshd->bhms", np.abs(q), np.abs(keys)) * (4 + np.sqrt(d))
    if values["softcap"]:
        scores = values["softcap"] * np.tanh(scores / values["softcap"])
        rough = rough + 16 * np.abs(scores)
    seen, place = find_seen(b, m, s, given.lengths, values)
    for added in (given.mask, None if given.alibi is None else _slope(given.alibi, place, s)):
        if added is not None:
            scores = scores + np.broadcast_to(added, scores.shape)
            rough = rough + np.abs(np.where(np.isfinite(scores), scores, 0))
    if given.alibi is not None:
        rough = rough + 2 * np.abs(_slope(given.alibi, place, s))
    seen = np.broadcast_to(seen[:, None], scores.shape)
    if given.seen is not None:
        seen = seen & np.broadcast_to(given.seen, scores.shape)
    return np.where(seen, scores, -np.inf), seen, rough


def _slope(alibi: Any, place: Any, keys: int) -> Any:
    """Return what ALiBi adds: -slope times the distance of key and query."""
    return -alibi[:, None, None] * np.abs(place[:, None, :, None] - np.arange(keys))


def attend(q: Any, k: Any, v: Any, given: Extras, values: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return (y, log-sum-exp [b, m, h], error bound of y, error bound of the log-sum-exp)."""
    scores, seen, rough = _weights(q, k, given, values)
    top = np.max(scores, -1, keepdims=True, initial=-np.inf)
    nan = np.isnan(scores).any(-1, keepdims=True)
    sinks = None if given.sinks is None else np.broadcast_to(given.sinks[:, None, None], top.shape)
    top = top if sinks is None else np.maximum(top, sinks)
    none = np.isneginf(top) & ~nan
    shifted = scores - np.where(none, 0, top)
    e = np.where(seen & ~np.isneginf(scores), np.exp(shifted), 0)
    total = e.sum(-1, keepdims=True)
    total = total if sinks is None else total + np.exp(sinks - np.where(none, 0, top))
    p = e / np.where(none, 1, total)
    group = q.shape[2] // k.shape[2] if k.shape[2] else 1
    values_ = np.repeat(v, group, 2)
    used = np.where(p[..., None] == 0, 0, np.moveaxis(values_, 1, 2)[:, :, None]) if _odd(v) else None
    mix = np.einsum("bhms,bshe->bmhe", p, values_) if used is None else np.einsum("bhms,bhmse->bmhe", p, used)
    worst = np.max(np.where(seen & np.isfinite(rough), rough, 0), -1, keepdims=True, initial=0)
    finite = np.where(np.isfinite(shifted), np.abs(shifted), 0)
    near = p * (2 * worst + finite + 16 + np.sqrt(scores.shape[-1]))
    bound = np.einsum("bhms,bshe->bmhe", near, np.abs(np.where(np.isfinite(values_), values_, 0)))
    lse = np.where(none, -np.inf, top + np.log(total))[..., 0]
    return mix, np.moveaxis(lse, 1, 2), bound, np.moveaxis(2 * worst[..., 0] + 16 + 2 * np.abs(lse), 1, 2)


def _odd(v: Any) -> bool:
    """Return whether v has values that are not finite, which would give NaN for keys of weight 0."""
    return not np.isfinite(v).all()
