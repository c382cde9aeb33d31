"""Operators that normalise, by moments that are given or those of the elements."""

from __future__ import annotations

import math

import numpy as np

from ..dtypes import F32
from .node import AtenNode, Handler, Operand, Result, dtype_of, shape_of


def batch_norm(node: AtenNode) -> Result:
    """Normalise channels by moments that are given, or by those of the batch, which update the given ones."""
    x, w, bias = node["input"], node.get("weight"), node.get("bias")
    mean, var = node.get("running_mean"), node.get("running_var")
    if len(shape_of(x)) < 2:
        raise node.refuse("a vector", "rank 2 or more")
    to = dtype_of(x)
    eps, w, bias = float(node["eps"]), *(None if t is None else node.cast(t, to) for t in (w, bias))
    if not node.get("training"):
        if mean is None or var is None:
            raise node.refuse("neither training nor moments", "one of both")
        return [node.emit("batch_norm", x, node.cast(mean, to), node.cast(var, to), w, bias, eps=eps), None, None]
    axes = (0, *range(2, len(shape_of(x))))
    wide = node.cast(x, F32) if to.itemsize < 4 else x
    own_var, own_mean = node.emit_all("var_mean", wide, axes=axes, correction=0.0)
    y = node.emit("batch_norm", x, node.cast(own_mean, to), node.cast(own_var, to), w, bias, eps=eps)
    found: list[Operand | None] = [y, own_mean, node.emit("rsqrt", node.emit("add_scalar", own_var, value=eps))]
    if "functional" not in node.op_type:
        if mean is not None:
            raise node.refuse("moments that are written in place", "a graph without updates in place")
        return found
    count, keep = math.prod(shape_of(x)) // shape_of(x)[1], float(node["momentum"])
    unbiased = node.emit("scale", own_var, value=count / max(count - 1, 1))
    for old, new in ((mean, own_mean), (var, unbiased)):
        assert old is not None
        kept = node.emit("scale", old, value=1 - keep)
        found.append(node.emit("axpy", node.cast(new, dtype_of(old)), kept, alpha=keep))
    return found


def _rows(node: AtenNode, x: Operand, dims: tuple[int, ...]) -> Operand:
    shape = shape_of(x)
    return node.reshape(x, (*shape[: len(shape) - len(dims)], math.prod(dims)))


def _flat(node: AtenNode, w: Operand | None, to: object) -> Operand | None:
    return None if w is None else node.cast(node.reshape(w, (math.prod(shape_of(w)),)), to)


def layer_norm(node: AtenNode) -> Result:
    """Normalise the last axes; the mean and the reciprocal deviation are further results of the native form."""
    x, dims, eps = node["input"], node.ints("normalized_shape"), float(node["eps"])
    rows = _rows(node, x, dims)
    w, bias = (_flat(node, node.get(name), dtype_of(x)) for name in ("weight", "bias"))
    y = node.reshape(node.emit("layer_norm", rows, w, bias, eps=eps), shape_of(x))
    if not node.op_type.startswith("native"):
        return y
    if not node.reads(1) and not node.reads(2):
        return [y, None, None]
    wide = rows if dtype_of(x).itemsize >= 4 else node.cast(rows, F32)
    var, mean = node.emit_all("var_mean", wide, axes=(len(shape_of(rows)) - 1,), keepdims=True, correction=0.0)
    scale = node.emit("rsqrt", node.emit("add_scalar", var, value=eps))
    kept = (*shape_of(x)[: len(shape_of(x)) - len(dims)], *[1] * len(dims))
    return [y, node.reshape(mean, kept), node.reshape(scale, kept)]


def rms_norm(node: AtenNode) -> Result:
    """Divide by the root of the mean square of the last axes; without an eps by that of the type."""
    x, dims, eps = node["input"], node.ints("normalized_shape"), node.get("eps")
    kind = dtype_of(x).numpy if dtype_of(x).numpy is not None and dtype_of(x).itemsize > 2 else np.dtype(np.float32)
    eps = float(np.finfo(kind).eps) if eps is None else float(eps)
    y = node.emit("rms_norm", _rows(node, x, dims), _flat(node, node.get("weight"), dtype_of(x)), eps=eps)
    y = node.reshape(y, shape_of(x))
    return [y, None] if node.op_type.startswith("_") else y


def group_norm(node: AtenNode) -> Result:
    """Normalise groups of channels."""
    x, groups = node["input"], int(node["group" if "group" in node.args else "num_groups"])
    w, bias = (_flat(node, node.get(name), dtype_of(x)) for name in ("weight", "bias"))
    y = node.emit("group_norm", x, w, bias, groups=groups, eps=float(node["eps"]))
    return [y, None, None] if node.op_type.startswith("native") else y


NODES: dict[str, Handler] = {
    "_fused_rms_norm": rms_norm,
    "_native_batch_norm_legit": batch_norm,
    "_native_batch_norm_legit_functional": batch_norm,
    "_native_batch_norm_legit_no_training": batch_norm,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "native_batch_norm": batch_norm,
    "native_group_norm": group_norm,
    "native_layer_norm": layer_norm,
    "rms_norm": rms_norm,
}
