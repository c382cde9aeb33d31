"""Random numbers of several distributions, made of `random_bits`, so that a graph can feed the seed.

What an element becomes depends on the seed and on its place alone. Numbers in [0, 1) are whole multiples of 2^-24
(2^-53 for F64), the leading bits of one word (of two).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..declare.operator import Decompose
from ..dtypes import BOOL, F32, F64, FLOATS, I32, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .random_bits import SHAPE, shape_given, words

_finfo: Any = ml_dtypes.finfo
BITS = {t: 1 + int(_finfo(t.numpy).nmant) for t in FLOATS}  # of a number in [0, 1) that its dtype holds
SEED = {"seed": (2,)}


def _draw(e: Emitter[V], seed: V, count: int, bits: int) -> V:
    """Emit so many whole numbers below 2^bits in F32, or in F64 above 32 bits."""
    if bits <= 32:
        drawn = e("random_bits", seed, shape=(count,))
        return e.cast(e.loop("a->a", f"quotient(x0, {1 << 32 - bits})", drawn), F32)
    pairs, second = e.cast(e("random_bits", seed, shape=(count, 2)), F64), e.iota(2, F64)
    body = f"x0 * {1 << bits - 32} if x1 == 0 else floor(x0 * {2.0 ** (bits - 64)})"
    return e.loop("ab,b->a", body, pairs, second, combine="sum")


def fractions(seed: Any, count: int, bits: int) -> Any:
    """Return so many numbers in [0, 1) in float64."""
    if bits <= 32:
        return (words(seed, count) >> np.uint64(32 - bits)).astype(np.float64) * 2.0**-bits
    pairs = words(seed, 2 * count).reshape(-1, 2)
    whole = (pairs[:, 0] << np.uint64(bits - 32)) + (pairs[:, 1] >> np.uint64(64 - bits))
    return whole.astype(np.float64) * 2.0**-bits


def _bits_of(dtype: DType) -> int:
    """Return the bits of a number that is computed with, and rounded only later."""
    return BITS[dtype.compute]


def _random(
    name: str,
    kind: str,
    signature: str,
    decompose: Decompose,
    reference: Callable[..., Any],
    samples: Sequence[tuple[Any, ...]],
    errors: Sequence[tuple[Any, ...]],
    *,
    doc: str,
    types: Mapping[str, tuple[DType, ...]],
    fields: Sequence[Attr] = (),
    **more: Any,
) -> Operator:
    """Declare one; samples are a shape, attributes and domains of values, the last of them wide.

    The shape is that of the first input, or of the output where the seed is the only input.
    """
    first = signature.partition(":")[0]

    def make_sample(shape: Any, values: Any = None, domains: Any = None) -> Sample:
        given = SEED if first == "seed" else {first: shape, **SEED}
        return Sample(given, values or {}, domains or {}, {"y": shape} if first == "seed" else {})

    return declare(
        name,
        kind,
        signature,
        types,
        family="sampling",
        doc=doc,
        reference=reference,
        attrs=attrs("R" + kind[:3], *fields) if fields else attrs(""),
        normal_form=as_given,
        decompose=decompose,
        samples=lambda: [*(make_sample(*row) for row in samples[:-1]), replace(make_sample(*samples[-1]), size="wide")],
        errors=[
            *(ErrorCase(make_sample(shape).shapes, error, values) for shape, error, values in errors),
            ErrorCase({**make_sample((3,)).shapes, "seed": (3,)}, BadTensorShape, samples[0][1]),
            ErrorCase(make_sample((3,)).shapes, BadTensorDtype, samples[0][1], {"seed": I64}),
        ],
        **more,
    )


# Of a shape


def _check_interval(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    if not values["low"] < values["high"]:
        raise InvalidArgument("random_uniform", f"low={values['low']}, high={values['high']}", allowed="low below high")


def _ends(low: float, high: float, dtype: DType) -> tuple[float, float]:
    """Return the first number of a dtype that is not below `low`, and the last one below `high`."""
    assert dtype.numpy is not None
    up, down = np.array(np.inf, dtype.numpy), np.array(-np.inf, dtype.numpy)
    with np.errstate(over="ignore"):
        first, last = (np.float64(v).astype(dtype.numpy) for v in (low, high))
    first = np.nextafter(first, up) if float(first) < low else first
    return float(first), float(np.nextafter(last, down) if float(last) >= high else last)


def _uniform(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit low (1 - u) + high u, kept within the interval, whose ends rounding may pass."""
    y, low, high = outputs[0], values["low"], values["high"]
    step = constant(2.0 ** -BITS[y.dtype])
    first, last = (constant(v) for v in _ends(low, high, y.dtype))
    body = f"{constant(low)} * (1 - x0 * {step}) + {constant(high)} * (x0 * {step})"
    drawn = _draw(e, inputs[0], y.numel, BITS[y.dtype])
    return e.reshape(e.loop("a->a", f"minimum(maximum({body}, {first}), {last})", drawn, dtype=y.dtype), y.shape)


