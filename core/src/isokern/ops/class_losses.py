"""Losses of classes named by labels: nll_loss, cross_entropy and multi_margin_loss; classes are along axis 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, choice, integer, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import F32, FLOATS, I64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .losses import reduce_terms

_REDUCTIONS = ("none", "mean", "sum")
_REDUCTION = choice("reduction", _REDUCTIONS, "mean", "what becomes of the labels' losses")
_IGNORED = integer("ignore_index", -100, "a label whose loss is 0 and that no mean counts")
_WRONG = " A label out of range has no loss, and is reported as by `gather`."


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return [tuple(inputs[1]) if values["reduction"] == "none" else ()]


def _pick(e: Emitter[V], x: V, target: V, weight: V | None, ignored: int | None) -> tuple[V, V, V]:
    """For flat labels [n, m] of scores [n, c, m], emit each label, -1 if it does not count, its weight and its score.

    Scores are cast to the compute type when they are picked, which for all of them would take as long as all else.
    """
    wide = x.spec.dtype.compute
    n, c = x.spec.shape[:2]
    m = math.prod(x.spec.shape[2:])
    own = e.cast(e.reshape(target, (n, m)), I64)
    other = "" if ignored is None else f" and x0 != {ignored}"
    labels = e.loop("ab->ab", f"x0 if x0 >= 0 and x0 < {c}{other} else -1", own)
    # Gathering the weights reports labels out of range; those below 0 are made such that do not count from the end
    first = "" if ignored is None else f"0 if x0 == {ignored} else "
    used = e.loop("ab->ab", f"{first}x0 - {c} if x0 < 0 else x0", own)
    weights = e.fill((c,), 1.0, wide) if weight is None else e.cast(weight, wide)
    each = e("gather", weights, used, axis=0)
    counted = e.loop("ab,ab->ab", "x0 if x1 >= 0 else 0", each, e.cast(labels, wide))
    place = f"maximum(x0, 0) * {m} + x1 * {c * m} + x2"
    at = e.loop("ab,a,b->ab", place, labels, e.iota(n, I64), e.iota(m, I64))
    return labels, counted, e.cast(e("gather", e.reshape(x, (n * c * m,)), at, axis=0), wide)


def _finish(e: Emitter[V], terms: V, weights: V, values: Mapping[str, Any], y: TensorDesc) -> V:
    """Emit the reduction; a mean is divided by the weights of the labels that count."""
    if values["reduction"] == "none":
        return e.reshape(e.cast(terms, y.dtype), y.shape)
    total = e.loop("ab->", "x0", terms, combine="sum")
    if values["reduction"] == "mean":
        total = e.loop(",->", "x0 / x1", total, e.loop("ab->", "x0", weights, combine="sum"))
    return e.cast(total, y.dtype)


def _nll(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, target, weight = [*inputs, None][:3]
    assert x is not None and target is not None
    _, weights, scores = _pick(e, x, target, weight, values["ignore_index"])
    terms = e.loop("ab,ab->ab", "0 if x1 == 0 else -x0 * x1", scores, weights)
    return _finish(e, terms, weights, values, outputs[0])


# -log_softmax(x) of a class's x0, times its weight x1; x2 is of `_norm`
_CROSS = "0 if x1 == 0 else (x2 - x0) * x1"


def _norm(e: Emitter[V], x: V, *shape: int) -> V:
    """Emit what log_softmax over the classes takes from each x; NaN for an infinity, of which it makes NaN.

    `logsumexp` of a narrow type would round its result to that type, so x is cast first. If classes are not contiguous
    in memory, a maximum of that type and a sum over x as it is take half of that time; else they take a little longer,
    and a device had better have a kernel for the loss.
    """
    wide, (n, c, *rest) = x.spec.dtype.compute, x.spec.shape
    m = math.prod(rest)
    if x.spec.dtype is wide or c == 0 or m == 1:
        return e.reshape(e.pointwise("x0 + (x0 - x0)", e("logsumexp", e.cast(x, wide), axes=(1,))), shape)
    largest = e.reshape(e("reduce_max", x, axes=(1,)), (n, m))
    total = e.loop("acb,ab->ab", "exp(x0 - x1)", e.reshape(x, (n, c, m)), largest, combine="sum", dtype=wide)
    return e.reshape(e.loop("ab,ab->ab", "x1 + log(x0)", total, largest, dtype=wide), shape)


def _cross(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the loss of scores x; the smoothed part of a label is the mean over all classes, by their weights."""
    x, target, weight = [*inputs, None][:3]
    assert x is not None and target is not None
    wide, smooth = x.spec.dtype.compute, values["label_smoothing"]
    n, c, m = *x.spec.shape[:2], math.prod(x.spec.shape[2:])
    labels, weights, scores = _pick(e, x, target, weight, values["ignore_index"])
    norm = _norm(e, x, n, m)
    terms = e.loop("ab,ab,ab->ab", _CROSS, scores, weights, norm)
    if smooth > 0:
        flat = e.reshape(x, (n, c, m))
        if weight is None:
            every = e.loop("acb,ab->ab", "x1 - x0", flat, norm, combine="sum", dtype=wide)
        else:
            every = e.loop("acb,c,ab->ab", _CROSS, flat, weight, norm, combine="sum", dtype=wide)
        known = e.cast(labels, wide)
        body = f"{constant(1 - smooth)} * x0 + {constant(smooth / max(1, c))} * x1 if x2 >= 0 else 0"
        terms = e.loop("ab,ab,ab->ab", body, terms, every, known)
    return _finish(e, terms, weights, values, outputs[0])


