"""recognise_rope: replace small operators that rotate the halves of heads by angles of positions by rope.

Exporters write x · cos + concat(-x₂, x₁) · sin, x₁ and x₂ being the halves of x [b, heads, s, d] or [b, s, heads, d].
The cosines and sines are those of concat(angles, angles), perhaps scaled, and the angles an outer product of positions,
which were integers, and frequencies. Tables of cosines and sines whose angles are not in the graph stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..dtypes import F32, F64, FLOATS, I64, INDICES, DType
from ..graph.ir import Op, Value
from ..layout import TensorDesc
from ..ops import find
from ..rewriting.rewriter import VIEWS, Rewriter, State, find_updated, is_of_any

EXACT = 1 << 24  # integers up to it are floats


@dataclass(frozen=True)
class _Angles:
    """positions · freqs, and the factor of the cosines and sines of them."""

    positions: Value
    freqs: Value
    magnitude: float


@dataclass
class _Rope:
    x: Value
    angles: _Angles
    heads: int  # the dim of x
    batched: bool  # whether each item has positions of its own

    def find_order(self) -> list[int]:
        """Return the order of x's dims that puts the heads next to the last, which is its own inverse."""
        order = list(range(self.x.spec.ndim))
        order[-3], order[-2] = (-3, -2) if self.heads == self.x.spec.ndim - 2 else (-2, -3)
        return [a % len(order) for a in order]


def run(state: State) -> State:
    """Return the graph with one operator for each rotation; what computed its parts is left to `dead_code`."""
    if not {"cos", "sin", "concat", "neg"} <= {op.kind for op in state.graph.ops}:
        return state
    rewriter = Rewriter(state)
    found: dict[Op, _Rope] = {}
    updated = find_updated(state.graph)
    for op in state.graph.ops:
        made = _find(rewriter, op) if op.kind == "add" and not op.constraints else None
        if made is None or is_of_any(updated, made.x, made.angles.positions, made.angles.freqs):
            continue
        if _is_legal(state, op, made):
            found[op] = made
    if not found:
        return state
    known: dict[object, Value] = {}
    for op in state.graph.ops:
        if op in found:
            _emit(rewriter, op, found[op], known)
        else:
            rewriter.copy(op)
    return rewriter.finish()


def _find(rewriter: Rewriter, op: Op) -> _Rope | None:
    """Return the rotation that ends in a sum."""
    y = op.outputs[0].spec
    if y.ndim not in (3, 4) or y.dtype not in FLOATS or not y.numel or y.shape[-1] % 2:
        return None
    for plain, turned in (op.inputs[:2], op.inputs[1::-1]):
        for x, cos in _factors(plain):
            for other, sin in _factors(turned):
                if _is_turned(other, x) and x.spec == y:
                    return _with_angles(rewriter, x, cos, sin)
    return None


def _factors(value: Value | None) -> list[tuple[Value, Value]]:
    """Return the two factors of a product in both orders; none if it is not a product."""
    op = None if value is None else value.producer
    if op is None or op.kind != "mul" or op.constraints:
        return []
    a, b = op.inputs[:2]
    return [] if a is None or b is None else [(a, b), (b, a)]


def _is_turned(value: Value, x: Value) -> bool:
    """Return whether a value is concat(-x₂, x₁)."""
    op = value.producer
    last = x.spec.ndim - 1
    if op is None or op.kind != "concat" or op.attrs["axis"] % value.spec.ndim != last:
        return False
    parts = list(op.given)
    if len(parts) != 2:
        return False
    negative, first = parts
    second = negative.producer
    if second is None or second.kind != "neg" or second.inputs[0] is None:
        return False
    half = x.spec.shape[-1] // 2
    return _is_slice(first, x, 0, half) and _is_slice(second.inputs[0], x, half, 2 * half)


def _is_slice(value: Value, x: Value, start: int, end: int) -> bool:
    """Return whether a value is x[..., start:end]."""
    op = value.producer
    if op is None or op.kind != "slice" or op.inputs[0] is not x or value.spec.shape[-1] != end - start:
        return False
    axes = tuple(op.attrs["axes"]) or tuple(range(len(op.attrs["starts"])))
    at = {a % x.spec.ndim: s for a, s in zip(axes, op.attrs["starts"], strict=True)}
    begin, size = at.get(x.spec.ndim - 1, 0), x.spec.shape[-1]
    straight = value.spec.shape[:-1] == x.spec.shape[:-1] and all(step == 1 for step in _steps(op))
    return straight and (begin + size if begin < 0 else begin) == start


