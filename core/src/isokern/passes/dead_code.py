"""dead_code: remove operators whose outputs are not read, and with them the operators that only those read."""

from __future__ import annotations

from ..rewriting.rewriter import Rewriter, State


def run(state: State) -> State:
    """Return the graph of the operators that its outputs depend on; all inputs stay."""
    wanted = set(state.graph.outputs)
    alive = set()
    for op in reversed(state.graph.ops):
        if wanted.intersection(op.outputs):
            alive.add(op)
            wanted.update(op.given)
    if len(alive) == len(state.graph.ops) and all(v in wanted for v in state.graph.parameters):
        return state
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op in alive:
            rewriter.copy(op)
    return rewriter.finish()
