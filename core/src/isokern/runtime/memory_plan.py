"""The memory plan: which values of a graph share memory, and the places of the others in one arena.

Inputs, parameters and results have their own memory. Every other value lives from the operator that makes it to the
last that reads it. It takes the memory of an operand if the declaration allows it (`aliases`), both
have the same layout, and nothing reads that operand's memory afterwards. It is a view of its operand if the operator
moves no element (a flatten of a dense tensor, a transpose that is another view of it). Operands of a concatenation may
be computed in its memory (`concat_parts.py`).

The other values are laid out in one arena, the largest first, each at the lowest byte that is free while it lives. An
operator's workspace, if its size is known, is at the arena's first byte while it runs, since a kernel gets a buffer and
not a place in it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..backend import BASE_ALIGNMENT
from ..declare.normal_form import coalesce
from ..graph.ir import COMPUTED, INPUT, Graph, Op, Value
from ..layout import TensorDesc
from ..status import InvalidArgument
from .concat_parts import Joined, find_parts


@dataclass
class MemoryPlan:
    """A graph's memory plan.

    `root` maps each value to the value whose memory it is in, usually itself; `starts` has the element there that a
    computed value begins at. `offset` has the byte in the arena of each root that is in it. `in_place` maps each
    operator whose output overwrites an operand to that operand; `views` are the operators that need no call. `copies`
    has the pairs (from, to) to copy before an operator that updates a value which another one still reads. `spaces` has
    the bytes of the workspace that an operator has at the arena's beginning. `arena` is the size of the arena in bytes,
    `naive` the size of the computed values if each had memory of its own.
    """

    graph: Graph
    root: dict[Value, Value] = field(default_factory=dict)
    starts: dict[Value, int] = field(default_factory=dict)
    offset: dict[Value, int] = field(default_factory=dict)
    in_place: dict[Op, Value] = field(default_factory=dict)
    views: set[Op] = field(default_factory=set)
    copies: dict[Op, list[tuple[Value, Value]]] = field(default_factory=dict)
    mutable: frozenset[str] = frozenset()
    life: dict[Value, tuple[int, int]] = field(default_factory=dict)
    spaces: Mapping[Op, int] = field(default_factory=dict)
    arena: int = 0
    naive: int = 0

    @property
    def calls(self) -> list[Op]:
        """The operators that are run."""
        return [op for op in self.graph.ops if op not in self.views]

    def descs(self, parts: bool = False) -> dict[Value, TensorDesc]:
        """Return the layout of every value's tensor; equal ones are mostly one object.

        With `parts`, each value of the arena is in its own buffer, which is a part of the arena's: then layouts are
        independent of places, and calls that differ in their places alone are equal.
        """
        return {value: value.spec if parts else self.desc(value) for value in self.graph.values.values()}

    def desc(self, value: Value) -> TensorDesc:
        """Return the layout of the value's tensor in its buffer."""
        root, start, spec = self.root[value], self.starts.get(value, 0), value.spec
        if root in self.offset:
            start += self.offset[root] // spec.dtype.itemsize * spec.dtype.block
        elif start == 0:
            return spec
        return TensorDesc(spec.dtype, spec.shape, spec.strides, spec.offset + start)


def plan_memory(
    graph: Graph,
    reuse: bool = True,
    mutable: Collection[str] = (),
    spaces: Mapping[Op, int] | None = None,
    early: bool = False,
    place: bool = True,
    join: bool = False,
) -> MemoryPlan:
    """Return the memory plan of a verified graph; with `reuse` false no values share memory, in the arena either.

    `spaces` are the bytes of the workspaces in the arena. They may overlap one another, but no value that is
    alive when their operator runs. Without `place`, values in the arena may have no place yet (`place_values`).
    Inputs that are `mutable`, by name, are updated in place; InvalidArgument if one is read after its update. With
    `early`, for a graph whose results are not in the memory of inputs, a result that is another shape of a computed
    value has that value computed in its memory. With `join`, operands of concatenations are computed in the memory of
    the result if the arena grows by at most an eighth, since the result then lives longer.
    """
    parts = find_parts(graph, set(graph.outputs)) if join and reuse else Joined()
    made = _plan(graph, reuse, mutable, spaces, early, parts)
    if place or parts.joined:
        made = place_values(made, made.spaces, reuse)
    if parts.joined:
        apart = place_values(_plan(graph, reuse, mutable, spaces, early, Joined()), made.spaces, reuse)
        return made if 8 * made.arena <= 9 * apart.arena else apart
    return made


