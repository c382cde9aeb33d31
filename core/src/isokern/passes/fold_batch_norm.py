"""fold_batch_norm: fold batch_norm into the weights and bias of the convolution or linear layer before it.

For each channel let s = w / sqrt(var + eps). The layer's weights are multiplied by s; its bias becomes s (bias - mean)
+ the norm's bias. Both are computed in float64 and rounded to the parameters' dtype.
"""

from __future__ import annotations

import numpy as np

from ..graph.ir import Op, Value
from ..rewriting.rewriter import Rewriter, State, only_user


def run(state: State) -> State:
    """Return the graph with such pairs merged.

    All parameters of both operators must be known, and nothing else may read the value between them.
    """
    rewriter = Rewriter(state)
    done: dict[Op, Value] = {}
    for op in state.graph.ops:
        if op in done:
            continue
        norm = only_user(op.outputs[0], "batch_norm", state.graph) if op.kind in ("conv2d", "linear") else None
        if norm is None or norm.inputs[0] is not op.outputs[0] or not _fold(rewriter, op, norm):
            rewriter.copy(op)
        else:
            done[norm] = norm.outputs[0]
    return rewriter.finish()


def _fold(rewriter: Rewriter, op: Op, norm: Op) -> bool:
    """Emit the layer with the norm folded in, and return whether that was possible."""
    if op.outputs[0].spec.ndim < 2 or (op.kind == "linear" and op.outputs[0].spec.ndim != 2):
        return False  # channels of the norm are dim 1, those of linear its last
    if op.kind == "conv2d" and (op.attrs["activation"] != "none" or any(v is not None for v in op.inputs[3:])):
        return False  # the norm is of more than the convolution itself
    x, w, bias = [*op.inputs, None][:3]
    parts = [rewriter.array(v) for v in (w, *norm.inputs[1:])]
    given = [v for v in (bias, *norm.inputs[1:]) if v is not None]
    if w is None or x is None or parts[0] is None or any(rewriter.array(v) is None for v in given):
        return False
    weight = parts[0]
    c = weight.shape[0]
    mean, var, scale, shift = [*parts[1:], None, None][:4]
    assert mean is not None and var is not None
    before, kept = rewriter.array(bias), w.spec.dtype.numpy
    with np.errstate(all="ignore"):
        factor = (np.ones(c) if scale is None else scale) / np.sqrt(var + norm.attrs["eps"])
        added = (factor * ((0 if before is None else before) - mean) + (0 if shift is None else shift)).astype(kept)
        folded = (weight * factor.reshape(c, *[1] * (weight.ndim - 1))).astype(kept)
    if not (np.isfinite(folded).all() and np.isfinite(added).all()):
        return False  # separate layers show better where a NaN or infinity comes from
    inputs = [
        rewriter.value(x),
        rewriter.parameter(w, f"{op.name}.weight folded", folded),
        rewriter.parameter(w, f"{op.name}.bias folded", added),
    ]
    specs = [v.spec for v in norm.outputs]
    (y,) = rewriter.builder.emit(
        op.kind, inputs, op.attrs, name=op.name, outputs=specs, constraints=op.constraints, hints=op.hints
    )
    rewriter.put(norm.outputs[0], y)
    return True