def _uniform_reference(seed: Any, low: float, high: float, shape: Any, out: Sequence[TensorDesc]) -> Any:
    u = fractions(seed, out[0].numel, BITS[out[0].dtype])
    first, last = _ends(low, high, out[0].dtype)
    return np.minimum(np.maximum(low * (1 - u) + high * u, first), last).reshape(out[0].shape)


_random(
    "random_uniform",
    "RUNI",
    "seed: U64[2] -> y: T[*d]",
    _uniform,
    _uniform_reference,
    [
        ((7,), {}),
        ((), {"low": -1}),
        ((3, 5), {"low": 0.999, "high": 1.001}),
        ((2, 0), {}),
        ((2, 1, 2, 3, 1, 2, 2, 3), {"low": -3e4, "high": 6e4}),
        ((1025,), {"low": 5, "high": 8.25}),
        ((130, 1025), {"low": -2, "high": 2}),
    ],
    [
        ((3,), InvalidArgument, {"low": 1}),
        ((3,), InvalidArgument, {"high": float("nan")}),
        ((3,), InvalidArgument, {"high": float("inf")}),
        ((3,), InvalidArgument, {"shape": (-1,)}),
    ],
    fields=[
        number("low", 0.0, "the least", minimum=-1e300, maximum=1e300),
        number("high", 1.0, "above the largest", minimum=-1e300, maximum=1e300),
        SHAPE,
    ],
    types={"T": FLOATS},
    check=_check_interval,
    shapes=shape_given,
    tolerance=Tolerance(2, lambda seed, low, high, shape: 2 * max(abs(low), abs(high))),
    doc=(
        "Numbers u (high - low) + low in [low, high), u having 24 random bits in F32, 53 in F64, 11 in F16 and 8 in"
        " BF16 (PyTorch's uniform_, ONNX RandomUniform). Bits are those of `random_bits`; F64 takes two words."
    ),
)


