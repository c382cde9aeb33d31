"""What programs of one graph have in common, kept for the next compile: the plan, the descriptors, and parameters that cannot change.

A program's arena, inputs and results are its own: two programs never write to one memory. A `Recipe` (plan and descriptors) is found by the lowered
graph, the device and `reuse`. A whole compile is found by the graph before its passes, those passes, and the identity of every parameter, where
each is a tensor or an array that nobody can write to (`frozen`); then no pass is run and no parameter copied. Such a find is forgotten when one of
the arrays is gone, and when its last program is closed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backend import BASE_ALIGNMENT, Device
from ..call.descriptor import Descriptor
from ..graph.builder import error_context
from ..graph.ir import PARAMETER, Graph, Op, Value
from ..layout import TensorDesc
from ..ops import find
from ..tensors import Tensor
from .plan import Plan, plan

LIMIT = 32  # recipes, and whole compiles, that are kept: those used last


def key_of(graph: Graph) -> Hashable:
    """Equal for graphs that are the same operator for operator, names included. Attributes count as text, which tells -0.0 from 0.0 and 1 from 1.0."""
    values = tuple((v.vid, v.name, v.role, v.spec) for v in graph.values.values())
    ops = tuple(
        (
            op.kind,
            tuple(-1 if v is None else v.vid for v in op.inputs),
            tuple(v.vid for v in op.outputs),
            repr(dict(op.attrs)),
            op.constraints,
            op.name,
            tuple(op.hints.items()),
        )
        for op in graph.ops
    )
    return graph.name, values, ops, tuple(v.vid for v in graph.outputs)


def frozen(array: Any) -> bool:
    """Whether nobody can write to an array: it is read-only, and so is whatever it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        if array.base is None or isinstance(array.base, bytes):
            return True
        array = array.base
    return False


@dataclass(frozen=True)
class Recipe:
    """All of a program but its memory: of no parameter's values, and never written to, so that programs share it."""

    plan: Plan
    device: Device
    descs: Mapping[Value, TensorDesc]
    descriptors: Mapping[Op, Descriptor]
    copies: Mapping[Op, tuple[Descriptor, ...]]  # of what an operator updates that somebody still reads


def describe(graph: Graph, device: Device, reuse: bool, mutable: Collection[str] = (), prepack: bool = False) -> Recipe:
    """Plan a graph and choose a variant for each operator. Allocates nothing; errors have the operator's name in front.

    With `prepack`, operators take parameters in the form that their kernel would rather read, where it has one. Workspaces are known when variants
    are, and variants when it is known where in the arena tensors lie: so there is a plan without, and then one with them. What has another workspace
    there keeps it beside the arena.
    """
    made = plan(graph, reuse, mutable)
    descriptors = _descriptors(made, device, {}, made, prepack)
    needs = {op: d.workspace for op, d in descriptors.items()}
    inside = {op: w.size for op, w in needs.items() if w.kind == "default" and BASE_ALIGNMENT % w.alignment == 0}
    if any(inside.values()):
        before, made = made, plan(graph, reuse, mutable, inside)
        descriptors = _descriptors(made, device, descriptors, before, prepack)
        made.spaces = {op: n for op, n in made.spaces.items() if descriptors[op].workspace == needs[op] and n}
    descs = {v: made.desc(v) for v in graph.values.values()}
    copies = {}
    for op in made.calls:
        with error_context(op.name):
            if op in made.copies:
                pairs = [(descs[old], descs[new]) for old, new in made.copies[op]]
                copies[op] = tuple(Descriptor(device, find("copy").resolve([old], [new])) for old, new in pairs)
    return Recipe(made, device, descs, descriptors, copies)


def _descriptors(
    made: Plan, device: Device, there: Mapping[Op, Descriptor], before: Plan, prepack: bool
) -> dict[Op, Descriptor]:
    """A descriptor for each call; one that is there for the same layouts, in the plan before, is taken over."""
    found = {}
    for op in made.calls:
        inputs = [None if v is None else made.desc(v) for v in op.declared]
        outputs = [made.desc(v) for v in op.outputs]
        if op in there and all(made.desc(v) == before.desc(v) for v in (*op.given, *op.outputs)):
            found[op] = there[op]
            continue
        with error_context(op.name):
            fixed = _constant(op) if prepack else []
            resolved = op.operator.resolve(inputs, outputs, op.attrs)
            found[op] = Descriptor(device, resolved, prepacked=fixed, hints=op.hints)
    return found


