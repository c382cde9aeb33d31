"""fuse_epilogue: a linear layer of a matrix and the activation after it become one gemm with that activation."""

from __future__ import annotations

from ...graph.ir import Op
from ..rewrite import Rewriter, State, only_user


def run(state: State) -> State:
    """The graph with one operator for two where the layer's result is read by the activation alone."""
    rewriter = Rewriter(state)
    done: set[Op] = set()
    for op in state.graph.ops:
        if op in done:
            continue
        y = op.outputs[0]
        if op.kind == "linear" and y.spec.ndim == 2 and not op.constraints:
            kinds = [a for a in _activations(op) if only_user(y, a, state.graph) is not None]
            if kinds:
                after = y.users[0]
                (z,) = rewriter.builder.emit(
                    "gemm",
                    rewriter.values(op.inputs),
                    {"trans_b": True, "activation": kinds[0]},
                    name=after.name or op.name,
                    outputs=[v.spec for v in after.outputs],
                )
                rewriter.put(after.outputs[0], z)
                done.add(after)
                continue
        rewriter.copy(op)
    return rewriter.finish()


def _activations(op: Op) -> list[str]:
    """The operators that gemm can do at its end."""
    from ...ops import find

    choices = next(a.choices for a in find("gemm").attrs.attrs if a.name == "activation")
    return [c for c in choices if c != "none"]
