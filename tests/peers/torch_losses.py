"""PyTorch's losses, made of our operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_rows import (
    INF,
    Elsewhere,
    Row,
    Sample,
    ik,
    is_float,
    pairs,
)


def loss(name: str, **renamed: str) -> Callable[..., Any]:
    """Return a loss of PyTorch's arguments; `renamed` are those that ours calls otherwise."""

    def call(*given: Any, reduction: str = "mean", **attrs: Any) -> Any:
        return getattr(ik, name)(*given, reduction=reduction, **{renamed.get(k, k): v for k, v in attrs.items()})

    return call


def reduce_by(y: Any, reduction: str) -> Any:
    return {"none": lambda y: y, "mean": lambda y: ik.reduce_mean(y), "sum": lambda y: ik.reduce_sum(y)}[reduction](y)


def weigh(name: str) -> Callable[..., Any]:
    def call(x: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> Any:
        if pos_weight is not None:
            raise Elsewhere("a weight of the positive class")
        if weight is None:
            return getattr(ik, name)(x, target, reduction=reduction)
        return reduce_by(ik.mul(getattr(ik, name)(x, target, reduction="none"), weight), reduction)

    return call


def square_loss(x: Any, target: Any, reduction: str = "mean", weight: Any = None, **_: Any) -> Any:
    if weight is not None:
        raise Elsewhere("weights of elements")
    shape = np.broadcast_shapes(x.shape, target.shape)
    return ik.mse_loss(*(ik.broadcast_to(t, shape=shape) for t in (x, target)), reduction=reduction)


def kl_div(x: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    call = ik.kl_div_log if log_target else ik.kl_div
    if reduction == "batchmean":
        y = call(x, target, reduction="sum")
        return ik.div_scalar(y, value=x.shape[0] if x.ndim else 1)
    return call(x, target, reduction=reduction)


def labelled(name: str) -> Callable[..., Any]:
    """Return a loss of labels; ours has the batch in front, which PyTorch may leave out."""

    def call(
        x: Any,
        target: Any,
        weight: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Any:
        single = x.ndim == 1
        more = {"label_smoothing": label_smoothing} if label_smoothing else {}
        if is_float(target):
            if weight is not None or label_smoothing:
                raise Elsewhere("probabilities with weights or smoothing")
            if single:
                x, target = x[None], target[None]
            y = ik.soft_cross_entropy(x, target, reduction=reduction)
        else:
            if single:
                x, target = x[None], ik.reshape(target, shape=(1,))
            y = getattr(ik, name)(x, target, weight, reduction=reduction, ignore_index=ignore_index, **more)
        return ik.reshape(y, shape=()) if single and reduction == "none" else y

    return call


def poisson(
    x: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Any:
    if not log_input or full:
        raise Elsewhere("rates themselves, and Stirling's term")
    return ik.poisson_nll_loss(x, target, reduction=reduction)


def gaussian(x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> Any:
    if full:
        raise Elsewhere("the constant")
    if not hasattr(var, "shape"):
        var = ik.fill(value=var, shape=x.shape, dtype=x.dtype)
    elif var.ndim == x.ndim - 1:
        var = var[..., None]
    shape = np.broadcast_shapes(x.shape, target.shape)
    given = [ik.broadcast_to(t, shape=shape) for t in (x, target, var)]
    return ik.gaussian_nll_loss(*given, eps=eps, reduction=reduction)


def hinge_embedding(x: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Any:
    if not np.isin(target.numpy(), (-1, 1)).all():
        raise Elsewhere("both terms for a target other than 1 and -1")
    return ik.hinge_embedding_loss(x, target, margin=margin, reduction=reduction)


def multi_margin(
    x: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:
    single = x.ndim < 2
    if single:
        x, target = ik.reshape(x, shape=(1, -1)), ik.reshape(target, shape=(1,))
    y = ik.multi_margin_loss(x, target, weight, p=p, margin=margin, reduction=reduction)
    return ik.reshape(y, shape=()) if single and reduction == "none" else y


def triplet(anchor: Any, positive: Any, negative: Any, reduction: str = "mean", **attrs: Any) -> Any:
    shape = np.broadcast_shapes(anchor.shape, positive.shape, negative.shape)
    given = [ik.broadcast_to(x, shape=shape) for x in (anchor, positive, negative)]
    return ik.triplet_margin_loss(*given, reduction=reduction, **attrs)


def cosine_embedding(a: Any, b: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    return ik.cosine_embedding_loss(a, b, ik.cast(target, dtype=a.dtype), margin=margin, reduction=reduction)


def ranking(a: Any, b: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    shape = np.broadcast_shapes(a.shape, b.shape, target.shape)
    a, b, target = (ik.broadcast_to(x, shape=shape) for x in (a, b, target))
    return ik.margin_ranking_loss(a, b, target, margin=margin, reduction=reduction)


FINITE, WILD = (-2.5, -0.0, 0, 1, 90, 1e30), (-math.inf, -2.5, 0, 1, 90, math.inf, math.nan)


def classes(dtype: torch.dtype) -> list[Sample]:
    """Return samples of infinite logits, ignored labels, and weights of 0."""
    x = torch.tensor([[-INF, 0, 2], [1, -INF, -INF], [1, 2, 3], [-1, 0, 90]], dtype=dtype)
    labels, weight = torch.tensor([1, 0, -100, 2]), torch.tensor([0, 1, 2], dtype=dtype)
    return [
        ((x, labels), {"weight": w, "reduction": reduction})
        for w in (None, weight, 0 * weight)
        for reduction in ("none", "mean", "sum")
    ] + [((x, 0 * labels - 100), {"reduction": reduction}) for reduction in ("none", "mean", "sum")]


def vectors(dtype: torch.dtype) -> list[Sample]:
    """Return a sample of vectors without a length, or with very small ones."""
    x = torch.tensor([[0, 0], [1e-20, 0], [1, 2], [3, -4]], dtype=dtype)
    target = torch.tensor([1, -1, 1, -1])
    return [((x, x.flip(0), target), {"reduction": "none"}), ((x, x, target), {"margin": 0.5})]


ROWS = [
    Row("nn.functional.mse_loss", "mse_loss", square_loss, inputs=pairs(FINITE, FINITE)),
    Row("nn.functional.l1_loss", "l1_loss", loss("l1_loss"), inputs=pairs(FINITE, FINITE)),
    Row(
        "nn.functional.smooth_l1_loss", "smooth_l1_loss", loss("smooth_l1_loss"), inputs=pairs(FINITE, FINITE, beta=0.0)
    ),
    Row("nn.functional.huber_loss", "huber_loss", loss("huber_loss"), inputs=pairs(WILD, FINITE, delta=0.5)),
    Row(
        "nn.functional.soft_margin_loss",
        "soft_margin_loss",
        loss("soft_margin_loss"),
        inputs=pairs((-math.inf, -2.5, 0, 1, 60, math.nan), (-1, 1)),
    ),  # PyTorch's F32 overflows from 89 on
    Row(
        "nn.functional.hinge_embedding_loss",
        "hinge_embedding_loss",
        hinge_embedding,
        share=0.8,
        inputs=pairs(WILD, (-1, 1)),
    ),
    Row("nn.functional.margin_ranking_loss", "margin_ranking_loss", ranking, inputs=pairs(WILD, FINITE, (-1, 1))),
    Row("nn.functional.cosine_embedding_loss", "cosine_embedding_loss", cosine_embedding, inputs=vectors),
    Row("nn.functional.binary_cross_entropy", "bce_loss", weigh("bce_loss"), inputs=pairs((0, 0.25, 1), (0, 0.25, 1))),
    Row(
        "nn.functional.binary_cross_entropy_with_logits",
        "bce_with_logits_loss",
        weigh("bce_with_logits_loss"),
        share=0.7,
        inputs=pairs(FINITE, (0, 0.25, 1)),
    ),
    Row("nn.functional.kl_div", "kl_div kl_div_log", kl_div, inputs=pairs((-INF, -2, 0), (0.25, 1))),
    Row("nn.functional.poisson_nll_loss", "poisson_nll_loss", poisson, share=0.1, inputs=pairs(WILD, (0, 2))),
    Row(
        "nn.functional.gaussian_nll_loss",
        "gaussian_nll_loss",
        gaussian,
        share=0.4,
        inputs=pairs((1, INF), (2, INF), (0, 1e-9, 1)),
    ),
    Row("nn.functional.multi_margin_loss", "multi_margin_loss", multi_margin),
    Row("nn.functional.triplet_margin_loss", "triplet_margin_loss", triplet),
    Row("nn.functional.nll_loss", "nll_loss", labelled("nll_loss"), inputs=classes),
    Row(
        "nn.functional.cross_entropy",
        "cross_entropy soft_cross_entropy",
        labelled("cross_entropy"),
        share=0.6,
        inputs=classes,
    ),
]
