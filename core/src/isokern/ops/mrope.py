"""mrope: rotary position embedding by positions of several axes, each of which turns a section of the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice, integer, integers, number
from ..declare.decomposition import Emitter, V, constant, find_optional
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, F32, I64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .rope import PAIRINGS, emit_turned, rotated_dims, split_batch, turn, turn_error

BANDS = ("whole", "section")


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, positions, freqs = [*inputs, None][:3]
    sections, d = values["sections"], x[-1]
    turned = rotated_dims(values["dims"], d)
    if turned % 2 or turned > d:
        raise InvalidArgument(
            "mrope", f"{turned} of {d} elements are to be turned", allowed=f"an even number up to {d}"
        )
    if any(n < 0 for n in sections) or 2 * sum(sections) != turned:
        raise InvalidArgument("mrope", f"sections={list(sections)}", allowed=f"numbers that sum to {turned // 2} pairs")
    if len(positions) == 0 or positions[1:] not in (x[-3:-2], x[:-2]) or positions[0] != len(sections):
        allowed = f"{[len(sections), *x[-3:-2]]} or {[len(sections), *x[:-2]]}, a row a section"
        raise BadTensorShape("mrope", f"positions are {list(positions)}", allowed=allowed)
    if freqs is not None and freqs != (turned // 2,):
        raise BadTensorShape("mrope", f"freqs is {list(freqs)}", allowed=f"[{turned // 2}], one a pair")
    return [x]


def _angles(x: Any, positions: Any, freqs: Any, values: Mapping[str, Any]) -> Any:
    """Return the angles in radians [..., s, 1, pairs]."""
    sections = values["sections"]
    own = np.repeat(np.arange(len(sections)), sections)
    if freqs is None:
        whole = values["bands"] == "whole"
        share = [np.arange(n) / n for n in sections if n] if not whole else [np.arange(len(own)) / max(1, len(own))]
        freqs = values["theta"] ** -np.concatenate([np.zeros(0), *share])
    return np.moveaxis(np.asarray(positions, np.float64)[own], 0, -1)[..., None, :] * freqs


def _reference(x: Any, positions: Any, freqs: Any, **values: Any) -> Any:
    return turn(x, _angles(x, positions, freqs, values), values)


def _scale(x: Any, positions: Any, freqs: Any, **values: Any) -> Any:
    return turn_error(x, _angles(x, positions, freqs, values), freqs is not None, values)


def _choose(sections: Sequence[int], of_each: Sequence[str]) -> str:
    """Return an expression of the pair's number x0 that is another one in each section."""
    text, end = of_each[-1], sum(sections[:-1])
    for size, other in zip(reversed(sections[:-1]), reversed(of_each[:-1]), strict=True):
        text, end = f"({other} if x0 < {end} else {text})", end - size
    return text


