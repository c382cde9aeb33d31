"""Model: an ONNX file that can be run, as one program for each set of dims."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import graph as graphs
from ..backend import Device
from ..backend.discovery import device as find_device
from ..graph.ir import Graph
from ..passes import DEFAULT
from ..process.forks import own_lock
from ..process.garbage import hold_collections
from ..process.imports import wait_before_forks
from ..runtime import Program
from ..runtime.assemble import assemble
from ..runtime.feeds import as_host_array, convert_feed
from ..status import BadTensorShape, InvalidArgument
from ..tensors import Tensor
from .bounds import most_known
from .build import Built, build
from .elements import NARROW, OURS, Array, our_dtype, widen
from .importer import list_unknown
from .node import ConstantNeeded, UnsupportedModel
from .reader import Source, read
from .segments import Table
from .tensor_info import TensorInfo, describe_result, describe_tensor, dims_of, free_leading, free_results

wait_before_forks()
KEPT = 96  # sets of programs of a model, with those that compute what the building of others waits for
LEAST, KEPT_BYTES = 8, 1 << 28  # those that are kept whatever memory they have, and what all may have beyond
VARY = "a dim that varies has a name in the model; load(…, dynamic=True) frees leading dims alone"


@dataclass
class _Compiled:
    """What is built, and a program for each segment; None for a segment that computes nothing."""

    built: Built
    programs: list[Program | None] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all memory of the programs, without parameters."""
        return sum(program.nbytes for program in self.programs or () if program is not None)

    def model(self, where: str) -> graphs.Model:
        """Return the graph with its parameters."""
        if self.built.asks:
            raise UnsupportedModel(where, self.built.asks, allowed="one graph: dims and a course that no values decide")
        if len(self.built.segments) > 1:
            raise UnsupportedModel(where, f"{len(self.built.segments)} graphs, for its long loops", allowed="one graph")
        return self.built.segments[0].model


