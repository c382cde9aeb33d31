"""fuse_add_rms_norm: merge rms_norm of a sum with the add.

add_rms_norm gives both the norm and the sum in one pass over memory.
"""

from __future__ import annotations

from ..graph.ir import Op
from ..rewriting.rewriter import Rewriter, State


def run(state: State) -> State:
    """Return the graph with one operator for each add of equal shapes and an rms_norm that reads its sum.

    Other operators may read the sum too.
    """
    if not any(_norm_of(op) is not None for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    done: set[Op] = set()
    for op in state.graph.ops:
        if op in done:
            continue
        norm = _norm_of(op)
        if norm is None:
            rewriter.copy(op)
            continue
        a, b = rewriter.values(op.inputs)
        w = rewriter.values(norm.inputs[1:])
        specs = [norm.outputs[0].spec, op.outputs[0].spec]
        y, total = rewriter.builder.emit(
            "add_rms_norm", [a, b, *w], norm.attrs, name=norm.name or op.name, outputs=specs
        )
        rewriter.put(op.outputs[0], total)
        rewriter.put(norm.outputs[0], y)
        done.add(norm)
    return rewriter.finish()


def _norm_of(op: Op) -> Op | None:
    """Return the rms_norm that reads an add's sum, if it can be merged with the add.

    The merged operator takes the add's place, so the norm's weight must be there by then: a parameter or an input.
    """
    if op.kind != "add" or op.constraints:
        return None
    y = op.outputs[0]
    if any(v is None or v.spec.shape != y.spec.shape or v.spec.dtype is not y.spec.dtype for v in op.inputs):
        return None
    for user in y.users:
        weight = user.inputs[1] if len(user.inputs) > 1 else None
        first = user.kind == "rms_norm" and user.inputs[0] is y and not user.constraints
        if first and (weight is None or weight.producer is None):
            return user
    return None