def _steps(op: Op) -> tuple[int, ...]:
    return tuple(op.attrs["steps"]) or (1,) * len(op.attrs["starts"])


def _with_angles(rewriter: Rewriter, x: Value, cos: Value, sin: Value) -> _Rope | None:
    """Return the rotation of x by these cosines and sines, where their angles are known."""
    angles = _angles(rewriter, cos, "cos", x.spec.dtype)
    if angles is None or angles != _angles(rewriter, sin, "sin", x.spec.dtype) or cos.spec.shape != sin.spec.shape:
        return None
    rank, d = x.spec.ndim, x.spec.shape[-1]
    table = (1,) * (rank - cos.spec.ndim) + cos.spec.shape
    count = angles.positions.spec.numel
    if cos.spec.ndim > rank or angles.freqs.spec.numel != d // 2 or math.prod(table) != count * d or table[-1] != d:
        return None
    for heads, steps in ((rank - 3, rank - 2), (rank - 2, rank - 3)):
        lead = table[: rank - 3]
        if table[heads] == 1 and table[steps] == x.spec.shape[steps] and lead in (x.spec.shape[: rank - 3], (1,)):
            return _Rope(x, angles, heads, math.prod(lead) > 1)
    return None


def _angles(rewriter: Rewriter, value: Value, kind: str, dtype: DType) -> _Angles | None:
    """Return the angles of a table of cosines or sines, each of which stands in both halves of a row.

    The table may have been rounded to the dtype of the rotated tensor, as a result is, and to no narrower one.
    """
    magnitude = 1.0
    while (op := value.producer) is not None and op.kind in (*VIEWS, "cast", "scale", "mul"):
        if op.kind == "scale":
            magnitude *= float(op.attrs["value"])
        elif op.kind == "mul":
            number = rewriter.array(op.inputs[1])
            if number is None or number.size != 1:
                return None
            magnitude *= float(number.reshape(())[()])
        assert op.inputs[0] is not None
        before, after = op.inputs[0].spec, value.spec
        if before.numel != after.numel or after.dtype not in FLOATS:
            return None
        if after.dtype.itemsize < before.dtype.itemsize and after.dtype is not dtype:
            return None
        value = op.inputs[0]
    if op is None or op.kind != kind or op.inputs[0] is None:
        return None
    both = _behind(op.inputs[0], VIEWS).producer
    parts = [] if both is None or both.kind != "concat" else list(both.given)
    if both is None or len(parts) != 2 or parts[0] is not parts[1]:
        return None
    if both.attrs["axis"] % both.outputs[0].spec.ndim != both.outputs[0].spec.ndim - 1:
        return None
    outer = _outer_product(parts[0])
    if outer is None or parts[0].spec.shape[-1] != outer[1].spec.numel or parts[0].spec.dtype not in (F32, F64):
        return None
    positions = _integers(rewriter, outer[0])
    return None if positions is None else _Angles(positions, _behind(outer[1], VIEWS), magnitude)


def _behind(value: Value, kinds: tuple[str, ...]) -> Value:
    """Return the value that operators of these kinds, which keep the number of elements, make a value of."""
    while value.producer is not None and value.producer.kind in kinds:
        before = value.producer.inputs[0]
        if before is None or before.spec.numel != value.spec.numel:
            break
        value = before
    return value


