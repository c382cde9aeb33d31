"""common_subexpressions: compute once what is computed twice from the same values."""

from __future__ import annotations

from ..graph.ir import Value
from ..rewriting.rewriter import Rewriter, State


def run(state: State) -> State:
    """Return the graph with equal operators merged: same kind, attributes, operands, output layouts and constraints."""
    if len({(op.kind, op.inputs, repr(dict(op.attrs))) for op in state.graph.ops}) == len(state.graph.ops):
        return state
    rewriter = Rewriter(state)
    known: dict[object, tuple[Value, ...]] = {}
    for op in state.graph.ops:
        inputs = tuple(rewriter.values(op.inputs))
        specs = tuple(v.spec for v in op.outputs)
        key = (op.kind, inputs, specs, repr(dict(op.attrs)), op.constraints)
        if key in known:
            for old, new in zip(op.outputs, known[key], strict=True):
                rewriter.put(old, new)
        else:
            known[key] = rewriter.copy(op)
    return rewriter.finish()