def _loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the positions of each pair, by its section, and the pairs turned by them."""
    x, positions = inputs[:2]
    freqs, y, sections = find_optional(inputs, 2), outputs[0], values["sections"]
    pairs, rank = rotated_dims(values["dims"], y.shape[-1]) // 2, y.ndim
    if pairs == 0:
        return e("copy", x)
    own = positions.spec.ndim > 2
    x = split_batch(e, x)
    if own and rank > 4:
        positions = e.collapse(positions, (1, rank - 3, 1))
    section = e.cast(e.loop("f->f", _choose(sections, [str(i) for i in range(len(sections))]), e.iota(pairs, F32)), I64)
    positions = e("gather", e.cast(positions, I64), section, axis=0)
    if freqs is None:
        begins = [sum(sections[:i]) for i in range(len(sections))]
        shares = [f"(x0 - {a}) / {constant(max(1, n))}" for a, n in zip(begins, sections, strict=True)]
        share = f"x0 / {constant(pairs)}" if values["bands"] == "whole" else _choose(sections, shares)
        freqs = e.loop("f->f", f"pow({constant(values['theta'])}, -({share}))", e.iota(pairs, F32))
    return emit_turned(e, x, positions, "fbs" if own else "fs", freqs, values, y)


_SAMPLES: SampleTable = [
    ((3, 2, 8), (2, 3), 0, {"sections": (2, 2)}, "small"),
    ((2, 3, 2, 64), (3, 3), 0, {"sections": (8, 12, 12), "pairing": "half", "theta": 500000.0}, "small"),
    ((2, 3, 2, 64), (3, 2, 3), 32, {"sections": (16, 8, 8), "pairing": "half", "magnitude": 1.25}, "small"),
    ((4, 3, 66), (2, 4), 0, {"sections": (8, 8), "bands": "section", "dims": 32}, "small"),
    ((4, 3, 66), (4, 4), 10, {"sections": (5, 0, 4, 1), "dims": 20, "pairing": "half"}, "small"),
    ((5, 2, 36), (3, 5), 0, {"sections": (6, 6, 6), "bands": "section", "pairing": "half"}, "small"),
    ((1, 1, 1, 2), (1, 1, 1), 0, {"sections": (1,)}, "small"),
    ((2, 1, 2, 1, 3, 2, 2, 6), (2, 2, 1, 2, 1, 3, 2), 3, {"sections": (1, 2)}, "small"),
    ((0, 2, 4), (2, 0), 0, {"sections": (1, 1)}, "small"),
    ((2, 3, 0), (2, 2), 0, {"sections": (0, 0)}, "small"),
    ((601, 8, 128), (3, 601), 64, {"sections": (16, 24, 24), "pairing": "half"}, "wide"),
    ((128, 8, 128), (3, 128), 64, {"sections": (16, 24, 24), "pairing": "half"}, "medium"),
    ((4096, 32, 128), (3, 4096), 64, {"sections": (16, 24, 24), "pairing": "half"}, "large"),
]
_FEW = {"sections": (2, 2)}

declare(
    "mrope",
    "MROP",
    "x: T[*b, s, h, d], positions: I[*p], freqs?: F32[r] -> y: T[*b, s, h, d]",
    {"T": ACTIVATIONS, "I": INDICES},
    family="position",
    doc=(
        "rope with a position for each axis of an image or video: the first sections[0] pairs are turned by"
        " positions[0], the next sections[1] by positions[1], … (Qwen2-VL, Wang et al. 2024: time, height and width)."
        " Frequencies are those given; else theta^(-2i/dims) by the pair's number i in all (bands=whole), or"
        " theta^(-j/n) by its number j in its section of n (bands=section: axial rope of 2 or 3 dims)."
    ),
    reference=_reference,
    tolerance=Tolerance(4, _scale),
    attrs=attrs(
        "MRP1",
        integers("sections", doc="how many pairs each row of positions turns"),
        choice("pairing", PAIRINGS, "adjacent", "which elements form a pair"),
        choice("bands", BANDS, "whole", "what the frequencies count, where none are given"),
        number("theta", 10000.0, "base of the frequencies, where none are given", minimum=1),
        integer("dims", 0, "elements that are turned; 0 for all", minimum=0),
        number("magnitude", 1.0, "factor of cosine and sine (YaRN's)"),
    ),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_loops,
    flops=lambda i, o: 3.0 * o[0].numel,
    domains={"freqs": "unit"},
    samples=lambda: [
        Sample(
            {"x": x, "positions": p, **({"freqs": (f,)} if f else {})}, values, {"positions": "length:600"}, size=size
        )
        for x, p, f, values, size in _SAMPLES
    ],
    errors=[
        ErrorCase({"x": (3, 8), "positions": (2, 3)}, BadTensorShape, _FEW),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 3)}, InvalidArgument),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 3)}, InvalidArgument, {"sections": (2, 3)}),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 3)}, InvalidArgument, {"sections": (-1, 5)}),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 3)}, InvalidArgument, {**_FEW, "dims": 10}),
        ErrorCase({"x": (3, 2, 8), "positions": (3, 3)}, BadTensorShape, _FEW),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 2)}, BadTensorShape, _FEW),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 3)}, BadTensorDtype, _FEW, dtypes={"positions": F32}),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 3), "freqs": (8,)}, BadTensorShape, _FEW),
        ErrorCase({"x": (3, 2, 8), "positions": (2, 3)}, InvalidArgument, {**_FEW, "bands": "all"}),
    ],
)
