"""recognise_activations: replace small operators that compute an activation, such as GELU written with erf.

Exporters write one activation in many ways: factors in any order, a division for a product, a cube as a power. So the
pass compares values, not formulas. Elementwise operators of one tensor and of numbers are a function of one number; if
that agrees with an activation on a grid of points, as closely as the numbers of its dtype allow, the activation
replaces it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..declare.elementwise import attributes
from ..dtypes import FLOATS, DType
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
KNOWN = 1 << 10  # groups whose answer is kept
X = -1  # the number of a group's input, which is not a row


@dataclass(frozen=True)
class Member:
    """An operator of a group: its number, and by name the rows that it reads, and the numbers as hexadecimal text."""

    number: int
    kind: str
    attrs: str
    given: tuple[tuple[str, int | str], ...]


_matched: dict[Hashable, str | None] = {}


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
            rows: dict[Op, Member] = {}
            if _describe(rewriter, last.outputs[0], x, rows) is None or len(rows) < 2:
                continue
            if not _is_closed(state, last, rows) or not inner.isdisjoint(rows):
                continue
            kind = _match(rows, last.outputs[0].spec.dtype)
            if kind is not None and _legal(state, kind, x, last.outputs[0]):
                found[last] = (kind, x)
                inner |= set(rows) - {last}
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


def _describe(rewriter: Rewriter, value: Value, x: Value, rows: dict[Op, Member]) -> int | str | None:
    """Return a value as a function of x: X, a row, or a number; None if it depends on more than x.

    `rows` become the operators between them, each after those that it reads.
    """
    if value is x:
        return X
    op = value.producer
    if op is None:
        known = rewriter.array(value) if value.spec.numel == 1 else None
        return None if known is None else float(known.reshape(())[()]).hex()
    if op in rows:
        return rows[op].number
    if not _fits(op, x) or len(rows) > 2 * STEPS:
        return None
    given = list[tuple[str, int | str]]()
    for operand, v in zip(op.operator.signature.inputs, op.inputs, strict=False):
        if v is not None:
            found = _describe(rewriter, v, x, rows)
            if found is None:
                return None
            given.append((operand.name, found))
    rows[op] = Member(len(rows), op.kind, op.operator.attrs.check(op.kind, op.attrs).text, tuple(given))
    return rows[op].number


def _evaluate(rows: dict[Op, Member]) -> Array:
    """Return the last row on the grid."""
    values = list[Array]()
    for op, row in rows.items():
        tree = op.operator.scalar_expr
        assert tree is not None
        given = {
            name: np.asarray(float.fromhex(v)) if isinstance(v, str) else GRID if v == X else values[v]
            for name, v in row.given
        }
        body = substitute(tree, attributes(op.attrs, op.outputs[0].spec.dtype))
        with np.errstate(all="ignore"):
            values.append(np.asarray(evaluate(body, given, np.float64)))
    return values[-1]


def _is_closed(state: State, last: Op, members: Collection[Op]) -> bool:
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


def _match(rows: dict[Op, Member], dtype: DType) -> str | None:
    """Return the activation that a group computes, which depends on nothing but its rows and the dtype."""
    key = (dtype, *rows.values())
    with suppress(KeyError):
        return _matched[key]
    found = _nearest(_evaluate(rows), dtype)
    if len(_matched) >= KNOWN:
        _matched.clear()
    _matched[key] = found
    return found


def _nearest(values: Array, dtype: DType) -> str | None:
    """Return the activation that has these values, the nearest where several are as close as constants allow."""
    if values.shape != GRID.shape or not np.isfinite(values).all():
        return None
    rounding = {"F16": 2.0**-11, "BF16": 2.0**-8, "F64": 2.0**-24}.get(dtype.name, 2.0**-24)
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
