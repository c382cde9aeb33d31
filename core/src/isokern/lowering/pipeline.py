"""Passes by name: each module of `passes` is one, with a function `run(state) → state`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence

from ..graph.verify import verify
from ..status import InvalidArgument
from . import passes
from .rewrite import State

DEFAULT = (
    "canonicalise,fold_constants,common_subexpressions,choose_layouts,fold_batch_norm,fuse_epilogue,fuse_add_rms_norm,"
    "fuse_elementwise,dead_code"
)


def names() -> list[str]:
    """All passes."""
    return sorted(m.name for m in pkgutil.iter_modules(passes.__path__))


def of(pipeline: str | Sequence[str]) -> list[str]:
    """The names in a pipeline, checked: text with commas, or a list."""
    given = [n.strip() for n in pipeline.split(",") if n.strip()] if isinstance(pipeline, str) else list(pipeline)
    for name in given:
        if name not in names():
            raise InvalidArgument("passes", f"no pass is called {name!r}", allowed=", ".join(names()))
    return given


def run(
    state: State, pipeline: str | Sequence[str] = DEFAULT, seen: Callable[[str, State], None] | None = None
) -> State:
    """The state after each pass of the pipeline in turn, verified before and after each; `seen` is told of each result."""
    verify(state.graph)
    for name in of(pipeline):
        state = importlib.import_module(f"{passes.__name__}.{name}").run(state)
        verify(state.graph)
        if seen is not None:
            seen(name, state)
    return state
