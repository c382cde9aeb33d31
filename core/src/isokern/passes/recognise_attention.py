"""recognise_attention: put `attention` where small operators compute softmax(scale · q kᵀ + mask) v.

The scores and what becomes of them are then never in memory. The factor may stand before the product, on q, on k or on
both, or behind it; the mask is added, or a condition chooses between the scores and a number so low that nothing is
left of them; and rows without keys, whose softmax is NaN, may be set to 0, as the operator has them anyway. q, k and v
are [b, heads, length, d] or [b, length, d] there, and [b, length, heads, d] here: the transposes between the two cancel
with those that exporters write (`choose_layouts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..dtypes import ACTIVATIONS, F64
from ..graph.ir import Op, TensorSpec, Value
from ..ops import find
from ..rewriting.rewriter import Rewriter, State

LOW = -1e30  # below it a score leaves nothing in the softmax


@dataclass
class _Attention:
    """An attention: its operands as they are in the graph, and the operators that compute it, the last one first."""

    ops: list[Op]
    v: Value
    q: Value | None = None
    k: Value | None = None  # as it is multiplied: [b, h, d, s]
    scale: float = 1.0
    mask: Value | None = None
    seen: Value | None = None
    low: float = 0.0  # what scores are where `seen` is not `kept`
    kept: bool = True


def run(state: State) -> State:
    """Return the graph with one operator for each attention that the target has."""
    if not any(op.kind == "softmax" for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    found: dict[Op, _Attention] = {}
    inner: set[Op] = set()
    for op in state.graph.ops:
        made = _find(state, rewriter, op) if op.kind == "matmul" and not op.constraints else None
        if made is not None and _legal(state, made):
            found[op] = made
            inner |= set(made.ops[1:])
    if not found:
        return state
    for op in state.graph.ops:
        if op in found:
            _emit(rewriter, found[op])
        elif op not in inner:
            rewriter.copy(op)
    return rewriter.finish()


def _find(state: State, rewriter: Rewriter, product: Op) -> _Attention | None:
    """Return the attention that ends in a product of shares and values."""
    shares, v = product.inputs[:2]
    y = product.outputs[0].spec
    if shares is None or v is None or y.ndim not in (3, 4) or y.dtype not in (*ACTIVATIONS, F64):
        return None
    made = _Attention([product], v)
    softmax = _alone(state, shares, made)
    if softmax is not None and softmax.kind == "where":  # it replaces rows of NaN
        inside = _without_nan(rewriter, softmax)
        if inside is None:
            return None
        test, value = inside
        if {*value.users} != {softmax, test} or value in state.graph.outputs:
            return None
        made.ops.append(test)
        softmax = value.producer
        if softmax is not None:
            made.ops.append(softmax)
    if softmax is None or softmax.kind != "softmax" or softmax.attrs["axis"] % y.ndim != y.ndim - 1:
        return None
    if len(softmax.inputs) > 1 and any(v is not None for v in softmax.inputs[1:]):
        return None
    scores = _scores(state, rewriter, softmax.inputs[0], made)
    if scores is None:
        return None
    q, k = scores.inputs[:2]
    assert q is not None and k is not None
    made.q, one = _factor(state, rewriter, q, made)
    made.k, other = _factor(state, rewriter, k, made)
    made.scale *= one * other
    lead = y.shape[:-2]
    if any(x.spec.shape[:-2] != lead for x in (made.q, made.k, v)) or not made.scale:
        return None
    return made


def _alone(state: State, value: Value | None, made: _Attention) -> Op | None:
    """Return the producer of a value that nothing else reads, entered among the operators."""
    op = None if value is None else value.producer
    if op is None or value is None or op.constraints or len(value.users) != 1 or value in state.graph.outputs:
        return None
    made.ops.append(op)
    return op


def _without_nan(rewriter: Rewriter, op: Op) -> tuple[Op, Value] | None:
    """Return the test and the value of where(isnan(value), 0, value)."""
    test, zero, value = op.inputs[:3]
    known = rewriter.array(zero)
    maker = None if test is None or len(test.users) != 1 else test.producer
    if maker is None or maker.kind != "isnan" or value is None or maker.inputs[0] is not value:
        return None
    return (maker, value) if known is not None and known.size == 1 and not known.any() else None


def _scores(state: State, rewriter: Rewriter, value: Value | None, made: _Attention) -> Op | None:
    """Return the product of q and k, and enter the factor and the mask behind it."""
    while True:
        op = _alone(state, value, made)
        if op is None or (value is not None and op.outputs[0].spec.shape != value.spec.shape):
            return None
        if op.kind == "matmul":
            return op
        y = op.outputs[0].spec
        if op.kind == "add" and made.mask is None and made.seen is None and made.scale == 1:
            value, made.mask = _split(op, y)
        elif op.kind == "where" and made.mask is None and made.seen is None and made.scale == 1:
            value = _find_condition(rewriter, op, made)
        else:
            (value, factor) = _split_factor(rewriter, op)
            made.scale *= factor
        if value is None or value.spec != y:
            return None


def _split(op: Op, y: TensorSpec) -> tuple[Value | None, Value | None]:
    """Return the scores and the mask of a sum: the scores come from an operator of them alone."""
    a, b = op.inputs[:2]
    if a is None or b is None:
        return None, None
    if a.spec != y or (b.spec == y and not _is_score(a)):
        a, b = b, a
    fits = len(b.spec.shape) <= y.ndim and b.spec.dtype is y.dtype
    return (a, b) if fits else (None, None)


def _is_score(value: Value) -> bool:
    return value.producer is not None and value.producer.kind in ("matmul", "scale", "div_scalar", "mul", "div")


def _find_condition(rewriter: Rewriter, op: Op, made: _Attention) -> Value | None:
    """Return the scores of where(condition, scores, low) or where(condition, low, scores), and enter the condition."""
    condition, a, b = op.inputs[:3]
    assert condition is not None and a is not None and b is not None
    for scores, number, kept in ((a, b, True), (b, a, False)):
        known = rewriter.array(number)
        if known is not None and known.size == 1 and known.reshape(())[()] <= LOW:
            made.seen, made.kept, made.low = condition, kept, float(known.reshape(())[()])
            return scores
    return None


def _split_factor(rewriter: Rewriter, op: Op) -> tuple[Value | None, float]:
    """Return what an operator multiplies by a number, and the number."""
    if op.kind == "scale":
        return op.inputs[0], float(op.attrs["value"])
    if op.kind == "div_scalar" and op.attrs["value"]:
        return op.inputs[0], 1 / float(op.attrs["value"])
    if op.kind not in ("mul", "div"):
        return None, 1.0
    for n in (1, 0) if op.kind == "mul" else (1,):
        known = rewriter.array(op.inputs[n])
        if known is not None and known.size == 1 and np.isfinite(known).all() and known.any():
            number = float(known.reshape(())[()])
            return op.inputs[1 - n], number if op.kind == "mul" else 1 / number
    return None, 1.0


def _factor(state: State, rewriter: Rewriter, value: Value, made: _Attention) -> tuple[Value, float]:
    """Return q or k without a factor that it alone was multiplied by, and the factor."""
    op = value.producer
    if op is None or op.constraints or len(value.users) != 1 or value in state.graph.outputs:
        return value, 1.0
    found, factor = _split_factor(rewriter, op)
    if found is None or found.spec != value.spec:
        return value, 1.0
    made.ops.append(op)
    return found, factor


# The operator


def _heads(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the dims with one head if there is no dim of heads."""
    return tuple(shape) if len(shape) == 4 else (shape[0], 1, *shape[1:])


