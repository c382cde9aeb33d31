"""Draws of nodes that normalise, multiply, quantise, or are recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from draws import ABSENT, FLOATS, Draw, Drawn, Recipe
from draws_windows import draw_window

# Normalisation


def batch_normalization(d: Draw) -> Drawn:
    shape = (d.int(1, 3), d.int(1, 3), *d.ints(d.int(0 if d.version >= 9 else 1, 2), 1, 4))
    c = (shape[1],)
    given = [d.tensor(min(i, 4), c) for i in range(1, 4)] + [d.tensor(4, c, 0.2, 2)]
    named: dict[str, Any] = {"epsilon": d.maybe(d.float(1e-5, 1e-2)), "is_test": 1, "momentum": d.maybe(0.9)}
    if d.version < 6:
        named["consumed_inputs"] = [0, 0, 0, 1, 1]
    training = "training_mode" in d.schema.attributes and shape[0] > 1 and d.chance(0.4)
    if training:
        named["training_mode"] = 1
    return Drawn([d.tensor(0, shape), *given], named, 3 if training else 1, loose=8)


def channel_norm(d: Draw) -> Drawn:
    """InstanceNormalization and GroupNormalization."""
    groups, each = d.int(1, 2), d.int(1, 2)
    c = groups * each if d.schema.name == "GroupNormalization" else d.int(1, 3)
    shape = (d.int(1, 2), c, *d.ints(d.int(1, 2), 2, 4))
    width = (groups,) if d.schema.name == "GroupNormalization" and d.version < 21 else (c,)
    named = {"epsilon": d.maybe(d.float(1e-5, 1e-2)), "num_groups": groups}
    return Drawn([d.tensor(0, shape), d.tensor(1, width), d.tensor(2, width)], named, loose=16)


def layer_norm(d: Draw) -> Drawn:
    shape = d.shape(2, 4)
    axis = d.maybe(d.axis(len(shape)))
    width = shape[-1 if axis is None else axis :]
    bias = d.maybe(d.tensor(2, width)) if d.schema.name == "LayerNormalization" else ABSENT
    count = d.int(1, 3) if d.schema.name == "LayerNormalization" else 1
    named = {"axis": axis, "epsilon": d.maybe(d.float(1e-4, 1e-2))}
    return Drawn([d.tensor(0, shape), d.tensor(1, width), bias], named, count, loose=16)


def lrn(d: Draw) -> Drawn:
    c = d.int(2, 4)
    named = {"size": d.pick([1, 3, 5]), "alpha": d.maybe(d.float(0.01, 0.5)), "beta": d.maybe(d.float(0.5, 1))}
    return Drawn([d.tensor(0, (c, c, 2, 3))], {**named, "bias": d.maybe(d.float(1, 2))}, loose=4)


def mean_variance(d: Draw) -> Drawn:
    return Drawn([d.tensor(0, (3, 2, 4, 3))], {"axes": d.maybe(d.axes(4))}, loose=16)


def loss(d: Draw) -> Drawn:
    n, c, *rest = d.int(1, 4), d.int(2, 4), *d.ints(d.int(0, 2), 1, 3)
    x = d.tensor(0, (n, c, *rest))
    labels = np.asarray(d.rng.integers(0, c, (n, *rest)), d.kind(1))
    named = {"reduction": d.maybe(d.pick(["none", "sum", "mean"])), "ignore_index": d.maybe(d.int(0, c - 1), 0.4)}
    if named["ignore_index"] is not None:
        labels.flat[0] = (named["ignore_index"] + 1) % c
    count = 2 if d.schema.name == "SoftmaxCrossEntropyLoss" and d.chance(0.3) else 1
    return Drawn([x, labels, d.maybe(d.array((c,), d.kind(0), 0.2, 2))], named, count, loose=8)


# Products


def matmul(d: Draw) -> Drawn:
    m, k, n = d.ints(3, 1, 5)
    lead = d.shape(0, 2)
    a, b = (*d.like(lead), m, k), (*lead, k, n)
    if d.version >= 9 or np.dtype(d.kind(0)).kind == "f":
        form = d.int(0, 3)
        a = (k,) if form == 1 else a
        b = (k,) if form == 2 else b
    return Drawn([d.tensor(0, a), d.tensor(1, b)], loose=4)


def gemm(d: Draw) -> Drawn:
    m, k, n = d.ints(3, 1, 5)
    trans = [d.int(0, 1), d.int(0, 1)]
    kind = d.kind(0)
    floats = np.dtype(kind).kind == "f"
    named: dict[str, Any] = {"transA": d.maybe(trans[0]) if not trans[0] else 1, "transB": trans[1] or ABSENT}
    if floats:
        named |= {"alpha": d.maybe(d.float(0.2, 2)), "beta": d.maybe(d.float(0.2, 2))}
    c: Any = d.pick([(m, n), (n,), (1, n), (m, 1), ()])
    if d.version < 7:
        c = d.pick([(m, n), (n,)])
        named["broadcast"] = int(c != (m, n))
    tensor = d.tensor(0, c)
    a, b = d.tensor(0, (k, m) if trans[0] else (m, k)), d.tensor(0, (n, k) if trans[1] else (k, n))
    return Drawn([a, b, tensor if d.version < 11 else d.maybe(tensor)], named, loose=4)


def einsum(d: Draw) -> Drawn:
    sizes = {c: d.int(1, 4) for c in "abcde"}
    equation = d.pick(
        ["ab,bc->ac", "ab->ba", "abc,abd->acd", "aa->a", "ab,ab", "...a,ab->...b", "ab,ac,ad->bcd", "a,b->"]
    )
    terms = equation.split("->")[0].split(",")
    shapes = [tuple(sizes[c] for c in t.replace("...", "de")) for t in terms]
    return Drawn([d.tensor(0, s, -2, 2) for s in shapes], {"equation": equation}, loose=8)


def det(d: Draw) -> Drawn:
    n = d.int(1, 4)
    return Drawn([d.tensor(0, (*d.shape(0, 2), n, n))], loose=16)


# Quantised


def quantize(d: Draw) -> Drawn:
    shape = d.shape(1)
    per_axis = d.version >= 13 and d.chance(0.5)
    axis = d.axis(len(shape))
    width = (shape[axis],) if per_axis else ()
    named = {"axis": axis if per_axis else ABSENT}
    scale = d.array(width, d.kind(1, only=FLOATS), 0.05, 0.5)
    if d.schema.name == "QuantizeLinear":
        x = d.tensor(0, shape, only=FLOATS)
        absent = d.version >= 13 and d.chance(0.3)
        zero = d.tensor(2, width, 0, 3, only=(np.uint8,) if absent else (np.uint8, np.int8))
        zero = ABSENT if absent else zero
        return Drawn([x, scale, zero], named)
    x = d.tensor(0, shape, only=(np.uint8, np.int8))
    return Drawn([x, scale, d.maybe(d.array(width, x.dtype.type))], named)


def dynamic_quantize(d: Draw) -> Drawn:
    return Drawn([d.array(d.shape(1))], outputs=3)


def matmul_integer(d: Draw) -> Drawn:
    m, k, n = d.ints(3, 1, 6)
    a, b = d.tensor(0, (m, k)), d.tensor(1, (k, n))
    zeros = [d.maybe(np.asarray(d.int(0, 5), a.dtype)), d.maybe(np.asarray(d.int(0, 5), b.dtype))]
    return Drawn([a, b, *zeros])


def conv_integer(d: Draw) -> Drawn:
    kernel = d.ints(2, 1, 3)
    named = draw_window(d, kernel)
    x, w = d.tensor(0, (1, 2, 5, 6)), d.tensor(1, (d.int(1, 3), 2, *kernel))
    return Drawn([x, w, d.maybe(np.asarray(d.int(0, 5), x.dtype))], named)


def qlinear_matmul(d: Draw) -> Drawn:
    m, k, n = d.ints(3, 1, 6)
    a, b = d.tensor(0, (m, k), only=(np.uint8, np.int8)), d.tensor(3, (k, n), only=(np.uint8, np.int8))
    scale = np.float32
    y = np.asarray(d.int(0, 9), d.kind(7, only=(np.uint8, np.int8)))
    zeros = np.asarray(d.int(0, 5), a.dtype), np.asarray(d.int(0, 5), b.dtype)
    return Drawn([a, scale(0.1), zeros[0], b, scale(0.05), zeros[1], scale(0.2), y])


def qlinear_conv(d: Draw) -> Drawn:
    kernel = d.ints(2, 1, 3)
    m = d.int(1, 3)
    x, w = d.tensor(0, (1, 2, 5, 6), only=(np.uint8,)), d.tensor(3, (m, 2, *kernel), only=(np.uint8,))
    scale = np.float32
    y = np.asarray(d.int(0, 9), d.kind(7, only=(np.uint8,)))
    zeros = np.asarray(d.int(0, 5), x.dtype), np.asarray(d.int(0, 5), w.dtype)
    bias = d.maybe(np.asarray(d.rng.integers(-50, 50, m), np.int32))
    return Drawn([x, scale(0.1), zeros[0], w, scale(0.05), zeros[1], scale(0.2), y, bias], draw_window(d, kernel))


# Recurrent


def recurrent(d: Draw) -> Drawn:
    name, h, width, steps, batch = d.schema.name, d.int(1, 4), d.int(1, 3), d.int(1, 4), d.int(1, 3)
    gates, ways = {"RNN": 1, "GRU": 3, "LSTM": 4}[name], d.pick([1, 1, 2])
    direction = "bidirectional" if ways == 2 else d.maybe(d.pick(["forward", "reverse"]))
    kind = d.kind(0)
    x, w = d.tensor(0, (steps, batch, width), -1, 1), d.array((ways, gates * h, width), kind, -1, 1)
    r, b = d.array((ways, gates * h, h), kind, -1, 1), d.maybe(d.array((ways, 2 * gates * h), kind, -1, 1))
    named: dict[str, Any] = {"hidden_size": h, "direction": direction}
    if name == "GRU":
        named["linear_before_reset"] = d.maybe(d.int(0, 1))
    lengths = d.maybe(np.asarray(d.ints(batch, 1, steps), np.int32), 0.4)
    first = d.maybe(d.array((ways, batch, h), kind, -1, 1), 0.5)
    more = [d.maybe(d.array((ways, batch, h), kind, -1, 1), 0.4), d.maybe(d.array((ways, 3 * h), kind, -1, 1), 0.4)]
    inputs = [x, w, r, b, lengths, first, *(more if name == "LSTM" else [])]
    return Drawn(inputs, named, 3 if name == "LSTM" else 2, known=(1, 2, 3), loose=8)


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), channel_norm),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), layer_norm),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), loss),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), quantize),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), recurrent),
    "BatchNormalization": batch_normalization,
    "ConvInteger": conv_integer,
    "Det": det,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Einsum": einsum,
    "Gemm": gemm,
    "LRN": lrn,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "MeanVarianceNormalization": mean_variance,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
}
