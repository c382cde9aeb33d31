"""The graph: values, and the operators between them.

The operators are the declared ones; there is no second vocabulary. A value is described by a `TensorSpec`: element
type, shape and layout, which the runtime allocates and checks against. `TensorSpec` is another name of `TensorDesc`,
which knows nothing of memory either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import is_
from typing import Any, NamedTuple

from ..declare.attributes import REQUIRED, CheckedAttributes
from ..declare.operator import Operator, Resolved
from ..layout import TensorDesc
from ..ops import find

TensorSpec = TensorDesc
NAME = re.compile(r"[A-Za-z_][\w.]*\Z")
INPUT, PARAMETER, COMPUTED = "input", "parameter", "computed"


@dataclass(eq=False)
class Value:
    """One tensor of a graph.

    `vid` is its number. `role` says whether it is fed, a parameter, or computed by `producer`. `users` are the
    operators that read it.
    """

    vid: int
    name: str
    spec: TensorSpec
    role: str = COMPUTED
    producer: Op | None = None
    users: list[Op] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"%{self.vid} {self.name!r}: {spec_text(self.spec)}"


@dataclass(frozen=True)
class Constraint:
    """A checked precondition of an operator.

    `contiguous(i)` and `aligned(i, bytes)` concern its input i; `alias(i)` asks for its first output in the memory of
    input i. Each is verified, and a memory plan that cannot satisfy one is refused; none changes a result.
    """

    kind: str
    operand: int
    amount: int = 0

    def __str__(self) -> str:
        return f"{self.kind}({self.operand}{f', {self.amount}' if self.kind == 'aligned' else ''})"


CONSTRAINTS = ("contiguous", "aligned", "alias")


class _Call(NamedTuple):
    """A checked call, and what it was checked with."""

    resolved: Resolved
    inputs: Sequence[TensorSpec | None]
    outputs: Sequence[TensorSpec]
    attrs: Mapping[str, Any]


def _same(known: _Call, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec]) -> bool:
    if len(known.inputs) != len(inputs) or len(known.outputs) != len(outputs):
        return False
    return all(map(is_, known.inputs, inputs)) and all(map(is_, known.outputs, outputs))


@dataclass(eq=False)
class Op:
    """One operator of a graph.

    `kind` is the name of its declaration. Absent optional inputs are None; `attrs` are complete; `name` is for people.
    `hints` are wishes to dispatch (`isokern.backend.hints`): none changes what is computed, and a device ignores those
    that it cannot follow. Where outputs keep part of their previous content (`Operator.inout`), that content is a value
    too: the last of `inputs`, after all declared ones. `origin` is the kind of the operator that it is decomposed from.
    """

    kind: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    constraints: tuple[Constraint, ...] = ()
    name: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    _call: _Call | None = field(default=None, repr=False)

    def resolve(self) -> Resolved:
        """Return the checked call; raise the declaration's typed errors if it is invalid.

        It is checked once, as long as layouts and attributes are the same objects.
        """
        inputs, outputs = specs_of(self.declared), [v.spec for v in self.outputs]
        known = self._call
        if known is None or known.attrs is not self.attrs or not _same(known, inputs, outputs):
            known = _Call(self.operator.resolve(inputs, outputs, self.attrs), inputs, outputs, self.attrs)
            if type(self.attrs) is CheckedAttributes:  # others may be written to
                self._call = known
        return known.resolved

    @property
    def operator(self) -> Operator:
        """The operator's declaration."""
        return find(self.kind)

    @property
    def declared(self) -> tuple[Value | None, ...]:
        """The inputs that the declaration has, without the values that outputs update."""
        return self.inputs[: len(self.inputs) - len(self.operator.inout)]

    @property
    def updated(self) -> list[tuple[Value, Value]]:
        """Pairs (value before, output) of the outputs that keep part of their previous content."""
        operator = self.operator
        if not operator.inout:
            return []
        kept = [v for o, v in zip(operator.signature.outputs, self.outputs, strict=True) if o.name in operator.inout]
        held = self.inputs[len(self.inputs) - len(kept) :] if kept else ()
        return [(old, new) for old, new in zip(held, kept, strict=True) if old is not None]

    @property
    def given(self) -> Iterator[Value]:
        """The inputs that are present."""
        return (v for v in self.inputs if v is not None)

    def __repr__(self) -> str:
        return f"{self.kind}({self.name})" if self.name else self.kind


