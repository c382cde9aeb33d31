"""Draws of nodes that make tensors, of spectra and of attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from draws import FLOATS, KINDS, Draw, Drawn, Recipe, i64
from onnx import numpy_helper

# Generators


def constant(d: Draw) -> Drawn:
    names = [n for n in d.schema.attributes if n not in ("sparse_value", "value_string", "value_strings")]
    name = d.pick(sorted(names))
    kinds = [KINDS[t] for c in d.schema.type_constraints for t in c.allowed_type_strs if t in KINDS]
    value: Any = {"value_int": d.int(-5, 5), "value_float": d.float(-2, 2), "value_ints": d.ints(3, -5, 5)}.get(name)
    if name == "value":
        value = numpy_helper.from_array(d.array(d.shape(0), d.pick(sorted(set(kinds), key=str))))
    elif name == "value_floats":
        value = [d.float(-2, 2) for _ in range(d.int(1, 4))]
    return Drawn([], {name: value})


def constant_of_shape(d: Draw) -> Drawn:
    kinds = [KINDS[t] for t in d.schema.type_constraints[1].allowed_type_strs if t in KINDS]
    value = numpy_helper.from_array(d.array((1,), d.pick(sorted(kinds, key=str))))
    return Drawn([i64(*d.ints(d.int(0, 3), 0, 3))], {"value": d.maybe(value)}, known=(0,))


def range_(d: Draw) -> Drawn:
    kind = d.kind(0, only=(np.float32, np.float64, np.int16, np.int32, np.int64))
    start, limit, delta = d.int(-5, 5), d.int(-9, 9), d.pick([1, 2, -1, -3])
    return Drawn([np.asarray(v, kind) for v in (start, limit, delta)], known=(0, 1, 2))


def shape_(d: Draw) -> Drawn:
    named = {"start": d.maybe(d.int(-4, 4), 0.4), "end": d.maybe(d.int(-4, 4), 0.4)}
    return Drawn([d.tensor(0, d.shape(0))], named)


def eye_like(d: Draw) -> Drawn:
    named = {"k": d.maybe(d.int(-3, 3)), "dtype": d.maybe(d.pick([1, 6, 7, 11]))}
    return Drawn([d.tensor(0, d.shape(2, 2))], named)


def window(d: Draw) -> Drawn:
    named = {"periodic": d.maybe(d.int(0, 1)), "output_datatype": d.maybe(d.pick([1, 11]))}
    length = d.int(2 if named["periodic"] == 0 else 1, 12)  # of one element the definition divides 0 by 0
    return Drawn([np.asarray(length, d.kind(0))], named, known=(0,), loose=4)


def mel(d: Draw) -> Drawn:
    given = [np.int64(d.int(4, 12)), np.int64(64), np.int64(8000), np.float32(d.int(0, 100)), np.float32(3500)]
    return Drawn(given, {}, known=range(5), loose=8)


def random(d: Draw) -> Drawn:
    name = d.schema.name
    named: dict[str, Any] = {
        "shape": list(d.shape()),
        "seed": d.maybe(d.float(0, 9)),
        "dtype": d.maybe(d.pick([1, 11])),
    }
    if name.endswith("Like"):
        return Drawn([d.tensor(0, d.shape(), only=FLOATS)], named, random=True)
    if name == "Bernoulli":
        return Drawn([d.tensor(0, d.shape(), 0, 1)], named, random=True)
    if name == "Multinomial":
        return Drawn([d.tensor(0, (2, 4))], {"sample_size": d.int(1, 5), "dtype": d.maybe(d.pick([6, 7]))}, random=True)
    return Drawn([], named, random=True)


# Spectra, attention


def dft(d: Draw) -> Drawn:
    shape = (d.int(1, 2), d.int(2, 6), d.int(2, 6), d.pick([1, 2]))
    onesided = int(shape[-1] == 1 and d.chance(0.4))
    named: dict[str, Any] = {"onesided": onesided, "inverse": 0 if onesided else d.maybe(d.int(0, 1))}
    axis = d.int(1, 2)
    named["axis"] = axis if "axis" in d.schema.attributes else np.asarray(axis, np.int64)
    if d.chance(0.3):
        named["dft_length"] = np.asarray(d.int(2, 8), np.int64)
    return Drawn([d.tensor(0, shape, only=(np.float32, np.float64))], named, loose=16)


def stft(d: Draw) -> Drawn:
    length = d.int(4, 6)
    signal = d.tensor(0, (d.int(1, 2), d.int(10, 16), 1), only=(np.float32, np.float64))
    given = [
        signal,
        np.asarray(d.int(1, 4), d.kind(1)),
        d.maybe(d.array((length,), d.kind(0))),
        np.asarray(length, d.kind(1)),
    ]
    return Drawn(given, {"onesided": d.maybe(d.int(0, 1))}, known=(1, 3), loose=16)


def attention(d: Draw) -> Drawn:
    batch, heads, q, k, width = d.int(1, 2), d.int(1, 2), d.int(1, 4), d.int(1, 4), d.int(1, 4)
    groups = d.int(1, 2)
    kind = d.kind(0, only=(np.float32, np.float64))
    given = [d.array((batch, n, t, width), kind, -1, 1) for n, t in ((heads * groups, q), (heads, k), (heads, k))]
    mask = d.maybe(d.array((q, k), np.float32 if kind is np.float32 else kind, -1, 1), 0.4)
    named = {
        "scale": d.maybe(d.float(0.2, 1)),
        "softcap": d.maybe(d.float(1, 3), 0.3),
        "is_causal": d.maybe(d.int(0, 1)),
    }
    return Drawn([*given, mask], named, loose=8)


def rotary(d: Draw) -> Drawn:
    batch, steps, heads, width = d.int(1, 2), d.int(1, 4), d.int(1, 3), 2 * d.int(1, 3)
    kind = d.kind(0)
    places = d.rng.integers(0, 6, (batch, steps)).astype(np.int64)
    x = d.array((batch, heads, steps, width), kind)
    return Drawn(
        [x, *(d.array((6, width // 2), kind, -1, 1) for _ in range(2)), places],
        {"interleaved": d.maybe(d.int(0, 1))},
        loose=4,
    )


def swiglu(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    return Drawn([d.tensor(0, shape), d.tensor(1, shape)], {"alpha": d.maybe(d.float(0.5, 2))}, loose=4)


def linear_attention(d: Draw) -> Drawn:
    batch, steps, heads, width = d.int(1, 2), d.int(1, 4), d.int(1, 2), d.int(1, 3)
    kind = d.kind(0)
    given = [d.array((batch, steps, heads * width), kind, -1, 1) for _ in range(3)]
    named = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": "linear", "scale": d.maybe(d.float(0.2, 1))}
    return Drawn(given, named, loose=8)


def causal_conv(d: Draw) -> Drawn:
    batch, channels, steps, k = d.int(1, 2), d.int(1, 3), d.int(1, 4), d.int(2, 3)
    kind = d.kind(0)
    x, w = d.array((batch, channels, steps), kind), d.array((channels, 1, k), kind)
    given = [x, w, d.maybe(d.array((channels,), kind)), d.maybe(d.array((batch, channels, k - 1), kind))]
    return Drawn(given, {"activation": d.maybe(d.pick(["none", "silu", "swish"]))}, 2, loose=4)


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), window),
    **dict.fromkeys(
        ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"], random
    ),
    "Attention": attention,
    "CausalConvWithState": causal_conv,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "DFT": dft,
    "EyeLike": eye_like,
    "LinearAttention": linear_attention,
    "MelWeightMatrix": mel,
    "Range": range_,
    "RotaryEmbedding": rotary,
    "STFT": stft,
    "Shape": shape_,
    "SwiGLU": swiglu,
}
