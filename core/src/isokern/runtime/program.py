"""Program: a graph compiled for a device, run with one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..backend import BASE_ALIGNMENT, Recording
from ..buffer import Buffer
from ..descriptor import Descriptor
from ..graph.builder import told_of
from ..graph.ir import Op, Value
from ..status import InvalidArgument
from ..tensors import Tensor
from .cache import Compiled, Recipe, cache
from .check import Check, check
from .explain import Line, explain, trace
from .feeds import Feeds, fill, named, readable, writable


class Program:
    """A graph on a device. `inputs` and `outputs` are the device tensors that a run reads and leaves its results in, by their names' order.

    `parameters` are by name, and may be those of other programs too; `prepared` are forms of them that kernels read in their stead; `descriptors`
    are by operator. `arena_bytes` are those of activations and of scratch memory among them, `workspace_bytes` of scratch memory that lies apart,
    `naive_bytes` what all would be if nothing shared memory.
    """

    def __init__(
        self, made: Compiled, parameters: Mapping[str, Tensor], memory: Mapping[str, Tensor] = MappingProxyType({})
    ) -> None:
        recipe = made.recipe
        self.plan, self.graph, self.device = recipe.plan, recipe.plan.graph, recipe.device
        self.descriptors: dict[Op, Descriptor] = dict(recipe.descriptors)
        self.parameters: dict[str, Tensor] = dict(parameters)
        self.prepared: set[Tensor] = set()
        self._made: Compiled | None = made
        self._recording: Recording | None = None
        self._buffers: list[Buffer] = []
        self._spaces: dict[str, Buffer] = {}
        self._arena: Buffer | None = None
        self._tensors: dict[Value, Tensor] = {}
        self._calls: dict[Op, Callable[[], None]] = {}
        made.users.add(self)
        try:
            self._allocate(recipe, memory)
            self._keep_constraints()
            self._bind(recipe.copies)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the memory, but for parameters that another program has; the program is not run again."""
        self._calls.clear()
        self._recording = None
        self._arena = None
        self._tensors.clear()
        self.parameters.clear()
        self.prepared.clear()
        for buffer in [*self._buffers, *self._spaces.values()]:
            buffer.close()
        made, self._made = self._made, None
        if made is not None:
            made.users.discard(self)
            if not made.users:
                cache.forget(made)

    # Making

    def _allocate(self, recipe: Recipe, given: Mapping[str, Tensor]) -> None:
        memory, descs = self.device.memory, recipe.descs
        for value in self.graph.parameters:
            self._tensors[value] = self.parameters[value.name]
        self._tensors |= {v: given[v.name] for v in self.graph.inputs if v.name in given}
        arena = memory.alloc(self.plan.arena, alignment=BASE_ALIGNMENT, empty=True) if self.plan.arena else None
        self._buffers += [] if arena is None else [arena]
        self._arena = arena
        for value in self.graph.values.values():
            root = self.plan.root[value]
            if value in self._tensors:
                continue
            if arena is not None and root in self.plan.offset:
                self._tensors[value] = Tensor(descs[value], arena)
            elif root is not value and root in self._tensors:
                self._tensors[value] = Tensor(value.spec, self._tensors[root].buffer)
            else:
                nbytes = value.spec.dtype.nbytes(max(0, value.spec.extent[1]))
                buffer = memory.alloc(nbytes, value.spec.dtype, alignment=BASE_ALIGNMENT)
                self._buffers.append(buffer)
                self._tensors[value] = Tensor(value.spec, buffer)
        apart = [d for op, d in self.descriptors.items() if op not in self.plan.spaces]
        needs = [
            d.workspace for d in (*apart, *(d for copies in recipe.copies.values() for d in copies)) if d.workspace.size
        ]
        for kind in dict.fromkeys(n.kind for n in needs):
            size = max(n.size for n in needs if n.kind == kind)
            alignment = max(n.alignment for n in needs if n.kind == kind)
            self._spaces[kind] = memory.alloc(size, kind=kind, alignment=alignment, empty=True)

    def _keep_constraints(self) -> None:
        """InvalidArgument where memory is not as an operator's constraints ask; what layouts alone can tell is verified before."""
        for op in self.graph.ops:
            for constraint in op.constraints:
                value = op.inputs[constraint.operand]
                assert value is not None
                span, amount = self._tensors[value].span, max(1, constraint.amount)
                astray = constraint.kind == "aligned" and value.spec.numel and span[0] % amount
                if astray or (constraint.kind == "alias" and span != self._tensors[op.outputs[0]].span):
                    given = f"{constraint}: {value!r} lies at {span[0]:#x}"
                    raise InvalidArgument(f"{self.graph.name}: {op!r}", given, allowed="memory that keeps it")

    def _bind(self, copies: Mapping[Op, Sequence[Descriptor]]) -> None:
        stream = self.device.default_stream
        for op, descriptor in self.descriptors.items():
            inputs = self._operands(op, descriptor)
            space = self._arena if op in self.plan.spaces else self._space(descriptor)
            outputs = [self._tensors[v] for v in op.outputs]
            with told_of(op.name):
                call = descriptor.bind(inputs, outputs, workspace=space, stream=stream)
                pairs = zip(copies.get(op, ()), self.plan.copies.get(op, ()), strict=True)
                before = [
                    d.bind(self._tensors[a], self._tensors[b], workspace=self._space(d), stream=stream)
                    for d, (a, b) in pairs
                ]
                self._calls[op] = _in_order([*before, call]) if before else call

    def _space(self, descriptor: Descriptor) -> Buffer | None:
        return self._spaces[descriptor.workspace.kind] if descriptor.workspace.size else None

    def _operands(self, op: Op, descriptor: Descriptor) -> list[Tensor | None]:
        """The tensors that a call reads, each parameter in the form that it is prepared in."""
        inputs = [None if v is None else self._tensors[v] for v in op.declared]
        if descriptor.forms:
            for n, operand in enumerate(op.operator.signature.inputs):
                given = inputs[n] if operand.name in descriptor.forms else None
                if given is not None:
                    inputs[n] = made = descriptor.prepare(operand.name, given)
                    self.prepared.add(made)
        return inputs

    # Running

    @property
    def inputs(self) -> list[Tensor]:
        """What a run reads, in the order of the graph's inputs: write there, then `replay`."""
        self._open()
        return [self._tensors[v] for v in self.graph.inputs]

    @property
    def outputs(self) -> list[Tensor]:
        """Where a run leaves its results."""
        self._open()
        return [self._tensors[v] for v in self.graph.outputs]

    def _open(self) -> None:
        if self._made is None:
            raise InvalidArgument(self.graph.name, "the program is closed", hint="compile it again")

    def capture(self) -> Recording:
        """All calls as one recording of the device; made once."""
        self._open()
        if self._recording is None:
            with self.device.default_stream.capture() as recording:
                for call in self._calls.values():
                    call()
            self._recording = recording
        return self._recording

    def replay(self) -> None:
        """Run with what `inputs` hold; the results are in `outputs` when the device's default stream gets there."""
        self.capture().replay()

    def run(self, feeds: Feeds = None, *, out: Any = None) -> Any:
        """The results, NumPy arrays (one, or a tuple of several), for what is fed: by name, or in the order of the inputs.

        Feeds are arrays, anything of DLPack, or tensors of any device, converted to the input's dtype where that changes no kind (no float to an
        integer). `out` has the same for results, of exactly their shapes and dtypes, filled and returned. What is wrong is told before anything
        is written: a typed error that names the input or output. Mutable inputs that are not fed keep what they hold.
        """
        targets = None if out is None else writable(self.graph, out)
        self.feed(feeds)
        self.replay()
        self.device.synchronize()
        if targets is None:
            found: list[Any] = [np.array(t.numpy()) for t in self.outputs]
        else:
            found = list(out) if isinstance(out, (list, tuple)) else [out]
            for target, result in zip(targets, self.outputs, strict=True):
                fill(target, result)
        return found[0] if len(found) == 1 else tuple(found)

    def feed(self, feeds: Feeds) -> None:
        """Put feeds, given as to `run`, where a replay reads them; all of them are checked before one is written."""
        self._open()
        every = named(self.graph, feeds, self.plan.mutable)
        fed = {value: readable(self.graph, value, given) for value, given in every.items()}
        for value, given in fed.items():
            with told_of(f"{self.graph.name}, input {value.name}"):
                self._tensors[value].copy_from(given)

    def step(self, op: Op) -> None:
        """Run one operator alone, and wait for it: what its operands' memory holds now is what it reads."""
        self._open()
        if op in self._calls:
            self._calls[op]()
            self.device.synchronize()

    def read(self, value: Value) -> np.ndarray[Any, Any]:
        """A copy of what the memory of a value holds now, which is another's once it was read last; of block types the raw blocks."""
        self._open()
        return np.array(self._tensors[value].numpy())

    def check(self, feeds: Feeds = None) -> Check:
        """Each operator compared with its reference in float64, within its tolerance, on what the device had before it: see `isokern.runtime.check`.

        Every value is kept; `first` of the answer names the first operator that is wrong, the value, its worst element and the bound.
        """
        self.feed(feeds)
        return check(self)

    # Telling

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena: activations, and the scratch memory that lies where none is needed."""
        return self.plan.arena

    @property
    def workspace_bytes(self) -> int:
        """Bytes of scratch memory beside the arena, of another kind or alignment than it has."""
        return sum(b.nbytes for b in self._spaces.values())

    @property
    def naive_bytes(self) -> int:
        """Bytes of all activations and workspaces, each in memory of its own."""
        return self.plan.naive + sum(d.workspace_size for d in self.descriptors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all memory that is this program's own: arena, workspace, inputs and results."""
        return sum(b.nbytes for b in (*self._buffers, *self._spaces.values()))

    def calls(self) -> dict[Op, Callable[[], None]]:
        """The bound call of each operator that is run, in order."""
        self._open()
        return dict(self._calls)

    def explain(self, *, timed: bool = False) -> list[Line]:
        """A line for each operator, in order; with `timed` the program runs some times with what its inputs hold, and each call is timed."""
        return explain(self, timed=timed)

    def trace(self, path: str | os.PathLike[str]) -> list[Line]:
        """Time each call, write that as a Chrome trace, which chrome://tracing and Perfetto open, and return the lines."""
        lines = explain(self, timed=True)
        trace(lines, self, path)
        return lines


def _in_order(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def every() -> None:
        for call in calls:
            call()

    return every
