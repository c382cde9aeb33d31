"""fold_casts: let a `generic` read the operand of a cast before it, and write the result of a cast after it.

A value between a cast and a loop nest is then never in memory. The result is the same bit for bit: an input is folded
if the loop nest converts it to the compute type as the cast did, or if the cast loses nothing, and a result if it is
the body's value: of the compute type, or a truth. The compute type stays, and the target has to have a kernel for the
inputs' dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..dtypes import BOOL, COMPUTED, DType
from ..expr.tree import parse
from ..graph.ir import Op, TensorSpec, Value
from ..ops import find
from ..ops.generic import find_widest, goes
from ..ops.loop_maps import loops_of, parse_maps
from ..rewriting.rewriter import Rewriter, State, only_user

SMALL = 1 << 16  # terms of a loop nest up to which another call costs more than converting an element several times


def run(state: State) -> State:
    """Return the graph with casts folded; casts whose results are not read are left to `dead_code`."""
    if not {"cast", "generic"} <= {op.kind for op in state.graph.ops}:
        return state
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        nest = _find_written(state, op)
        if nest is not None:
            _emit(rewriter, nest, _find_sources(state, nest, op.outputs[0]), op.outputs[0])
        elif op.kind == "generic" and not op.constraints and not _is_folded(state, op):
            _emit(rewriter, op, _find_sources(state, op, op.outputs[0]), op.outputs[0])
        else:
            rewriter.copy(op)
    return rewriter.finish()


def _emit(rewriter: Rewriter, nest: Op, given: Sequence[Value | None], y: Value) -> None:
    made = rewriter.builder.emit(
        "generic", rewriter.values(given), nest.attrs, name=nest.name, outputs=[y.spec], hints=nest.hints
    )
    rewriter.put(y, made[0])


def _is_folded(state: State, nest: Op) -> bool:
    """Return whether the one reader of a loop nest is a cast that is folded into it."""
    user = only_user(nest.outputs[0], "cast", state.graph)
    return user is not None and _find_written(state, user) is nest


def _find_written(state: State, cast: Op) -> Op | None:
    """Return the loop nest whose result a cast converts, if it can write the cast's result instead."""
    x = cast.inputs[0] if cast.kind == "cast" and not cast.constraints else None
    nest = None if x is None else x.producer
    if x is None or nest is None or nest.kind != "generic" or nest.constraints or nest.inputs[0] is not None:
        return None
    y, ins = cast.outputs[0].spec, _specs(nest.inputs[1:])
    if only_user(x, "cast", state.graph) is not cast or y.dtype not in COMPUTED:
        return None
    compute = find_widest(ins, x.spec).compute
    widest = find_widest(ins, y)
    if (
        not _has_number(nest, x.spec.dtype, compute)
        or widest.compute is not compute
        or not goes({"T": widest, "U": y.dtype})
    ):
        return None
    return nest if _is_legal(state, nest, nest.inputs, y) else None


def _has_number(nest: Op, dtype: DType, compute: DType) -> bool:
    """Return whether a loop nest's result is the value of its body: a truth is, if the body is one."""
    return dtype is compute or (dtype is BOOL and parse(nest.attrs["body"]).kind in ("compare", "and", "or", "not"))


def _find_sources(state: State, nest: Op, y: Value) -> Sequence[Value | None]:
    """Return a loop nest's inputs, with the operands of casts in place of their results if that is possible."""
    init, *ins = nest.inputs
    letters, out = parse_maps("generic", nest.attrs["maps"], len(ins))
    loops, sizes = loops_of((letters, out)), _sizes(letters, ins)
    terms = math.prod(sizes.values())
    compute = find_widest(_specs(ins), y.spec).compute
    found: list[Value | None] = []
    for value, own in zip(ins, letters, strict=True):
        assert value is not None
        # Elements that are read again are converted again: cheap if lines repeat them, or if all is small
        once = set(own) == set(loops) or value.spec.numel == 1
        cheap = nest.attrs["combine"] == "none" and (terms <= SMALL or out[-1:] not in own)
        found.append(_find_source(state, value, compute) if once or cheap or not _has_cast(state, value) else value)
    given = [init, *found]
    if found == ins or find_widest(_specs(found), y.spec).compute is not compute:
        return nest.inputs
    return given if _is_legal(state, nest, given, y.spec) else nest.inputs


def _has_cast(state: State, value: Value) -> bool:
    """Return whether the target has a kernel for the cast that makes a value."""
    op = value.producer
    if op is None or op.kind != "cast" or state.target is None:
        return True
    return state.target.why_not(op.operator, _specs(op.inputs), [value.spec], op.attrs) is None


def _find_source(state: State, value: Value, compute: DType) -> Value:
    """Return what the cast that makes a value reads, or the value itself."""
    cast = value.producer
    x = None if cast is None or cast.kind != "cast" or cast.constraints else cast.inputs[0]
    if x is None or not _keeps(x.spec.dtype, value.spec.dtype, compute):
        return value
    # A cast that others read stays, and then a wider source is more to read
    alone = len(value.users) == 1 and value not in state.graph.outputs
    return x if alone or x.spec.dtype.itemsize <= value.spec.dtype.itemsize else value


def _keeps(source: DType, target: DType, compute: DType) -> bool:
    """Return whether a conversion by way of `target` is that from `source` to the compute type."""
    if target is compute:
        return True
    if target.kind == "f":  # those of more than a byte have the eight bits of a byte
        return source.kind in "iub" and source.itemsize == 1 < target.itemsize
    wider = target.kind in "iu" and target.itemsize > source.itemsize
    return wider and source.kind in "iub" and (source.kind != "i" or target.kind == "i")


def _specs(values: Sequence[Value | None]) -> list[TensorSpec]:
    return [v.spec for v in values if v is not None]


def _sizes(letters: Sequence[str], ins: Sequence[Value | None]) -> dict[str, int]:
    return {
        c: d
        for own, v in zip(letters, ins, strict=True)
        if v is not None
        for c, d in zip(own, v.spec.shape, strict=True)
    }


def _is_legal(state: State, nest: Op, given: Sequence[Value | None], y: TensorSpec) -> bool:
    if state.target is None:
        return True
    return (
        state.target.why_not(find("generic"), [None if v is None else v.spec for v in given], [y], nest.attrs) is None
    )
