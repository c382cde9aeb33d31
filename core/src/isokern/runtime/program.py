"""Program: a graph compiled for a device, run with one call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np

from ..backend import Recording, Stream, current_stream
from ..call.descriptor import Descriptor
from ..graph.builder import error_context
from ..graph.ir import Op, Value
from ..status import InvalidArgument
from ..tensors import Tensor
from .cache import Compiled, cache
from .check import Check, check
from .context import Context
from .explain import Line, explain, trace
from .feeds import Feeds, fill, name_feeds, readable, writable

_changed = threading.Condition()  # of the contexts that are idle, of any program


def _fork() -> None:
    global _changed
    _changed = threading.Condition()


if hasattr(os, "register_at_fork"):  # a thread that is not in the child may hold the lock
    os.register_at_fork(after_in_child=_fork)


class Program:
    """A graph on a device. Any number of threads may `run` it at once: each run has a context of its own, made when all others are in use.

    `inputs` and `outputs` are the device tensors of the first context, in the order of their names: what `feed`, `replay`, `step` and `read` work on,
    which are one thread's at a time and no run's meanwhile. A run has that context too where it is idle, and one after the other have it where
    inputs are mutable.

    `parameters` are by name, and may be those of other programs too; `prepacked` are forms of them that kernels read in their stead; `descriptors`
    are by operator. `arena_bytes` are those of activations and of scratch memory among them, `workspace_bytes` of scratch memory that lies apart,
    `naive_bytes` what all would be if nothing shared memory.
    """

    def __init__(
        self,
        made: Compiled,
        parameters: Mapping[str, Tensor],
        memory: Mapping[str, Tensor] = MappingProxyType({}),
        stream: Stream | None = None,
    ) -> None:
        self._recipe = recipe = made.recipe
        self.plan, self.graph, self.device = recipe.plan, recipe.plan.graph, recipe.device
        self.descriptors: dict[Op, Descriptor] = dict(recipe.descriptors)
        self.parameters: dict[str, Tensor] = dict(parameters)
        self.prepacked: set[Tensor] = set()
        self._made: Compiled | None = made
        own = self.device.default_stream if stream is None else stream
        self._context = Context(recipe, own, self.parameters, memory, self.prepacked)
        self._others: list[Context] = []
        self._idle = [self._context]
        made.users.add(self)

    def close(self) -> None:
        """Free the memory, but for parameters that another program has; the program is not run again. Runs that are under way come to their end."""
        with _changed:
            made, self._made = self._made, None
            idle, self._idle = self._idle, []
            _changed.notify_all()
        for context in idle:
            context.close()
        self.parameters.clear()
        self.prepacked.clear()
        if made is not None:
            made.users.discard(self)
            if not made.users:
                cache.forget(made)

    # Running

    @property
    def inputs(self) -> list[Tensor]:
        """What a run reads, in the order of the graph's inputs: write there, then `replay`."""
        self._open()
        return [self._context.tensors[v] for v in self.graph.inputs]

    @property
    def outputs(self) -> list[Tensor]:
        """Where a run leaves its results."""
        self._open()
        return [self._context.tensors[v] for v in self.graph.outputs]

    def _open(self) -> None:
        if self._made is None:
            raise InvalidArgument(self.graph.name, "the program is closed", hint="compile it again")

    @contextmanager
    def _borrow(self, context: Context | None = None) -> Iterator[Context]:
        """A context that nobody else has meanwhile: the one that is asked for, or any."""
        wanted = self._context if self.plan.mutable else context
        with _changed:
            _changed.wait_for(lambda: wanted is None or wanted in self._idle or self._made is None)
            self._open()
            taken = wanted or (self._idle[0] if self._idle else None)
            if taken is not None:
                self._idle.remove(taken)
            parameters = dict(self.parameters)
        if taken is None:
            taken = Context(self._recipe, self.device.stream(), parameters, {}, self.prepacked)
            self._others.append(taken)
        try:
            yield taken
        finally:
            with _changed:
                if self._made is not None:
                    self._idle.insert(0 if taken is self._context else len(self._idle), taken)
                _changed.notify_all()
            if self._made is None:
                taken.close()

    def capture(self) -> Recording:
        """All calls as one recording of the device; made once."""
        self._open()
        return self._context.capture()

    def replay(self) -> None:
        """Run with what `inputs` hold; the results are in `outputs` when the thread's current stream gets there. A capture of that records it."""
        self.capture().replay()

    def run(self, feeds: Feeds = None, *, out: Any = None) -> Any:
        """The results, NumPy arrays (one, or a tuple of several), for what is fed: by name, or in the order of the inputs.

        Feeds are arrays, anything of DLPack, or tensors of any device, converted to the input's dtype where that changes no kind (no float to an
        integer). `out` has the same for results, of exactly their shapes and dtypes, filled and returned. What is wrong is told before anything
        is written: a typed error that names the input or output. Mutable inputs that are not fed keep what they hold.
        """
        current = current_stream(self.device)
        if current.recording is not None:
            raise InvalidArgument(
                f"{self.graph.name}: run", "the stream is capturing", hint="feed before, and replay() in the capture"
            )
        targets = None if out is None else writable(self.graph, out)
        with self._borrow() as context:
            self._feed(context, feeds)
            if context.stream is not current and self.device.asynchronous:
                context.stream.wait(current.record())
            context.capture().replay(context.stream)
            context.stream.synchronize()
            results = [context.tensors[v] for v in self.graph.outputs]
            if targets is None:
                found: list[Any] = [np.array(t.numpy()) for t in results]
            else:
                found = list(out) if isinstance(out, (list, tuple)) else [out]
                for target, result in zip(targets, results, strict=True):
                    fill(target, result)
        return found[0] if len(found) == 1 else tuple(found)

    def feed(self, feeds: Feeds) -> None:
        """Put feeds, given as to `run`, where a replay reads them; all of them are checked before one is written."""
        self._open()
        self._feed(self._context, feeds)

    def _feed(self, context: Context, feeds: Feeds) -> None:
        every = name_feeds(self.graph, feeds, self.plan.mutable)
        fed = {value: readable(self.graph, value, given) for value, given in every.items()}
        for value, given in fed.items():
            with error_context(f"{self.graph.name}, input {value.name}"):
                context.tensors[value].copy_from(given)

    def step(self, op: Op) -> None:
        """Run one operator alone, and wait for it: what its operands' memory holds now is what it reads."""
        self._open()
        if op in self._context.calls:
            self._context.calls[op]()
            self.device.synchronize()

    def read(self, value: Value) -> np.ndarray[Any, Any]:
        """A copy of what the memory of a value holds now, which is another's once it was read last; of block types the raw blocks."""
        self._open()
        return np.array(self._context.tensors[value].numpy())

    def check(self, feeds: Feeds = None) -> Check:
        """Each operator compared with its reference in float64, within its tolerance, on what the device had before it: see `isokern.runtime.check`.

        Every value is kept; `first` of the answer names the first operator that is wrong, the value, its worst element and the bound.
        """
        with self._borrow(self._context):
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
        return sum(b.nbytes for b in self._context.spaces.values())

    @property
    def naive_bytes(self) -> int:
        """Bytes of all activations and workspaces, each in memory of its own."""
        return self.plan.naive + sum(d.workspace_size for d in self.descriptors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all memory that is this program's own: arena, workspace, inputs and results of every context."""
        return sum(context.nbytes for context in (self._context, *self._others))

    def calls(self) -> dict[Op, Callable[[], None]]:
        """The bound call of each operator that is run, in order."""
        self._open()
        return dict(self._context.calls)

    def explain(self, *, timed: bool = False) -> list[Line]:
        """A line for each operator, in order; with `timed` the program runs some times with what its inputs hold, and each call is timed."""
        with self._borrow(self._context):
            return explain(self, timed=timed)

    def trace(self, path: str | os.PathLike[str]) -> list[Line]:
        """Time each call, write that as a Chrome trace, which chrome://tracing and Perfetto open, and return the lines."""
        lines = self.explain(timed=True)
        trace(lines, self, path)
        return lines