def _labels(x: Any, target: Any, weight: Any, ignored: int | None) -> tuple[Any, Any, Any]:
    """Return the score of each label, its weight (0 if it does not count), and whether it counts."""
    counts = (target >= 0) & (target < x.shape[1])
    counts &= np.ones_like(counts) if ignored is None else target != ignored
    used = np.where(counts, target, 0).astype(np.int64)
    factors = np.ones(x.shape[1]) if weight is None else weight
    if x.shape[1] == 0:
        return np.zeros(target.shape), np.zeros(target.shape), counts
    return np.take_along_axis(x, used[:, None], 1)[:, 0], np.where(counts, factors[used], 0.0), counts


def _reduce(terms: Any, weights: Any, reduction: str) -> Any:
    if reduction == "none":
        return terms
    return np.sum(terms) if reduction == "sum" else np.divide(np.sum(terms), np.sum(weights))


def _times(x: Any, weight: Any) -> Any:
    """Return x · weight, 0 if the weight is."""
    return np.where(weight == 0, 0.0, x * weight)


def _nll_terms(x: Any, target: Any, weight: Any, ignore_index: int, smooth: float = 0.0) -> tuple[Any, Any]:
    picked, weights, counts = _labels(x, target, weight, ignore_index)
    terms = _times(-picked, weights)
    if smooth > 0:
        factors = np.ones(x.shape[1]) if weight is None else weight
        every = _times(-x, factors.reshape((1, -1, *[1] * (x.ndim - 2)))).sum(1)
        terms = np.where(counts, (1 - smooth) * terms + smooth / max(1, x.shape[1]) * every, 0.0)
    return terms, weights


def _nll_reference(x: Any, target: Any, weight: Any = None, *, reduction: str, ignore_index: int) -> Any:
    return _reduce(*_nll_terms(x, target, weight, ignore_index), reduction)


def _logs(x: Any) -> Any:
    top = np.max(x, 1, keepdims=True, initial=-np.inf)
    return x - top - np.log(np.sum(np.exp(x - top), 1, keepdims=True))


def _cross_reference(
    x: Any, target: Any, weight: Any = None, *, reduction: str, ignore_index: int, label_smoothing: float
) -> Any:
    return _reduce(*_nll_terms(_logs(x), target, weight, ignore_index, label_smoothing), reduction)


def _sum_error(sizes: Any, weights: Any, reduction: str) -> Any:
    """Return the error of the reduction of terms with errors and magnitudes `sizes`, of weights' sums too."""
    more = 1 if reduction == "none" else 8 + math.log2(max(1, sizes.size))
    if reduction == "mean":
        near = np.divide(np.sum(np.abs(weights)), np.abs(np.sum(weights)))  # weights of both signs cancel
        return np.nan_to_num(more * np.divide(np.sum(sizes), np.abs(np.sum(weights))) * near, nan=0, posinf=0)
    return np.nan_to_num(more * (sizes if reduction == "none" else np.sum(sizes)), nan=0, posinf=0)


def _nll_scale(
    x: Any, target: Any, weight: Any = None, *, reduction: str, ignore_index: int, label_smoothing: float = 0.0
) -> Any:
    size = None if weight is None else np.abs(weight)
    terms, _ = _nll_terms(-np.abs(x), target, size, ignore_index, label_smoothing)
    weights = _labels(x, target, weight, ignore_index)[1]
    return _sum_error((4 + math.log2(max(1, x.shape[1]))) * terms if label_smoothing else 2 * terms, weights, reduction)


def _cross_scale(x: Any, target: Any, weight: Any = None, **values: Any) -> Any:
    finite = np.where(np.isfinite(x), np.abs(x), 0.0)
    far = 16 + 2 * np.max(finite, 1, keepdims=True, initial=0.0)  # the absolute error of a logarithm
    sizes = np.where(np.isfinite(_logs(x)), np.abs(_logs(x)), 0.0) + far
    return _nll_scale(sizes, target, weight, **values)


