"""to_primitives: everything in the operators that every device has."""

from __future__ import annotations

from ..rewriting.conversion import convert
from ..rewriting.rewriter import State
from ..rewriting.target import Target


def run(state: State) -> State:
    """The graph in primitives alone (and the exceptions to them)."""
    return convert(state, Target.of_primitives())
