"""Program: a graph compiled for a device, run with one call."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import blocks
from ..backend import Recording, Stream, current_stream
from ..call.descriptor import Descriptor
from ..graph.builder import error_context
from ..graph.ir import PARAMETER, Op, Value
from ..ops import find
from ..process.forks import own_lock
from ..status import InvalidArgument
from ..tensors import Tensor
from .cache import Compiled, cache
from .context import RunContext
from .direct import Direct
from .explain import Line, explain, trace
from .feeds import Feeds, fill, name_feeds, readable, writable
from .packed import Packed

if TYPE_CHECKING:
    from .check import Check

# Notified when a context of any program becomes idle
_changed = own_lock(sys.modules[__name__], "_changed", threading.Condition)


class Program:
    """A graph on a device.

    Any number of threads may `run` it at once: each run has a context of its own, which is made when all others are in
    use.

    `inputs` and `outputs` are the device tensors of the first context, in the graph's order. `feed`, `replay`, `step`
    and `read` work on them; only one thread may use them at a time, and not during a run. A run also uses that
    context if it is idle; if inputs are mutable, all runs use it, one after the other.

    `parameters` are by name, and other programs may share them; `prepacked` are their packed layouts, which kernels
    read instead, and of some parameters there is nothing else on the device (`compile`); `descriptors` are by operator.
    `arena_bytes` counts activations and the scratch memory among them, `workspace_bytes` scratch memory outside the
    arena, `naive_bytes` the sum if nothing shared memory.
    """

    def __init__(
        self,
        made: Compiled,
        parameters: Mapping[str, Tensor],
        memory: Mapping[str, Tensor] = MappingProxyType({}),
        stream: Stream | None = None,
    ) -> None:
        self._recipe = recipe = made.recipe
        self.memory_plan, self.graph, self.device = recipe.memory_plan, recipe.memory_plan.graph, recipe.device
        self.input_names = tuple([v.name for v in self.graph.inputs])
        self.descriptors: dict[Op, Descriptor] = dict(recipe.descriptors)
        self.parameters: dict[str, Tensor] = dict(parameters)
        self.packed = made.packed  # the parameters that are there in packed layouts alone
        self._prepacked = dict(made.packed.tensors)
        self._made: Compiled | None = made
        own = self.device.default_stream if stream is None else stream
        self._context = RunContext(recipe, own, self.parameters, memory, self._prepacked)
        self._others: list[RunContext] = []
        self._idle = [self._context]
        self._direct: dict[RunContext, Direct] = {}  # the contexts that have run without copies
        made.users.add(self)

    def close(self) -> None:
        """Free the memory, except parameters that another program uses; the program cannot run again.

        Runs in progress finish first.
        """
        with _changed:
            made, self._made = self._made, None
            idle, self._idle = self._idle, []
            _changed.notify_all()
        for context in idle:
            context.close()
        self.parameters.clear()
        self._direct.clear()
        self._prepacked.clear()
        self.packed = Packed()
        if made is not None:
            made.users.discard(self)
            if not made.users:
                cache.forget(made)

    @property
    def prepacked(self) -> set[Tensor]:
        """The parameters in packed layouts, which kernels read."""
        return set(self._prepacked.values())

    @property
    def prepacked_names(self) -> set[str]:
        """The names of the parameters that kernels read in packed layouts; some may also read them as they are."""
        return {name for name, _ in self._prepacked}

    # Running

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors that a run reads, in the order of the graph's inputs: write to them, then `replay`."""
        self._open()
        return [self._context.tensors[v] for v in self.graph.inputs]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that have the results of a run."""
        self._open()
        return [self._context.tensors[v] for v in self.graph.outputs]

    def _open(self) -> None:
        if self._made is None:
            raise InvalidArgument(self.graph.name, "the program is closed", hint="compile it again")

    @contextmanager
    def _borrow(self, context: RunContext | None = None) -> Iterator[RunContext]:
        """Borrow a context that is not in use: the given one, or any."""
        wanted = self._context if self.memory_plan.mutable else context
        with _changed:
            _changed.wait_for(lambda: wanted is None or wanted in self._idle or self._made is None)
            self._open()
            taken = wanted or (self._idle[0] if self._idle else None)
            if taken is not None:
                self._idle.remove(taken)
            else:  # `close` empties these
                parameters, prepacked = dict(self.parameters), dict(self._prepacked)
        if taken is None:
            taken = RunContext(self._recipe, self.device.stream(), parameters, {}, prepacked)
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
        """Return all calls as one recording of the device; it is made once."""
        self._open()
        return self._context.capture()

    def replay(self) -> None:
        """Run on the current content of `inputs`.

        The results are in `outputs` when the thread's current stream has done it. A capture of that stream records it.
        """
        self.capture().replay()

    def run(self, feeds: Feeds = None, *, out: Any = None) -> Any:
        """Run on the feeds, given by name or in the order of the inputs, and return the results.

        They are NumPy arrays, one, or a tuple of several. Feeds are arrays, objects with DLPack, or tensors of any
        device; they are converted to the input's dtype if that changes no kind (no float to an integer). `out` gives
        such objects for the results, of exactly their shapes and dtypes, which are filled and returned. Mutable inputs
        that are not fed keep their content. Every feed and out is checked before anything is written; a typed error
        names the input or output at fault.
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
            try:
                context.capture().replay(context.stream)
                context.stream.synchronize()
            except InvalidArgument as error:
                raise self._name_node(context, error) from None
            results = [context.tensors[v] for v in self.graph.outputs]
            if targets is None:
                found: list[Any] = [np.array(t.numpy()) for t in results]
            else:
                found = list(out) if isinstance(out, (list, tuple)) else [out]
                for target, result in zip(targets, results, strict=True):
                    fill(target, result)
        return found[0] if len(found) == 1 else tuple(found)

    def run_direct(self, feeds: Feeds = None) -> Any:
        """Run as `run` does; calls read arrays, and write results, in place, if the device can do that.

        Then `inputs` and `outputs` keep what they held.
        """
        if current_stream(self.device).recording is not None or self.device.asynchronous or self.memory_plan.mutable:
            return self.run(feeds)
        with self._borrow() as context:
            direct = self._direct.get(context)
            if direct is None:
                direct = self._direct[context] = Direct(context)
            if type(feeds) is not dict or feeds.keys() != direct.names:
                feeds = {v.name: x for v, x in name_feeds(self.graph, feeds).items()}
            there = {name: x for name, x in feeds.items() if direct.fits(x, name)}
            if len(there) < len(feeds):
                self._feed(context, feeds, there)
            try:
                found = direct.run(there)
            except InvalidArgument as error:
                held = [(t, np.array(t.numpy())) for t in (context.tensors[v] for v in self.graph.inputs)]
                self._feed(context, feeds)
                named = self._name_node(context, error)
                for t, before in held:
                    t.copy_from(before)
                raise named from None
        return found[0] if len(found) == 1 else tuple(found)

    def _name_node(self, context: RunContext, error: InvalidArgument) -> InvalidArgument:
        """Return the error of a bad value with the node of the graph at fault: the first whose call fails alone.

        The calls run again, on the context's inputs; if they would update an input twice, the error stays as it is.
        """
        if error.found is None or self.memory_plan.mutable:
            return error
        for op, call in context.calls.items():
            try:
                call()
                context.stream.synchronize()
            except InvalidArgument as own:
                operator = find(op.origin) if op.origin else op.operator
                if own.found is not None and operator.device_error:
                    own = operator.value_error(*own.found)
                named = InvalidArgument(f"{self.graph.name}: {op.name}" if op.name else self.graph.name, str(own))
                named.found = own.found
                return named
        return error

    def feed(self, feeds: Feeds) -> None:
        """Write feeds, given as to `run`, to `inputs`; all of them are checked before one is written."""
        self._open()
        self._feed(self._context, feeds)

    def _feed(self, context: RunContext, feeds: Feeds, there: Collection[str] = ()) -> None:
        """Write feeds, but those of the names `there`, to a context's inputs."""
        every = name_feeds(self.graph, feeds, self.memory_plan.mutable)
        fed = {v: readable(self.graph, v, given) for v, given in every.items() if v.name not in there}
        for value, given in fed.items():
            with error_context(f"{self.graph.name}, input {value.name}"):
                context.tensors[value].copy_from(given)

    def step(self, op: Op) -> None:
        """Run one operator alone, on the current content of its operands' memory, and wait for it."""
        self._open()
        if op in self._context.calls:
            self._context.calls[op]()
            self.device.synchronize()

    def read(self, value: Value) -> np.ndarray[Any, Any]:
        """Return a copy of the current content of a value's memory; of block types the raw blocks.

        After the last operator that reads the value, the memory may have another value. A parameter that is there in a
        packed layout alone is computed again from the parameters that were compiled; InvalidArgument if these are gone.
        """
        self._open()
        if value.name in self.packed.contents and value.role == PARAMETER:
            return self._original(value, self.packed.originals())
        return np.array(self._context.tensors[value].numpy())

    def read_parameters(self) -> dict[Value, np.ndarray[Any, Any]]:
        """Return what `read` gives of every parameter."""
        self._open()
        originals = self.packed.originals() if self.packed.contents else {}
        return {
            v: self._original(v, originals) if v.name in self.packed.contents else self.read(v)
            for v in self.graph.parameters
        }

    def _original(self, value: Value, originals: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        array, dtype = np.asarray(originals[value.name]), value.spec.dtype
        return blocks.quantize(array, dtype) if dtype.numpy is None else array.astype(dtype.numpy)

    def check(self, feeds: Feeds = None) -> Check:
        """Compare each operator with its float64 reference, on the operands that the device had.

        See `isokern.runtime.check`. The result has every value; its `first` names the first operator that is wrong, the
        value, its worst element and the bound.
        """
        from .check import check  # with the oracle, which nothing else here needs

        with self._borrow(self._context):
            self.feed(feeds)
            return check(self)

    # Reporting

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena: activations, and the scratch memory among them."""
        return self.memory_plan.arena

    @property
    def workspace_bytes(self) -> int:
        """Bytes of scratch memory outside the arena, since its kind or alignment is another one."""
        return sum(b.nbytes for b in self._context.spaces.values())

    @property
    def naive_bytes(self) -> int:
        """Bytes of all activations and workspaces, if each had memory of its own."""
        return self.memory_plan.naive + sum(d.workspace_size for d in self.descriptors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all memory of this program: arena, workspace, inputs and results of every context."""
        return sum(context.nbytes for context in (self._context, *self._others))

    def calls(self) -> dict[Op, Callable[[], None]]:
        """Return the bound call of each operator that is run, in order."""
        self._open()
        return dict(self._context.calls)

    def explain(self, *, timed: bool = False) -> list[Line]:
        """Return a line for each operator, in order.

        With `timed`, the program runs several times on its current inputs, and each call is timed.
        """
        with self._borrow(self._context):
            return explain(self, timed=timed)

    def trace(self, path: str | os.PathLike[str]) -> list[Line]:
        """Time each call and write the times as a Chrome trace; return the lines.

        chrome://tracing and Perfetto open the file.
        """
        lines = self.explain(timed=True)
        trace(lines, self, path)
        return lines
