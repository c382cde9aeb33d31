"""Operators that reduce axes, accumulate along one, or put one in order."""

from __future__ import annotations

import math

from ..dtypes import BOOL, F32, F64, I64
from .node import AtenNode, Handler, Operand, Result, dtype_of, is_float, shape_of


def reduce(kind: str) -> Handler:
    """Return the handler of a reduction, in the dtype of the result."""

    def handle(node: AtenNode) -> Result:
        return _reduce(node, kind, node.cast(node.x, node.wanted))

    return handle


def _reduce(node: AtenNode, kind: str, x: Operand) -> Operand:
    if not node.rank:  # over no axis, so of each element alone
        x = node.reshape(x, (1,))
        return node.reshape(node.emit(kind, x, axes=(0,), keepdims=False), ())
    return node.emit(kind, x, axes=node.axes(), keepdims=bool(node.get("keepdim", False)))


def extreme(kind: str, of_truths: str) -> Handler:
    """Return the handler of amax or amin, and of max or min of all elements."""

    def handle(node: AtenNode) -> Result:
        return _reduce(node, of_truths if dtype_of(node.x) is BOOL else kind, node.x)

    return handle


def truth(kind: str) -> Handler:
    """Return the handler of all or any, of which PyTorch has U8 for U8."""

    def handle(node: AtenNode) -> Result:
        return node.cast(_reduce(node, kind, node.x), node.wanted)

    return handle


def best(kind: str, of_truths: str, place: str, pair: str) -> Handler:
    """Return the handler of max or min: of all elements, of an axis with its places, or of two tensors."""

    def handle(node: AtenNode) -> Result:
        if "other" in node.args:
            return node.emit(pair, node.cast(node.x, node.wanted), node.cast(node["other"], node.wanted))
        if "dim" not in node.args:
            return extreme(kind, of_truths)(node)
        how = {"axis": node.axis(node["dim"]), "keepdims": bool(node.get("keepdim", False))}
        if dtype_of(node.x) is BOOL:
            raise node.refuse("places of truths", "numbers")
        (places,) = node.lift(place, node.x, **how)
        return [_reduce(node, kind, node.x), places]

    return handle


def arg(kind: str) -> Handler:
    """Return the handler of argmax or argmin; without an axis of the flat tensor."""

    def handle(node: AtenNode) -> Result:
        keep = bool(node.get("keepdim", False))
        if node.get("dim") is not None:
            return node.lift(kind, node.x, axis=node.axis(node["dim"]), keepdims=keep)[0]
        y = node.emit(kind, node.reshape(node.x, (math.prod(node.shape),)), axis=0)
        return node.reshape(y, (1,) * node.rank) if keep else y

    return handle


def spread(kind: str) -> Handler:
    """Return the handler of var, std and those with means."""

    def handle(node: AtenNode) -> Result:
        amount = node.get("correction")
        if "unbiased" in node.args:
            amount = int(bool(node["unbiased"]))
        amount = 1.0 if amount is None else float(amount)
        if amount < 0 or not node.rank:
            raise node.refuse(f"correction {amount} of rank {node.rank}", "0 or more, and rank 1 or more")
        how = {"axes": node.axes(), "keepdims": bool(node.get("keepdim", False)), "correction": amount}
        if kind in ("var", "std"):
            return node.emit(kind, node.x, **how)
        var, mean = node.emit_all("var_mean", node.x, **how)
        return [var if kind == "var_mean" else node.emit("sqrt", var), mean]

    return handle


def running(kind: str) -> Handler:
    """Return the handler of a sum or a product of what comes before along an axis."""
    return lambda node: node.lift(kind, node.cast(node.x, node.wanted), axis=node.axis(node["dim"]))[0]


def soft(kind: str) -> Handler:
    """Return the handler of softmax or log_softmax, in F32 where half floats are to become that."""

    def handle(node: AtenNode) -> Result:
        return node.lift(kind, node.cast(node.x, node.wanted), axis=node.axis(node["dim"]))[0]

    return handle


def safe_softmax(node: AtenNode) -> Result:
    """Return softmax, and 0 where a row is of nothing but minus infinity."""
    x, axis = node.cast(node.x, node.wanted), node.axis(node["dim"])
    y = node.lift("softmax", x, axis=axis)[0]
    if not node.rank:
        return y
    most = node.emit("reduce_max", x, axes=(axis,), keepdims=True)
    empty = node.emit("equal", most, node.full((), -math.inf, node.wanted))
    return node.emit("where", empty, node.full((), 0, node.wanted), y)