def _outer_product(value: Value) -> tuple[Value, Value] | None:
    """Return what has an element for each row, and for each column, of a product [.., s, pairs] of the two."""
    value = _behind(value, VIEWS)
    op = value.producer
    turned = False
    if op is not None and op.kind == "transpose":
        rank = value.spec.ndim
        if tuple(a % rank for a in op.attrs["axes"]) != (*range(rank - 2), rank - 1, rank - 2):
            return None
        turned, value = True, op.inputs[0] or value
        op = value.producer
    if op is None or op.kind not in ("mul", "matmul", "gemm") or value.spec.ndim < 2:
        return None
    if op.kind == "gemm" and (len(list(op.given)) != 2 or op.attrs["alpha"] != 1 or op.attrs["activation"] != "none"):
        return None
    a, b = op.inputs[:2]
    rows, columns = value.spec.numel // value.spec.shape[-1], value.spec.shape[-1]
    if turned:
        rows, columns = value.spec.numel // value.spec.shape[-2], value.spec.shape[-2]
    if a is None or b is None:
        return None
    for many, few in ((a, b), (b, a)):
        if few.producer is not None and few.producer.kind == "broadcast_to":  # over the items of a batch
            few = few.producer.inputs[0] or few
        across = -2 if turned else -1
        along = few.spec.shape[-2:] == (columns, 1) if turned else few.spec.shape[-1:] == (columns,)
        if many.spec.numel == rows and few.spec.numel == columns and along and many.spec.shape[across:][:1] == (1,):
            return many, _behind(few, VIEWS)
    return None


def _integers(rewriter: Rewriter, value: Value) -> Value | None:
    """Return the integers that were converted to floats; the floats themselves if they are known to be integers."""
    value = _behind(value, VIEWS)
    known = rewriter.array(value)
    if known is not None:
        return value if np.all(known == np.rint(known)) and np.all(np.abs(known) < EXACT) else None
    op = value.producer
    if op is None or op.kind != "cast" or op.inputs[0] is None or op.inputs[0].spec.dtype not in INDICES:
        return None
    if value.spec.dtype not in (F32, F64):
        return None
    return _behind(op.inputs[0], VIEWS)


def _positions_shape(rope: _Rope) -> tuple[int, ...]:
    shape = [rope.x.spec.shape[a] for a in rope.find_order()]
    return tuple(shape[:-2] if rope.batched else shape[-3:-2])


def _is_legal(state: State, op: Op, rope: _Rope) -> bool:
    """Return whether the target has the operator."""
    if rope.angles.freqs.spec.dtype is not F32:
        return False
    if state.target is None:
        return True
    given = rope.angles.positions.spec.dtype
    x = TensorDesc(rope.x.spec.dtype, [rope.x.spec.shape[a] for a in rope.find_order()])
    positions = TensorDesc(given if given in INDICES else I64, _positions_shape(rope))
    freqs = TensorDesc(F32, (rope.x.spec.shape[-1] // 2,))
    operator = find("rope")
    values = operator.attrs.check("rope", {"pairing": "half", "magnitude": rope.angles.magnitude})
    return state.target.why_not(operator, [x, positions, freqs], [x], values) is None


def _emit(rewriter: Rewriter, op: Op, rope: _Rope, known: dict[object, Value]) -> None:
    """Emit the rotation, between transposes if the heads come before the positions."""
    given, shape = rope.angles.positions, _positions_shape(rope)
    if (given, shape) not in known:
        if given.spec.dtype in INDICES:
            known[given, shape] = _view(rewriter, given, shape)
        else:
            numbers = np.asarray(rewriter.array(given), np.int64).reshape(shape)
            known[given, shape] = rewriter.parameter(I64, f"{op.name} positions", numbers)
    freqs = _view(rewriter, rope.angles.freqs, (rope.x.spec.shape[-1] // 2,))
    x, order = rewriter.value(rope.x), tuple(rope.find_order())
    swapped = order != tuple(range(len(order)))
    if swapped:
        (x,) = rewriter.builder.emit("transpose", [x], {"axes": order})
    attrs = {"pairing": "half", "magnitude": rope.angles.magnitude}
    (y,) = rewriter.builder.emit("rope", [x, known[given, shape], freqs], attrs, name=op.name)
    if swapped:
        (y,) = rewriter.builder.emit("transpose", [y], {"axes": order})
    rewriter.put(op.outputs[0], y)


def _view(rewriter: Rewriter, value: Value, shape: tuple[int, ...]) -> Value:
    """Return a value in a shape of as many elements."""
    if value.spec.shape == shape:
        return rewriter.value(value)
    (made,) = rewriter.builder.emit("reshape", [rewriter.value(value)], {"shape": shape})
    return made