class Graph:
    """Values and operators, in an order in which each value is computed before it is read."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.values: dict[int, Value] = {}
        self.ops: list[Op] = []
        self.outputs: list[Value] = []

    def of_role(self, role: str) -> list[Value]:
        """Return the values of a role, in order."""
        return [v for v in self.values.values() if v.role == role]

    @property
    def inputs(self) -> list[Value]:
        """The values that are fed."""
        return self.of_role(INPUT)

    @property
    def parameters(self) -> list[Value]:
        """The values that stay the same over runs."""
        return self.of_role(PARAMETER)

    def add(self, value: Value) -> Value:
        """Add a value under its number."""
        self.values[value.vid] = value
        return value

    def append(self, op: Op, like: Op | None = None) -> Op:
        """Append an operator, add its outputs, and enter it as their producer and as a user of its inputs.

        It is `like` another one, if given, whose call was checked.
        """
        if like is not None:
            op._call = like._call
        self.ops.append(op)
        for value in op.outputs:
            value.producer = op
            self.add(value)
        for value in dict.fromkeys(op.given):
            value.users.append(op)
        return op

    def copy(self) -> Graph:
        """Return an equal graph with values and operators of its own."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], Graph]:
        """Return a function that copies the graph as it is now, whatever a builder appends to it meanwhile."""
        values, ops, outputs = len(self.values), len(self.ops), list(self.outputs)

        def copy() -> Graph:
            made = Graph(self.name)
            of = {}
            for value in islice(self.values.values(), values):
                of[value] = made.add(Value(value.vid, value.name, value.spec, value.role))
            for op in self.ops[:ops]:
                inputs = tuple(None if v is None else of[v] for v in op.inputs)
                results = tuple(of[v] for v in op.outputs)
                made.append(Op(op.kind, inputs, results, dict(op.attrs), op.constraints, op.name, dict(op.hints)))
            made.outputs = [of[v] for v in outputs]
            return made

        return copy

    def dump(self) -> str:
        """Return the text form, which `isokern.graph.parse` reads."""
        return text(self)


def spec_text(spec: TensorSpec) -> str:
    """Return `F32[2, 3]`, followed by strides and offset if they are not those of a dense tensor."""
    dense = f"{spec.dtype}{list(spec.shape)}"
    if spec.offset == 0 and spec == TensorSpec(spec.dtype, spec.shape):
        return dense
    return f"{dense} strides {list(spec.strides)} offset {spec.offset}"


def specs_of(values: Sequence[Value | None]) -> list[TensorSpec | None]:
    """Return the layouts of operands, None for an absent one."""
    return [None if v is None else v.spec for v in values]


def text(graph: Graph) -> str:
    """Return the text form of a graph."""
    lines = [f"graph {graph.name if NAME.match(graph.name) else json.dumps(graph.name)} {{"]
    for value in graph.values.values():
        if value.role in (INPUT, PARAMETER):
            lines.append(f"  %{value.vid} = {value.role} {json.dumps(value.name)}: {spec_text(value.spec)}")
        elif value.producer is not None and value is value.producer.outputs[0]:
            lines.append(f"  {op_text(value.producer)}")
    results = ", ".join(f"%{v.vid}" for v in graph.outputs)
    return "\n".join([*lines, f"  return {results}".rstrip(), "}", ""])


def op_text(op: Op) -> str:
    """Return the line of one operator."""
    inputs = ", ".join("_" if v is None else f"%{v.vid}" for v in op.inputs)
    shown = attrs_text(op.operator, op.attrs)
    parts = [f"{', '.join(f'%{v.vid}' for v in op.outputs)} = {op.kind}({inputs})"]
    parts += [f"{{{', '.join(shown)}}}"] if shown else []
    parts += ["where " + ", ".join(map(str, op.constraints))] if op.constraints else []
    wishes = [f"{name} = {json.dumps(wish)}" for name, wish in op.hints.items()]
    parts += [f"hint {{{', '.join(wishes)}}}"] if wishes else []
    parts += [json.dumps(op.name)] if op.name else []
    return f"{' '.join(parts)}: {', '.join(spec_text(v.spec) for v in op.outputs)}"


def attrs_text(operator: Operator, attrs: Mapping[str, Any]) -> list[str]:
    """Return `padding = [1, 1]` and so on for the attributes that differ from their defaults."""
    shown = []
    for a in operator.attrs.attrs:
        default = None if a.default is REQUIRED else a.check(operator.name, a.default)
        if repr(attrs[a.name]) != repr(default):  # distinguishes -0.0 from 0.0, but not NaN from NaN
            shown.append(f"{a.name} = {_attr(attrs[a.name])}")
    return shown


def _attr(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_attr, value))}]"
    return json.dumps(value)  # Infinity, -Infinity and NaN as words
