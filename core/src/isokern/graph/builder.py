"""Builder: a graph under construction.

Every operator is checked when it is emitted, and an error names the operator at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from ..backend.hints import NONE, check_hints
from ..declare.operator import Operator
from ..ops import find
from ..status import InvalidArgument, IsokernError
from .ir import INPUT, PARAMETER, Constraint, Graph, Op, TensorSpec, Value, spec_text, specs_of
from .verify import constraint_violation


class error_context:  # noqa: N801  # it is used as a function; as a class it costs half
    """Put the name of the layer or operator in front of the errors that the block raises."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise the error with the name."""
        if isinstance(error, IsokernError):
            where = f"{self.name}: {error.where}" if self.name else error.where
            raise type(error)(where, error.problem, allowed=error.allowed, hint=error.hint) from None


class Builder:
    """A graph under construction, which `graph` holds.

    `input` and `parameter` declare values, `emit` appends operators, and `output` names results.
    """

    def __init__(self, name: str = "graph") -> None:
        self.graph = Graph(name)
        self._names: set[str] = set()

    @property
    def values(self) -> list[Value]:
        """All values, by number."""
        return list(self.graph.values.values())

    @property
    def ops(self) -> list[Op]:
        """All operators, in order."""
        return self.graph.ops

    @property
    def input_vids(self) -> list[int]:
        """Numbers of the inputs."""
        return [v.vid for v in self.graph.inputs]

    @property
    def output_vids(self) -> list[int]:
        """Numbers of the results."""
        return [v.vid for v in self.graph.outputs]

    def value(self, spec: TensorSpec, name: str, role: str) -> Value:
        """Add a value with the next number; the name of an input or parameter must be non-empty and unique."""
        if role in (INPUT, PARAMETER):
            if not isinstance(name, str) or not name or name in self._names:
                allowed = "a name of its own" + (f"; there are {', '.join(sorted(self._names))}" if self._names else "")
                raise InvalidArgument(self.graph.name, f"{role} {name!r}", allowed=allowed)
            self._names.add(name)
        return self.graph.add(Value(len(self.graph.values), name, spec, role))

    def input(self, name: str, shape: Sequence[int], dtype: object = "F32") -> Value:
        """Declare a tensor that is fed to every run."""
        return self.value(TensorSpec(dtype, shape), name, INPUT)

    def parameter(self, name: str, shape: Sequence[int], dtype: object = "F32") -> Value:
        """Declare a tensor that stays the same over runs."""
        return self.value(TensorSpec(dtype, shape), name, PARAMETER)

    def emit(
        self,
        kind: str,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        dtypes: Mapping[str, Any] | None = None,
        outputs: Sequence[TensorSpec] | None = None,
        constraints: Iterable[Constraint] = (),
        hints: Mapping[str, str] = NONE,
    ) -> tuple[Value, ...]:
        """Append an operator and return its outputs.

        The declaration infers the outputs unless `outputs` gives their layouts; `dtypes` names free types. For an
        operator that updates the content of an output, pass the value to update as one more input, after all declared
        ones: `[x, positions, cache]`. `hints={"variant": "portable"}` asks dispatch to try that kernel variant first on
        a device that has it; on other devices, and if that variant declines, dispatch proceeds as usual. Raises the
        declaration's typed errors, with `name` in front.
        """
        with error_context(name):
            wishes = check_hints(kind, hints)
            operator = find(kind)
            for given in inputs:
                if given is not None and self.graph.values.get(getattr(given, "vid", -1)) is not given:
                    raise InvalidArgument(kind, f"{given!r} is not a value of {self.graph.name}")
            specs = specs_of(inputs)
            if operator.inout:
                specs, outputs = _check_updated(operator, specs, outputs)
            if outputs is None:
                resolved = operator.describe(specs, attrs, dtypes)
            else:
                resolved = operator.resolve(specs, tuple(outputs), attrs)
            made = resolved.outputs
        first = len(self.graph.values)
        names = [name] if len(made) == 1 else [f"{name}.{o.name}" if name else "" for o in operator.signature.outputs]
        values = tuple(Value(first + i, n, s) for i, (n, s) in enumerate(zip(names, made, strict=True)))
        op = Op(kind, tuple(inputs), values, resolved.attrs, tuple(constraints), name, wishes)
        for constraint in op.constraints:
            if reason := constraint_violation(op, constraint):
                where = f"{name}: {kind}" if name else kind
                raise InvalidArgument(where, f"{constraint}: {reason}", allowed="constraints that hold")
        self.graph.append(op)
        return values

    def repeat(self, op: Op, inputs: Sequence[Value | None]) -> tuple[Value, ...]:
        """Append an operator of a verified graph, on values of the same layouts, and return its outputs."""
        first = len(self.graph.values)
        values = tuple([Value(first + i, v.name, v.spec) for i, v in enumerate(op.outputs)])
        made = Op(op.kind, tuple(inputs), values, op.attrs, op.constraints, op.name, dict(op.hints))
        self.graph.append(made, like=op)
        return values

    def output(self, *values: Value) -> None:
        """Append values to the results of the graph, in order."""
        for value in values:
            if self.graph.values.get(getattr(value, "vid", -1)) is not value:
                raise InvalidArgument(self.graph.name, f"output {value!r}", allowed="a value of this graph")
            self.graph.outputs.append(value)


def _check_updated(
    operator: Operator, specs: list[TensorSpec | None], outputs: Sequence[TensorSpec] | None
) -> tuple[list[TensorSpec | None], Sequence[TensorSpec]]:
    """Return the layouts of the declared inputs, and of the outputs, which are those of the values they update."""
    count = len(operator.signature.inputs)
    held = [s for s in specs[count:] if s is not None]
    if len(held) != len(operator.inout) or len(specs) != count + len(held):
        names = [o.name for o in operator.signature.inputs] + [f"what {o} holds" for o in operator.inout]
        raise InvalidArgument(operator.name, f"{len(specs)} inputs are given", allowed=", ".join(names))
    if outputs is not None and list(outputs) != held:
        given = ", ".join(map(spec_text, outputs))
        raise InvalidArgument(operator.name, f"outputs {given}", allowed=", ".join(map(spec_text, held)))
    return specs[:count], held