def _mask_shape(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the dims of a mask as they broadcast to [b, h, m, s]."""
    return (shape[0], 1, *shape[1:]) if rank == 3 and len(shape) == 3 else tuple(shape)


def _legal(state: State, made: _Attention) -> bool:
    """Return whether a target has the operator, of dense operands."""
    if state.target is None:
        return True
    assert made.q is not None and made.k is not None
    element = made.q.spec.dtype
    b, h, m, d = _heads(made.q.spec.shape)
    s, e = made.v.spec.shape[-2:]
    specs: list[TensorSpec | None] = [TensorSpec(element, (b, n, h, w)) for n, w in ((m, d), (s, d), (s, e))]
    given = made.mask or made.seen
    if given is not None:
        specs.append(TensorSpec(element, _mask_shape(given.spec.shape, made.q.spec.ndim)))
    operator = find("attention")
    attrs = operator.attrs.check("attention", {"scale": made.scale})
    return state.target.why_not(operator, specs, [TensorSpec(element, (b, m, h, e))], attrs) is None


def _emit(rewriter: Rewriter, made: _Attention) -> None:
    assert made.q is not None and made.k is not None
    product, name = made.ops[0], made.ops[0].name
    y = product.outputs[0]

    def emit(kind: str, inputs: Sequence[Value | None], **attrs: object) -> Value:
        (found,) = rewriter.builder.emit(kind, inputs, attrs, name=name)
        return found

    def turn(value: Value, axes: tuple[int, ...]) -> Value:
        x, shape = rewriter.value(value), value.spec.shape
        if len(shape) == 4:
            return emit("transpose", [x], axes=axes)
        if axes[-1] == 2:  # k, as it is multiplied
            x = emit("transpose", [x], axes=(0, 2, 1))
        b, n, d = x.spec.shape
        return emit("reshape", [x], shape=(b, n, 1, d))

    q, k, v = turn(made.q, (0, 2, 1, 3)), turn(made.k, (0, 3, 1, 2)), turn(made.v, (0, 2, 1, 3))
    found = emit("attention", [q, k, v, *_masks(rewriter, made, emit)], scale=made.scale)
    if y.spec.ndim == 4:
        found = emit("transpose", [found], axes=(0, 2, 1, 3))
    else:
        found = emit("reshape", [found], shape=y.spec.shape)
    rewriter.put(y, found)


def _masks(rewriter: Rewriter, made: _Attention, emit: object) -> list[Value | None]:
    """Return the mask that is added, if there is one; a condition becomes one of 0 and the low number."""
    assert callable(emit)
    if made.mask is None and made.seen is None:
        return []
    rank = made.v.spec.ndim
    if made.seen is not None:
        zero, low = (
            rewriter.parameter(made.v.spec.dtype, f"{made.ops[0].name} mask", np.array(number))
            for number in (0.0, made.low)
        )
        mask = emit("where", [rewriter.value(made.seen), *((zero, low) if made.kept else (low, zero))])
    else:
        assert made.mask is not None
        mask = rewriter.value(made.mask)
    shape = _mask_shape(mask.spec.shape, rank)
    return [mask if shape == mask.spec.shape else emit("reshape", [mask], shape=shape)]
