"""canonicalise: operators that give back what they are given are gone: movement and casts that change nothing, relu of relu."""

from __future__ import annotations

from ..graph.ir import Op, Value
from ..rewriting.rewriter import Rewriter, State

MOVES = ("copy", "flatten", "rearrange", "cast")
IDEMPOTENT = ("relu", "abs", "floor", "ceil")


def run(state: State) -> State:
    """The graph without what changes nothing; a result that would be an input or a parameter stays a copy of it."""
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        same = _same(op)
        if same is None or (op.outputs[0] in state.graph.outputs and rewriter.value(same).producer is None):
            rewriter.copy(op)
        else:
            rewriter.put(op.outputs[0], rewriter.value(same))
    return rewriter.finish()


def _same(op: Op) -> Value | None:
    """The operand that the output equals."""
    x = op.inputs[0] if op.inputs else None
    if x is None or op.constraints or x.spec != op.outputs[0].spec:
        return None
    if op.kind in MOVES or (op.kind in IDEMPOTENT and x.producer is not None and x.producer.kind == op.kind):
        return x
    return None
