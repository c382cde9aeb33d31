"""choose_layouts: bring transposes together so that they cancel, and replace the others by views where possible.

A transpose is moved after an elementwise operator (of one value, or of several that are transposed alike) if it then
moves no more bytes; two transposes in a row become one, or none.

A remaining transpose becomes a view, which copies nothing, if all readers accept one. Those are matrix products,
which pack their operands anyway (a transposed matrix is what trans_a and trans_b express), attention, which reads rows
of heads, and an operator that moves the elements itself, so that they move once. Otherwise the operator that makes the
transpose's operand may write it in that order: a product or an elementwise operator, if the last dim stays the last.
The target is asked whether each of these operators has a kernel for the layout.

A slice, or an operator that gives a view another shape, also becomes a view, if its readers read runs of it or move its
elements themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..graph.ir import Op, TensorSpec, Value, specs_of
from ..layout import contiguous_strides
from ..ops.rearrange import slice_desc, slices
from ..rewriting.rewriter import Rewriter, State, is_plain

RESHAPES = ("collapse_shape", "expand_shape", "flatten")  # flat views of a view, if its strides allow one


def run(state: State) -> State:
    """Return the graph with fewer transposes, and with layouts by which others are views."""
    return _lay_out(_cancel(state))


# Merging transposes


class _Turned(NamedTuple):
    """A value that is another one transposed: its dim i is dim axes[i] of `base`, a value of the new graph."""

    base: Value
    axes: tuple[int, ...]
    name: str


def _cancel(state: State) -> State:
    if not any(op.kind == "transpose" for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    turned: dict[Value, _Turned] = {}  # transposes that are not emitted yet
    for op in state.graph.ops:
        made = _compose(op, rewriter, turned) or _sink(op, rewriter, turned)
        if made is not None:
            turned[op.outputs[0]] = made
            continue
        for value in list(turned) if op.updated else op.given:  # an update must come after all reads of the value
            _emit(value, rewriter, turned)
        rewriter.copy(op)
    for value in state.graph.outputs:
        _emit(value, rewriter, turned)
    return rewriter.finish()


def _emit(value: Value, rewriter: Rewriter, turned: dict[Value, _Turned]) -> None:
    """Emit the pending transpose of a value, if it has one."""
    made = turned.pop(value, None)
    if made is None:
        return
    same = made.base.spec == value.spec  # otherwise readers may have constraints that only a copy satisfies
    copies = value in rewriter.old.outputs and made.base.producer is None  # a result cannot be an input
    if made.axes != tuple(range(len(made.axes))) or not same or copies:
        (new,) = rewriter.builder.emit("transpose", [made.base], {"axes": made.axes}, name=made.name)
    else:
        new = made.base
    rewriter.put(value, new)


def _compose(op: Op, rewriter: Rewriter, turned: dict[Value, _Turned]) -> _Turned | None:
    """Return a transpose merged with the pending transpose of its operand, if there is one."""
    x = op.inputs[0] if op.inputs else None
    if op.kind != "transpose" or x is None or op.constraints or not is_plain(op.outputs[0].spec):
        return None
    axes = _axes(op)
    if x in turned:
        before = turned[x]
        return _Turned(before.base, tuple(before.axes[a] for a in axes), op.name)
    return _Turned(rewriter.value(x), axes, op.name)


def _sink(op: Op, rewriter: Rewriter, turned: dict[Value, _Turned]) -> _Turned | None:
    """Emit an elementwise operator of values transposed alike on the values before their transposes.

    Return its output as a transpose of the emitted result.
    """
    if op.operator.scalar_expr is None or op.kind == "bias_add" or op.constraints or not is_plain(op.outputs[0].spec):
        return None
    y, wide = op.outputs[0], [v for v in dict.fromkeys(op.given) if v.spec.numel != 1]
    alike = {turned[v].axes if v in turned and v.spec.shape == y.spec.shape else None for v in wide}
    free = all(len(v.users) == 1 and v not in rewriter.old.outputs for v in wide)
    if len(alike) != 1 or None in alike or not free or y.spec.nbytes > sum(v.spec.nbytes for v in wide):
        return None
    if all(turned[v].base.spec.permute(turned[v].axes).is_contiguous for v in wide):
        return None  # here they can be views, and the transpose of the result perhaps cannot
    inputs = [turned[v].base if v in turned and v in wide else v for v in op.inputs]
    axes = turned[wide[0]].axes
    given = []
    for old, new in zip(op.inputs, inputs, strict=True):
        if old is not None and new is old:
            _emit(old, rewriter, turned)
            new = rewriter.value(old)
        given.append(new)
    (made,) = rewriter.builder.emit(op.kind, given, op.attrs, name=op.name)
    for v in wide:
        del turned[v]
    return _Turned(made, axes, op.name)


def _axes(op: Op) -> tuple[int, ...]:
    """Return the order of a transpose's dims, none of them negative."""
    rank = op.outputs[0].spec.ndim
    return tuple(a % rank for a in op.attrs["axes"]) or tuple(range(rank))[::-1]


