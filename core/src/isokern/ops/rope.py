"""rope: rotary position embedding (Su et al. 2021), and the frequency tables of its scaled forms.

Normal form: y, x and positions have one shape [*b, s, h, d] (positions with stride 0 along h and d); the dims b are
merged where they step together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import Descs, coalesce
from ..dtypes import F32, FLOATS, I64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

PAIRINGS = ("adjacent", "half")
SCALINGS = ("none", "linear", "ntk", "yarn", "llama3", "longrope")


def frequencies(
    dims: int,
    theta: float = 10000.0,
    scaling: str = "none",
    *,
    factor: float = 1.0,
    original_length: int = 0,
    low: float = 1.0,
    high: float = 4.0,
    slow: float = 1.0,
    fast: float = 32.0,
    factors: Sequence[float] = (),
    rounded: bool = True,
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the angle in radians by which one position turns each pair, float32 [dims / 2]: the `freqs` of `rope`.

    - none: theta^(-2i / dims).
    - linear: that over `factor` (Chen et al. 2023).
    - ntk: as none, with theta · factor^(dims / (dims - 2)).
    - yarn (Peng et al. 2023): linear for pairs that turn less than `slow` times in `original_length` positions, none
      for those that turn more than `fast` times, and between them along a straight ramp over the pair's number; the
      magnitude of `rope` is then `yarn_magnitude(factor)`. The ramp begins and ends at whole pairs if `rounded`.
    - llama3: the same between `low` and `high` turns, along a straight ramp over the turns (Llama 3.1).
    - longrope (Ding et al. 2024): none over a factor for each pair, `factors`, of which a model has some for short and
      some for long sequences; the magnitude is then `longrope_magnitude(factor, original_length)`.

    Raises InvalidArgument for what is out of range.
    """
    if dims < 2 or dims % 2 or not theta > 0 or not factor > 0 or scaling not in SCALINGS:
        given = f"dims={dims}, theta={theta:g}, factor={factor:g}, scaling={scaling!r}"
        allowed = f"even dims, theta and factor above 0, scaling of {', '.join(SCALINGS)}"
        raise InvalidArgument("rope.frequencies", given, allowed=allowed)
    if scaling in ("yarn", "llama3") and original_length < 1:
        raise InvalidArgument("rope.frequencies", f"original_length={original_length} for {scaling}", allowed="from 1")
    if scaling == "yarn" and not (theta > 1 and slow > 0 and fast > 0):
        given = f"theta={theta:g}, slow={slow:g}, fast={fast:g} for yarn"
        raise InvalidArgument("rope.frequencies", given, allowed="theta above 1, slow and fast above 0")
    if scaling == "longrope" and (len(factors) != dims // 2 or not min(factors) > 0):
        given = f"{len(factors)} factors for {dims // 2} pairs"
        raise InvalidArgument("rope.frequencies", given, allowed=f"{dims // 2} factors above 0")
    pairs = np.arange(dims // 2, dtype=np.float64)
    base = theta * factor ** (dims / (dims - 2)) if scaling == "ntk" and dims > 2 else theta
    plain = base ** (-2 * pairs / dims)
    if scaling == "linear":
        plain = plain / factor
    elif scaling == "longrope":
        plain = plain / np.asarray(factors, np.float64)
    elif scaling == "yarn":

        def pair_of(turns: float) -> float:
            return dims * math.log(original_length / (turns * 2 * math.pi)) / (2 * math.log(theta))

        ends = pair_of(fast), pair_of(slow)
        ends = (math.floor(ends[0]), math.ceil(ends[1])) if rounded else ends
        first, last = max(ends[0], 0), min(ends[1], dims - 1)
        share = np.clip((pairs - first) / max(last - first, 0.001), 0, 1)
        plain = plain * (1 - share) + plain / factor * share
    elif scaling == "llama3":
        turns = original_length * plain / (2 * math.pi)
        share = np.clip((turns - low) / (high - low), 0, 1)
        plain = plain * share + plain / factor * (1 - share)
    return plain.astype(np.float32)


def yarn_magnitude(factor: float) -> float:
    """Return the factor of cosine and sine that goes with YaRN's frequencies: 0.1 ln(factor) + 1."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def longrope_magnitude(factor: float, original_length: int) -> float:
    """Return the factor of cosine and sine for sequences that are `factor` times as long as the original_length."""
    return math.sqrt(1 + math.log(factor) / math.log(original_length)) if factor > 1 else 1.0


def rotated_dims(dims: int, d: int) -> int:
    """Return how many of d elements are turned; dims is 0 for all."""
    return dims or d


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, positions, freqs = [*inputs, None, None][:3]
    turned, d = rotated_dims(values["dims"], x[-1]), x[-1]
    if turned % 2 or turned > d:
        raise InvalidArgument("rope", f"{turned} of {d} elements are to be turned", allowed=f"an even number up to {d}")
    if positions is not None and positions not in (x[-3:-2], x[:-2]):
        allowed = f"{list(x[-3:-2])} or {list(x[:-2])}, the dims of x before heads"
        raise BadTensorShape("rope", f"positions are {list(positions)}", allowed=allowed)
    if freqs is not None and freqs != (turned // 2,):
        raise BadTensorShape("rope", f"freqs is {list(freqs)}", allowed=f"[{turned // 2}], one a pair")
    return [x]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return x and y as [*b, s, h, d] with the leading dims merged; positions over the same dims, by stride 0."""
    x, positions, freqs = [*inputs, None, None][:3]
    (y,) = outputs
    assert x is not None
    if positions is not None:
        lead = (0,) * (x.ndim - 2 - positions.ndim)
        positions = TensorDesc(positions.dtype, x.shape, (*lead, *positions.strides, 0, 0), positions.offset)
    y_, x_, positions = coalesce([y, x, positions], keep=3)
    return [x_, positions, freqs], [y_]


def _angles(x: Any, positions: Any, freqs: Any, values: Mapping[str, Any]) -> Any:
    """Return the angles in radians [..., s, 1, pairs]."""
    pairs = rotated_dims(values["dims"], x.shape[-1]) // 2
    if positions is None:
        positions = values["start_pos"] + np.arange(x.shape[-3], dtype=np.float64)
    if freqs is None:
        freqs = values["theta"] ** (-np.arange(pairs) / max(pairs, 1))
    return np.asarray(positions, np.float64)[..., None, None] * freqs


def _pairs(x: Any, values: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return views of the first and the second elements of the pairs."""
    turned = rotated_dims(values["dims"], x.shape[-1])
    if values["pairing"] == "adjacent":
        return x[..., 0:turned:2], x[..., 1:turned:2]
    return x[..., : turned // 2], x[..., turned // 2 : turned]


def turn(x: Any, angles: Any, values: Mapping[str, Any]) -> Any:
    """Return x with its pairs turned by angles [..., s, 1, pairs]."""
    cos, sin = values["magnitude"] * np.cos(angles), values["magnitude"] * np.sin(angles)
    y = np.array(x)
    a, b = _pairs(x, values)
    first, second = _pairs(y, values)
    first[...], second[...] = a * cos - b * sin, a * sin + b * cos
    return y


def turn_error(x: Any, angles: Any, given: bool, values: Mapping[str, Any]) -> Any:
    """Return the magnitude of the error from the rounding of angles.

    An angle is a product rounded once; its frequency, where not given, is a power rounded to a few ULP.
    """
    off = np.abs(angles) * (2 if given else 4 + 2 * math.log2(values["theta"])) + 8
    size = np.zeros(np.broadcast_shapes(x.shape))
    a, b = _pairs(np.abs(np.asarray(x, np.float64)), values)
    first, second = _pairs(size, values)
    first[...] = second[...] = abs(values["magnitude"]) * (a + b) * off
    return size


def _reference(x: Any, positions: Any, freqs: Any, **values: Any) -> Any:
    return turn(x, _angles(x, positions, freqs, values), values)


def _scale(x: Any, positions: Any, freqs: Any, **values: Any) -> Any:
    return turn_error(x, _angles(x, positions, freqs, values), freqs is not None, values)


_SAMPLES: SampleTable = [
    ((3, 2, 8), None, 0, {}, "small"),
    ((3, 2, 8), None, 0, {"pairing": "half", "start_pos": 17}, "small"),
    ((2, 3, 2, 64), (3,), 0, {"theta": 500000.0}, "small"),
    ((2, 3, 2, 64), (2, 3), 32, {"pairing": "half"}, "small"),
    ((4, 3, 66), (4,), 16, {"dims": 32, "magnitude": 1.25}, "small"),
    ((4, 3, 66), None, 0, {"dims": 20, "pairing": "half", "start_pos": 500}, "small"),
    ((1, 1, 1, 2), None, 0, {"start_pos": 3}, "small"),
    ((2, 1, 2, 1, 3, 2, 2, 6), None, 3, {}, "small"),
    ((0, 2, 4), None, 0, {}, "small"),
    ((2, 3, 0), None, 0, {}, "small"),
    ((601, 8, 128), None, 64, {"pairing": "half"}, "wide"),
    ((128, 8, 128), None, 64, {}, "medium"),
    ((4096, 32, 128), None, 64, {}, "large"),
]


def split_batch(e: Emitter[V], x: V) -> V:
    """Emit x [*b, s, h, d] as [b, s, h, d]."""
    rank, shape = x.spec.ndim, x.spec.shape
    if rank == 3:
        return e("expand_shape", x, groups=(2, 1, 1), shape=(1, *shape))
    return e.collapse(x, (rank - 3, 1, 1, 1))


def emit_turned(
    e: Emitter[V], x: V, positions: V, letters: str, freqs: V, values: Mapping[str, Any], y: TensorDesc
) -> V:
    """Emit the two elements of the pairs of x [b, s, h, d] as loop nests over positions and frequencies, and join them.

    `letters` are the dims of the positions, f being the pairs.
    """
    (b, s, h, d), rank = x.spec.shape, y.ndim
    turned = rotated_dims(values["dims"], d)
    half, step = values["pairing"] == "half", 1 if values["pairing"] == "half" else 2
    ends = ((0, turned // 2), (turned // 2, turned)) if half else ((0, turned), (1, turned))
    first, second = (e("slice", x, starts=(i,), ends=(j,), axes=(3,), steps=(step,)) for i, j in ends)
    size, angle = constant(values["magnitude"]), "x2 * x3"
    bodies = [f"x0 * ({size} * cos({angle})) {a} x1 * ({size} * sin({angle}))" for a in "-+"]
    made = [
        e.loop(f"bshf,bshf,{letters},f->bshf", body, *pair, positions, freqs, dtype=y.dtype)
        for body, pair in zip(bodies, [(first, second), (second, first)], strict=True)
    ]
    if not half:
        made = [e("expand_shape", m, groups=(1, 1, 1, 2), shape=(b, s, h, turned // 2, 1)) for m in made]
    whole = e("concat", *made, axis=-1)
    whole = whole if half else e.collapse(whole, (1, 1, 1, 2))
    if turned < d:
        whole = e("concat", whole, e("slice", x, starts=(turned,), ends=(d,), axes=(3,)), axis=3)
    if rank == 3:
        return e.collapse(whole, (2, 1, 1))
    return whole if rank == 4 else e("expand_shape", whole, groups=(rank - 3, 1, 1, 1), shape=y.shape)


def _loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, positions, freqs = [*inputs, None, None][:3]
    assert x is not None
    y, rank, compute = outputs[0], x.spec.ndim, outputs[0].dtype.compute
    turned = rotated_dims(values["dims"], y.shape[-1])
    if turned == 0:
        return e("copy", x)
    own = positions is not None and positions.spec.ndim > 1
    x = split_batch(e, x)
    if positions is not None and own and rank > 4:
        positions = e.collapse(positions, (rank - 3, 1))
    if positions is None:
        positions = e("iota", dtypes={"T": compute}, shape=(x.spec.shape[1],), start=values["start_pos"])
    else:
        positions = e.cast(positions, I64)
    if freqs is None:
        number = e.iota(turned // 2, compute)
        freqs = e.loop("f->f", f"pow({constant(values['theta'])}, -x0 / {constant(turned // 2)})", number)
    return emit_turned(e, x, positions, "bs" if own else "s", freqs, values, y)


rope = declare(
    "rope",
    "ROPE",
    "x: T[*b, s, h, d], positions?: I[*p], freqs?: F32[r] -> y: T[*b, s, h, d]",
    {"T": FLOATS, "I": INDICES},
    family="position",
    doc=(
        "Pairs of the first `dims` elements of each head turned by position · frequency (Su et al. 2021): adjacent (0"
        " with 1, 2 with 3, …) or half (0 with dims/2, …). Positions are those given, one a step s (and batch), or"
        " start_pos + s; frequencies those given (F32; see isokern.ops.rope.frequencies for linear, NTK, YaRN and"
        " Llama 3 scaling), or theta^(-2i/dims) in the compute type. The other elements are copied."
    ),
    reference=_reference,
    tolerance=Tolerance(4, _scale),
    attrs=attrs(
        "ROP1",
        choice("pairing", PAIRINGS, "adjacent", "which elements form a pair"),
        integer("start_pos", 0, "position of the first step, where none are given", minimum=0),
        number("theta", 10000.0, "base of the frequencies, where none are given", minimum=1),
        integer("dims", 0, "elements that are turned; 0 for all", minimum=0),
        number("magnitude", 1.0, "factor of cosine and sine (YaRN's)"),
    ),
    shapes=_shapes,
    normal_form=_normal_form,
    decompose=_loops,
    aliases=("x",),
    flops=lambda i, o: 3.0 * o[0].numel,
    domains={"freqs": "unit"},
    samples=lambda: [
        Sample(
            {"x": x, **({"positions": p} if p is not None else {}), **({"freqs": (f,)} if f else {})},
            values,
            {"positions": "length:600"},
            size=size,
        )
        for x, p, f, values, size in _SAMPLES
    ],
    errors=[
        ErrorCase({"x": (3, 8)}, BadTensorShape),
        ErrorCase({"x": (3, 2, 7)}, InvalidArgument),
        ErrorCase({"x": (3, 2, 8)}, InvalidArgument, {"dims": 10}),
        ErrorCase({"x": (3, 2, 8), "positions": (2,)}, BadTensorShape),
        ErrorCase({"x": (3, 2, 8), "positions": (3,)}, BadTensorDtype, dtypes={"positions": F32}),
        ErrorCase({"x": (3, 2, 8), "positions": (3,), "freqs": (8,)}, BadTensorShape),
        ErrorCase({"x": (3, 2, 8)}, InvalidArgument, {"pairing": "both"}),
        ErrorCase({"x": (3, 2, 8)}, InvalidArgument, {"start_pos": -1}),
    ],
)