def _constant(op: Op) -> list[str]:
    """The operands that are parameters and may be prepacked."""
    operands = op.operator.signature.inputs
    if not op.operator.constants:
        return []
    pairs = zip(operands, op.declared, strict=False)
    return [o.name for o, v in pairs if o.name in op.operator.constants and v is not None and v.role == PARAMETER]


@dataclass(eq=False)
class Compiled:
    """A recipe and the parameters that were put on the device for it; `users` are the programs of it that are not closed."""

    recipe: Recipe
    parameters: Mapping[str, Tensor]
    sources: tuple[weakref.ref[Any], ...] = ()
    key: Hashable = None
    users: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)


@dataclass(frozen=True)
class CacheInfo:
    """`hits` compiles found plan and descriptors, `shared` of them the parameters too; `misses` made all. `nbytes` are of parameters held here."""

    hits: int
    shared: int
    misses: int
    entries: int
    nbytes: int


class Cache:
    """Recipes and whole compiles, the last `limit` of each."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.lock = threading.RLock()  # an array may die, and be forgotten, while it is held
        self._hits = self._shared = self._misses = 0
        self._recipes: OrderedDict[Hashable, Recipe] = OrderedDict()
        self._compiled: OrderedDict[Hashable, Compiled] = OrderedDict()

    def info(self) -> CacheInfo:
        """What was found so far, and what is held."""
        with self.lock:
            tensors = {id(t.buffer): t for c in list(self._compiled.values()) for t in c.parameters.values()}
            nbytes = sum(t.buffer.nbytes for t in tensors.values() if t.buffer.alive)
            entries = len(self._recipes) + len(self._compiled)
            return CacheInfo(self._hits, self._shared, self._misses, entries, nbytes)

    def clear(self) -> None:
        """Forget everything, and count from 0; programs that are there keep what they have."""
        with self.lock:
            self._recipes.clear()
            self._compiled.clear()
            self._hits = self._shared = self._misses = 0

    def find(self, key: Hashable, sources: Sequence[Any]) -> Compiled | None:
        """The compile of that key from exactly these parameters."""
        with self.lock:
            found = self._compiled.get((key, tuple(map(id, sources))))
            if found is None or any(ref() is not s for ref, s in zip(found.sources, sources, strict=True)):
                return None
            self._compiled.move_to_end((key, tuple(map(id, sources))))
            self._hits += 1
            self._shared += 1
            return found

    def recipe(
        self, graph: Graph, device: Device, reuse: bool, mutable: Collection[str] = (), prepack: bool = False
    ) -> Recipe:
        """The recipe of a lowered graph, made if there is none."""
        key = (key_of(graph), device, reuse, frozenset(mutable), prepack)
        with self.lock:
            found = self._recipes.get(key)
            if found is not None:
                self._recipes.move_to_end(key)
                self._hits += 1
                return found
        made = describe(graph, device, reuse, mutable, prepack)  # without the lock: it may compile for long
        with self.lock:
            self._misses += 1
            self._recipes[key] = made
            if len(self._recipes) > self.limit:
                self._recipes.popitem(last=False)
        return made

    def keep(self, key: Hashable, sources: Sequence[Any], made: Compiled) -> None:
        """Keep a compile until one of its sources is gone."""
        made.key = whole = (key, tuple(map(id, sources)))
        weak_self = weakref.ref(self)

        def forget_gone(_: object) -> None:
            if (cache := weak_self()) is not None:
                with cache.lock:
                    cache._compiled.pop(whole, None)

        made.sources = tuple(weakref.ref(s, forget_gone) for s in sources)
        with self.lock:
            self._compiled[whole] = made
            if len(self._compiled) > self.limit:
                self._compiled.popitem(last=False)

    def forget(self, made: Compiled) -> None:
        """Let go of a compile, if it is here."""
        with self.lock:
            if self._compiled.get(made.key) is made:
                del self._compiled[made.key]


cache = Cache()


def _fork() -> None:
    cache.lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread that is not in the child may hold the lock
    os.register_at_fork(after_in_child=_fork)
