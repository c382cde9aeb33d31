"""Nodes that normalise, and losses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..dtypes import F32, F64, I64
from .node import Handler, Node, Operand, Output, dtype_of, row, shape_of


def _rows(node: Node, count: int) -> tuple[int, tuple[int, ...], list[Operand | None]]:
    """Return the axis, the dims that are normalised, and the weights as vectors over them."""
    axis = node.axis()
    dims = node.shape()[axis:]
    weights: list[Operand | None] = []
    for i in range(1, 1 + count):
        w = node.tensor(i)
        weights.append(None if w is None else node.reshape(node.expand(w, dims), (math.prod(dims),)))
    return axis, dims, weights


def layer_normalization(node: Node) -> Output | list[Output]:
    """Normalise the axes from one on; the mean and the reciprocal deviation are further results.

    Before version 17 ONNX has no definition, and ONNX Runtime's has the same defaults.
    """
    node.attrs = {"axis": -1, "epsilon": 1e-5, **node.attrs}
    axis, dims, (w, bias) = _rows(node, 2)
    lead, width, eps = node.shape()[:axis], math.prod(dims), float(node.attrs["epsilon"])
    x = node.reshape(node.x(), (*lead, width))
    y = node.reshape(node.emit("layer_norm", x, w, bias, eps=eps), node.shape())
    if not any(node.wanted[1:]):
        return y
    wide = node.cast(x, F32) if dtype_of(x).itemsize < 4 else x
    var, mean = node.emit_all("var_mean", wide, axes=(len(lead),), keepdims=True, correction=0.0)
    scale = node.emit("rsqrt", node.emit("add_scalar", var, value=eps))
    kept = (*lead, *[1] * len(dims))
    return [y, node.reshape(mean, kept), node.reshape(scale, kept)]


def rms_normalization(node: Node) -> Output:
    """Divide by the root of the mean square over the axes from one on."""
    axis, dims, (w,) = _rows(node, 1)
    x = node.reshape(node.x(), (*node.shape()[:axis], math.prod(dims)))
    how = {"eps": float(node.attrs["epsilon"])}
    if w is None or dtype_of(w) is dtype_of(x):
        return node.reshape(node.emit("rms_norm", x, w, **how), node.shape())
    wide = F64 if F64 in (dtype_of(w), dtype_of(x)) else F32  # the result has the type of the weights
    y = node.cast(node.emit("rms_norm", node.cast(x, wide), node.cast(w, wide), **how), dtype_of(w))
    return node.reshape(y, node.shape())


def batch_normalization(node: Node) -> Output | list[Output]:
    """Normalise channels by given moments; in training mode by those of the batch, which update the given ones."""
    x, w, bias, mean, var = (node.x(n) for n in range(5))
    eps = float(node.attrs["epsilon"])
    if node.version < 14 and any(node.wanted[1:]):
        raise node.refuse("moments as results, for training", "the first result alone")
    if not node.attrs.get("spatial", 1):
        return _normalize_each(node, x, (w, bias, mean, var), eps)
    w, bias = node.cast(w, dtype_of(x)), node.cast(bias, dtype_of(x))
    if not node.attrs.get("training_mode", 0):
        mean, var = node.cast(mean, dtype_of(x)), node.cast(var, dtype_of(x))
        return node.emit("batch_norm", x, mean, var, w, bias, eps=eps)
    axes = (0, *range(2, node.rank))
    batch_var, batch_mean = node.emit_all("var_mean", x, axes=axes, correction=0.0)
    y = node.emit("batch_norm", x, batch_mean, batch_var, w, bias, eps=eps)
    keep = float(node.attrs["momentum"])
    found: list[Output] = [y]
    for old, new in ((mean, batch_mean), (var, batch_var)):
        new = node.cast(new, dtype_of(old))
        found.append(node.emit("axpy", new, node.emit("scale", old, value=keep), alpha=1 - keep))
    return found


def _normalize_each(node: Node, x: Operand, given: Sequence[Operand], eps: float) -> Operand:
    """Normalise each element of a sample by moments of its own, as `spatial` 0 asked for before version 9."""
    w, bias, mean, var = (node.reshape(node.cast(t, dtype_of(x)), (1, *node.shape()[1:])) for t in given)
    scale = node.emit("mul", w, node.emit("rsqrt", node.emit("add_scalar", var, value=eps)))
    return node.emit("add", node.emit("mul", node.emit("sub", x, mean), scale), bias)


def group_normalization(node: Node) -> Output:
    """Normalise groups of channels; before opset 21 the weights are a group's, not a channel's."""
    groups = int(node.attrs["num_groups"])
    w, bias = node.x(1), node.x(2)
    if shape_of(w) == (groups,) and node.version < 21 and node.shape()[1] != groups:
        each = node.shape()[1] // groups
        w, bias = (node.emit("repeat_interleave", t, repeats=each, axis=0) for t in (w, bias))
    return node.emit("group_norm", node.x(), w, bias, groups=groups, eps=float(node.attrs["epsilon"]))


def mean_variance_normalization(node: Node) -> Output:
    """Normalise over axes, by default all but the channels'."""
    axes = tuple(node.axis(a) for a in node.attrs["axes"])
    return node.emit("mean_variance_normalize", node.x(), axes=axes, eps=1e-9)


def _loss(node: Node, kind: str) -> Operand:
    how: dict[str, object] = {"reduction": node.attrs["reduction"]}
    how["ignore_index"] = int(node.attrs.get("ignore_index", -(2**31)))  # no class without the attribute
    target = node.x(1)
    target = target if dtype_of(target) is I64 else node.cast(target, I64)
    return node.emit(kind, node.x(), target, node.tensor(2), **how)


def nll_loss(node: Node) -> Output:
    """Return the loss of log probabilities."""
    return _loss(node, "nll_loss")


def cross_entropy(node: Node) -> Output | list[Output]:
    """Return the loss of scores, and their log probabilities."""
    loss = _loss(node, "cross_entropy")
    if len(node.wanted) > 1 and node.wanted[1]:
        return [loss, node.emit("log_softmax", node.x(), axis=1)]
    return loss


NODES: dict[str, Handler] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": row("instance_norm", eps="epsilon"),
    "LRN": row("local_response_norm", size="size", alpha="alpha", beta="beta", bias="bias"),
    "LayerNormalization": layer_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "NegativeLogLikelihoodLoss": nll_loss,
    "RMSNormalization": rms_normalization,
    "SoftmaxCrossEntropyLoss": cross_entropy,
}
