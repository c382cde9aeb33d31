"""Node: what a handler of an operator sees, its inputs, attributes and the ways to emit.

A handler takes a node and returns its outputs. An operand is a value of the graph under construction, or an array where
it is known; an operator of arrays alone is computed at once, so that shapes that a model computes become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from ..dtypes import DType
from ..graph.ir import Value, spec_text
from ..importing.emission import Emission, Emits, UnsupportedModel
from ..importing.operand import Operand, dtype_of, is_float, shape_of
from ..status import BadTensorDtype, InvalidArgument, quote
from .elements import Array
from .segments import LoopSegment, Source

__all__ = [
    "ConstantNeeded",
    "Handler",
    "Maps",
    "Node",
    "NodeEmitter",
    "Operand",
    "OperandScope",
    "Output",
    "Parts",
    "Ragged",
    "UnsupportedModel",
    "describe",
    "dtype_of",
    "is_float",
    "row",
    "shape_of",
]


class ConstantNeeded(Exception):
    """An operand has to be known while the graph is built, and depends on inputs of the model."""

    def __init__(self, inputs: frozenset[str], problem: str) -> None:
        self.inputs, self.problem = inputs, problem
        super().__init__(problem)


class ValueNeeded(Exception):
    """A value has to be known before the rest of the graph can be built: `value`, which depends on large inputs."""

    def __init__(self, value: Value, problem: str) -> None:
        self.value, self.problem = value, problem
        super().__init__(problem)


@dataclass(frozen=True)
class Ragged:
    """The first `count` parts of a value along an axis: a result whose size depends on numbers."""

    value: Value
    count: Value
    axis: int


@dataclass(frozen=True)
class Parts:
    """The elements of a sequence."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True)
class Maps:
    """A map for each row of a table, from labels to what stands in the row."""

    value: Operand
    labels: tuple[int | str, ...]


Output: TypeAlias = "Operand | Ragged | Parts | Maps | None"
Handler: TypeAlias = "Callable[[Node], Output | Sequence[Output]]"


class OperandScope(dict[str, Any]):
    """The operands by name in a graph, and `narrow` types of some; names of the graph around it are seen, too."""

    def __init__(self, outer: OperandScope | None = None) -> None:
        super().__init__()
        self.outer = outer
        self.narrow: dict[str, str] = {} if outer is None else dict(outer.narrow)

    def enter(self, name: str, x: Any, narrow: str | None) -> None:
        """Enter an operand under a name, with the narrow type of its elements, or None."""
        self[name] = x
        self.narrow.pop(name, None)
        if narrow is not None:
            self.narrow[name] = narrow

    def find(self, where: str, name: str) -> Any:
        """Return the operand of a name."""
        scope: OperandScope | None = self
        while scope is not None:
            if name in scope:
                return scope[name]
            scope = scope.outer
        raise InvalidArgument(where, f"{quote(name)} is read and nobody computes it before")