# Layouts


def _lay_out(state: State) -> State:
    chosen: dict[Value, TensorSpec] = {}  # values of the old graph whose layout is another one now
    for op in state.graph.ops:
        for value in op.outputs:
            spec = _as_view(state, op, chosen) or _as_read(state, op, chosen)
            if spec is not None:
                chosen[value] = spec
    if not chosen:
        return state
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        specs = [chosen.get(v, v.spec) for v in op.outputs]
        made = rewriter.builder.emit(
            op.kind,
            rewriter.values(op.inputs),
            op.attrs,
            name=op.name,
            outputs=specs,
            constraints=op.constraints,
            hints=op.hints,
        )
        for old, new in zip(op.outputs, made, strict=True):
            rewriter.put(old, new)
    return rewriter.finish()


def _as_view(state: State, op: Op, chosen: dict[Value, TensorSpec]) -> TensorSpec | None:
    """Return the layout of an operator's result as a view of its operand, if all its readers accept that."""
    x, y = op.inputs[0] if op.inputs else None, op.outputs[0]
    if not _moves(op) or x is None or op.constraints or y in state.graph.outputs:
        return None
    if x in state.graph.outputs or not is_plain(y.spec):  # a result has memory of its own
        return None
    movers = sum(_moves(user) for user in y.users)
    if op.kind == "transpose" and movers > 1:  # each would move what the transpose moves once
        return None
    spec = _view(op, chosen.get(x, x.spec))
    if spec is None or spec == y.spec or spec.overlaps_itself or not all(_takes(user, y, spec) for user in y.users):
        return None
    return spec if all(_legal(state, user, {**chosen, y: spec}) for user in y.users) else None


def _view(op: Op, x: TensorSpec) -> TensorSpec | None:
    """Return the view of x that an operator moves out of it; None if there is none."""
    if op.kind == "transpose":
        return x.permute(_axes(op))
    if op.kind == "slice":
        return slice_desc(x, slices(x.shape, op.attrs))
    if op.kind in RESHAPES and not is_plain(x):
        return x.reshape(op.outputs[0].spec.shape)
    return None


def _moves(op: Op) -> bool:
    """Return whether an operator only moves elements, between any two layouts."""
    return op.operator.stem == "rearrange"


def _takes(op: Op, value: Value, spec: TensorSpec) -> bool:
    """Return whether an operator reads another layout of an operand as fast as a dense one."""
    if op.constraints or value not in op.declared or value in [old for old, _ in op.updated]:
        return False
    if _moves(op):
        return True
    if op.operator.stem == "gemm":
        return spec.ndim > 1 and 1 in spec.strides[-2:]
    if op.operator.stem == "attention":  # which reads each row of a head by itself
        return spec.ndim == 4 and spec.strides[-1] == 1
    descends = all(a * d <= b for a, d, b in zip(spec.strides[1:], spec.shape[1:], spec.strides, strict=False))
    return descends and spec.ndim > 0 and (spec.strides[-1] == 1 or (op.kind == "generic" and spec.strides[-1] > 0))


def _as_read(state: State, op: Op, chosen: dict[Value, TensorSpec]) -> TensorSpec | None:
    """Return the layout of a result that makes the transpose after it a view."""
    y = op.outputs[0]
    user = y.users[0] if len(y.users) == 1 and y not in state.graph.outputs else None
    if user is None or user.kind != "transpose" or user.constraints or op.constraints or not is_plain(y.spec):
        return None
    moves = _moves(op)
    if not (moves or op.operator.scalar_expr is not None or op.operator.stem == "gemm") or len(op.outputs) != 1:
        return None
    turned, axes = user.outputs[0], _axes(user)
    if turned in state.graph.outputs or not is_plain(turned.spec) or not (moves or axes[-1] == len(axes) - 1):
        return None
    readers = turned.users
    if all(_takes(u, turned, y.spec.permute(axes)) and not (moves and _moves(u)) for u in readers):
        return None  # it is a view either way, and its readers move no more than they would
    strides = [0] * len(axes)
    for axis, step in zip(axes, contiguous_strides(turned.spec.shape), strict=True):
        strides[axis] = step
    spec = TensorSpec(y.spec.dtype, y.spec.shape, strides)
    with_it = {**chosen, y: spec}
    return spec if _legal(state, op, with_it) and _legal(state, user, with_it) else None


def _legal(state: State, op: Op, chosen: dict[Value, TensorSpec]) -> bool:
    """Return whether the target has the operator in these layouts."""
    if state.target is None:
        return True

    def specs(values: Sequence[Value | None]) -> list[TensorSpec | None]:
        return [None if v is None else chosen.get(v, s) for v, s in zip(values, specs_of(values), strict=True)]

    return state.target.why_not(op.operator, specs(op.declared), specs(op.outputs), op.attrs) is None
