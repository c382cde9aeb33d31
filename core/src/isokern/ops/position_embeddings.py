"""Sines and cosines of positions: sinusoidal_embedding, and timestep_embedding of diffusion models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import F32, FLOATS, I32, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

ORDERS = ("cos_sin", "sin_cos")


def _emit(e: Emitter[V], x: V, rate: str, wave: str, y: TensorDesc) -> V:
    """Emit y[…, j] = sin or cos of x times a rate, or 0.

    `rate` and `wave` are expressions of x0 = j; the second is 0 for the sine, 1 for the cosine and 2 for 0.
    """
    wide, flat = y.dtype.compute, e.reshape(x, (x.spec.numel,))
    number_ = e.iota(y.shape[-1], wide)
    rates, waves = e.loop("j->j", rate, number_), e.loop("j->j", wave, number_)
    body = "sin(x0 * x1) if x2 == 0 else (cos(x0 * x1) if x2 == 1 else 0)"
    return e.reshape(e.loop("n,j,j->nj", body, e.cast(flat, wide), rates, waves, dtype=y.dtype), y.shape)


def _waves(x: Any, rates: Any, sines: Any) -> Any:
    angles = np.asarray(x, np.float64)[..., None] * rates
    return np.where(sines, np.sin(angles), np.cos(angles))


def _off(x: Any, rates: Any, base: float) -> Any:
    """Return the error of an angle: a product of a power that is rounded to a few ULP."""
    return np.abs(np.asarray(x, np.float64)[..., None] * rates) * (4 + 2 * math.log2(base)) + 4


# Vaswani et al. 2017: pairs of sine and cosine


def _sinusoidal_rates(values: Mapping[str, Any]) -> tuple[Any, Any]:
    j = np.arange(values["dims"])
    return values["theta"] ** (-(j - j % 2) / values["dims"]), j % 2 == 0


def _sinusoidal(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    pair = "2 * floor(x0 / 2)"
    rate = f"pow({constant(values['theta'])}, -({pair}) / {constant(values['dims'])})"
    return _emit(e, inputs[0], rate, f"x0 - {pair}", outputs[0])


declare(
    "sinusoidal_embedding",
    "SINE",
    "positions: I[*p] -> y: T[*p, dims]",
    {"T": FLOATS, "I": INDICES},
    family="position",
    doc=(
        "y[…, 2i] = sin(position · theta^(-2i/dims)) and y[…, 2i + 1] = cos of the same: the position encoding of"
        " Vaswani et al. 2017."
    ),
    reference=lambda positions, **values: _waves(positions, *_sinusoidal_rates(values)),
    tolerance=Tolerance(4, lambda positions, **values: _off(positions, _sinusoidal_rates(values)[0], values["theta"])),
    attrs=attrs(
        "SNE1",
        integer("dims", doc="elements of an embedding", minimum=1),
        number("theta", 10000.0, "base of the frequencies", minimum=1),
    ),
    normal_form=as_given,
    decompose=_sinusoidal,
    samples=lambda: [
        Sample({"positions": s}, {"dims": dims, **more}, {"positions": "length:600"}, size=size)
        for s, dims, more, size in [
            ((), 6, {}, "small"),
            ((7,), 32, {}, "small"),
            ((3, 5), 9, {"theta": 500.0}, "small"),
            ((2, 1, 2, 1, 3, 2, 2), 1, {}, "small"),
            ((0, 3), 4, {}, "small"),
            ((601,), 513, {}, "wide"),
            ((512,), 512, {}, "medium"),
            ((4096,), 1024, {}, "large"),
        ]
    ],
    errors=[
        ErrorCase({"positions": (3,)}, InvalidArgument),
        ErrorCase({"positions": (3,)}, InvalidArgument, {"dims": 0}),
        ErrorCase({"positions": (3,)}, InvalidArgument, {"dims": 4, "theta": 0.5}),
        ErrorCase({"positions": (3,)}, BadTensorDtype, {"dims": 4}, dtypes={"positions": F32}),
        ErrorCase({"positions": (3,)}, BadTensorShape, {"dims": 4}, outputs={"y": (3, 5)}),
    ],
)


# Diffusion models: all cosines, then all sines


def _check_shift(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    half, shift = values["dims"] // 2, values["shift"]
    if half > 1 and shift >= half:
        raise InvalidArgument("timestep_embedding", f"shift={shift} of {half} frequencies", allowed=f"below {half}")


def _step(values: Mapping[str, Any]) -> tuple[int, float]:
    """Return how many frequencies there are, and by how many the exponent is divided."""
    half = values["dims"] // 2
    return half, max(1, half) if half <= 1 else half - values["shift"]


def _timestep_rates(values: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    half, apart = _step(values)
    j = np.arange(values["dims"])
    second = j >= half
    rates = values["max_period"] ** (-(j - half * second) / apart)
    return rates, second == (values["order"] == "cos_sin"), j < 2 * half


def _timestep_reference(x: Any, **values: Any) -> Any:
    rates, sines, real = _timestep_rates(values)
    return np.where(real, _waves(x, rates, sines), 0)


def _timestep_scale(x: Any, **values: Any) -> Any:
    rates, _, real = _timestep_rates(values)
    return np.where(real, _off(x, rates, values["max_period"]), 0)


def _timestep(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    half, apart = _step(values)
    place = f"(x0 if x0 < {half} else x0 - {half})"
    rate = f"pow({constant(values['max_period'])}, -{place} / {constant(apart)})"
    first, second = (1, 0) if values["order"] == "cos_sin" else (0, 1)
    wave = f"{first} if x0 < {half} else ({second} if x0 < {2 * half} else 2)"
    return _emit(e, inputs[0], rate, wave, outputs[0])


_TIMESTEPS: SampleTable = [
    ((), 6, {}, "small"),
    ((7,), 32, {"order": "sin_cos"}, "small"),
    ((3, 5), 9, {"max_period": 500.0, "shift": 1.0}, "small"),
    ((2, 1, 2, 1, 3, 2, 2), 1, {}, "small"),
    ((4,), 2, {"shift": 1.0}, "small"),
    ((0, 3), 4, {}, "small"),
    ((601,), 513, {}, "wide"),
    ((512,), 512, {}, "medium"),
    ((4096,), 1024, {}, "large"),
]

declare(
    "timestep_embedding",
    "TSEM",
    "x: T[*s] -> y: T[*s, dims]",
    {"T": FLOATS},
    family="position",
    doc=(
        "y[…, j] = cos(x · max_period^(-j / (half - shift))) for j below half = dims // 2, then the sines of the same,"
        " and 0 as last element of odd dims (Ho et al. 2020; ggml's TIMESTEP_EMBEDDING; shift is diffusers'"
        " downscale_freq_shift). order puts the sines first."
    ),
    reference=_timestep_reference,
    tolerance=Tolerance(4, _timestep_scale),
    attrs=attrs(
        "TSE1",
        integer("dims", doc="elements of an embedding", minimum=1),
        number("max_period", 10000.0, "the longest wave, divided by 2π", minimum=1),
        number("shift", 0.0, "taken from the number of frequencies in the exponent", minimum=0),
        choice("order", ORDERS, "cos_sin", "which half is first"),
    ),
    check=_check_shift,
    normal_form=as_given,
    decompose=_timestep,
    domains={"x": "moderate"},
    samples=lambda: [Sample({"x": s}, {"dims": dims, **more}, size=size) for s, dims, more, size in _TIMESTEPS],
    errors=[
        ErrorCase({"x": (3,)}, InvalidArgument),
        ErrorCase({"x": (3,)}, InvalidArgument, {"dims": 0}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"dims": 4, "max_period": 0.5}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"dims": 8, "shift": 4.0}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"dims": 4, "order": "both"}),
        ErrorCase({"x": (3,)}, BadTensorDtype, {"dims": 4}, dtypes={"T": I32}),
        ErrorCase({"x": (3,)}, BadTensorShape, {"dims": 4}, outputs={"y": (3, 5)}),
    ],
)