class Model:
    """A model on a device; `load` makes it.

    `inputs` and `outputs` describe what `run` takes and gives. Dims that have names are bound by `dims` of `load` or by
    the arrays of a run: each set of dims has a program of its own, and the last of these are kept, which share their
    parameters. The same holds for inputs that decide shapes (`known_inputs`), whose content is part of the program, and
    for values that decide what comes after them, which a run computes first.
    """

    def __init__(
        self,
        source: Source,
        device: str | Device | None,
        dims: Mapping[str, int],
        passes: str | Iterable[str],
        prepack: bool,
        dynamic: bool | Collection[str],
    ) -> None:
        self._source, self._device, self._prepack = source, device, prepack
        self._passes = passes if isinstance(passes, str) else tuple(passes)
        # By the number of values asked for and of the segment: programs whose parameters the others share
        self._first: dict[tuple[int, int], Program] = {}
        if device is not None:
            find_device(device)
        graph = source.message.graph
        held = {*source.arrays, *(t.name for t in graph.initializer)}
        self.name: str = graph.name or "model"
        inputs = tuple(describe_tensor(source.where, v, dims) for v in graph.input if v.name not in held)
        self.inputs = free_leading(source.where, inputs, dynamic)
        self._dtypes = {t.name: OURS[t.element].numpy for t in self.inputs if t.element in OURS}
        outputs = tuple(describe_result(source.where, v, dims, graph.node) for v in graph.output)
        self.outputs = outputs if dynamic is False else free_results(outputs)
        self.known_inputs: set[str] = set()
        free = {d for t in self.inputs for d in t.shape if isinstance(d, str)}
        if unknown := set(dims) - {d for v in graph.input for d in dims_of(v)}:
            allowed = ", ".join(sorted(free)) or "none: the model names no dims"
            raise InvalidArgument(source.where, f"dims {', '.join(sorted(map(str, unknown)))}", allowed=allowed)
        if unknown_nodes := list_unknown(source):
            listed = "; ".join(unknown_nodes)
            raise UnsupportedModel(source.where, f"{len(unknown_nodes)} nodes have no counterpart here: {listed}")
        self._programs: OrderedDict[Any, _Compiled] = OrderedDict()
        self._lock = own_lock(self, "_lock", threading.Lock)
        if not free:
            with suppress(ConstantNeeded):  # then the first run tells what the inputs hold
                self._find({t.name: t.shape for t in self.inputs}, None)

    @property
    def device(self) -> Device:
        """The device that runs it."""
        return find_device(self._device)

    @property
    def built(self) -> graphs.Model:
        """The graph with its parameters, of the last run, or of `load` where all dims are known."""
        with self._lock:
            if self._programs:
                return next(reversed(self._programs.values())).model(self._source.where)
        free = sorted({d for t in self.inputs for d in t.shape if isinstance(d, str)})
        problem = (
            f"dims {', '.join(free)} are not known" if free else f"inputs {sorted(self.known_inputs)} decide shapes"
        )
        raise InvalidArgument(self._source.where, problem, hint="give them by load(…, dims={…}), or run the model")

    @property
    def graph(self) -> Graph:
        """The graph of `built`."""
        return self.built.graph

    def run(self, *arrays: Any) -> Any:
        """Run on arrays in the inputs' order, or on a mapping by name; return an array, or a tuple of several.

        Feeds are NumPy arrays, objects with DLPack or tensors of any device, of the inputs' types.
        """
        feeds = self._name(arrays)
        shapes = self._bind(feeds)
        answers: list[Array] = []
        while True:
            with self._lock:
                compiled = self._compile(shapes, feeds, answers)
            assert compiled.programs is not None
            table: Table = {}
            table.update(feeds.items())
            for segment, program in zip(compiled.built.segments, compiled.programs, strict=True):
                segment.run(program, table)
            if not compiled.built.asks:
                break
            (asked,) = compiled.built.results
            assert asked.source is not None
            answers.append(np.array(table[asked.source]))
        outputs = []
        for result in compiled.built.results:
            y = np.array(result.known) if result.source is None else table[result.source]
            if result.count is not None:
                y = np.ascontiguousarray(y.take(range(int(table[result.count])), axis=result.axis))
            outputs.append(y if result.narrow is None else y.astype(NARROW[result.narrow][0]))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    # Feeds

    def _name(self, arrays: tuple[Any, ...]) -> dict[str, Any]:
        names = [t.name for t in self.inputs]
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            given = dict(arrays[0])
        elif len(arrays) == len(names):
            given = dict(zip(names, arrays, strict=True))
        else:
            allowed = f"{len(names)}: {', '.join(names) or 'none'}"
            raise InvalidArgument(self.name, f"{len(arrays)} feeds", allowed=allowed)
        if set(given) != set(names):
            raise InvalidArgument(self.name, f"feeds {', '.join(map(str, given))}", allowed=", ".join(names) or "none")
        return {t.name: self._feed(t, given[t.name]) for t in self.inputs}

    def _feed(self, info: TensorInfo, given: Any) -> Any:
        """Return a feed in the dtype in which the input's elements lie."""
        own = self._dtypes.get(info.name)
        if own is not None and type(given) is np.ndarray and given.dtype == own:
            return given
        where = f"{self.name}, input {info.name}"
        found = as_host_array(where, widen(given) if isinstance(given, np.ndarray) else given)
        return convert_feed(where, found, our_dtype(info.element), info.element)

    def _bind(self, feeds: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the dims of each feed; BadTensorShape where they are not the input's, or a name has two numbers."""
        bound: dict[str, int] = {}
        for info in self.inputs:
            shape = tuple(feeds[info.name].shape)
            fits = len(shape) == len(info.shape)
            for dim, told in zip(shape, info.shape, strict=False):
                fits = fits and dim == (bound.setdefault(told, dim) if isinstance(told, str) else told)
            if not fits:
                names = ", ".join(f"{n} = {d}" for n, d in bound.items())
                said = str(info) + (f" with {names}" if names else "")
                raise BadTensorShape(f"{self.name}, input {info.name}", f"shape {list(shape)}", allowed=said, hint=VARY)
        return {info.name: tuple(feeds[info.name].shape) for info in self.inputs}

    # Programs

    def _find(
        self, shapes: Mapping[str, tuple[Any, ...]], feeds: Mapping[str, Any] | None, answers: Sequence[Array] = ()
    ) -> _Compiled:
        """Return what is built for these dims, the content of inputs that have to be known, and values asked for."""
        while True:
            known: dict[str, Array] = {}
            if feeds is not None:
                known = {name: _host(feeds[name]) for name in self.known_inputs}
            contents = tuple((n, a.tobytes()) for n, a in sorted(known.items()))
            key = (tuple(shapes.items()), contents, tuple((a.shape, a.tobytes()) for a in answers))
            if key in self._programs:
                self._programs.move_to_end(key)
                return self._programs[key]
            try:
                with hold_collections():
                    elements = {t.name: t.element for t in self.inputs}
                    built = build(self._source, elements, shapes, known, self.outputs, self._name_dims(shapes), answers)
            except ConstantNeeded as needed:
                self._know(needed, shapes)
                if feeds is None:
                    raise
                continue
            self._programs[key] = compiled = _Compiled(built)
            held = sum(c.nbytes for c in self._programs.values())
            while len(self._programs) > KEPT or (len(self._programs) > LEAST and held > KEPT_BYTES):
                _, dropped = self._programs.popitem(last=False)  # not closed: another thread may be about to run it
                held -= dropped.nbytes
            return compiled

    def _name_dims(self, shapes: Mapping[str, tuple[Any, ...]]) -> dict[str, int]:
        """Return what the names of dims stand for."""
        pairs = [pair for t in self.inputs for pair in zip(t.shape, shapes[t.name], strict=True)]
        return {name: size for name, size in pairs if isinstance(name, str)}

    def _know(self, needed: ConstantNeeded, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Add the inputs that have to be known, unless they are too large to be part of a program."""
        elements = {t.name: t.element for t in self.inputs}
        for name in needed.inputs:
            limit = most_known(our_dtype(elements[name]))
            if int(np.prod(shapes[name])) > limit:
                allowed = f"a constant, or what follows from small inputs (up to {limit} elements)"
                raise UnsupportedModel(self._source.where, f"{needed.problem}, and depends on {name}", allowed=allowed)
        if needed.inputs <= self.known_inputs:
            raise UnsupportedModel(self._source.where, needed.problem, allowed="a constant")
        self.known_inputs |= needed.inputs

    def _compile(
        self, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Any], answers: Sequence[Array]
    ) -> _Compiled:
        compiled = self._find(shapes, feeds, answers)
        if compiled.programs is None:
            built = compiled.built
            compiled.programs = [self._assemble((len(answers), n), s.model) for n, s in enumerate(built.segments)]
        return compiled

    @hold_collections()
    def _assemble(self, place: tuple[int, int], model: graphs.Model) -> Program | None:
        if not model.graph.outputs:
            return None
        how: dict[str, Any] = {"beside": self._first.get(place), "prepack": self._prepack}
        made = assemble(model.graph, model.parameters, self.device, self._passes, True, **how)
        self._first.setdefault(place, made)
        return made

    def __repr__(self) -> str:
        return f"Model {self.name}: {'; '.join(map(str, self.inputs))} -> {'; '.join(map(str, self.outputs))}"


def _host(feed: Any) -> Array:
    return np.array(feed.numpy() if isinstance(feed, Tensor) else feed)


@hold_collections()
def load(
    model: Any,
    device: str | Device | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    dynamic: bool | Collection[str] = False,
    passes: str | Iterable[str] = DEFAULT,
    prepack: bool = True,
) -> Model:
    """Load an ONNX model from a path or a ModelProto; nothing outside the model's folder is read.

    `dims` binds names of dims, as in `dims={"batch": 8}`; the others are bound by each run. With `dynamic` the leading
    dim of every input, or of those named, is bound by each run, too, though the model says a number: it is one for all
    of them, as a batch is. A node that cannot have another one raises its typed error. `passes` and `prepack` are
    those of `isokern.runtime.compile`. Random nodes draw from a fixed seed, the same numbers in each run.

    Raises UnsupportedModel where nodes have no counterpart here, with all of them, and InvalidArgument, BadTensorDtype
    or BadTensorShape, with the node's name, where the model is not valid.
    """
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    return Model(read(model), device, dims or {}, passes, prepack, dynamic)
