"""Nodes that reduce axes, accumulate along one, or pick from it."""

from __future__ import annotations

import math

from ..dtypes import BOOL, F64, I64
from ..status import InvalidArgument
from .node import Handler, Node, Operand, Output, dtype_of, is_float, shape_of


def axes_of(node: Node, i: int = 1) -> tuple[int, ...] | None:
    """Return the axes of a node, its attribute or input i; None where there are none."""
    given = node.attrs.get("axes")
    if given is None:
        given = node.ints(i) if node.has(i) else None
    return None if given is None else tuple(node.axis(a) for a in given)


def reduce(kind: str) -> Handler:
    """Return the handler of a reduction; without axes it reduces all, or none if an attribute says so."""

    def handle(node: Node) -> Output:
        x, axes = node.x(), axes_of(node)
        if not axes:
            if node.attrs.get("noop_with_empty_axes", 0):
                return _alone(node, kind, x)
            axes = tuple(range(node.rank))
        if not axes:
            return _alone(node, kind, x)
        return _reduce(node, kind, x, axes)

    return handle


def _alone(node: Node, kind: str, x: Operand) -> Operand:
    """Return what a reduction over no axis makes of each element."""
    shape = node.shape()
    found = _reduce(node, kind, node.reshape(x, (*shape, 1)), (len(shape),))
    return node.reshape(found, shape)


def _reduce(node: Node, kind: str, x: Operand, axes: tuple[int, ...]) -> Operand:
    how = {"axes": axes, "keepdims": bool(node.attrs["keepdims"])}
    dtype = dtype_of(x)
    if dtype is BOOL and kind in ("reduce_max", "reduce_min"):
        kind = {"reduce_max": "reduce_any", "reduce_min": "reduce_all"}[kind]
    elif dtype.kind in "iu":
        if kind == "reduce_l1":
            x, kind = node.emit("abs", x), "reduce_sum"
        elif kind == "reduce_sum_square":
            x, kind = node.emit("mul", x, x), "reduce_sum"
        elif kind == "reduce_mean":  # rounded towards zero, as NumPy and ONNX Runtime do
            total = node.emit("reduce_sum", node.cast(x, I64), **how)
            count = node.full((), math.prod(shape_of(x)[a] for a in axes), I64)
            return node.cast(node.emit("trunc_divide", total, count), dtype)
        elif kind in ("reduce_l2", "reduce_log_sum"):
            return node.cast(node.emit(kind, node.cast(x, F64), **how), dtype)
    if not is_float(x) and kind not in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min") and dtype is not BOOL:
        raise node.refuse(f"{kind} of {dtype}", "floats")
    return node.emit(kind, x, **how)


def pick(kind: str) -> Handler:
    """Return the handler of ArgMax or ArgMin; the last of equal elements is the first in the other direction."""

    def handle(node: Node) -> Output:
        axis, keepdims = node.axis(), bool(node.attrs["keepdims"])
        if not node.attrs.get("select_last_index", 0):
            return node.emit(kind, node.x(), axis=axis, keepdims=keepdims)
        found = node.emit(kind, node.emit("flip", node.x(), axes=(axis,)), axis=axis, keepdims=keepdims)
        return node.emit("sub", node.full((), node.shape()[axis] - 1, I64), found)

    return handle


def accumulate(kind: str) -> Handler:
    """Return the handler of CumSum or CumProd, whose axis is an input."""

    def handle(node: Node) -> Output:
        how = {name: bool(node.attrs[name]) for name in ("exclusive", "reverse")}
        return node.emit(kind, node.x(), axis=node.axis(node.number(1)), **how)

    return handle


def soft(kind: str) -> Handler:
    """Return the handler of Softmax and the like, which before version 13 took all axes from one on as one."""

    def handle(node: Node) -> Output:
        if node.version >= 13:
            return node.emit(kind, node.x(), axis=node.axis())
        axis, shape = int(node.attrs["axis"]), node.shape()
        axis += node.rank if axis < 0 else 0
        if not 0 <= axis <= node.rank:
            raise InvalidArgument(node.op_type, f"axis {axis}", allowed=f"{-node.rank} to {node.rank}")
        if axis == node.rank - 1:
            return node.emit(kind, node.x(), axis=axis)
        flat = node.reshape(node.x(), (math.prod(shape[:axis]), math.prod(shape[axis:])))
        return node.reshape(node.emit(kind, flat, axis=1), shape)

    return handle


def top_k(node: Node) -> tuple[Output, ...]:
    """Return the k largest or smallest elements of an axis in order, and their places."""
    k = int(node.attrs["k"]) if "k" in node.attrs else int(node.number(1))
    axis = node.axis()
    if node.attrs.get("largest", 1):
        return node.emit_all("topk", node.x(), k=k, axis=axis)
    found = node.emit_all("sort", node.x(), axis=axis)
    return tuple(node.emit("slice", y, starts=(0,), ends=(k,), axes=(axis,)) for y in found)


def lp_normalise(node: Node) -> Output:
    """Divide by the norm along an axis; where that is 0, the result is 0."""
    return node.emit("lp_normalize", node.x(), p=int(node.attrs["p"]), axis=node.axis())


NODES: dict[str, Handler] = {
    "ArgMax": pick("argmax"),
    "ArgMin": pick("argmin"),
    "CumProd": accumulate("cumprod"),
    "CumSum": accumulate("cumsum"),
    "Hardmax": soft("hardmax"),
    "LogSoftmax": soft("log_softmax"),
    "LpNormalization": lp_normalise,
    "ReduceL1": reduce("reduce_l1"),
    "ReduceL2": reduce("reduce_l2"),
    "ReduceLogSum": reduce("reduce_log_sum"),
    "ReduceLogSumExp": reduce("logsumexp"),
    "ReduceMax": reduce("reduce_max"),
    "ReduceMean": reduce("reduce_mean"),
    "ReduceMin": reduce("reduce_min"),
    "ReduceProd": reduce("reduce_prod"),
    "ReduceSum": reduce("reduce_sum"),
    "ReduceSumSquare": reduce("reduce_sum_square"),
    "Softmax": soft("softmax"),
    "TopK": top_k,
}