def _plan(
    graph: Graph, reuse: bool, mutable: Collection[str], spaces: Mapping[Op, int] | None, early: bool, parts: Joined
) -> MemoryPlan:
    """Return a plan without places in the arena, in which parts of concatenations are in their wholes."""
    made = MemoryPlan(graph, mutable=_inputs(graph, mutable), spaces=dict(spaces or {}))
    kept = set(graph.outputs)
    last = {v: len(graph.ops) for v in kept}
    for at, op in enumerate(graph.ops):
        last |= {v: max(at, last.get(v, at)) for v in op.given}
    ends: dict[Value, int] = {}  # for each root, the last operator that reads any value in its memory
    for value in graph.values.values():
        if value.role != COMPUTED:
            made.root[value] = value
            ends[value] = last.get(value, -1) if value.role == INPUT and value.name in made.mutable else len(graph.ops)
    for at, op in enumerate(graph.ops):
        made.naive += sum(_bytes(v) for v in op.outputs)
        free = reuse and not op.operator.inout and not any(v in parts.places for v in op.outputs)
        shared = _share(made, op, at, ends, kept, last) if free else None
        updated = {new: old for old, new in op.updated}
        for value in op.outputs:
            root, start = parts.places.get(value, (value, 0))
            if value in updated:
                root = _update_in_place(made, op, at, value, updated[value], ends, kept, reuse)
            if shared is not None and shared[0] is value:
                root, start = made.root[shared[1]], made.starts.get(shared[1], 0)
                if shared[2]:
                    made.views.add(op)
                else:
                    made.in_place[op] = shared[1]
            if value in updated and root is not value:
                start = made.starts.get(updated[value], 0)
            made.root[value] = root
            made.starts[value] = start
            made.views |= {op} & parts.joined
            ends[root] = max(ends.get(root, at), last.get(value, at))
            first = made.life[root][0] if root in made.life else at
            if root.role == COMPUTED:
                made.life[root] = (first, ends[root])
        if early and reuse and not parts.joined and _is_result_alone(made, op, at, ends, kept):
            (result,), (only,) = op.outputs, op.given
            old = made.root[only]
            there = [v for v, root in made.root.items() if root is old]
            made.root |= dict.fromkeys(there, result)
            made.starts |= {v: made.starts[v] + result.spec.offset for v in there}
            made.life.pop(old)
            made.views.add(op)
    return made


def place_values(made: MemoryPlan, spaces: Mapping[Op, int], reuse: bool = True) -> MemoryPlan:
    """Return a plan with a place in the arena for every value that is in it, and with these workspaces."""
    placed = replace(made, spaces=dict(spaces), offset={}, arena=0)
    _lay_out(placed, set(made.graph.outputs), reuse)
    return placed


def _inputs(graph: Graph, names: Collection[str]) -> frozenset[str]:
    known = [v.name for v in graph.inputs]
    wanted = {names} if isinstance(names, str) else set(names)
    if not wanted <= set(known):
        raise InvalidArgument(graph.name, f"mutable={sorted(wanted)}", allowed=f"of {', '.join(known) or 'no input'}")
    return frozenset(wanted)


def _update_in_place(
    made: MemoryPlan,
    op: Op,
    at: int,
    value: Value,
    old: Value,
    ends: dict[Value, int],
    kept: set[Value],
    reuse: bool,
) -> Value:
    """Return the value whose memory an output is in, if it keeps part of an operand's content.

    It is the operand's root, or the output itself, to which the content is copied before.
    """
    root = made.root[old]
    state = root.role == INPUT and root.name in made.mutable
    free = ends[root] <= at and all(made.root[v] is not root for v in op.declared if v is not None)
    if free and (state or (reuse and root.role == COMPUTED and not kept & {root, value})):
        made.in_place[op] = old
        return root
    if state:
        given = f"{old!r} is updated in its memory, and read by this operator too or after it"
        raise InvalidArgument(f"{made.graph.name}: {op!r}", given, allowed="reading what the update gives instead")
    made.copies.setdefault(op, []).append((old, value))
    return value


def _bytes(value: Value) -> int:
    return _count_bytes(value.spec)


@lru_cache(1024)
def _count_bytes(spec: TensorDesc) -> int:
    return max(0, spec.dtype.nbytes(spec.extent[1]))


