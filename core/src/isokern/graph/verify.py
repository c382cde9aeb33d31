"""The verifier: the invariants of every graph, built by layers or by passes.

Each pass runs between two verifications.
"""

from __future__ import annotations

from ..status import InvalidArgument, IsokernError
from .ir import COMPUTED, CONSTRAINTS, INPUT, PARAMETER, Constraint, Graph, Op, Value

MOST_ALIGNED = 256  # bytes: the base of every value's memory is aligned to this


def verify(graph: Graph) -> Graph:
    """Return the graph itself, or raise InvalidArgument that names the operator and the value at fault."""
    names: set[str] = set()
    for vid, value in graph.values.items():
        if value.vid != vid:
            raise _wrong(graph, None, f"%{vid} is {value!r}", "each value under its own number")
        if value.role not in (INPUT, PARAMETER, COMPUTED):
            raise _wrong(graph, None, f"{value!r} has role {value.role!r}", f"{INPUT}, {PARAMETER}, {COMPUTED}")
        if (value.role == COMPUTED) != (value.producer is not None):
            raise _wrong(
                graph, None, f"{value!r}, {value.role}, has producer {value.producer!r}", "computed values have one"
            )
        if value.role != COMPUTED:
            if not value.name or value.name in names:
                raise _wrong(graph, None, f"{value!r} has no name of its own", "one for each input and parameter")
            names.add(value.name)
    made = {v for v in graph.values.values() if v.role != COMPUTED}
    readers: dict[Value, list[Op]] = {}
    for op in graph.ops:
        _operands(graph, op, made)
        _check_declaration(graph, op)
        for value in dict.fromkeys(op.given):
            readers.setdefault(value, []).append(op)
        made.update(op.outputs)
    for value in graph.values.values():
        if value not in made:
            raise _wrong(graph, value.producer, f"{value!r} is made by no operator of the graph", "no dangling value")
        if value.users != readers.get(value, []):
            raise _wrong(
                graph,
                value.producer,
                f"{value!r} counts as users {value.users}",
                f"its readers, {readers.get(value, [])}",
            )
    for value in graph.outputs:
        if value not in made:
            raise _wrong(graph, None, f"output {value!r} is not a value of the graph", "values of the graph")
    return graph


def _wrong(graph: Graph, op: Op | None, given: str, allowed: str) -> InvalidArgument:
    return InvalidArgument(graph.name if op is None else f"{graph.name}: {op!r}", given, allowed=allowed)


def _operands(graph: Graph, op: Op, made: set[Value]) -> None:
    for value in op.given:
        if graph.values.get(value.vid) is not value:
            raise _wrong(graph, op, f"it reads {value!r}, which is not in the graph", "values of the graph")
        if value not in made:
            raise _wrong(graph, op, f"it reads {value!r} before it is made", "operators in the order of their values")
    for value in op.outputs:
        if graph.values.get(value.vid) is not value or value.producer is not op:
            raise _wrong(
                graph, op, f"it makes {value!r}, made by {value.producer!r}", "values of the graph, each made once"
            )
        if value in made:
            raise _wrong(graph, op, f"it makes {value!r} again", "values made once")


def _check_declaration(graph: Graph, op: Op) -> None:
    """Check the operator's tensors, attributes and constraints against its declaration."""
    try:
        resolved = op.resolve()
    except IsokernError as error:
        values = ", ".join(repr(v) for v in (*op.outputs, *op.given))
        raise type(error)(
            f"{graph.name}: {op!r}",
            f"{error.where}: {error.problem} ({values})",
            allowed=error.allowed,
            hint=error.hint,
        ) from None
    if resolved.attrs is not op.attrs and repr(dict(resolved.attrs)) != repr(dict(op.attrs)):
        raise _wrong(graph, op, f"attributes {dict(op.attrs)}", f"all of them, as {dict(resolved.attrs)}")
    if len(op.updated) != len(op.operator.inout) or any(old.spec != new.spec for old, new in op.updated):
        allowed = f"{len(op.operator.signature.inputs)} inputs, and what each of {', '.join(op.operator.inout)} held"
        raise _wrong(graph, op, f"inputs {list(op.inputs)}", allowed)
    for constraint in op.constraints:
        reason = constraint_violation(op, constraint)
        if reason:
            raise _wrong(graph, op, f"{constraint}: {reason}", "constraints that hold")


def constraint_violation(op: Op, constraint: Constraint) -> str:
    """Return why a constraint does not hold, empty if it does."""
    if constraint.kind not in CONSTRAINTS:
        return f"unknown constraint; there are {', '.join(CONSTRAINTS)}"
    if not 0 <= constraint.operand < len(op.inputs) or op.inputs[constraint.operand] is None:
        return "the operator does not have this input"
    value = op.inputs[constraint.operand]
    assert value is not None
    if constraint.kind == "contiguous":
        return "" if value.spec.is_contiguous else f"{value!r} is not dense"
    if constraint.kind == "aligned":
        amount = constraint.amount
        if amount < 1 or amount & (amount - 1) or amount > MOST_ALIGNED:
            return f"a power of two up to {MOST_ALIGNED} is allowed"
        start = value.spec.dtype.nbytes(value.spec.offset)
        return f"{value!r} begins at byte {start}" if start % amount else ""
    if value in [old for old, _ in op.updated]:
        return ""
    if op.operator.operand_names(len(op.declared))[constraint.operand] not in op.operator.aliases:
        return f"the output of {op.kind} may be in the memory of {', '.join(op.operator.aliases) or 'no input'}"
    return "" if value.spec == op.outputs[0].spec else f"{value!r} and {op.outputs[0]!r} differ"
