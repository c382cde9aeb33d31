"""to_primitives: decompose everything into the operators that every device has."""

from __future__ import annotations

from ..rewriting.conversion import convert
from ..rewriting.rewriter import State
from ..rewriting.target import Target


def run(state: State) -> State:
    """Return the graph in primitives (and the exceptions to them) alone."""
    return convert(state, Target.of_primitives())
