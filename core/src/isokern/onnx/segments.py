"""Segments: a model whose long loops are programs that run again and again, between the graphs before and behind them.

Each segment has a graph of its own. What one reads of an earlier one is an input of its graph, and `sources` says whose
value that is: values of all segments lie in one table while a model runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import graph as graphs
from ..graph.builder import Builder
from ..graph.ir import COMPUTED, Value
from ..runtime import Program
from ..status import InvalidArgument
from .elements import Array

LONGEST = 10_000_000  # steps of a loop that is a program
Source = Value | str | Array  # a value of an earlier segment, an input of the model, or what is known
Table = dict[Value | str, Any]


@dataclass(eq=False)
class Segment:
    """A graph with its parameters: `sources` are those of its inputs by name, `results` what later segments read."""

    builder: Builder
    parameters: dict[str, Array] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    results: list[Value] = field(default_factory=list)

    @property
    def model(self) -> graphs.Model:
        """The graph with its parameters, as `compile` takes it."""
        made = graphs.Model(self.builder.graph.name)
        made.builder, made.parameters = self.builder, self.parameters
        return made

    def keep(self, value: Value) -> int:
        """Make a value a result of the graph, once, and return its place; a copy stands for an input or a parameter."""
        if value not in self.results:
            self.builder.output(value if value.role == COMPUTED else self.builder.emit("copy", [value])[0])
            self.results.append(value)
        return self.results.index(value)

    def run(self, program: Program | None, table: Table) -> None:
        """Run once, and enter the results."""
        if program is not None:
            table.update(zip(self.results, self._call(program, table, {}), strict=True))

    def _call(self, program: Program, table: Table, given: Mapping[str, Any]) -> list[Any]:
        names, sources = program.input_names, self.sources
        feeds = {n: given[n] if n in given else look_up(table, sources[n]) for n in names}
        found = program.run_direct(feeds)
        return list(found) if isinstance(found, tuple) else [found]


@dataclass(frozen=True)
class Scanned:
    """An input that is a part of a tensor in each step, along an axis, from its end on where `backwards`."""

    name: str
    source: Source
    axis: int
    backwards: bool


@dataclass(eq=False)
class LoopSegment(Segment):
    """The body of a loop of so many steps, or of as many as a source says, while the result `condition` holds.

    `count` stands for the number of steps that were run.

    `carried` are its inputs that begin as a source and then are a result of the step before; `outputs` are what a step
    gives for each of them, and then for each tensor of parts: the number of a result, or what is known. `made` are the
    values that stand for the loop's own results, `joined` the axis and the direction along which parts are joined.
    """

    steps: int | Source = 0
    going: Source | None = None  # whether there is a first step, where that is not known
    condition: int | None = None
    count: Value | None = None
    index: str = ""
    carried: list[tuple[str, Source]] = field(default_factory=list)
    scanned: list[Scanned] = field(default_factory=list)
    outputs: list[int | Array] = field(default_factory=list)
    joined: list[tuple[int, bool]] = field(default_factory=list)
    made: list[Value] = field(default_factory=list)

    def run(self, program: Program | None, table: Table) -> None:
        """Run all steps, and enter the loop's results and their number."""
        steps = self.steps if isinstance(self.steps, int) else int(np.asarray(look_up(table, self.steps)).reshape(()))
        if self.going is not None and not np.asarray(look_up(table, self.going)).all():
            steps = 0
        state = [look_up(table, source) for _, source in self.carried]
        scanned = [look_up(table, s.source) for s in self.scanned]
        parts: list[list[Any]] = [[] for _ in self.joined]
        count = 0
        for step in range(steps):
            given = dict(zip((name for name, _ in self.carried), state, strict=True))
            given[self.index] = np.asarray(step, np.int64)
            for part, x in zip(self.scanned, scanned, strict=True):
                given[part.name] = np.take(x, steps - 1 - step if part.backwards else step, axis=part.axis)
            found = [] if program is None else self._call(program, table, given)
            made = [found[o] if isinstance(o, int) else o for o in self.outputs]
            state = made[: len(state)]
            for kept, one in zip(parts, made[len(state) :], strict=False):
                kept.append(one)
            count += 1
            if count > LONGEST:
                problem = f"a loop of more than {LONGEST} steps"
                raise InvalidArgument(self.builder.graph.name, problem, allowed="a condition that ends it before")
            if self.condition is not None and not np.asarray(found[self.condition]).all():
                break
        # A graph that is built as far as the number of steps joins no parts yet
        whole = [
            np.stack(kept[::-1] if backwards else kept, axis) if kept else np.zeros(y.spec.shape, y.spec.dtype.numpy)
            for kept, (axis, backwards), y in zip(parts, self.joined, self.made[len(state) :], strict=True)
        ]
        table.update(zip(self.made, [*state, *whole], strict=True))
        if self.count is not None:
            table[self.count] = np.asarray(count, np.int64)


def look_up(table: Table, source: Source) -> Any:
    """Return the array of a source."""
    return source if isinstance(source, np.ndarray) else table[source]