def norm(node: AtenNode) -> Result:
    """Return the norm of vectors."""
    order = node.get("ord", node.get("p", 2))
    x = node.cast(node.x, node.wanted)
    if not node.rank:
        return node.emit("abs", x) if float(order) != 0 else node.cast(node.cast(x, BOOL), node.wanted)
    how = {"axes": node.axes(), "keepdims": bool(node.get("keepdim", False))}
    return node.emit("norm", x, p=float(order), **how)


def logsumexp(node: AtenNode) -> Result:
    """Return the logarithm of the sum of exponentials."""
    return _reduce(node, "logsumexp", node.cast(node.x, node.wanted))


def sort(node: AtenNode) -> Result:
    """Put an axis in order; always stable."""
    how = {"axis": node.axis(node.get("dim", -1)), "descending": bool(node.get("descending", False))}
    return list(node.lift("sort", node.x, **how))


def argsort(node: AtenNode) -> Result:
    """Return the places of an axis in order."""
    how = {"axis": node.axis(node.get("dim", -1)), "descending": bool(node.get("descending", False))}
    return node.lift("sort", node.x, **how)[1]


def top_k(node: AtenNode) -> Result:
    """Return the k largest or smallest elements of an axis in order, and their places."""
    k, axis = int(node["k"]), node.axis(node.get("dim", -1))
    if not node.rank:
        return list(node.lift("sort", node.x, axis=0))
    if node.get("largest", True):
        return list(node.emit_all("topk", node.x, k=k, axis=axis))
    both = node.emit_all("sort", node.x, axis=axis)
    return [node.emit("slice", y, starts=(0,), ends=(k,), axes=(axis,)) for y in both]


def aminmax(node: AtenNode) -> Result:
    """Return the least and the largest element."""
    return [_reduce(node, "reduce_min", node.x), _reduce(node, "reduce_max", node.x)]


def count_nonzero(node: AtenNode) -> Result:
    """Count what is not 0."""
    return node.emit("reduce_sum", node.cast(node.cast(node.x, BOOL), I64), axes=node.axes(), keepdims=False)


def mean(node: AtenNode) -> Result:
    """Return the mean."""
    if not is_float(node.x) and node.get("dtype") is None:
        raise node.refuse(f"the mean of {dtype_of(node.x)}", "floats")
    return _reduce(node, "reduce_mean", node.cast(node.x, node.wanted))


def cdist(node: AtenNode) -> Result:
    """Return distances between rows."""
    p = float(node.get("p", 2))
    if (
        p not in (1, 2)
        or shape_of(node["x1"])[:-2] != shape_of(node["x2"])[:-2]
        or dtype_of(node["x1"]) not in (F32, F64)
    ):
        raise node.refuse(f"the norm {p}, or batches that differ", "1 or 2, and equal batches")
    return node.emit("cdist", node["x1"], node["x2"], p=int(p))


NODES: dict[str, Handler] = {
    "_cdist_forward": cdist,
    "_log_softmax": soft("log_softmax"),
    "_safe_softmax": safe_softmax,
    "_softmax": soft("softmax"),
    "all": truth("reduce_all"),
    "amax": extreme("reduce_max", "reduce_any"),
    "amin": extreme("reduce_min", "reduce_all"),
    "aminmax": aminmax,
    "any": truth("reduce_any"),
    "argmax": arg("argmax"),
    "argmin": arg("argmin"),
    "argsort": argsort,
    "count_nonzero": count_nonzero,
    "cumprod": running("cumprod"),
    "cumsum": running("cumsum"),
    "linalg_vector_norm": norm,
    "log_softmax": soft("log_softmax"),
    "logcumsumexp": running("logcumsumexp"),
    "logsumexp": logsumexp,
    "max": best("reduce_max", "reduce_any", "argmax", "maximum"),
    "mean": mean,
    "min": best("reduce_min", "reduce_all", "argmin", "minimum"),
    "norm": norm,
    "prod": reduce("reduce_prod"),
    "softmax": soft("softmax"),
    "sort": sort,
    "std": spread("std"),
    "std_mean": spread("std_mean"),
    "sum": reduce("reduce_sum"),
    "topk": top_k,
    "var": spread("var"),
    "var_mean": spread("var_mean"),
}
