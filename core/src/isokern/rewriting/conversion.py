"""Conversion: rewrite a graph until the target has every operator of it.

A target gives the reason why an operator may not stay: by kind, by a function of the operator, or from a device's
answer. Such an operator is replaced by its declaration's decomposition, whose operators are judged in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..declare.decomposition import Emitter
from ..declare.operator import Operator
from ..dtypes import DType
from ..graph.builder import error_context
from ..graph.ir import Constraint, Graph, Op, TensorSpec, Value, specs_of
from ..ops import find
from ..status import InvalidArgument, NotImplementedOnDevice
from .rewriter import Rewriter, State
from .target import Specs, Target


class _Conversion:
    def __init__(self, state: State, target: Target) -> None:
        self.rewriter, self.target = Rewriter(state), target
        self.stuck: list[tuple[str, str, str]] = []  # (layer, operator, why)

    def convert(self, op: Op) -> None:
        inputs = self.rewriter.values(op.declared)
        why = self.target.why_not(op.operator, specs_of(inputs), [v.spec for v in op.outputs], op.attrs)
        if why is None or op.operator.decompose is None:
            if why is not None:
                self.stuck.append((op.name, op.kind, why))
            self.rewriter.copy(op)
            return
        before = len(self.rewriter.builder.ops)
        made = self.lower(op.operator, inputs, op.attrs, [v.spec for v in op.outputs], op.name, ())
        for part in self.rewriter.builder.ops[before:]:
            part.origin = op.origin or op.kind
        for old, new in zip(op.outputs, self.as_wanted(op, made), strict=True):
            self.rewriter.put(old, new)
        self.keep_constraints(op, self.rewriter.builder.ops[before:], why)

    def keep_constraints(self, op: Op, parts: Sequence[Op], why: str) -> None:
        """Give the constraints on an operator's inputs to the first of its parts that reads each.

        InvalidArgument for an alias, which is none of one part.
        """
        for constraint in op.constraints:
            if constraint.kind == "alias":
                given = f"{constraint}: it is made of {len(parts)} operators, as {why}"
                raise InvalidArgument(f"{op!r}", given, allowed="memory that keeps it: leave the constraint away")
            value = self.rewriter.values(op.inputs)[constraint.operand]
            reader = next((part for part in parts if value in part.inputs), None)
            if reader is not None:
                at = list(reader.inputs).index(value)
                reader.constraints = (*reader.constraints, Constraint(constraint.kind, at, constraint.amount))

    def as_wanted(self, op: Op, made: Sequence[Value]) -> list[Value]:
        """Return the values that replace the outputs, in the outputs' layouts and with memory of their own."""
        fitted: list[Value] = []
        for old, new in zip(op.outputs, made, strict=True):
            if (new.spec.dtype, new.spec.shape) != (old.spec.dtype, old.spec.shape):
                raise InvalidArgument(
                    f"{op!r}", f"its decomposition makes {new!r}", allowed=f"{old!r}", hint="mend the declaration"
                )
            result = old in self.rewriter.old.outputs and (new.producer is None or new in fitted)
            if new.spec != old.spec or result:
                (new,) = self.rewriter.builder.emit("rearrange", [new], name=op.name, outputs=[old.spec])
            fitted.append(new)
        return fitted

    def lower(
        self,
        operator: Operator,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any],
        outputs: Sequence[TensorSpec],
        name: str,
        within: tuple[str, ...],
    ) -> Sequence[Value]:
        """Emit the decomposition of an operator that may not stay, and return the values that replace its outputs."""
        if operator.name in within:
            path = " → ".join((*within, operator.name))
            raise InvalidArgument(
                operator.name, f"it decomposes into itself: {path}", allowed="operators of a lower level"
            )

        def emit(
            kind: str, given: Sequence[Value | None], more: Mapping[str, Any], dtypes: Mapping[str, DType] | None
        ) -> Sequence[Value]:
            inner = find(kind)
            full = inner.attrs.check(kind, more)
            specs = inner.infer(specs_of(given), full, dtypes)
            why = self.target.why_not(inner, specs_of(given), specs, full)
            if why is not None and inner.decompose is not None:
                return self.lower(inner, given, full, specs, name, (*within, operator.name))
            if why is not None:
                self.stuck.append((name, kind, why))
            return self.rewriter.builder.emit(kind, given, full, name=name, outputs=specs)

        assert operator.decompose is not None
        with error_context(name):
            made = operator.decompose(Emitter(emit), list(inputs), attrs, list(outputs))
        return made if isinstance(made, tuple) else (made,)


def find_illegal(graph: Graph, target: Target) -> Iterator[tuple[Op, str]]:
    """Yield each operator that may not stay, and why."""
    for op in graph.ops:
        why = target.why_not_op(op)
        if why is not None:
            yield op, why


def convert(state: State, target: Target, *, partial: bool = False) -> State:
    """Return the state with each operator that may not stay decomposed.

    Raises NotImplementedOnDevice with a list, by layer, of every operator that can neither stay nor be decomposed, and
    why. With `partial`, those are left as they are.
    """
    if next(find_illegal(state.graph, target), None) is None:
        return state
    conversion = _Conversion(state, target)
    for op in state.graph.ops:
        conversion.convert(op)
    if conversion.stuck and not partial:
        lines = dict.fromkeys(f"{kind} of {layer or 'no layer'}: {why}" for layer, kind, why in conversion.stuck)
        raise NotImplementedOnDevice(
            state.graph.name,
            f"{len(lines)} operators can neither stay nor be decomposed: {'; '.join(lines)}",
            hint="choose another device, or give the operator a decomposition",
        )
    return conversion.rewriter.finish()


def single(operator: Operator, inputs: Specs, outputs: Sequence[TensorSpec], attrs: Mapping[str, Any]) -> Graph:
    """Return a graph of one operator, with inputs named x0, x1, …"""
    from ..graph.builder import Builder

    builder = Builder(operator.name)
    given = [None if d is None else builder.value(d, f"x{i}", "input") for i, d in enumerate(inputs)]
    builder.output(*builder.emit(operator.name, given, attrs, outputs=outputs, name=operator.name))
    return builder.graph