def _share(
    made: MemoryPlan, op: Op, at: int, ends: dict[Value, int], kept: set[Value], last: Mapping[Value, int]
) -> tuple[Value, Value, bool] | None:
    """Return (output, operand, whether no call is needed) if an output can be in an operand's memory."""
    first = op.outputs[0]
    if first not in kept and _changes_nothing(op):
        (only,) = op.given
        root = made.root[only]
        state = root.role == INPUT and root.name in made.mutable
        updated = state and any(o.updated for o in made.graph.ops[at + 1 : last.get(first, at)])
        if not updated:  # what is read after an update has memory of its own
            return first, only, True
    names = op.operator.operand_names(len(op.inputs))
    aliases = op.operator.aliases
    for value in op.outputs:
        for name, x in zip(names, op.inputs, strict=False):
            if x is None or name not in aliases or value in kept or x.spec != value.spec:
                continue
            root = made.root[x]
            if root.role != COMPUTED or root in kept or ends[root] > at:
                continue
            beside = [(n, v) for n, v in zip(names, op.inputs, strict=False) if v is not None and made.root[v] is root]
            if any(n not in aliases or v.spec != x.spec for n, v in beside):
                continue  # another operand is in the same memory and is read in a different way
            return value, x, False
    return None


def _changes_nothing(op: Op) -> bool:
    """Return whether every element of the output is the operand's at the same place.

    So it is for a flatten of a dense tensor, or for a transpose or a slice that is a view.
    """
    if op.operator.stem != "rearrange" or len(list(op.given)) != 1:
        return False
    (given,) = op.given
    (low, high), (first, end) = given.spec.extent, op.outputs[0].spec.extent
    return low <= first and end <= high and _begins_at(op, 0)


def _begins_at(op: Op, start: int) -> bool:
    """Return whether the output has the operand's elements in the same order and strides, `start` elements behind."""
    y, x = coalesce(op.resolve().table)
    assert x is not None
    return TensorDesc(x.dtype, x.shape, x.strides, x.offset + start) == y


def _is_result_alone(made: MemoryPlan, op: Op, at: int, ends: Mapping[Value, int], kept: set[Value]) -> bool:
    """Return whether an operator only gives a computed value, which nothing else keeps, the layout of a result."""
    result = op.outputs[0]
    if result not in kept or made.root[result] is not result or op in made.in_place or len(list(op.given)) != 1:
        return False
    (only,) = op.given
    root = made.root[only]
    if op.operator.stem != "rearrange" or root.role != COMPUTED or root in kept or ends[root] > at:
        return False
    start, (low, high) = result.spec.offset, only.spec.extent
    same = result.spec.extent == (low + start, high + start) and root.spec.extent == (low, high) == (0, root.spec.numel)
    return same and _begins_at(op, start)


Span = tuple[int, int, tuple[int, int]]  # begin, end, (first, last) operator during which it is in use


def _lay_out(made: MemoryPlan, kept: set[Value], reuse: bool) -> None:
    """Choose offsets for the values in the arena.

    The workspaces are placed among the values or, if that needs no more memory, before all of them.
    """
    waiting = [v for v in made.life if v not in kept and BASE_ALIGNMENT % v.spec.dtype.itemsize == 0 and _bytes(v)]
    spaces = [(0, _align(n), (at, at)) for at, op in enumerate(made.graph.ops) if (n := made.spaces.get(op, 0))]
    first = max((end for _, end, _ in spaces), default=0)
    among = _place_all(made, waiting, spaces, reuse)
    apart = _place_all(made, waiting, [], reuse) if spaces else among
    shift = 0 if _end(among, first) < first + _end(apart, 0) else first
    made.offset = {v: at + shift for v, at in (apart if shift else among).items()}
    made.arena = _end(made.offset, first)


def _end(offset: Mapping[Value, int], least: int) -> int:
    return max([least, *(at + _align(_bytes(v)) for v, at in offset.items())])


def _align(nbytes: int) -> int:
    return -(-nbytes // BASE_ALIGNMENT) * BASE_ALIGNMENT


def _place_all(made: MemoryPlan, waiting: list[Value], taken: list[Span], reuse: bool) -> dict[Value, int]:
    """Place the largest value first, each at the lowest byte that is free while it lives."""
    placed, offset = sorted(taken), {}
    for value in sorted(waiting, key=_bytes, reverse=True):
        born, dies = made.life[value]
        begin, size = 0, _align(_bytes(value))
        for low, high, (first, last) in placed:
            if (first <= dies and born <= last) or not reuse:
                if low >= begin + size:
                    break  # so do all behind it
                begin = max(begin, high)
        insort(placed, (begin, begin + size, (born, dies)))
        offset[value] = begin
    return offset
