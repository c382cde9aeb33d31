"""Construction: the graphs that are made of a model in turn, and the values that go from one to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dtypes import DType
from ..graph.builder import Builder
from ..graph.ir import INPUT, PARAMETER, Value
from .elements import Array
from .node import Operand
from .segments import LoopSegment, Segment, Source


class Construction:
    """The graphs under construction from a model: a model without long loops has one segment.

    `origins` are the inputs of the model that a value depends on, `names` those of arrays, by their identity.
    """

    def __init__(self, name: str) -> None:
        self.origins: dict[Value, frozenset[str]] = {}
        self.segments: list[Segment] = []
        self.names: dict[int, str] = {}
        self._name = name
        self._homes: dict[Value, Segment] = {}
        self._placed: dict[int, tuple[Array, Value]] = {}
        self._imported: dict[Value, Value] = {}
        self._taken: set[str] = set()
        self.begin(Segment(self._builder()))

    @property
    def builder(self) -> Builder:
        """The graph of the last segment."""
        return self.segments[-1].builder

    def _builder(self) -> Builder:
        return Builder(f"{self._name} {len(self.segments)}" if self.segments else self._name)

    def begin(self, segment: Segment) -> None:
        """Begin another segment, which reads values of earlier ones by inputs of its own."""
        self.segments.append(segment)
        self._placed.clear()
        self._imported.clear()

    @property
    def in_loop(self) -> bool:
        """Whether the last segment is the body of a loop."""
        return isinstance(self.segments[-1], LoopSegment)

    def begin_loop(self, steps: int) -> LoopSegment:
        """Begin a segment that is the body of a loop."""
        segment = LoopSegment(self._builder(), steps=steps)
        self.begin(segment)
        return segment

    def end_loop(self, made: Sequence[tuple[Sequence[int], DType]], origins: frozenset[str]) -> list[Value]:
        """Begin the segment behind a loop, and return values of these dims and dtypes for what the loop gives."""
        loop = self.segments[-1]
        assert isinstance(loop, LoopSegment)
        self.begin(Segment(self._builder()))
        found = []
        for shape, dtype in made:
            value = self.add_input("looped", shape, dtype, origins)
            loop.made.append(value)
            self.segments[-1].sources[value.name] = value
            found.append(value)
        return found

    def add_input(self, name: str, shape: Sequence[int], dtype: DType, origins: frozenset[str]) -> Value:
        """Declare an input of the last segment, under a name of its own."""
        free, n = name, 0
        while free in self._taken:
            free, n = f"{name}.{n}", n + 1
        self._taken.add(free)
        value = self.builder.input(free, shape, dtype)
        self.enter([value], origins)
        return value

    def enter(self, values: Sequence[Value], origins: frozenset[str]) -> None:
        """Enter values of the last segment, with the inputs of the model that they depend on."""
        self.origins |= dict.fromkeys(values, origins)
        self._homes |= dict.fromkeys(values, self.segments[-1])

    def source_of(self, x: Operand) -> Source:
        """Return where a segment behind this one finds an operand; an earlier segment gives it as a result."""
        if not isinstance(x, Value):
            return x
        home = self._homes[x]
        if x.role == PARAMETER:
            return home.parameters[x.name]
        if x.role == INPUT:
            return home.sources[x.name]
        home.keep(x)
        return x

    def place(self, x: Operand) -> Value:
        """Return the value of an operand in the last segment; an array becomes a parameter, once."""
        if isinstance(x, Value):
            return x if self._homes[x] is self.segments[-1] else self._import(x)
        if id(x) not in self._placed:
            said = self.names.get(id(x)) or "constant"
            name = f"{said}.{len(self.segments[-1].parameters)}" if said == "constant" or said in self._taken else said
            while name in self._taken:
                name += "'"
            self._taken.add(name)
            value = self.builder.parameter(name, x.shape, x.dtype)
            self.segments[-1].parameters[name] = x
            self.enter([value], frozenset())
            self._placed[id(x)] = (x, value)  # with the array, whose number nobody else gets meanwhile
        return self._placed[id(x)][1]

    def input(self, name: str, shape: Sequence[int], dtype: DType) -> Value:
        """Declare an input of the model."""
        value = self.add_input(name, shape, dtype, frozenset([name]))
        self.segments[-1].sources[value.name] = name
        return value

    def _import(self, x: Value) -> Value:
        """Return the input of the last segment that stands for a value of an earlier one."""
        if x not in self._imported:
            source = self.source_of(x)
            if isinstance(source, np.ndarray):
                self._imported[x] = self.place(source)
            else:
                value = self.add_input("before", x.spec.shape, x.spec.dtype, self.origins[x])
                self.segments[-1].sources[value.name] = source
                self._imported[x] = value
        return self._imported[x]