class NodeEmitter(Emits, Protocol):
    """What a node asks of the graph under construction; `origins` are the inputs that a value depends on."""

    origins: dict[Value, frozenset[str]]

    @property
    def in_loop(self) -> bool:
        """Whether the graph under construction is the body of a loop."""

    def place(self, x: Operand) -> Value:
        """Return the value of an operand in the graph under construction."""

    def source_of(self, x: Operand) -> Source:
        """Return where a later graph finds an operand."""

    def add_input(self, name: str, shape: Sequence[int], dtype: DType, origins: frozenset[str]) -> Value:
        """Declare an input of the graph under construction."""

    def begin_loop(self, steps: Source | int) -> LoopSegment:
        """Begin the graph of a loop's body."""

    def end_loop(self, origins: frozenset[str]) -> Value:
        """Begin the graph behind a loop, and return what stands there for the number of steps that it ran."""

    def receive(self, loop: LoopSegment, shape: Sequence[int], dtype: DType, origins: frozenset[str]) -> Value:
        """Return what stands behind a loop for its next result."""

    def ask(self, where: str, value: Value, problem: str) -> Array:
        """Return what a value is in the run that the graph is built for; ValueNeeded if that is not known yet."""

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that takes back the graphs that were begun since."""

    def without_asking(self) -> AbstractContextManager[None]:
        """Refuse in the block what would have to be asked for."""

    def trial(self) -> AbstractContextManager[None]:
        """Forget what the block emits; its values still tell their dtypes and dims."""

    def may_be_known(self, x: Value) -> bool:
        """Return whether a value depends on inputs, and these are small enough to be part of a program."""

    def count_emitted(self) -> tuple[int, int]:
        """Return how many segments there are, and how many operators the last one has."""

    def may_fail(self, since: tuple[int, int]) -> bool:
        """Return whether an operator that was emitted since then raises errors for what it reads."""

    def run_graph(self, graph: Any, scope: OperandScope) -> None:
        """Import the nodes of a graph into a scope."""

    def results_of(self, where: str, graph: Any, scope: OperandScope) -> tuple[list[Any], list[str | None]]:
        """Return the operands that a graph gives, and their narrow types."""


@dataclass
class Node(Emission):
    """A node: `version` is that of its operator's definition, `attrs` are complete, `inputs` are None where absent."""

    op_type: str
    name: str
    version: int
    inputs: list[Operand | Parts | Maps | None]
    attrs: Mapping[str, Any]
    wanted: list[bool]  # whether the output has a name
    importer: NodeEmitter
    graphs: Mapping[str, Any] = field(default_factory=dict)
    elements: list[str | None] = field(default_factory=list)  # narrow types of the inputs
    made: str | None = None  # the narrow type of the outputs
    each: list[str | None] = field(default_factory=list)  # of each output, where they differ

    # Inputs

    def has(self, i: int) -> bool:
        """Return whether input i is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def get(self, i: int) -> Operand | Parts | Maps | None:
        """Return input i, or None."""
        return self.inputs[i] if i < len(self.inputs) else None

    def tensor(self, i: int) -> Operand | None:
        """Return input i, or None; InvalidArgument where it is a sequence."""
        found = self.get(i)
        if isinstance(found, (Parts, Maps)):
            raise InvalidArgument(self.op_type, f"input {i} is a sequence", allowed="a tensor")
        return found

    @property
    def tensors(self) -> list[Operand | None]:
        """The inputs, none of which is a sequence."""
        return [self.tensor(i) for i in range(len(self.inputs))]

    def x(self, i: int = 0) -> Operand:
        """Return input i; InvalidArgument where it is absent."""
        found = self.tensor(i)
        if found is None:
            raise InvalidArgument(self.op_type, f"input {i} is not given")
        return found

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """Return the dims of input i."""
        return shape_of(self.x(i))

    @property
    def rank(self) -> int:
        """The rank of the first input."""
        return len(self.shape())

    def constant(self, i: int) -> Array:
        """Return the elements of input i, as `know` does."""
        found = self.x(i)
        return self.know(found, f"input {i}") if isinstance(found, Value) else found

    def know(self, value: Value, what: str) -> Array:
        """Return what a value is: small inputs that it depends on become part of the program, else it is asked for."""
        problem = f"{self.name}: {self.op_type}: {what}, {spec_text(value.spec)}, has to be known"
        if self.importer.may_be_known(value):
            raise ConstantNeeded(self.importer.origins.get(value, frozenset()), problem)
        return self.importer.ask(self.op_type, value, problem)

    def ints(self, i: int) -> list[int]:
        """Return the elements of input i as integers."""
        return [int(v) for v in self.constant(i).reshape(-1)]

    def number(self, i: int) -> Any:
        """Return the one element of input i."""
        found = self.constant(i)
        if found.size != 1:
            raise InvalidArgument(self.op_type, f"input {i} has {found.size} elements", allowed="1")
        return found.reshape(-1)[0].item()

    def axis(self, given: int | None = None, rank: int | None = None) -> int:
        """Return an axis, by default the attribute of that name, counted from the front."""
        axis = int(self.attrs["axis"]) if given is None else int(given)
        rank = self.rank if rank is None else rank
        if not -rank <= axis < max(rank, 1):
            raise InvalidArgument(self.op_type, f"axis {axis}", allowed=f"{-rank} to {rank - 1}")
        return axis % rank if rank else 0

    # Outputs, beside what Emission has

    def cut(self, value: Operand, count: Operand, axis: int = 0) -> Operand | Ragged:
        """Return the first `count` parts of a value along an axis."""
        if isinstance(count, Value):
            assert isinstance(value, Value)
            return Ragged(value, count, axis)
        return self.emit("slice", value, starts=(0,), ends=(int(count),), axes=(axis,))

    def expect_float(self, i: int = 0) -> None:
        """Raise BadTensorDtype where input i is not of floats."""
        if not is_float(self.x(i)):
            raise BadTensorDtype(self.op_type, f"input {i} is {dtype_of(self.x(i))}", allowed="a float type")


def row(kind: str, **names: str) -> Handler:
    """Return the handler of a node that is one operator here; `names` are its attributes and what they are called.

    One that an older version does not have yet is left to our default.
    """

    def handle(node: Node) -> Output:
        attrs = {ours: node.attrs[theirs] for ours, theirs in names.items() if theirs in node.attrs}
        return node.emit(kind, *node.tensors, **attrs)

    return handle


def describe(op_type: str, name: str, outputs: Sequence[str]) -> str:
    """Return what messages call a node: its name, or that of its first output."""
    return quote(name or next((o for o in outputs if o), op_type))
