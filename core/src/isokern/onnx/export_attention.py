"""Attention and rotary positions as small nodes, which every version of ONNX that exporters use has."""

from __future__ import annotations

import numpy as np

from ..graph.ir import Op, Value
from ..ops.rope import frequencies
from .export_nodes import NodeWriter, refuse

LOW = -1e30  # in the place of scores that a query does not see


def attention(w: NodeWriter, op: Op) -> str:
    """Return softmax(scale · q kᵀ + mask) v; ours are [b, length, heads, d], and heads may share those of k and v."""
    q, k, v, mask, lengths, seen, sinks, alibi = [*op.inputs, *[None] * 5][:8]
    attrs, y = op.attrs, op.outputs[0]
    assert q is not None and k is not None and v is not None
    if any(x is not None for x in (lengths, sinks, alibi)) or attrs["window"] or attrs["softcap"]:
        raise refuse(op, "lengths, sinks, slopes, windows and soft caps")
    if any(x.spec.dtype is not y.spec.dtype for x in (q, k, v)):
        raise refuse(op, "keys of another type than the queries")
    shared = q.spec.shape[2] // max(1, k.spec.shape[2])
    left = w.add("Transpose", w.name(q), perm=[0, 2, 1, 3])
    right = w.add("Transpose", _repeat(w, k, shared), perm=[0, 2, 3, 1])
    scale = attrs["scale"] or max(q.spec.shape[3], 1) ** -0.5
    scores = w.add("Mul", w.add("MatMul", left, right), w.number(scale, y))
    if mask is not None:
        scores = w.add("Add", scores, w.name(mask))
    if seen is not None:
        scores = w.add("Where", w.name(seen), scores, w.number(LOW, y))
    if attrs["causal"]:
        m, s = q.spec.shape[1], k.spec.shape[1]
        if m > s:
            raise refuse(op, f"causal attention of {m} queries to {s} keys")
        visible = np.tri(m, s, s - m, bool)
        scores = w.add("Where", w.constant(visible), scores, w.number(LOW, y))
    values = w.add("Transpose", _repeat(w, v, shared), perm=[0, 2, 1, 3])
    mixed = w.add("MatMul", w.add("Softmax", scores, axis=-1), values)
    return w.add("Transpose", mixed, perm=[0, 2, 1, 3])


def _repeat(w: NodeWriter, x: Value, shared: int) -> str:
    """Return keys or values with each head as often as heads of queries share it."""
    if shared == 1:
        return w.name(x)
    b, s, g, d = x.spec.shape
    wide = w.add("Expand", w.reshape(w.name(x), (b, s, g, 1, d)), w.integers((b, s, g, shared, d)))
    return w.reshape(wide, (b, s, g * shared, d))


def rope(w: NodeWriter, op: Op) -> str:
    """Turn pairs of elements by the angles of their positions, which are constants."""
    x, positions, freqs = [*op.inputs, None, None][:3]
    attrs = op.attrs
    assert x is not None
    *lead, s, h, d = x.spec.shape
    dims = attrs["dims"] or d
    if positions is not None or freqs is not None:
        raise refuse(op, "positions or frequencies that a run gives")
    angles = np.outer(attrs["start_pos"] + np.arange(s), frequencies(dims, attrs["theta"]).astype(np.float64))
    cos, sin = (w.constant(attrs["magnitude"] * np.expand_dims(f(angles), 1), x.spec.dtype) for f in (np.cos, np.sin))
    name, last = w.name(x), [-1]

    def cut(of: str, begin: int, end: int, step: int = 1) -> str:
        return w.add("Slice", of, *(w.integers([n]) for n in (begin, end, -1, step)))

    turned = cut(name, 0, dims) if dims < d else name
    if attrs["pairing"] == "half":
        a, b = cut(turned, 0, dims // 2), cut(turned, dims // 2, dims)
    else:
        a, b = cut(turned, 0, dims, 2), cut(turned, 1, dims, 2)
    one = w.add("Sub", w.add("Mul", a, cos), w.add("Mul", b, sin))
    other = w.add("Add", w.add("Mul", b, cos), w.add("Mul", a, sin))
    if attrs["pairing"] == "half":
        made = w.add("Concat", one, other, axis=-1)
    else:
        parts = [w.add("Unsqueeze", part, w.integers(last)) for part in (one, other)]
        made = w.reshape(w.add("Concat", *parts, axis=-1), (*lead, s, h, dims))
    return w.add("Concat", made, cut(name, dims, d), axis=-1) if dims < d else made
