"""batch_norm: channels normalized by given statistics (inference)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import Descs, coalesce
from ..dtypes import F64, FLOATS, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return x and y as [c, *rest] with the rest merged: every channel has one mean and one factor."""
    (x, *channels), (y,) = inputs, outputs
    assert x is not None
    order = [0, *range(2, x.ndim), 1]
    merged = [d for d in coalesce([y.permute(order), x.permute(order)], keep=1) if d is not None]
    front = [d.permute((d.ndim - 1, *range(d.ndim - 1))) for d in merged]
    return [front[1], *channels], [front[0]]


def _channelwise(v: Any, x: Any) -> Any:
    return v.reshape(-1, *[1] * (x.ndim - 2))


def _factor(var: Any, w: Any, eps: float, compute: DType) -> Any:
    """Return w / sqrt(var + eps), one number per channel.

    It is 0 if it underflows in the compute type, so that an infinite x gives NaN.
    """
    assert compute.numpy is not None
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        factor = np.divide(1.0 if w is None else w, np.sqrt(var + eps))
        return np.where(2 * np.abs(factor) <= np.finfo(compute.numpy).smallest_subnormal, 0 * factor, factor)


def _reference(
    x: Any, mean: Any, var: Any, w: Any, bias: Any, eps: float, out: Sequence[TensorDesc] = (TensorDesc(F64, ()),)
) -> Any:
    factor = _factor(var, w, eps, out[0].dtype.compute)
    with np.errstate(invalid="ignore", over="ignore"):
        y = (x - _channelwise(mean, x)) * _channelwise(factor, x)
    return y if bias is None else y + _channelwise(bias, x)


def _scale(x: Any, mean: Any, var: Any, w: Any, bias: Any, eps: float, compute: DType) -> Any:
    """Return 4 times the magnitude of both terms, since kernels may compute x · factor + shift."""
    factor = np.abs(_factor(var, w, eps, compute))
    terms = (np.abs(x) + _channelwise(np.abs(mean), x)) * _channelwise(factor, x)
    return 4 * (terms if bias is None else terms + _channelwise(np.abs(bias), x))


def _loop(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, mean, var, w, bias = [*inputs, None, None][:5]
    assert x is not None and mean is not None and var is not None
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    given = [x, mean, var, *(v for v in (w, bias) if v is not None)]
    body = f"(x0 - x1) * ({'1.0' if w is None else 'x3'} / sqrt(x2 + {constant(values['eps'])}))"
    if bias is not None:
        body = f"{body} + x{len(given) - 1}"
    return e.loop(f"{loops}{f',{loops[1]}' * (len(given) - 1)}->{loops}", body, *given, dtype=y.dtype)


batch_norm = declare(
    "batch_norm",
    "BATN",
    "x: T[n, c, *s], mean: T[c], var: T[c], w?: T[c], bias?: T[c] -> y: T[n, c, *s]",
    {"T": FLOATS},
    family="normalization",
    doc=(
        "(x - mean) · (w / sqrt(var + eps)) + bias for each channel, by running statistics (Ioffe & Szegedy 2015,"
        " inference)."
    ),
    reference=_reference,
    tolerance=Tolerance(8, _scale),
    attrs=attrs("BTN1", number("eps", 1e-5, "added to the variance", minimum=0)),
    normal_form=_normal_form,
    decompose=_loop,
    aliases=("x",),
    domains={"var": "positive"},
    flops=lambda i, o: 2.0 * o[0].numel,
    samples=lambda: [
        Sample(
            {
                "x": s,
                "mean": s[1:2],
                "var": s[1:2],
                **({"w": s[1:2]} if k > 0 else {}),
                **({"bias": s[1:2]} if k > 1 else {}),
            },
            {"eps": eps},
            size=size,
        )
        for s, k, eps, size in [
            ((2, 3), 2, 1e-5, "small"),
            ((2, 3, 4), 2, 1e-5, "small"),
            ((1, 3, 5, 7), 2, 1e-3, "small"),
            ((2, 5, 3, 3), 0, 1e-5, "small"),
            ((2, 5, 3, 3), 1, 1e-5, "small"),
            ((0, 3, 2), 2, 1e-5, "small"),
            ((2, 0, 2), 2, 1e-5, "small"),
            ((1, 2, 25, 41), 2, 1e-5, "small"),
            ((3, 1, 1), 2, 0.1, "small"),
            ((2, 3, 1, 2, 1, 2, 1, 2), 2, 1e-5, "small"),
            ((2, 31, 101, 101), 2, 1e-5, "wide"),
            ((1, 64, 56, 56), 2, 1e-5, "medium"),
            ((16, 64, 112, 112), 2, 1e-5, "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (2, 3), "mean": (2,), "var": (3,)}, BadTensorShape),
        ErrorCase({"x": (3,), "mean": (3,), "var": (3,)}, BadTensorShape),
        ErrorCase({"x": (2, 3), "mean": (3,)}, InvalidArgument),
        ErrorCase({"x": (2, 3), "mean": (3,), "var": (3,)}, InvalidArgument, {"eps": -1}),
    ],
)
