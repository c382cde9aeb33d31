"""to_primitives: everything in the operators that every device has."""

from __future__ import annotations

from ..conversion import Target, convert
from ..rewrite import State


def run(state: State) -> State:
    """The graph in primitives alone (and the exceptions to them)."""
    return convert(state, Target.of_primitives())
