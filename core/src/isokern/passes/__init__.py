"""Passes by name.

Each module of `passes` is one, with a function `run(state) → state`; hosts and plug-ins register more.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache

from .. import debug, passes
from ..graph.verify import verify
from ..rewriting.rewriter import State
from ..status import InvalidArgument

DEFAULT = (
    "canonicalise,fold_quantization,fold_constants,common_subexpressions,recognise_activations,recognise_norms,"
    "recognise_group_norm,recognise_attention,share_heads,recognise_rope,dead_code,choose_layouts,fold_batch_norm,"
    "fuse_epilogue,fuse_add_rms_norm,fuse_elementwise,fold_casts,dead_code"
)

_STANDARD = frozenset(DEFAULT.split(","))  # known without a look at the folder

Pass = Callable[[State], State]
_registered: dict[str, Pass] = {}


def register_pass(name: str, run: Pass) -> None:
    """Register a host's or plug-in's pass, which pipelines can then name.

    `run` takes a `State` and returns one; its graph is verified before and after. InvalidArgument if the name is not an
    identifier or is already used: a name is never given to a second pass, since the cache of compiled programs finds
    them by it.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidArgument("register_pass", f"the name {name!r}", allowed="an identifier")
    if not callable(run):
        raise InvalidArgument("register_pass", f"{name} is a {type(run).__name__}", allowed="a function of a State")
    if name in _own() or _registered.setdefault(name, run) is not run:
        raise InvalidArgument("register_pass", f"a pass is called {name} already", allowed="another name")


@cache
def _own() -> tuple[str, ...]:
    return tuple(m.name for m in pkgutil.iter_modules(passes.__path__))


def names() -> list[str]:
    """Return the names of all passes."""
    return sorted([*_own(), *_registered])


def _find(name: str) -> Pass:
    if name in _registered:
        return _registered[name]
    run: Pass = importlib.import_module(f"{passes.__name__}.{name}").run
    return run


def of(pipeline: str | Sequence[str]) -> list[str]:
    """Return the names in a pipeline, which is text with commas or a list; InvalidArgument for an unknown name."""
    given = [n.strip() for n in pipeline.split(",") if n.strip()] if isinstance(pipeline, str) else list(pipeline)
    for name in given:
        if name not in _STANDARD and name not in names():
            raise InvalidArgument("passes", f"no pass is called {name!r}", allowed=", ".join(names()))
    return given


def run(
    state: State, pipeline: str | Sequence[str] = DEFAULT, seen: Callable[[str, State], None] | None = None
) -> State:
    """Run the passes of the pipeline in turn and return the last state.

    The graph is verified before and after all of them, and around each of a host's or plug-in's; `seen` is called with
    the name and the result of each, whose graph is verified then.
    """
    verify(state.graph)
    if debug.LEVEL >= 4:
        debug.say(f"{state.graph.name} before passes\n{state.graph.dump()}")
    changed = False
    for name in of(pipeline):
        if changed and name in _registered:
            verify(state.graph)
            changed = False
        made = _find(name)(state)
        if not isinstance(made, State):
            raise InvalidArgument("passes", f"{name} returns a {type(made).__name__}", allowed="a State")
        if debug.LEVEL >= 4 and made.graph.dump() != state.graph.dump():
            debug.say(f"{state.graph.name} after {name}\n{made.graph.dump()}")
        # Ours emit by a builder, which checks, and return a graph that they left as it was
        changed = changed or made.graph is not state.graph
        state = made
        if name in _registered or (changed and (seen is not None or debug.LEVEL)):
            verify(state.graph)
            changed = False
        if seen is not None:
            seen(name, state)
    if changed:
        verify(state.graph)
    return state
