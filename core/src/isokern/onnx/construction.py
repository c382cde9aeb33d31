"""Construction: the graphs that are made of a model in turn, and the values that go from one to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..dtypes import I64, DType
from ..graph.builder import Builder
from ..graph.ir import INPUT, PARAMETER, Value, spec_text
from ..importing.draft import Draft
from ..importing.operand import Operand
from ..status import BadTensorShape
from .bounds import KNOWN_INTEGERS, MAX_ASKED, most_known
from .elements import MAX_ELEMENTS, Array
from .node import UnsupportedModel, ValueNeeded
from .segments import LoopSegment, Segment, Source


class Construction(Draft):
    """The graphs under construction from a model: a model without long loops has one segment."""

    def __init__(self, name: str, answers: Sequence[Array] = ()) -> None:
        super().__init__(name)
        self._answers, self._asked, self._may_ask = answers, 0, True
        self.segments: list[Segment] = []
        self._name = name
        self._homes: dict[Value, Segment] = {}
        self._unknowable: set[str] = set()
        self._imported: dict[Value, Value] = {}
        self.begin(Segment(self.builder, self.parameters))

    def _make_builder(self) -> Builder:
        return Builder(f"{self._name} {len(self.segments)}")

    def begin(self, segment: Segment) -> None:
        """Begin another segment, which reads values of earlier ones by inputs of its own."""
        self.segments.append(segment)
        self.builder, self.parameters = segment.builder, segment.parameters
        self._placed, self._imported = {}, {}

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that takes back the segments that were begun since, and what those before give to them.

        What was emitted into the last segment meanwhile is read by nobody.
        """
        before, kept = self.segments[:], [len(s.results) for s in self.segments]
        state = self.builder, self.parameters, self._placed, self._imported

        def restore() -> None:
            self.segments[:] = before
            self.builder, self.parameters, self._placed, self._imported = state
            for segment, count in zip(before, kept, strict=True):
                del segment.results[count:], segment.builder.graph.outputs[count:]

        return restore

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Forget what the block emits; its values still tell their dtypes and dims. Nothing is asked for."""
        restore = self.checkpoint()
        self.begin(Segment(self._make_builder()))
        with self.without_asking():
            try:
                yield
            finally:
                restore()

    @contextmanager
    def without_asking(self) -> Iterator[None]:
        """Refuse in the block what would have to be asked for."""
        before, self._may_ask = self._may_ask, False
        try:
            yield
        finally:
            self._may_ask = before

    def ask(self, where: str, value: Value, problem: str) -> Array:
        """Return what a value is in the run that the graph is built for; ValueNeeded if that is not known yet."""
        if self.in_loop or not self._may_ask:
            raise UnsupportedModel(where, problem, allowed="outside of a loop that runs as a program")
        if value.spec.numel > KNOWN_INTEGERS:
            raise UnsupportedModel(where, problem, allowed=f"up to {KNOWN_INTEGERS} elements")
        if self._asked >= MAX_ASKED:
            raise UnsupportedModel(where, problem, allowed=f"up to {MAX_ASKED} values that a run has to wait for")
        if self._asked >= len(self._answers):
            raise ValueNeeded(value, problem)
        self._asked += 1
        return self._answers[self._asked - 1]

    @property
    def in_loop(self) -> bool:
        """Whether the last segment is the body of a loop."""
        return isinstance(self.segments[-1], LoopSegment)

    def begin_loop(self, steps: Source | int) -> LoopSegment:
        """Begin a segment that is the body of a loop."""
        segment = LoopSegment(self._make_builder(), steps=steps)
        self.begin(segment)
        return segment

    def end_loop(self, origins: frozenset[str]) -> Value:
        """Begin the segment behind a loop, and return a value for the number of steps that it ran."""
        loop = self.segments[-1]
        assert isinstance(loop, LoopSegment)
        self.begin(Segment(self._make_builder()))
        loop.count = self._stand("count", (), I64, origins)
        return loop.count

    def receive(self, loop: LoopSegment, shape: Sequence[int], dtype: DType, origins: frozenset[str]) -> Value:
        """Return a value of the segment behind a loop for the next of its results."""
        loop.made.append(self._stand("looped", shape, dtype, origins))
        return loop.made[-1]

    def _stand(self, name: str, shape: Sequence[int], dtype: DType, origins: frozenset[str]) -> Value:
        value = self.add_input(name, shape, dtype, origins)
        self.segments[-1].sources[value.name] = value
        return value

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
        """Enter values of the last segment, with the inputs that they depend on; BadTensorShape for giant ones."""
        for value in values:
            if value.spec.numel >= MAX_ELEMENTS and value.role != PARAMETER:
                raise BadTensorShape(value.name, spec_text(value.spec), allowed=f"fewer than {MAX_ELEMENTS} elements")
        super().enter(values, origins)
        self._homes |= dict.fromkeys(values, self.segments[-1])

    def source_of(self, x: Operand) -> Source:
        """Return where a segment behind this one finds an operand; an earlier segment gives it as a result."""
        if not isinstance(x, Value):
            return x
        home = self._homes[x]
        if x.role == PARAMETER:
            return home.parameters[x.name]
        if x.role == INPUT:
            return home.sources.get(x.name, x)  # what a loop's step is given has none, and a trial alone asks for it
        home.keep(x)
        return x

    def place(self, x: Operand) -> Value:
        """Return the value of an operand in the last segment; an array becomes a parameter, once."""
        if isinstance(x, Value) and self._homes[x] is not self.segments[-1]:
            return self._import(x)
        return super().place(x)

    def input(self, name: str, shape: Sequence[int], dtype: DType) -> Value:
        """Declare an input of the model."""
        value = self.add_input(name, shape, dtype, frozenset([name]))
        if math.prod(shape) > most_known(dtype):
            self._unknowable.add(name)
        self.segments[-1].sources[value.name] = name
        return value

    def may_be_known(self, x: Value) -> bool:
        """Return whether a value depends on inputs, and these are small enough to be part of a program."""
        return bool(self.origins[x]) and not self.origins[x] & self._unknowable

    def count_emitted(self) -> tuple[int, int]:
        """Return how many segments there are, and how many operators the last one has."""
        return len(self.segments), len(self.builder.graph.ops)

    def may_fail(self, since: tuple[int, int]) -> bool:
        """Return whether an operator that was emitted since then raises errors for what it reads.

        Those of a long loop, which is a segment of its own, count as such.
        """
        segments, first = since
        loops = len(self.segments) > segments
        return loops or any(op.operator.device_error for op in self.builder.graph.ops[first:])

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
