"""fold_batch_norm: fold what scales and shifts the channels of a convolution or a product into its weights and bias.

That is a batch_norm, and products, sums, differences and quotients with known numbers, one for all channels or one for
each, as exporters write a norm out. For each channel y becomes factor · y + shift, so the weights of the channel are
multiplied by the factor, and the bias becomes factor · bias + shift. For a batch_norm, factor = w / sqrt(var + eps) and
shift = its bias - factor · mean. Both are computed in float64 and rounded to the parameters' dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.ir import Op, Value
from ..rewriting.rewriter import Array, Rewriter, State

FILTERS = ("conv1d", "conv2d", "conv3d")  # whose weights are [channels, …]
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # [inputs, channels / groups, …]
PRODUCTS = ("linear", "matmul", "gemm")  # whose channels are the last dim
Line = tuple[Array, Array]  # factor and shift, [channels] or of no dims


def run(state: State) -> State:
    """Return the graph with such operators merged into the one before them.

    All parameters must be known, and nothing else may read the values between the operators.
    """
    layers = {op for op in state.graph.ops if op.kind in (*FILTERS, *TRANSPOSED, *PRODUCTS)}
    if not layers:
        return state
    rewriter = Rewriter(state)
    done: set[Op] = set()
    for op in state.graph.ops:
        if op in done:
            continue
        chain = _find_chain(state, rewriter, op) if op in layers else []
        while chain and not _fold(rewriter, op, chain):
            chain = chain[:-1]
        if chain:
            done |= {after for after, _ in chain}
        else:
            rewriter.copy(op)
    return rewriter.finish()


def _find_chain(state: State, rewriter: Rewriter, op: Op) -> list[tuple[Op, Line]]:
    """Return the operators after one that scale and shift its channels."""
    if not _is_plain_layer(op):
        return []
    chain: list[tuple[Op, Line]] = []
    value = op.outputs[0]
    while len(value.users) == 1 and value not in state.graph.outputs:
        (after,) = value.users
        line = None if after.constraints else _line(rewriter, after, value, _axis(op))
        if line is None:
            break
        chain.append((after, line))
        value = after.outputs[0]
    return [] if all(after.kind in ("add", "bias_add") for after, _ in chain) else chain  # those are an epilogue's


def _is_plain_layer(op: Op) -> bool:
    """Return whether a result is that of the weights and the bias alone, and has channels."""
    if op.attrs.get("activation", "none") != "none" or op.outputs[0].spec.ndim < 2:
        return False
    if op.kind in ("conv2d", "gemm") and any(v is not None for v in op.inputs[3:]):
        return False  # a residual
    return op.kind not in PRODUCTS or (op.inputs[1] is not None and op.inputs[1].spec.ndim == 2)


def _axis(op: Op) -> int:
    """Return the axis of the channels."""
    return op.outputs[0].spec.ndim - 1 if op.kind in PRODUCTS else 1


def _line(rewriter: Rewriter, op: Op, x: Value, axis: int) -> Line | None:
    """Return the factor and the shift by which an operator changes each channel of x, None for another operator."""
    y = op.outputs[0].spec
    if y != x.spec:
        return None
    one, zero = np.ones(()), np.zeros(())
    if op.kind == "batch_norm":
        return _norm_line(rewriter, op) if axis == 1 and op.inputs[0] is x else None
    if op.kind in ("scale", "add_scalar", "div_scalar", "rsub_scalar"):
        number = np.asarray(float(op.attrs["value"]))
        with np.errstate(all="ignore"):
            lines = {
                "scale": (number, zero),
                "add_scalar": (one, number),
                "div_scalar": (1 / number, zero),
                "rsub_scalar": (-one, number),
            }
        return lines[op.kind]
    if op.kind not in ("mul", "add", "sub", "div", "bias_add") or op.inputs[0] is op.inputs[1]:
        return None
    left = op.inputs[0] is x
    other = op.inputs[1] if left else op.inputs[0]
    if op.kind == "bias_add":
        known = rewriter.array(other) if left and op.attrs["axis"] % y.ndim == axis else None
    else:
        known = _each_channel(rewriter.array(other), y.ndim, axis, y.shape[axis])
    if known is None or (op.kind == "div" and not left):
        return None
    with np.errstate(all="ignore"):
        return {
            "mul": (known, zero),
            "div": (1 / known, zero),
            "add": (one, known),
            "bias_add": (one, known),
            "sub": (one, -known) if left else (-one, known),
        }[op.kind]


def _each_channel(known: Array | None, rank: int, axis: int, channels: int) -> Array | None:
    """Return numbers as [channels] or of no dims, None if they differ along another axis."""
    if known is None or known.size == 1:
        return None if known is None or known.ndim > rank else known.reshape(())
    shape = (1,) * (rank - known.ndim) + known.shape
    if len(shape) != rank or known.size != channels or shape[axis] != channels:
        return None
    return known.reshape(channels)


def _norm_line(rewriter: Rewriter, norm: Op) -> Line | None:
    parts = [rewriter.array(v) for v in norm.inputs[1:]]
    if any(v is not None and part is None for v, part in zip(norm.inputs[1:], parts, strict=True)):
        return None
    mean, var, scale, shift = [*parts, None, None][:4]
    assert mean is not None and var is not None
    with np.errstate(all="ignore"):
        factor = (np.ones(mean.shape) if scale is None else scale) / np.sqrt(var + norm.attrs["eps"])
        return factor, (0 if shift is None else shift) - factor * mean


def _fold(rewriter: Rewriter, op: Op, chain: list[tuple[Op, Line]]) -> bool:
    """Emit the layer with the chain folded in, and return whether that was possible."""
    x, w, bias = [*op.inputs, None][:3]
    assert x is not None and w is not None
    weight, before, last = rewriter.array(w), rewriter.array(bias), chain[-1][0]
    if weight is None or (bias is not None and before is None):
        return False
    channels = op.outputs[0].spec.shape[_axis(op)]
    factor, shift = np.ones(channels), np.zeros(channels)
    with np.errstate(all="ignore"):
        for _, (times, plus) in chain:
            factor, shift = factor * times, shift * times + plus
        kept: Any = w.spec.dtype.numpy
        added = ((0 if before is None else before) * factor + shift).astype(kept)
        folded = (weight * _spread(op, weight, factor)).astype(kept)
    if not (np.isfinite(folded).all() and np.isfinite(added).all()):
        return False  # separate layers show better which of them has a NaN or infinity
    inputs = [rewriter.value(x), rewriter.parameter(w.spec.dtype, f"{op.name}.weight folded", folded)]
    kind, attrs = op.kind, op.attrs
    if bias is not None or shift.any():
        inputs.append(rewriter.parameter(w.spec.dtype, f"{op.name}.bias folded", added))
        if kind == "matmul":
            kind, attrs = "gemm", {}
    specs = [v.spec for v in last.outputs]
    (y,) = rewriter.builder.emit(
        kind, inputs, attrs, name=op.name, outputs=specs, constraints=op.constraints, hints=op.hints
    )
    rewriter.put(last.outputs[0], y)
    return True


def _spread(op: Op, weight: Array, factor: Array) -> Array:
    """Return one factor for each channel with the dims of the weights."""
    if (
        op.kind in TRANSPOSED
    ):  # [groups · inputs, channels, …], the channels of each group after those of the one before
        groups = op.attrs["groups"]
        rows = np.repeat(factor.reshape(groups, -1), weight.shape[0] // groups, 0) if groups else factor.reshape(1, -1)
        return rows.reshape(weight.shape[0], weight.shape[1], *[1] * (weight.ndim - 2))
    first = op.kind in FILTERS or op.kind == "linear" or op.attrs.get("trans_b", False)
    return factor.reshape(-1, *[1] * (weight.ndim - 1)) if first else factor
