"""canonicalise: remove operators whose output equals their input.

These are movement and casts that change nothing, and a repeated idempotent operator such as relu of relu.
"""

from __future__ import annotations

from ..graph.ir import Op, Value
from ..rewriting.rewriter import Rewriter, State

MOVES = ("copy", "flatten", "rearrange", "cast")
IDEMPOTENT = ("relu", "abs", "floor", "ceil")


def run(state: State) -> State:
    """Return the graph without those operators; if a result would be an input or a parameter, its copy stays."""
    if all(_same(op) is None for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        same = _same(op)
        if same is None or (op.outputs[0] in state.graph.outputs and rewriter.value(same).producer is None):
            rewriter.copy(op)
        else:
            rewriter.put(op.outputs[0], rewriter.value(same))
    return rewriter.finish()


def _same(op: Op) -> Value | None:
    """Return the operand that the output equals."""
    x = op.inputs[0] if op.inputs else None
    if x is None or op.constraints or x.spec != op.outputs[0].spec:
        return None
    if op.kind in MOVES or (op.kind in IDEMPOTENT and x.producer is not None and x.producer.kind == op.kind):
        return x
    return None
