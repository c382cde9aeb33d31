"""dead_code: operators whose outputs nobody reads are gone, and with them what only they read."""

from __future__ import annotations

from ..rewriting.rewriter import Rewriter, State


def run(state: State) -> State:
    """The graph of what its outputs depend on; all inputs stay."""
    wanted = set(state.graph.outputs)
    alive = set()
    for op in reversed(state.graph.ops):
        if wanted.intersection(op.outputs):
            alive.add(op)
            wanted.update(op.given)
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op in alive:
            rewriter.copy(op)
    return rewriter.finish()
