"""fuse_elementwise: merge elementwise operators that only feed one another into one `generic`.

The merged operator reads and writes memory once. Each value between the operators must have the shape of the last one's
result and no other reader. Their operands have one dtype, as `generic` requires, and may repeat along any loops, as a
bias does. The last operator may be a cast to another float dtype that `generic` can write. Integers narrower than 64
bits are not fused, since each operator wraps its result; floats between the operators are kept in the compute type,
which rounds less.

If the target has no kernels for quantize_linear and dequantize_linear, a group may begin with the latter and end with
the former, so that floats between quantized tensors are never in memory; each alone is a group as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..declare.decomposition import LETTERS, Emitter
from ..declare.elementwise import attributes
from ..dtypes import F32, FLOATS, I8, I16, I64, U8, U16, U64, DType
from ..expr import stack_code
from ..expr.tree import Expr, parse, substitute, to_text
from ..graph.ir import Op, Value, specs_of
from ..layout import TensorDesc
from ..ops import find
from ..rewriting.rewriter import Rewriter, State

Operand = tuple[Value, str]  # a value, and the loop that each of its dims goes along

QUANTISED = (U8, I8, U16, I16)
SCALES = {  # with a zero point and without
    "dequantize_linear": ("(x - zero_point) * scale", "x * scale"),
    "quantize_linear": ("rint(x / scale) + zero_point", "rint(x / scale)"),
}


def run(state: State) -> State:
    """Return the graph with one operator for each group of two or more whose `generic` the state's target has."""
    groups = _groups(state)
    if not groups:
        return state
    inner = {op for members in groups.values() for op in members}
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op in groups:
            _emit(rewriter, op, groups[op])
        elif op not in inner:
            rewriter.copy(op)
    return rewriter.finish()


def _groups(state: State) -> dict[Op, set[Op]]:
    """Return each group, under its last operator."""
    taken: set[Op] = set()
    found: dict[Op, set[Op]] = {}
    results = frozenset(state.graph.outputs)
    for op in reversed(state.graph.ops):
        if op in taken or not _ends(op):
            continue
        members = _grow(results, op)
        alone = len(members) == 1 and op.kind not in SCALES
        if not alone and _lacks_scales(state, members) and _legal(state, op, members):
            found[op] = members
            taken |= members
    return found


def _fits(op: Op) -> bool:
    """Return whether an operator can be part of a group: elementwise, with operands of one dtype that does not wrap."""
    if op.kind == "dequantize_linear":
        return _is_scaled(op, op.inputs[0], op.outputs[0])
    if op.operator.scalar_expr is None or op.constraints:
        return False
    dtypes = {v.spec.dtype for v in op.given if v.spec.dtype.kind != "b"}
    return len(dtypes) == 1 and _whole(next(iter(dtypes)))


def _ends(op: Op) -> bool:
    """Return whether a group can end in an operator: one that fits, or a cast that a loop nest does as it writes."""
    if op.kind == "quantize_linear":
        return _is_scaled(op, op.outputs[0], op.inputs[0])
    if op.kind != "cast" or op.constraints:
        return _fits(op)
    x, y = op.inputs[0], op.outputs[0].spec.dtype
    if x is None or not {x.spec.dtype, y} <= set(FLOATS):
        return False
    return x.spec.dtype is y or (x.spec.dtype.compute is y.compute and F32 in (x.spec.dtype, y))


def _is_scaled(op: Op, integers: Value | None, floats: Value | None) -> bool:
    """Return whether a body can quantize, or dequantize: integers and F32 by scales of no dims, or along an axis."""
    if op.constraints or op.attrs["block_size"] or integers is None or floats is None:
        return False
    scale = op.inputs[1]
    assert scale is not None
    along = scale.spec.ndim == 0 or scale.spec.shape[0] == integers.spec.shape[op.attrs["axis"]]
    return along and integers.spec.dtype in QUANTISED and floats.spec.dtype is scale.spec.dtype is F32


def _lacks_scales(state: State, members: set[Op]) -> bool:
    """Return whether the target has no kernels for the quantizing and dequantizing in a group."""
    scaled = [op for op in members if op.kind in SCALES]
    if state.target is None:
        return not scaled
    return all(state.target.why_not_op(op) is not None for op in scaled)


def _whole(dtype: DType) -> bool:
    return dtype in FLOATS or dtype in (I64, U64)


def _grow(results: Collection[Value], last: Op) -> set[Op]:
    """Return the group that ends in an operator, with producers added while a body can hold them."""
    members = _with_conditions(results, last, last, {last})
    if members is None:
        return {last}
    changed = True
    while changed:
        changed = False
        for value in dict.fromkeys(v for v, _ in _outside(last, members)):
            wider = _join(results, last, value, members)
            if wider is not None and _holds(last, wider):
                members, changed = wider, True
                break
    return members


def _join(results: Collection[Value], last: Op, value: Value, members: set[Op]) -> set[Op] | None:
    """Return the group with the producer of a value that it reads, if that may join."""
    op = value.producer
    if op is None or value in results or value.spec.shape != last.outputs[0].spec.shape or not _fits(op):
        return None
    if _element(op) is not _element(last) or not all(user in members for user in value.users):
        return None
    return _with_conditions(results, last, op, {*members, op})


