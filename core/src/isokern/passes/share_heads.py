"""share_heads: let attention read each head of keys and values once if a graph repeats them for the queries.

Exporters write grouped-query attention with as many heads of keys as of queries: [b, g, s, d] is viewed as
[b, g, 1, s, d], broadcast to [b, g, r, s, d] and viewed as [b, g · r, s, d]. `attention` takes g heads as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..graph.ir import Op, Value, specs_of
from ..layout import TensorDesc
from ..rewriting.rewriter import VIEWS, Rewriter, State, find_updated, is_of_any, is_plain

KINDS = ("attention", "attention_lse")
SWAP = (0, 2, 1, 3)


@dataclass
class _Heads:
    """Keys or values [b, s, heads, d] before they were repeated."""

    source: Value  # with the elements of each head once
    shape: tuple[int, ...]  # that it has with its heads as a dim
    swapped: bool  # whether that is [b, heads, s, d]

    @property
    def desc(self) -> TensorDesc:
        """The heads as attention reads them."""
        shape = tuple(self.shape[a] for a in SWAP) if self.swapped else self.shape
        return TensorDesc(self.source.spec.dtype, shape)


def run(state: State) -> State:
    """Return the graph with attention of the heads themselves; what repeated them is left to `dead_code`."""
    found: dict[Op, tuple[_Heads, _Heads]] = {}
    updated = find_updated(state.graph)
    for op in state.graph.ops:
        if op.kind in KINDS and not op.constraints:
            k, v = _find(op.inputs[1]), _find(op.inputs[2])
            if k is None or v is None or k.desc.shape[2] != v.desc.shape[2]:
                continue
            if not is_of_any(updated, k.source, v.source) and _is_legal(state, op, k, v):
                found[op] = k, v
    if not found:
        return state
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op not in found:
            rewriter.copy(op)
            continue
        q, _, _, *rest = rewriter.values(op.inputs)
        heads = [_emit(rewriter, made) for made in found[op]]
        specs = [v.spec for v in op.outputs]
        made = rewriter.builder.emit(op.kind, [q, *heads, *rest], op.attrs, name=op.name, outputs=specs)
        for old, new in zip(op.outputs, made, strict=True):
            rewriter.put(old, new)
    return rewriter.finish()


def _find(value: Value | None) -> _Heads | None:
    """Return the heads that a value [b, s, heads, d] repeats."""
    if value is None or not value.spec.numel:
        return None
    before = _before_transposes(value)
    axis, shape = (2, value.spec.shape) if before is None else (1, tuple(value.spec.shape[a] for a in SWAP))
    wide = _behind_views(value if before is None else before)
    repeat = wide.producer
    if repeat is None or repeat.kind != "broadcast_to" or repeat.inputs[0] is None:
        return None
    source = repeat.inputs[0]
    narrow = (1,) * (wide.spec.ndim - source.spec.ndim) + source.spec.shape
    grown = [i for i, (a, b) in enumerate(zip(narrow, wide.spec.shape, strict=True)) if a != b]
    if len(grown) != 1:
        return None
    times = wide.spec.shape[grown[0]]
    behind = math.prod(wide.spec.shape[grown[0] + 1 :])
    if shape[axis] % times or behind != math.prod(shape[axis + 1 :]):
        return None
    return _Heads(source, (*shape[:axis], shape[axis] // times, *shape[axis + 1 :]), before is not None)


def _before_transposes(value: Value) -> Value | None:
    """Return the value with elements in the order [b, heads, s, d] from which transposes make this one."""
    axes = _axes(value)
    if axes == SWAP:
        return value.producer.inputs[0] if value.producer is not None else None
    if axes != (0, 3, 1, 2) or value.producer is None or value.producer.inputs[0] is None:
        return None
    turned = _behind_views(value.producer.inputs[0])  # [b, heads, d, s], perhaps with b and heads as one dim
    rank = turned.spec.ndim
    if turned.producer is None or _axes(turned) != (*range(rank - 2), rank - 1, rank - 2):
        return None
    return turned.producer.inputs[0] if turned.spec.shape[-2:] == value.producer.inputs[0].spec.shape[-2:] else None


def _axes(value: Value) -> tuple[int, ...]:
    """Return the order of dims of the transpose that makes a value; none where another operator does."""
    op = value.producer
    return tuple(a % value.spec.ndim for a in op.attrs["axes"]) if op is not None and op.kind == "transpose" else ()


def _behind_views(value: Value) -> Value:
    """Return the value that operators which change nothing but its shape make a value of."""
    while value.producer is not None and value.producer.kind in VIEWS and is_plain(value.spec):
        assert value.producer.inputs[0] is not None
        value = value.producer.inputs[0]
    return value


def _is_legal(state: State, op: Op, k: _Heads, v: _Heads) -> bool:
    """Return whether the target has the attention of fewer heads."""
    if state.target is None:
        return True
    q, _, _, *rest = specs_of(op.inputs)
    outputs = [v.spec for v in op.outputs]
    return state.target.why_not(op.operator, [q, k.desc, v.desc, *rest], outputs, op.attrs) is None


def _emit(rewriter: Rewriter, heads: _Heads) -> Value:
    """Emit the view of the heads that attention reads."""
    source = heads.source
    while source.spec.shape != heads.shape and source.producer is not None and source.producer.kind in VIEWS:
        assert source.producer.inputs[0] is not None
        source = source.producer.inputs[0]
    if source.spec.shape == heads.shape:
        made = rewriter.value(source)
    else:
        (made,) = rewriter.builder.emit("reshape", [rewriter.value(heads.source)], {"shape": heads.shape})
    if heads.swapped:
        (made,) = rewriter.builder.emit("transpose", [made], {"axes": SWAP})
    return made
