"""mel_weight_matrix: triangular filters between the places of mel frequencies in a spectrum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, integer, number
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .indexing import emit_list

TERMS = 8  # numbers of a list that one loop makes


def _points(values: Mapping[str, Any]) -> list[int]:
    """Return the first, middle and last places of all filters in the spectrum, by ONNX's reference, in float64."""
    low, high = (2595 * math.log10(1 + values[f"{end}_edge_hertz"] / 700) for end in ("lower", "upper"))
    count = values["num_mel_bins"] + 2
    mels = [low + i * ((high - low) / count) for i in range(count)]
    return [int((values["dft_length"] + 1) * (700 * (10 ** (mel / 2595) - 1)) // values["sample_rate"]) for mel in mels]


def _check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    if values["lower_edge_hertz"] > values["upper_edge_hertz"]:
        given = f"lower_edge_hertz={values['lower_edge_hertz']}, upper_edge_hertz={values['upper_edge_hertz']}"
        raise InvalidArgument("mel_weight_matrix", given, allowed="the lower up to the upper one")


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return [(values["dft_length"] // 2 + 1, values["num_mel_bins"])]


def _emit(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y, points = outputs[0], _points(values)
    if y.numel == 0:
        return e.fill(y.shape, 0.0, y.dtype)
    parts = [emit_list(e, points[i : i + TERMS]) for i in range(0, len(points), TERMS)]
    line = parts[0]
    for part in parts[1:]:
        line = e("concat", line, part, axis=0)
    wide = e.cast(line, y.dtype.compute)
    low, middle, high = (e("slice", wide, starts=(i,), ends=(i + values["num_mel_bins"],), axes=(0,)) for i in range(3))
    rising = "(x0 - x1) / (x2 - x1) if x0 >= x1 and x0 <= x2 and x1 != x2 else 1 if x0 == x2 and x1 == x2 else 0"
    body = f"(x3 - x0) / (x3 - x2) if x0 >= x2 and x0 < x3 else {rising}"
    places = e.iota(y.shape[0], y.dtype.compute)
    return e.loop("j,i,i,i->ji", body, places, low, middle, high, dtype=y.dtype)


def _reference(**values: Any) -> Any:
    points = _points(values)
    y = np.zeros((values["dft_length"] // 2 + 1, values["num_mel_bins"]))
    places = np.arange(len(y), dtype=np.float64)
    for i in range(y.shape[1]):
        low, middle, high = points[i : i + 3]
        if low == middle:
            y[places == middle, i] = 1
        else:
            up = (places >= low) & (places <= middle)
            y[up, i] = (places[up] - low) / (middle - low)
        if high > middle:
            down = (places >= middle) & (places < high)
            y[down, i] = (high - places[down]) / (high - middle)
    return y


_SPEECH = {"sample_rate": 16000, "lower_edge_hertz": 20.0, "upper_edge_hertz": 7600.0}


def _sample(bins: int, length: int, size: str = "small", **values: Any) -> Sample:
    return Sample({}, {"num_mel_bins": bins, "dft_length": length, **_SPEECH, **values}, size=size)


declare(
    "mel_weight_matrix",
    "MELW",
    "-> y: T[s, m]",
    {"T": FLOATS},
    family="movement",
    doc=(
        "The matrix that makes num_mel_bins values on the mel scale of a spectrum's dft_length / 2 + 1 (ONNX"
        " MelWeightMatrix). Filter i rises from place f(i) to 1 at f(i + 1) and falls to 0 at f(i + 2), where f(i) is"
        " the place, rounded down, of 700 (10^(m / 2595) - 1) Hz for num_mel_bins + 2 values m in equal steps from"
        " the mel of lower_edge_hertz towards that of upper_edge_hertz, 2595 log10(1 + Hz / 700)."
    ),
    reference=_reference,
    tolerance=Tolerance(2),
    attrs=attrs(
        "MEL1",
        integer("num_mel_bins", doc="values on the mel scale", minimum=0, maximum=4096),
        integer("dft_length", doc="of the transform that makes the spectrum", minimum=0, maximum=1 << 22),
        integer("sample_rate", doc="samples a second", minimum=1, maximum=1 << 30),
        number("lower_edge_hertz", doc="where the first filter begins", minimum=0, maximum=1e9),
        number("upper_edge_hertz", doc="the frequency that the last one does not pass", minimum=0, maximum=1e9),
    ),
    shapes=_shapes,
    check=_check,
    normal_form=as_given,
    decompose=_emit,
    samples=lambda: [
        _sample(8, 16),
        _sample(3, 65, sample_rate=8000),
        _sample(40, 512, lower_edge_hertz=0.0, upper_edge_hertz=8000.0),
        _sample(5, 8, lower_edge_hertz=100.0, upper_edge_hertz=100.0),
        _sample(0, 16),
        _sample(4, 0),
        _sample(128, 8192, "wide"),
    ],
    errors=[
        ErrorCase({}, InvalidArgument, {"num_mel_bins": 3, "dft_length": 16}),
        ErrorCase({}, InvalidArgument, {**_SPEECH, "num_mel_bins": -1, "dft_length": 16}),
        ErrorCase({}, InvalidArgument, {**_SPEECH, "num_mel_bins": 3, "dft_length": 16, "sample_rate": 0}),
        ErrorCase({}, InvalidArgument, {**_SPEECH, "num_mel_bins": 3, "dft_length": 16, "lower_edge_hertz": 9e3}),
        ErrorCase({}, BadTensorShape, {**_SPEECH, "num_mel_bins": 3, "dft_length": 16}, outputs={"y": (8, 3)}),
    ],
)
