"""fuse_elementwise: elementwise operators that only feed one another become one `generic`, which reads and writes memory once.

Each value between them must have the shape of the last one's result and no other reader. Integers narrower than 64 bits stay apart, since each operator wraps
its result; floats between them are kept in the compute type, which rounds less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...abi import program
from ...dtypes import I64, U64, DType
from ...expr import Expr, parse, substitute, to_text
from ...graph.ir import Graph, Op, Value, specs_of
from ...ops import find
from ...ops.decomposition import Emitter, constant
from ..rewrite import Rewriter, State


def run(state: State) -> State:
    """The graph with one operator for each group of two or more, where the state's target has `generic` for it."""
    groups = _groups(state)
    inner = {op for members in groups.values() for op in members}
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op in groups:
            _emit(rewriter, op, groups[op])
        elif op not in inner:
            rewriter.copy(op)
    return rewriter.finish()


def _groups(state: State) -> dict[Op, set[Op]]:
    """The last operator of each group, and all of its operators."""
    taken: set[Op] = set()
    found: dict[Op, set[Op]] = {}
    for op in reversed(state.graph.ops):
        if op in taken or not _fits(op):
            continue
        members = _grown(state.graph, op)
        if len(members) > 1 and _legal(state, op, members):
            found[op] = members
            taken |= members
    return found


def _fits(op: Op) -> bool:
    """Whether an operator can be part of a group: a row whose operands have one dtype that does not wrap."""
    row = op.operator.row
    if row is None or op.constraints or op.kind == "bias_add":
        return False
    dtypes = {v.spec.dtype for v in op.given if v.spec.dtype.kind != "b"}
    return len(dtypes) == 1 and _whole(next(iter(dtypes)))


def _whole(dtype: DType) -> bool:
    return dtype.kind == "f" or dtype in (I64, U64)


def _grown(graph: Graph, last: Op) -> set[Op]:
    """The group that ends in an operator: producers taken in while a body can hold them."""
    members = _with_conditions(graph, last, last, {last})
    if members is None:
        return {last}
    changed = True
    while changed:
        changed = False
        for value in _outside(last, members):
            wider = _joined(graph, last, value, members)
            if wider is not None and _holds(last, wider):
                members, changed = wider, True
                break
    return members


def _joined(graph: Graph, last: Op, value: Value, members: set[Op]) -> set[Op] | None:
    """The group with the producer of a value that it reads, if that may join."""
    op = value.producer
    if op is None or value in graph.outputs or value.spec.shape != last.outputs[0].spec.shape or not _fits(op):
        return None
    if _element(op) is not _element(last) or not all(user in members for user in value.users):
        return None
    return _with_conditions(graph, last, op, {*members, op})


def _with_conditions(graph: Graph, last: Op, op: Op, members: set[Op]) -> set[Op] | None:
    """The group with whatever makes an operator's conditions: a body's inputs are numbers."""
    for value in op.given:
        if value.spec.dtype.kind == "b" and value.producer not in members:
            wider = _joined(graph, last, value, members)
            if wider is None:
                return None
            members = wider
    return members


def _element(op: Op) -> DType:
    """The dtype that an operator's numbers have."""
    return next(v.spec.dtype for v in op.given if v.spec.dtype.kind != "b")


def _outside(last: Op, members: set[Op]) -> list[Value]:
    """What a group reads, in the order in which its body does."""
    found: dict[Value, None] = {}

    def walk(op: Op) -> None:
        for value in op.given:
            if value.producer in members:
                assert value.producer is not None
                walk(value.producer)
            else:
                found.setdefault(value)

    walk(last)
    return list(found)


def _body(last: Op, members: set[Op]) -> Expr:
    """One expression for the whole group, of x0, x1, … in the order of `_outside`."""
    names = {v: Expr("name", f"x{i}") for i, v in enumerate(_outside(last, members))}

    def tree(value: Value) -> Expr:
        return expression(value.producer) if value.producer in members and value.producer is not None else names[value]

    def expression(op: Op) -> Expr:
        row = op.operator.row
        assert row is not None
        operands = [o.name for o in op.operator.signature.inputs]
        values = {n: tree(v) for n, v in zip(operands, op.inputs, strict=True) if v is not None}
        values |= {n: parse(constant(v)) for n, v in op.attrs.items() if isinstance(v, float)}
        return substitute(row, values)

    return expression(last)


def _holds(last: Op, members: set[Op]) -> bool:
    """Whether a body of that many inputs, words and values at a time is allowed."""
    if len(_outside(last, members)) > program.INPUTS:
        return False
    try:
        program.words(_body(last, members))
    except ValueError:
        return False
    return True


def _legal(state: State, last: Op, members: set[Op]) -> bool:
    if state.target is None:
        return True
    operator, outside = find("generic"), _outside(last, members)
    y = last.outputs[0].spec
    letters = "abcdefgh"[: y.ndim]
    same = [v.spec.broadcast_to(y.shape) for v in outside]
    maps = f"{','.join([letters] * len(same))}->{letters}"
    attrs = operator.attrs.check("generic", {"maps": maps, "body": to_text(_body(last, members))})
    return state.target.why_not(operator, [None, *same], [y], attrs) is None


def _emit(rewriter: Rewriter, last: Op, members: set[Op]) -> None:
    outside = [rewriter.value(v) for v in _outside(last, members)]
    builder = rewriter.builder

    def emit(
        kind: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], dtypes: Mapping[str, DType] | None
    ) -> Sequence[Value]:
        operator = find(kind)
        specs = operator.infer(specs_of(inputs), attrs, dtypes)
        return builder.emit(kind, inputs, attrs, name=last.name, outputs=specs)

    y = last.outputs[0]
    made = Emitter(emit).pointwise(to_text(_body(last, members)), *outside, dtype=y.spec.dtype)
    rewriter.put(y, made)
