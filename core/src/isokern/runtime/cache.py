"""The cache of what programs of one graph share: the memory plan, the descriptors, and parameters that cannot change.

A program's arena, inputs and results are its own: two programs never write to the same memory.

A `Recipe` (memory plan and descriptors) is found by the lowered graph, the device and the options `reuse`, `mutable`
and `prepack`. A whole compile is found by the graph before its passes, those passes, the device and options, and the
identity of every parameter, if each is a tensor or a read-only array (`packed.frozen`); then no pass is
run and no parameter copied. A whole compile is forgotten when one of its parameters is gone, or when its last program
is closed.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backend import BASE_ALIGNMENT, Device
from ..call.descriptor import Descriptor
from ..graph.builder import error_context
from ..graph.ir import PARAMETER, Graph, Op, Value
from ..layout import TensorDesc
from ..ops import find
from ..process.forks import own_lock
from ..tensors import Tensor
from .memory_plan import MemoryPlan, place_values, plan_memory
from .packed import Packed

LIMIT = 32  # recipes, and whole compiles, that are kept; the least recently used are dropped


def key_of(graph: Graph) -> Hashable:
    """Return a key that is equal for graphs that are the same operator for operator, names included.

    Attributes count as text, which distinguishes -0.0 from 0.0 and 1 from 1.0.
    """
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


@dataclass(frozen=True)
class Recipe:
    """All of a program but its memory.

    It depends on no parameter's values and is never modified, so that programs can share it.
    """

    memory_plan: MemoryPlan
    device: Device
    descs: Mapping[Value, TensorDesc]
    descriptors: Mapping[Op, Descriptor]
    copies: Mapping[Op, tuple[Descriptor, ...]]  # made before an operator updates what another one still reads


def describe(graph: Graph, device: Device, reuse: bool, mutable: Collection[str] = (), prepack: bool = False) -> Recipe:
    """Plan a graph's memory and choose a variant for each operator.

    Allocates nothing; errors have the operator's name in front. With `prepack`, operators read parameters in the packed
    layout that their kernel prefers, if it has one.

    Workspaces are known once variants are chosen, and variants once the places of tensors in the arena are known,
    unless parts of it are buffers of their own. So there is one plan without workspaces, and then one with them. An
    operator whose workspace differs with the second plan has its workspace outside the arena.
    """
    parts = device.memory.parts
    before = plan_memory(graph, reuse, mutable, place=not parts, join=True)
    descs = before.descs(parts)
    descriptors = _descriptors(before, device, {}, descs, descs, prepack, parts)
    needs = {op: d.workspace for op, d in descriptors.items()}
    inside = {op: w.size for op, w in needs.items() if w.kind == "default" and BASE_ALIGNMENT % w.alignment == 0}
    made = place_values(before, inside, reuse) if parts or any(inside.values()) else before
    if not parts and made is not before:
        descs, old = made.descs(), descs
        descriptors = _descriptors(made, device, descriptors, descs, old, prepack, parts)
    made.spaces = {op: n for op, n in made.spaces.items() if descriptors[op].workspace == needs[op] and n}
    copies = {}
    for op in made.calls:
        with error_context(op.name):
            if op in made.copies:
                pairs = [(descs[old], descs[new]) for old, new in made.copies[op]]
                copies[op] = tuple(Descriptor(device, find("copy").resolve([old], [new])) for old, new in pairs)
    return Recipe(made, device, descs, descriptors, copies)


def _descriptors(
    made: MemoryPlan,
    device: Device,
    there: Mapping[Op, Descriptor],
    descs: Mapping[Value, TensorDesc],
    old: Mapping[Value, TensorDesc],
    prepack: bool,
    parts: bool,
) -> dict[Op, Descriptor]:
    """Return a descriptor for each call in these layouts; equal calls, as those of layers are, share one.

    A descriptor in `there` is reused if the operator's layouts are the same as the old ones. With `parts` the layouts
    are the graph's own.
    """
    found, alike = {}, dict[Hashable, Descriptor]()
    for op in made.calls:
        if op in there and all(descs[v] == old[v] for v in (*op.given, *op.outputs)):
            found[op] = there[op]
            continue
        with error_context(op.name):
            fixed = _constant(op) if prepack else []
            if parts:
                resolved = op.resolve()
            else:
                inputs = [None if v is None else descs[v] for v in op.declared]
                resolved = op.operator.resolve(inputs, [descs[v] for v in op.outputs], op.attrs)
            key = (resolved, *fixed, *op.hints.items())
            if key not in alike:
                alike[key] = Descriptor(device, resolved, prepacked=fixed, hints=op.hints)
            found[op] = alike[key]
    return found


def _constant(op: Op) -> list[str]:
    """Return the names of the operands that are parameters and may be prepacked."""
    operands = op.operator.signature.inputs
    if not op.operator.constants:
        return []
    pairs = zip(operands, op.declared, strict=False)
    return [o.name for o, v in pairs if o.name in op.operator.constants and v is not None and v.role == PARAMETER]


@dataclass(eq=False)
class Compiled:
    """A recipe and the parameters that were put on the device for it.

    `users` are its programs that are not closed. `packed` are the parameters that are there in packed layouts alone.
    """

    recipe: Recipe
    parameters: Mapping[str, Tensor]
    packed: Packed = field(default_factory=lambda: Packed())
    sources: tuple[weakref.ref[Any], ...] = ()
    key: Hashable = None
    users: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)


@dataclass(frozen=True)
class CacheInfo:
    """Counts of the cache.

    `hits` compiles found memory plan and descriptors, `shared` of them the parameters too; `misses` found neither.
    `nbytes` are the bytes of the parameters in the cache.
    """

    hits: int
    shared: int
    misses: int
    entries: int
    nbytes: int


class Cache:
    """Recipes and whole compiles, the `limit` most recently used of each."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.lock = own_lock(self, "lock")  # reentrant: an array may die, and be forgotten, within a locked section
        self._hits = self._shared = self._misses = 0
        self._recipes: OrderedDict[Hashable, Recipe] = OrderedDict()
        self._compiled: OrderedDict[Hashable, Compiled] = OrderedDict()

    def info(self) -> CacheInfo:
        """Return the counts so far, and the size of the cache."""
        with self.lock:
            every = (t for c in self._compiled.values() for t in (*c.parameters.values(), *c.packed.tensors.values()))
            tensors = {id(t.buffer): t for t in every}
            nbytes = sum(t.buffer.nbytes for t in tensors.values() if t.buffer.alive)
            entries = len(self._recipes) + len(self._compiled)
            return CacheInfo(self._hits, self._shared, self._misses, entries, nbytes)

    def clear(self) -> None:
        """Forget everything and restart the counts; existing programs keep their parts."""
        with self.lock:
            self._recipes.clear()
            self._compiled.clear()
            self._hits = self._shared = self._misses = 0

    def find(self, key: Hashable, sources: Sequence[Any]) -> Compiled | None:
        """Return the compile with that key from exactly these parameters, None if there is none."""
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
        """Return the recipe of a lowered graph, made if there is none."""
        key = (key_of(graph), device, reuse, frozenset(mutable), prepack)
        with self.lock:
            found = self._recipes.get(key)
            if found is not None:
                self._recipes.move_to_end(key)
                self._hits += 1
                return found
        made = describe(graph, device, reuse, mutable, prepack)  # without the lock: it may compile kernels
        with self.lock:
            self._misses += 1
            self._recipes[key] = made
            if len(self._recipes) > self.limit:
                self._recipes.popitem(last=False)
        return made

    def keep(self, key: Hashable, sources: Sequence[Any], made: Compiled) -> None:
        """Add a compile, which is forgotten when one of its sources is gone."""
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
        """Remove a compile, if it is in the cache."""
        with self.lock:
            if self._compiled.get(made.key) is made:
                del self._compiled[made.key]


cache = Cache()
