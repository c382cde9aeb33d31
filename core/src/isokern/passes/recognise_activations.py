"""recognise_activations: put one operator where small ones compute an activation, such as GELU written with erf.

Exporters write one activation in many ways: factors in any order, a division for a product, a cube as a power. So what
is compared is not how it is written but what it computes. Elementwise operators of one tensor and of numbers are a
function of one number; where that agrees with an activation on a grid of points, as closely as the numbers of its dtype
allow, the activation replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from ..declare.elementwise import attributes
from ..dtypes import FLOATS
from ..expr.evaluate import evaluate
from ..expr.tree import substitute
from ..graph.ir import Op, Value, specs_of
from ..ops import find
from ..rewriting.rewriter import Array, Rewriter, State

ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hardswish", "hardsigmoid", "relu6")
SEEDS = frozenset({"erf", "erfc", "tanh", "sigmoid", "exp", "softplus", "clip", "relu6", "hardsigmoid", "minimum"})
STEPS = 7  # operators before or behind a seed, at most
GRID = np.linspace(-12, 12, 193)  # with the corners of the piecewise ones, 3 and 6, and with 0
CLOSE = 100  # roundings of the dtype by which a written constant, such as 1.4142, moves the values


def run(state: State) -> State:
    """Return the graph with an activation for each group of operators that computes one."""
    if not any(op.kind in SEEDS for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    found: dict[Op, tuple[str, Value]] = {}
    inner: set[Op] = set()
    for seed in state.graph.ops:
        if seed.kind in SEEDS and seed not in inner and seed not in found:
            _recognise(state, rewriter, seed, found, inner)
    if not found:
        return state
    for op in state.graph.ops:
        if op in found:
            kind, x = found[op]
            (y,) = rewriter.builder.emit(kind, [rewriter.value(x)], name=op.name, outputs=[op.outputs[0].spec])
            rewriter.put(op.outputs[0], y)
        elif op not in inner:
            rewriter.copy(op)
    return rewriter.finish()


def _recognise(state: State, rewriter: Rewriter, seed: Op, found: dict[Op, tuple[str, Value]], inner: set[Op]) -> None:
    """Enter the longest group around a seed that is an activation."""
    sources = list(_before(seed))
    for last in reversed(list(_behind(seed))):
        for x in sources:
            members: dict[Op, Array] = {}
            values = _evaluate(rewriter, last.outputs[0], x, members)
            if values is None or len(members) < 2 or not _is_closed(state, last, members) or inner & set(members):
                continue
            kind = _match(values, last.outputs[0].spec.dtype.name)
            if kind is not None and _legal(state, kind, x, last.outputs[0]):
                found[last] = (kind, x)
                inner |= set(members) - {last}
                return


def _fits(op: Op | None, like: Value) -> bool:
    """Return whether an operator may be part of a group: elementwise, in the dtype and dims of the group's values."""
    if op is None or op.operator.scalar_expr is None or op.constraints or op.kind == "bias_add":
        return False
    y = op.outputs[0].spec
    return y.dtype in FLOATS and y.dtype is like.spec.dtype and y.shape == like.spec.shape


def _before(seed: Op) -> Iterator[Value]:
    """Yield the values that a seed is computed from, the nearest first."""
    like = seed.outputs[0]
    near, seen = [v for v in seed.given if v.spec.shape == like.spec.shape], set[Value]()
    for _ in range(STEPS):
        seen |= set(near)
        yield from near
        makers = [v.producer for v in near if v.producer is not None and _fits(v.producer, like)]
        near = [
            v for op in dict.fromkeys(makers) for v in op.given if v.spec.shape == like.spec.shape and v not in seen
        ]
        near = list(dict.fromkeys(near))


def _behind(seed: Op) -> Iterator[Op]:
    """Yield the operators that read what a seed makes, the nearest first, and the seed before them."""
    like, near, seen = seed.outputs[0], [seed], set[Op]()
    for _ in range(STEPS):
        seen |= set(near)
        yield from near
        users = dict.fromkeys(user for op in near for user in op.outputs[0].users)
        near = [op for op in users if op not in seen and _fits(op, like)]


def _evaluate(rewriter: Rewriter, value: Value, x: Value, members: dict[Op, Array]) -> Array | None:
    """Return a value on the grid as a function of x, None where it is no function of x alone.

    `members` become the operators between them.
    """
    if value is x:
        return GRID
    op = value.producer
    if op is None:
        known = rewriter.array(value)
        return None if known is None or known.size != 1 else known.reshape(())
    if op in members:
        return members[op]
    if not _fits(op, x) or len(members) > 2 * STEPS:
        return None
    tree = op.operator.scalar_expr
    assert tree is not None
    given: dict[str, Array] = {}
    for operand, v in zip(op.operator.signature.inputs, op.inputs, strict=False):
        if v is not None:
            found = _evaluate(rewriter, v, x, members)
            if found is None:
                return None
            given[operand.name] = found
    body = substitute(tree, attributes(op.attrs, op.outputs[0].spec.dtype))
    with np.errstate(all="ignore"):
        members[op] = np.asarray(evaluate(body, given, np.float64))
    return members[op]


def _is_closed(state: State, last: Op, members: dict[Op, Array]) -> bool:
    """Return whether nothing but the group reads what its operators make, apart from the last one's result."""
    results = state.graph.outputs
    inner = [op.outputs[0] for op in members if op is not last]
    return all(v not in results and all(user in members for user in v.users) for v in inner)


@cache
def _table() -> dict[str, Array]:
    """Return the activations on the grid."""
    found = {}
    for name in ACTIVATIONS:
        tree = find(name).scalar_expr
        assert tree is not None
        with np.errstate(all="ignore"):
            found[name] = np.asarray(evaluate(tree, {"x": GRID}, np.float64))
    return found


def _match(values: Array, dtype: str) -> str | None:
    """Return the activation that has these values, the nearest where several are as close as constants allow."""
    if values.shape != GRID.shape or not np.isfinite(values).all():
        return None
    rounding = {"F16": 2.0**-11, "BF16": 2.0**-8, "F64": 2.0**-24}.get(dtype, 2.0**-24)
    best: tuple[float, str] | None = None
    for name, wanted in _table().items():
        allowed = min(CLOSE * rounding, 0.02) * np.abs(wanted) + rounding * (1 + np.abs(GRID))
        worst = float(np.max(np.abs(values - wanted) / allowed))
        if worst <= 1 and (best is None or worst < best[0]):
            best = worst, name
    return None if best is None else best[1]


def _legal(state: State, kind: str, x: Value, y: Value) -> bool:
    if state.target is None:
        return True
    operator: Any = find(kind)
    return state.target.why_not(operator, specs_of([x]), [y.spec], operator.attrs.check(kind, {})) is None