def _normal(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit pairs of numbers by the transform of Box and Muller (1958)."""
    y = outputs[0]
    bits, pairs = _bits_of(y.dtype), (y.numel + 1) // 2
    drawn = e.reshape(_draw(e, inputs[0], 2 * pairs, bits), (pairs, 2))
    radius, angle = (e.reshape(e("slice", drawn, starts=(i,), ends=(i + 1,), axes=(1,)), (pairs,)) for i in range(2))
    turn = f"x1 * {constant(2.0**-bits * 2 * math.pi)}"
    body = f"sqrt(-2 * log((x0 + 1) * {constant(2.0**-bits)})) * (cos({turn}) if x2 == 0 else sin({turn}))"
    body = f"{constant(values['mean'])} + {constant(values['scale'])} * ({body})"
    both = e.loop("a,a,b->ab", body, radius, angle, e.iota(2, y.dtype.compute), dtype=y.dtype)
    flat = e.reshape(both, (2 * pairs,))
    return e.reshape(flat if y.numel % 2 == 0 else e("slice", flat, starts=(0,), ends=(y.numel,)), y.shape)


def _normal_parts(seed: Any, dtype: DType, count: int) -> tuple[Any, Any]:
    bits = _bits_of(dtype)
    u = fractions(seed, count + count % 2, bits).reshape(-1, 2)
    return np.sqrt(-2 * np.log(u[:, 0] + 2.0**-bits)), 2 * np.pi * u[:, 1]


def _normal_reference(seed: Any, mean: float, scale: float, shape: Any, out: Sequence[TensorDesc]) -> Any:
    radius, angle = _normal_parts(seed, out[0].dtype, out[0].numel)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return mean + scale * pairs.reshape(-1)[: out[0].numel].reshape(out[0].shape)


def _normal_scale(seed: Any, mean: float, scale: float, shape: Any) -> Any:
    """Return what rounding the angle changes: 2 pi at most, by an ulp or two, times the largest radius."""
    return 2 * abs(mean) + abs(scale) * 8 * math.sqrt(2 * 53 * math.log(2))


_random(
    "random_normal",
    "RNOR",
    "seed: U64[2] -> y: T[*d]",
    _normal,
    _normal_reference,
    [
        ((7,), {}),
        ((), {"mean": 3}),
        ((3, 5), {"mean": -1, "scale": 0.25}),
        ((2, 0), {}),
        ((2, 1, 2, 3, 1, 2, 2, 3), {"scale": 0}),
        ((1025,), {}),
        ((130, 1025), {"mean": 1}),
    ],
    [
        ((3,), InvalidArgument, {"scale": float("nan")}),
        ((3,), InvalidArgument, {"mean": float("inf")}),
        ((3,), InvalidArgument, {"shape": (-1,)}),
    ],
    fields=[
        number("mean", 0.0, "added to all", minimum=-1e300, maximum=1e300),
        number("scale", 1.0, "the standard deviation", minimum=-1e300, maximum=1e300),
        SHAPE,
    ],
    types={"T": FLOATS},
    shapes=shape_given,
    tolerance=Tolerance(4, _normal_scale),
    doc=(
        "Normally distributed numbers, mean + scale z, by the transform of Box and Muller from pairs of numbers of 24"
        " bits (53 in F64), so |z| is at most 5.77 (8.58) (PyTorch's normal_, ONNX RandomNormal)."
    ),
)


_SPAN = 1 << 31  # its product with a word is a number of 63 bits


def _randint_shapes(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[Any]:
    if not 1 <= values["high"] - values["low"] <= _SPAN:
        given = f"low {values['low']}, high {values['high']}"
        raise InvalidArgument("randint", given, allowed="low < high, up to 2^31 apart")
    return shape_given(inputs, values, outputs)


def _randint(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y, low, high = outputs[0], values["low"], values["high"]
    drawn = e.cast(e("random_bits", inputs[0], shape=(y.numel,)), I64)
    made = e.loop("a->a", f"quotient(x0 * {high - low}, 4294967296) + {low}", drawn)
    return e.reshape(e.cast(made, y.dtype), y.shape)


def _randint_reference(seed: Any, low: int, high: int, shape: Any, out: Sequence[TensorDesc]) -> Any:
    drawn = (words(seed, out[0].numel) * np.uint64(high - low) >> np.uint64(32)).astype(np.int64) + low
    return drawn.astype(out[0].dtype.numpy).reshape(out[0].shape)


_EXTENT = 1 << 53  # what a constant of a loop's body can be

_random(
    "randint",
    "RINT",
    "seed: U64[2] -> y: T[*d]",
    _randint,
    _randint_reference,
    [
        ((7,), {"high": 10}),
        ((), {"low": -3, "high": 4}),
        ((3, 5), {"low": -5, "high": -4}),
        ((2, 0), {"high": 2}),
        ((2, 1, 2, 3, 1, 2, 2, 3), {"low": -(1 << 31), "high": 0}),
        ((1025,), {"low": 1 << 40, "high": (1 << 40) + (1 << 31)}),
        ((130, 1025), {"high": 1000}),
    ],
    [
        ((3,), InvalidArgument, {"high": 0}),
        ((3,), InvalidArgument, {"high": (1 << 31) + 1}),
        ((3,), InvalidArgument, {"high": 1 << 54}),
        ((3,), InvalidArgument, {}),
    ],
    fields=[
        integer("low", 0, "the least", minimum=-_EXTENT, maximum=_EXTENT),
        integer("high", doc="above the largest", minimum=-_EXTENT, maximum=_EXTENT),
        SHAPE,
    ],
    types={"T": (I64, I32)},
    shapes=_randint_shapes,
    exact=True,
    doc=(
        "Integers in [low, high), at most 2^31 apart: low + floor(w (high - low) / 2^32) for a word w, so their"
        " probabilities differ by 2^-32 at most (PyTorch's randint). In I32 they wrap."
    ),
)


# Of a tensor


def _bernoulli(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (p, seed), bits = inputs, _bits_of(inputs[0].spec.dtype)
    drawn = _draw(e, seed, p.spec.numel, bits)
    flat = e.reshape(p, (p.spec.numel,))
    truths = e.loop("a,a->a", f"x0 * {constant(2.0**-bits)} < x1", drawn, flat, dtype=BOOL)
    return e.reshape(e.cast(truths, outputs[0].dtype), outputs[0].shape)


def _bernoulli_reference(p: Any, seed: Any, out: Sequence[TensorDesc]) -> Any:
    u = fractions(seed, p.size, 53 if p.dtype == np.float64 else 24).reshape(p.shape)
    return (u < p.astype(np.float64)).astype(out[0].dtype.numpy)


_UNIT = {"p": "unit"}

_random(
    "bernoulli",
    "BERN",
    "p: T[*s], seed: U64[2] -> y: U[*s]",
    _bernoulli,
    _bernoulli_reference,
    [
        ((7,), {}, _UNIT),
        ((), {}, _UNIT),
        ((3, 5), {}),
        ((2, 0), {}),
        ((2, 1, 2, 3, 1, 2, 2, 3), {}, _UNIT),
        ((1025,), {}, _UNIT),
        ((130, 1025), {}, _UNIT),
    ],
    [],
    types={"T": FLOATS, "U": (BOOL, *FLOATS)},
    exact=True,
    doc=(
        "True (or 1) with the probability p of each element, else false: u < p for a random u in [0, 1) (PyTorch and"
        " ONNX Bernoulli). A p from 1 is always true, one up to 0 or NaN never."
    ),
)


def _dropout(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    (x, seed), p = inputs, values["p"]
    bits, n = _bits_of(x.spec.dtype), x.spec.numel
    drawn, flat = _draw(e, seed, n, bits), e.reshape(x, (n,))
    kept = f"x0 * {constant(2.0**-bits)} >= {constant(p)}"
    y = e.loop("a,a->a", f"x1 * {constant(_factor(p))} if {kept} else 0", drawn, flat, dtype=x.spec.dtype)
    mask = e.loop("a->a", kept, drawn, dtype=BOOL)
    return e.reshape(y, x.spec.shape), e.reshape(mask, x.spec.shape)


def _factor(p: float) -> float:
    return 1 / (1 - p) if p < 1 else 0.0


def _dropout_reference(x: Any, seed: Any, p: float, out: Sequence[TensorDesc]) -> Any:
    element = out[0].dtype
    share = np.float64(np.asarray(p, element.compute.numpy))
    mask = (fractions(seed, x.size, _bits_of(element)) >= share).reshape(x.shape)
    return np.where(mask, x * _factor(p), 0), mask


_random(
    "dropout",
    "DROP",
    "x: T[*s], seed: U64[2] -> y: T[*s], mask: BOOL[*s]",
    _dropout,
    _dropout_reference,
    [
        ((7,), {}),
        ((), {"p": 0.1}),
        ((3, 5), {"p": 0}),
        ((3, 5), {"p": 1}),
        ((2, 0), {}),
        ((2, 1, 2, 3, 1, 2, 2, 3), {"p": 0.3}),
        ((1025,), {"p": 0.9}),
        ((130, 1025), {}),
    ],
    [((3,), InvalidArgument, {"p": 1.5}), ((3,), InvalidArgument, {"p": -0.1})],
    fields=[number("p", 0.5, "the probability of zero", minimum=0, maximum=1)],
    types={"T": FLOATS},
    tolerance=Tolerance(3),
    doc=(
        "x / (1 - p) where `mask` is true, else 0, also where x is not finite; each element of the mask is false with"
        " probability p (Srivastava et al. 2014; ONNX Dropout in training)."
    ),
)

_MOST = 1 << 22  # choices of a row: sums of their weights, of up to 24 bits, times 16 bits fit into 63


def _multinomial_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    p, v = inputs[0], inputs[0][len(inputs[0]) - 1]
    if not 1 <= v <= _MOST:
        raise BadTensorShape("multinomial", f"p is {list(p)}", allowed="a last dim from 1 to 2^22")
    return [(*p[: len(p) - 1], values["num_samples"])]


def _multinomial(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit weights in integers, whose sums do not depend on the order, and count those up to the mark."""
    (p, seed), y = inputs, outputs[0]
    *lead, v = p.spec.shape
    rows = e.reshape(p, (math.prod(lead), v))
    top = e.loop("bk->b", "x0", rows, combine="maximum")
    body = "floor(x0 / x1 * 16777216) if x0 > 0 and x1 < 1e999 else 0"
    weights = e.cast(e.loop("bk,b->bk", body, rows, top, dtype=p.spec.dtype.compute), I64)
    sums = e("cumsum", weights, axis=1)
    drawn = e.cast(e("random_bits", seed, shape=(rows.spec.shape[0], values["num_samples"])), I64)
    half, low = "quotient(x0, 65536)", "(x0 - quotient(x0, 65536) * 65536)"
    mark = f"quotient({half} * x1 + quotient({low} * x1, 65536), 65536)"
    marks = e.loop("bn,b->bn", mark, drawn, e.loop("bk->b", "x0", weights, combine="sum"))
    found = e.loop("bn,bj->bn", "1 if x1 <= x0 else 0", marks, sums, combine="sum")
    return e.reshape(e.loop("bn->bn", f"minimum(x0, {v - 1})", found), y.shape)


def _multinomial_reference(p: Any, seed: Any, num_samples: int) -> Any:
    rows = p.reshape(-1, p.shape[-1])
    rows = rows if rows.dtype == np.float64 else rows.astype(np.float32)
    drawn = words(seed, len(rows) * num_samples).reshape(len(rows), num_samples)
    y = np.zeros(drawn.shape, np.int64)
    for i, row in enumerate(rows):
        top = row.max()
        valid = (row > 0) & (top < np.inf)
        weights = [int(w) for w in np.where(valid, row / top * row.dtype.type(1 << 24), 0)]
        sums = np.cumsum(weights)
        y[i] = [min(len(row) - 1, int(np.searchsorted(sums, int(w) * int(sums[-1]) >> 32, "right"))) for w in drawn[i]]
    return y.reshape(*p.shape[:-1], num_samples)


_random(
    "multinomial",
    "MULN",
    "p: T[*b, v], seed: U64[2] -> y: I64[*b, num_samples]",
    _multinomial,
    _multinomial_reference,
    [
        ((7,), {"num_samples": 5}, {"p": "positive"}),
        ((3, 5), {}, {"p": "positive"}),
        ((2, 3, 33), {"num_samples": 4}),
        ((0, 3), {"num_samples": 2}),
        ((3, 1), {"num_samples": 0}),
        ((2, 1, 2, 1, 2, 1, 2, 3), {"num_samples": 3}, {"p": "positive"}),
        ((65, 301), {"num_samples": 129}, {"p": "positive"}),
    ],
    [
        ((3, 0), BadTensorShape, {}),
        ((), BadTensorShape, {}),
        ((3, 4), InvalidArgument, {"num_samples": -1}),
    ],
    fields=[integer("num_samples", 1, "of draws from each row, with replacement", minimum=0)],
    types={"T": FLOATS},
    shapes=_multinomial_shapes,
    exact=True,
    doc=(
        "Indices drawn with the probabilities p / sum(p) of each row, which need not sum to 1, with replacement"
        " (PyTorch's multinomial; ONNX Multinomial takes logarithms of p). Weights are floor(2^24 p / max(p)); a"
        " negative one is 0. A row without a positive number, or with one that is not finite, gives its last index."
    ),
)
