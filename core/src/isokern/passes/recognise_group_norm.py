"""recognise_group_norm: put group_norm where exporters write it as the norm of a view, scaled by channels.

ONNX had no GroupNormalization before opset 18: x [n, c, *s] is viewed as [n, groups, …], each group is normalized by an
instance_norm with weights of 1 or a layer_norm without, the result is viewed as x again, and a product and a sum with
vectors over c are its weight and its bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..graph.ir import Op, Value
from ..layout import TensorDesc
from ..ops import find
from ..rewriting.rewriter import VIEWS, Rewriter, State, find_updated, is_of_any, is_plain, only_user

HEARTS = ("instance_norm", "layer_norm")


@dataclass
class _Found:
    """A group_norm of `x`, and the operators that compute it."""

    x: Value
    groups: int
    eps: float
    ops: list[Op]
    weight: Value | None = None
    bias: Value | None = None


def run(state: State) -> State:
    """Return the graph with one operator for each norm by groups; views whose results are not read stay."""
    if not any(op.kind in HEARTS for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    found: dict[Op, _Found] = {}
    for op in state.graph.ops:
        norm = _find(rewriter, state, op) if op.kind in HEARTS else None
        if norm is not None:
            found[norm.ops[-1]] = norm
    if not found:
        return state
    inner = {op for norm in found.values() for op in norm.ops[:-1]}
    for op in state.graph.ops:
        if op in found:
            _emit(rewriter, found[op])
        elif op not in inner:
            rewriter.copy(op)
    return rewriter.finish()


def _find(rewriter: Rewriter, state: State, op: Op) -> _Found | None:
    """Return the group_norm whose central operator is this norm, if the target has it."""
    read = op.inputs[0]
    if read is None or op.constraints or not _has_no_weights(rewriter, op):
        return None
    x, ops, y = read, [op], op.outputs[0]
    while (view := _only_user(state, y, VIEWS)) is not None:
        ops.append(view)
        y = view.outputs[0]
    while x.spec.shape != y.spec.shape:
        if x.producer is None or x.producer.kind not in VIEWS or x.producer.inputs[0] is None:
            return None
        x = x.producer.inputs[0]
    groups = _groups(op, read.spec, x.spec)
    if groups is None or not is_plain(y.spec):
        return None
    norm = _Found(x, groups, float(op.attrs["eps"]), ops)
    _extend(state, norm)
    by_channels = norm.weight is not None or norm.bias is not None
    rows = x is read and x.spec.ndim == 2  # then it is a layer_norm, which has a faster kernel
    simpler = (by_channels and not rows) or (op.kind == "instance_norm" and x is not read)
    moved = is_of_any(find_updated(state.graph), x)
    return norm if simpler and not moved and _is_legal(state, norm) else None


def _only_user(state: State, value: Value, kinds: Sequence[str]) -> Op | None:
    """Return the one operator that reads a value, if it is of these kinds; see `only_user`."""
    return next((made for kind in kinds if (made := only_user(value, kind, state.graph)) is not None), None)


def _has_no_weights(rewriter: Rewriter, op: Op) -> bool:
    """Return whether the weights of a norm are absent, or known to be 1 and 0."""
    for value, neutral in zip(op.inputs[1:3], (1, 0), strict=False):
        known = rewriter.array(value)
        if value is not None and (known is None or not np.all(known == neutral)):
            return False
    return True


def _groups(op: Op, read: TensorDesc, x: TensorDesc) -> int | None:
    """Return the number of groups of x's channels that the norm of a view of x is over; None if it is not by groups."""
    if x.ndim < 2 or not x.numel or not read.ndim:
        return None
    rows = math.prod(read.shape[:2] if op.kind == "instance_norm" else read.shape[:-1])
    n, c = x.shape[:2]
    return rows // n if rows % n == 0 and c % (rows // n) == 0 else None


def _extend(state: State, norm: _Found) -> None:
    """Take the weight and the bias behind a norm, as far as they are vectors over the channels."""
    for kinds in (("mul",), ("add", "bias_add")):
        y = norm.ops[-1].outputs[0]
        user = _only_user(state, y, kinds)
        if user is None or user.outputs[0].spec != y.spec:
            continue
        others = [v for v in user.inputs if v is not None and v is not y]
        if len(others) != 1 or not _is_over_channels(user, others[0].spec, y.spec):
            continue
        norm.ops.append(user)
        if user.kind == "mul":
            norm.weight = others[0]
        else:
            norm.bias = others[0]


def _is_over_channels(user: Op, vector: TensorDesc, y: TensorDesc) -> bool:
    """Return whether an operand has an element for each channel of y."""
    if vector.dtype is not y.dtype:
        return False
    if user.kind == "bias_add":
        return bool(user.attrs["axis"] % y.ndim == 1)
    return (1,) * (y.ndim - vector.ndim) + vector.shape == (1, y.shape[1]) + (1,) * (y.ndim - 2)


def _is_legal(state: State, norm: _Found) -> bool:
    """Return whether the target has the operator."""
    if state.target is None:
        return True
    operator, y = find("group_norm"), norm.ops[-1].outputs[0].spec
    vectors = [None if v is None else TensorDesc(y.dtype, (v.spec.numel,)) for v in (norm.weight, norm.bias)]
    values = operator.attrs.check("group_norm", {"eps": norm.eps, "groups": norm.groups})
    return state.target.why_not(operator, [norm.x.spec, *vectors], [y], values) is None


def _emit(rewriter: Rewriter, norm: _Found) -> None:
    """Emit the group_norm."""
    last = norm.ops[-1]
    vectors = [_as_vector(rewriter, v) for v in (norm.weight, norm.bias)]
    while vectors and vectors[-1] is None:
        vectors.pop()
    (made,) = rewriter.builder.emit(
        "group_norm",
        [rewriter.value(norm.x), *vectors],
        {"eps": norm.eps, "groups": norm.groups},
        name=last.name,
        outputs=[last.outputs[0].spec],
    )
    rewriter.put(last.outputs[0], made)


def _as_vector(rewriter: Rewriter, value: Value | None) -> Value | None:
    """Return a weight as [c]."""
    if value is None or value.spec.ndim == 1:
        return None if value is None else rewriter.value(value)
    (made,) = rewriter.builder.emit("reshape", [rewriter.value(value)], {"shape": (value.spec.numel,)})
    return made