def _with_conditions(results: Collection[Value], last: Op, op: Op, members: set[Op]) -> set[Op] | None:
    """Return the group with the producers of an operator's conditions, None if one may not join.

    They must join, since a body's inputs are numbers.
    """
    for value in op.given:
        if value.spec.dtype.kind == "b" and value.producer not in members:
            wider = _join(results, last, value, members)
            if wider is None:
                return None
            members = wider
    return members


def _element(op: Op) -> DType:
    """Return the dtype of an operator's numbers."""
    if op.kind in SCALES:
        return F32
    return next(v.spec.dtype for v in op.given if v.spec.dtype.kind != "b")


def _operands(op: Op) -> list[tuple[str, Operand]]:
    """Return the operands by name, with the loops of the result that they go along.

    These are the last loops, except for the bias of bias_add.
    """
    loops = LETTERS[: op.outputs[0].spec.ndim]
    found = []
    for operand, value in zip(op.operator.signature.inputs, op.inputs, strict=False):
        if value is None:
            continue
        along = loops[len(loops) - value.spec.ndim :]
        if op.kind in SCALES and operand.name != "x":
            along = loops[op.attrs["axis"]] if value.spec.ndim else ""
        if op.kind == "bias_add" and operand.name == "bias":
            along = loops[op.attrs["axis"]]
        found.append((operand.name, (value, along)))
    return found


def _outside(last: Op, members: set[Op]) -> list[Operand]:
    """Return the operands that a group reads, in the order in which its body does."""
    found: dict[Operand, None] = {}
    seen: set[Op] = set()

    def walk(op: Op) -> None:
        seen.add(op)
        for _, operand in _operands(op):
            producer = operand[0].producer
            if producer is None or producer not in members:
                found.setdefault(operand)
            elif producer not in seen:
                walk(producer)

    walk(last)
    return list(found)


def _body(last: Op, members: set[Op]) -> Expr:
    """Return one expression for the whole group, of x0, x1, … in the order of `_outside`.

    The expression of an operator with several readers is one shared object.
    """
    names = {operand: Expr("name", f"x{i}") for i, operand in enumerate(_outside(last, members))}
    made: dict[Op, Expr] = {}

    def tree(operand: Operand) -> Expr:
        producer = operand[0].producer
        if producer is None or producer not in members:
            return names[operand]
        if producer not in made:
            made[producer] = expression(producer)
        return made[producer]

    def expression(op: Op) -> Expr:
        values = {name: tree(operand) for name, operand in _operands(op)}
        if op.kind in SCALES:
            return substitute(parse(SCALES[op.kind]["zero_point" not in values]), values)
        row = op.operator.scalar_expr
        if row is None:  # a cast: the loop nest writes another dtype
            return values["x"]
        values |= attributes(op.attrs, _element(op))
        return substitute(row, values)

    return expression(last)


def _holds(last: Op, members: set[Op]) -> bool:
    """Return whether a body's inputs, words and values at a time stay within the limits of stack code."""
    if len(_outside(last, members)) > stack_code.INPUTS:
        return False
    try:
        stack_code.words(_body(last, members))
    except ValueError:
        return False
    return True


def _legal(state: State, last: Op, members: set[Op]) -> bool:
    if state.target is None:
        return True
    operator, y = find("generic"), last.outputs[0].spec
    loops = LETTERS[: y.ndim]
    wide = [_repeat(v.spec, along, y.shape) for v, along in _outside(last, members)]
    maps = f"{','.join([loops] * len(wide))}->{loops}"
    attrs = operator.attrs.check("generic", {"maps": maps, "body": to_text(_body(last, members))})
    return state.target.why_not(operator, [None, *wide], [y], attrs) is None


def _repeat(spec: TensorDesc, along: str, shape: Sequence[int]) -> TensorDesc:
    """Return the layout of an operand repeated over all loops."""
    steps = {c: s for c, s, d in zip(along, spec.strides, spec.shape, strict=True) if d != 1}
    return TensorDesc(spec.dtype, shape, [steps.get(c, 0) for c in LETTERS[: len(shape)]], spec.offset)


def _emit(rewriter: Rewriter, last: Op, members: set[Op]) -> None:
    pairs = [(rewriter.value(v), along) for v, along in _outside(last, members)]
    builder, y = rewriter.builder, last.outputs[0]

    def emit(
        kind: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], dtypes: Mapping[str, DType] | None
    ) -> Sequence[Value]:
        (spec,) = (y.spec,) if kind == "generic" else find(kind).infer(specs_of(inputs), attrs, dtypes)
        if kind == "collapse_shape" and (x := inputs[0]):
            spec = x.spec.reshape(spec.shape) or spec  # a view of it, whatever its layout, so that nothing is copied
        return builder.emit(kind, inputs, attrs, name=last.name, outputs=[spec])

    body = to_text(_body(last, members))
    rewriter.put(y, Emitter(emit).over(y.spec.shape, body, pairs, dtype=y.spec.dtype))
