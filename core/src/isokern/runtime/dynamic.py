"""DynamicProgram: one model for any number of rows.

It has a program for each number of rows that it is run with, and one set of parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..backend import Device, Stream
from ..graph.ir import Graph, Value, spec_text
from ..graph.resize import resize
from ..process.forks import own_lock
from ..status import BadTensorShape, InvalidArgument
from ..tensors import Tensor
from .assemble import assemble
from .feeds import Feeds, as_host_array, name_feeds
from .packed import frozen
from .program import Program

KEPT = 8  # programs that are kept in addition to the first: the most recently used


class DynamicProgram:
    """Programs of one graph for different leading dims of its inputs.

    `run` takes feeds with any leading dims; `program` returns the program for some. Any number of threads may run it at
    once. `inputs` are the names of the inputs whose leading dim may change.

    The graph is planned anew for each number of rows, with the same attributes, and the `KEPT` most recently used
    programs are kept. All of them read the same parameters, which are those at compile time even if the model's change
    later.
    """

    def __init__(
        self,
        graph: Graph,
        parameters: Mapping[str, Any],
        device: Device,
        passes: str | tuple[str, ...],
        reuse: bool,
        inputs: bool | Collection[str],
        prepack: bool = True,
        stream: Stream | None = None,
        on_missing: str | None = None,
    ) -> None:
        self.graph, self.device = graph.copy(), device
        self._passes, self._reuse = passes, reuse
        self._options: dict[str, Any] = {"prepack": prepack, "stream": stream, "on_missing": on_missing}
        self._lock = own_lock(self, "_lock")  # for `_programs`; programs are made without it
        names = [v.name for v in graph.inputs]
        wanted = names if inputs is True else [inputs] if isinstance(inputs, str) else list(inputs or ())
        values = {v.name: v for v in self.graph.inputs}
        for name in wanted:
            if name not in values or not values[name].spec.ndim:
                given = f"dynamic input {values.get(name, name)!r}"
                raise InvalidArgument(graph.name, given, allowed=f"of {', '.join(names) or 'none'}, with a leading dim")
        self.inputs = tuple(n for n in names if n in wanted)
        self._parameters = {v.name: _freeze(parameters[v.name]) for v in graph.parameters}
        self._programs: OrderedDict[tuple[int, ...], Program] = OrderedDict()
        self._base = tuple(values[n].spec.shape[0] for n in self.inputs)
        self._first: Program = self._assemble(self.graph)

    def _assemble(self, graph: Graph, beside: Program | None = None) -> Program:
        options = self._passes, self._reuse, beside
        return assemble(graph, self._parameters, self.device, *options, **self._options)

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The parameters on the device, which all programs read."""
        return self._first.parameters

    @property
    def programs(self) -> list[Program]:
        """The programs that are kept: the one of the model's own shapes, then the others, the last used at the end."""
        with self._lock:
            return [self._first, *self._programs.values()]

    def program(self, rows: int | Mapping[str, int]) -> Program:
        """Return the program for these leading dims, made if it is not kept.

        `rows` is a number for every dynamic input, or a mapping for some of them. An operator that does not accept such
        a dim raises its typed error, with its name in front, and nothing stays allocated.
        """
        values = {v.name: v for v in self.graph.inputs if v.name in self.inputs}
        given = dict.fromkeys(values, rows) if isinstance(rows, int) else dict(rows)
        if strange := [n for n in given if n not in values]:
            raise InvalidArgument(self.graph.name, f"rows of {strange}", allowed=", ".join(values) or "no input")
        shapes = {n: (given.get(n, v.spec.shape[0]), *v.spec.shape[1:]) for n, v in values.items()}
        key = tuple(shape[0] for shape in shapes.values())
        if key == self._base:
            return self._first
        with self._lock:
            if key in self._programs:
                self._programs.move_to_end(key)
                return self._programs[key]
        self._first.inputs  # noqa: B018  # raises an error if the programs are closed
        made = self._assemble(resize(self.graph, shapes), self._first)
        with self._lock:  # another thread may have made one meanwhile: the earlier one stays
            made = self._programs.setdefault(key, made)
            if len(self._programs) > KEPT:
                self._programs.popitem(last=False)  # a thread that runs it still has a reference
        return made

    def run(self, feeds: Feeds = None, *, out: Any = None) -> Any:
        """Run as `Program.run` does, with feeds of any leading dims that the model's operators accept."""
        fed = name_feeds(self.graph, feeds)
        found = {v.name: as_host_array(f"{self.graph.name}, input {v.name}", given) for v, given in fed.items()}
        rows = {v.name: self._rows(v, found[v.name].shape) for v in self.graph.inputs if v.name in self.inputs}
        return self.program(rows).run(found, out=out)

    def _rows(self, value: Value, shape: Sequence[int]) -> int:
        if len(shape) != value.spec.ndim or tuple(shape[1:]) != value.spec.shape[1:]:
            wanted = spec_text(value.spec).replace(f"[{value.spec.shape[0]}", "[any number", 1)
            raise BadTensorShape(f"{self.graph.name}, input {value.name}", f"shape {list(shape)}", allowed=wanted)
        return int(shape[0])

    def close(self) -> None:
        """Close every program that is kept."""
        for program in self.programs:
            program.close()
        with self._lock:
            self._programs.clear()


def _freeze(given: Any) -> Any:
    """Return a parameter that cannot change: a tensor or a frozen array as it is, anything else as a copy.

    The content of a tensor is its owner's concern.
    """
    if isinstance(given, Tensor) or frozen(given):
        return given
    copied = np.array(given)
    copied.flags.writeable = False
    return copied