_WEIGHTED = "x: T[n, c, *d], target: I[n, *d], weight?: T[c] -> y: T[*s]"


def _declare(
    name: str, kind: str, signature: str, doc: str, fields: Sequence[Attr], tries: Any, **more: Any
) -> Operator:
    def sample(x: Any, values: Mapping[str, Any], weighted: bool = False, size: str = "small") -> Sample:
        given = {"x": x, "target": (x[0], *x[2:]), **({"weight": (x[1],)} if weighted else {})}
        domains = {"target": f"length:{x[1] - 1}" if x[1] else "moderate", "weight": "positive"}
        return Sample(given, values, {k: v for k, v in domains.items() if k in given}, size=size)

    return declare(
        name,
        kind,
        signature,
        {"T": FLOATS, "I": INDICES},
        family="loss",
        doc=doc + _WRONG,
        attrs=attrs(kind, *fields),
        shapes=_shapes,
        normal_form=as_given,
        flops=lambda i, o: 4.0 * (i[0].numel if i[0] is not None else 0),
        samples=lambda: [sample(*row) for row in tries],
        errors=[
            ErrorCase({"x": (3, 4), "target": (4,)}, BadTensorShape),
            ErrorCase({"x": (3,), "target": (3,)}, BadTensorShape),
            ErrorCase({"x": (3, 4), "target": (3,), "weight": (3,)}, BadTensorShape),
            ErrorCase({"x": (3, 4), "target": (3,)}, InvalidArgument, {"reduction": "product"}),
            ErrorCase({"x": (3, 4), "target": (3,)}, BadTensorDtype, dtypes={"I": F32}),
            ErrorCase({"x": (3, 4), "target": (3,)}, BadTensorShape, outputs={"y": (3,)}),
        ],
        **more,
    )


_TRIES: list[Any] = [
    ((1, 1), {}),
    ((7, 5), {"reduction": "none", "ignore_index": 2}),
    ((3, 4), {"ignore_index": 1}, True),
    ((2, 3, 4), {"reduction": "sum"}, True),
    ((2, 3, 2, 5), {"reduction": "none"}, True),
    ((2, 3, 1, 2, 1, 2, 1, 2), {}),
    ((0, 3), {"reduction": "sum"}),
    ((2, 3, 0), {"reduction": "none"}, True),
    ((2, 1025), {}),
    ((301, 515), {}, True, "wide"),
    ((512, 512), {}, False, "medium"),
    ((4096, 4096), {}, False, "large"),
]

_declare(
    "nll_loss",
    "NLLL",
    _WEIGHTED,
    "-weight[t] · x[i, t] for each label t: x has logarithms of probabilities. A mean is one by weights.",
    (_REDUCTION, _IGNORED),
    _TRIES,
    reference=_nll_reference,
    tolerance=Tolerance(4, _nll_scale),
    decompose=_nll,
)
_declare(
    "cross_entropy",
    "XENT",
    _WEIGHTED,
    "`nll_loss` of log_softmax(x). Of a label, label_smoothing is shared by all classes (Szegedy et al. 2016).",
    (_REDUCTION, _IGNORED, number("label_smoothing", 0.0, "part of a label for all classes", minimum=0, maximum=1)),
    [
        *_TRIES,
        ((7, 5), {"reduction": "none", "ignore_index": 2, "label_smoothing": 0.3}),
        ((3, 4, 2), {"label_smoothing": 0.1}, True),
        ((3, 9001), {"reduction": "none"}, True),
    ],
    reference=_cross_reference,
    tolerance=Tolerance(4, _cross_scale),
    decompose=_cross,
)


def _margins(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, target, weight = [*inputs, None][:3]
    assert x is not None and target is not None
    y, wide, (n, c) = outputs[0], x.spec.dtype.compute, x.spec.shape
    labels, weights, own = [e.reshape(v, (n,)) for v in _pick(e, x, target, weight, None)]
    over = f"maximum({constant(values['margin'])} - x1 + x0, 0)"
    body = f"0 if x2 == x3 or x2 < 0 else {over if values['p'] == 1 else f'{over} * {over}'}"
    classes = e.iota(c, I64)
    numbers = e.cast(labels, wide), e.cast(classes, wide)
    total = e.loop("ab,a,a,b->a", body, x, own, *numbers, combine="sum", dtype=wide)
    terms = e.loop("a,a->a", f"0 if x1 == 0 else x0 * x1 / {max(1, c)}", total, weights)
    return reduce_terms(e, terms, values["reduction"], y.dtype)


def _margin_terms(x: Any, target: Any, weight: Any, margin: float, p: int) -> Any:
    own, weights, counts = _labels(x, target, weight, None)
    over = np.maximum(margin - own[:, None] + x, 0) ** p
    others = counts[:, None] & (np.arange(x.shape[1]) != target[:, None])
    return _times(np.sum(np.where(others, over, 0), 1) / max(1, x.shape[1]), weights)


def _margin_reference(x: Any, target: Any, weight: Any = None, *, reduction: str, margin: float, p: int) -> Any:
    return _reduce(_margin_terms(x, target, weight, margin, p), np.ones(target.shape), reduction)


def _margin_scale(x: Any, target: Any, weight: Any = None, *, reduction: str, margin: float, p: int) -> Any:
    """Return the error of each term, p times that of what is over the margin, and of the sums."""
    own, weights, _ = _labels(x, target, weight, None)
    size = abs(margin) + np.abs(own)[:, None] + np.abs(x)
    over = np.maximum(margin - own[:, None] + x, 0)
    each = 2 * size if p == 1 else 4 * size * (over + 2.0**-20 * size)
    growth = 8 + math.log2(max(1, x.shape[1]))
    each = (np.sum(each, 1) + growth * np.sum(over**p, 1)) / max(1, x.shape[1])
    return _sum_error(_times(each, np.abs(weights)), np.ones(target.shape), reduction)


_declare(
    "multi_margin_loss",
    "MMRG",
    "x: T[n, c], target: I[n], weight?: T[c] -> y: T[*s]",
    "weight[t] · Σ max(0, margin - x[i, t] + x[i, j])^p / c over the classes j other than the label t.",
    (
        _REDUCTION,
        number("margin", 1.0, "least distance of the label's score"),
        integer("p", 1, "1 or 2", minimum=1, maximum=2),
    ),
    [
        ((1, 1), {}),
        ((7, 5), {"reduction": "none"}),
        ((3, 4), {"p": 2, "margin": 0.3}, True),
        ((2, 33), {"reduction": "sum", "p": 2}),
        ((0, 3), {"reduction": "sum"}),
        ((3, 1025), {"reduction": "none"}, True),
        ((301, 515), {}, True, "wide"),
    ],
    reference=_margin_reference,
    tolerance=Tolerance(4, _margin_scale),
    decompose=_margins,
)


# Probabilities of classes instead of labels
def _soft(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y, loops = outputs[0], LETTERS[: inputs[0].spec.ndim]
    x, target = inputs
    rows = loops[0] + loops[2:]
    norm = _norm(e, x, x.spec.shape[0], *x.spec.shape[2:])
    terms = e.loop(f"{loops},{loops},{rows}->{rows}", _CROSS, x, target, norm, combine="sum", dtype=y.dtype.compute)
    return reduce_terms(e, terms, values["reduction"], y.dtype)


def _soft_reference(x: Any, target: Any, reduction: str) -> Any:
    terms = np.sum(_times(-_logs(x), target), 1)
    return _reduce(terms, np.ones(terms.shape), reduction)


def _soft_scale(x: Any, target: Any, reduction: str) -> Any:
    finite = np.where(np.isfinite(x), np.abs(x), 0.0)
    sizes = np.abs(np.nan_to_num(_logs(x), nan=0, neginf=0)) + 16 + 2 * np.max(finite, 1, keepdims=True, initial=0.0)
    terms = (4 + math.log2(max(1, x.shape[1]))) * np.sum(np.abs(sizes * target), 1)
    return _sum_error(terms, np.ones(terms.shape), reduction)


def _soft_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x = inputs[0]
    return [(x[0], *x[2:]) if values["reduction"] == "none" else ()]


declare(
    "soft_cross_entropy",
    "SXNT",
    "x: T[n, c, *d], target: T[n, c, *d] -> y: T[*s]",
    {"T": FLOATS},
    family="loss",
    doc="-Σ target · log_softmax(x) over the classes, axis 1: the cross entropy of probabilities.",
    reference=_soft_reference,
    tolerance=Tolerance(4, _soft_scale),
    attrs=attrs("SXN1", _REDUCTION),
    shapes=_soft_shapes,
    normal_form=as_given,
    decompose=_soft,
    samples=lambda: [
        Sample({"x": x, "target": x}, {"reduction": reduction}, {"target": "positive"}, size=size)
        for x, reduction, size in [
            ((1, 1), "mean", "small"),
            ((7, 5), "none", "small"),
            ((2, 3, 4), "mean", "small"),
            ((2, 3, 1, 2, 1, 2, 1, 2), "none", "small"),
            ((0, 3), "sum", "small"),
            ((2, 1025), "sum", "small"),
            ((301, 515), "mean", "wide"),
            ((512, 512), "mean", "medium"),
            ((4096, 4096), "mean", "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4), "target": (3,)}, BadTensorShape),
        ErrorCase({"x": (3,), "target": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "target": (3, 4)}, InvalidArgument, {"reduction": "product"}),
        ErrorCase({"x": (3, 4), "target": (3, 4)}, BadTensorDtype, dtypes={"T": I64}),
    ],
)
