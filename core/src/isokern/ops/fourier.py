"""Discrete Fourier transforms as matrix products, of whole axes and of windows along a signal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag, integer
from ..declare.decomposition import Emitter, V, constant, find_optional
from ..declare.normal_form import as_given, axis_of
from ..dtypes import FLOATS, I32, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .conv2d import extent

_LONGEST = 1 << 31  # the longest transform: products of two places fit into 63 bits


def _bins(length: int, onesided: int) -> int:
    return length // 2 + 1 if onesided else length


def _emit_waves(e: Emitter[V], terms: int, parts: int, length: int, values: Mapping[str, Any], dtype: DType) -> V:
    """Emit the matrix [terms · parts, bins · 2] of cosines and sines; `parts` is 1 for real and 2 for complex terms."""
    inverse = values.get("inverse", 0)
    bins = _bins(length, values["onesided"])
    turn = f"(x0 * x1 - quotient(x0 * x1, {length}) * {length})"  # the angle, in parts of a circle
    least = f"({turn} - {length} if 2 * {turn} > {length} else {turn})"
    turns = e.cast(e.loop("n,k->nk", least, e.iota(terms, I64), e.iota(bins, I64)), dtype)
    angle = f"({constant(2 * math.pi / length)} * x0)"
    share, sign = (constant(1 / length), "-1") if inverse else ("1", "1")
    body = f"{share} * (cos{angle} if x1 == x2 else {sign} * (x1 - x2) * sin{angle})"
    waves = e.loop("nk,c,d->nckd", body, turns, e.iota(parts, dtype), e.iota(2, dtype))
    return e.collapse(waves, (2, 2))


def _dft_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    x = inputs[0]
    if len(x) < 2 or not 1 <= x[-1] <= 2:
        raise BadTensorShape(
            "dft", f"x is {list(x)}", allowed="rank 2 or more, and a last dim of 1 (real) or 2 (complex)"
        )
    axis = axis_of("dft", values["axis"], len(x))
    if axis == len(x) - 1:
        raise InvalidArgument(
            "dft", f"axis {values['axis']} is that of the real and imaginary parts", allowed="another"
        )
    if values["onesided"] and (values["inverse"] or x[-1] == 2):
        raise InvalidArgument("dft", "onesided is set", allowed="forward transforms of real numbers", hint="leave it 0")
    length = values["length"] or x[axis]
    if not 1 <= length < _LONGEST:
        raise BadTensorShape("dft", f"the transform has length {length}", allowed="1 to 2^31 - 1")
    return [(*x[:axis], _bins(length, values["onesided"]), *x[axis + 1 : -1], 2)]


def _dft(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, y = inputs[0], outputs[0]
    rank = x.spec.ndim
    axis = values["axis"] % rank
    length = values["length"] or x.spec.shape[axis]
    order = [i for i in range(rank) if i not in (axis, rank - 1)]
    front = e("transpose", x, axes=(*order, axis, rank - 1)) if axis != rank - 2 else x
    if (terms := min(length, front.spec.shape[-2])) < front.spec.shape[-2]:
        front = e("slice", front, starts=(0,), ends=(terms,), axes=(rank - 2,))
    lead = front.spec.shape[:-2]
    rows = e.cast(e.reshape(front, (math.prod(lead), terms * x.spec.shape[-1])), y.dtype.compute)
    waves = _emit_waves(e, terms, x.spec.shape[-1], length, values, y.dtype.compute)
    made = e.reshape(e.cast(e("matmul", rows, waves), y.dtype), (*lead, waves.spec.shape[1] // 2, 2))
    back = (*range(axis), rank - 2, *range(axis, rank - 2), rank - 1)
    return e("transpose", made, axes=back) if axis != rank - 2 else made


def _dft_reference(x: Any, axis: int, length: int, inverse: int, onesided: int) -> Any:
    """Multiply by the matrix, so that what is not finite spreads as it does in a product."""
    axis %= x.ndim
    length = length or x.shape[axis]
    rows = np.moveaxis(x, axis, -2)[..., :length, :]
    places = np.outer(np.arange(rows.shape[-2]), np.arange(_bins(length, onesided))) % length
    angle = 2 * np.pi / length * np.where(2 * places > length, places - length, places)
    cos, sin = np.cos(angle), np.sin(angle) * (-1 if inverse else 1)
    y = np.stack([rows[..., 0] @ cos, -(rows[..., 0] @ sin)], -1)
    if x.shape[-1] == 2:
        y += np.stack([rows[..., 1] @ sin, rows[..., 1] @ cos], -1)
    return np.moveaxis((y / length if inverse else y) + 0.0, -2, axis)  # no -0, as sums from 0 have none


def _growth(terms: int) -> float:
    """Return the rounding errors of a product and of an angle of half a circle, in eps of the sum of magnitudes."""
    return 8 + math.sqrt(terms)


def _dft_scale(x: Any, axis: int, length: int, inverse: int, onesided: int) -> Any:
    axis %= x.ndim
    length = length or x.shape[axis]
    used = np.abs(np.take(x, range(min(length, x.shape[axis])), axis)).sum((axis, -1))
    total = _growth(2 * length) * used / (length if inverse else 1)
    return np.expand_dims(np.expand_dims(total, axis), -1)


_INVERSE = flag("inverse", False, "whether the exponent is positive and the result is divided by the length")
_ONESIDED = flag(
    "onesided", False, "whether to leave out bins past length // 2 of real numbers, which mirror the others"
)

declare(
    "dft",
    "DFT_",
    "x: T[*s] -> y: T[*d]",
    {"T": FLOATS},
    family="contraction",
    doc=(
        "y[k] = Σ x[n] e^(-2πi n k / length) along `axis`, whose last dim holds real and imaginary parts, or real"
        " ones alone (ONNX DFT). A longer x is cut and a shorter one continued by zeros; the cost is that of a product"
        " with a matrix of length² elements."
    ),
    reference=_dft_reference,
    attrs=attrs(
        "DFT1",
        integer("axis", -2, "along which"),
        integer("length", 0, "0 for that of x", minimum=0),
        _INVERSE,
        _ONESIDED,
    ),
    shapes=_dft_shapes,
    normal_form=as_given,
    decompose=_dft,
    tolerance=Tolerance(2, _dft_scale),
    flops=lambda i, o: 4.0 * o[0].numel * (i[0].shape[-2] if i[0] is not None else 0),
    samples=lambda: [
        Sample({"x": (7, 1)}),
        Sample({"x": (3, 8, 2)}, {"inverse": True}),
        Sample({"x": (3, 5, 1)}, {"axis": 0, "onesided": True}),
        Sample({"x": (3, 6, 2, 2)}, {"axis": 1, "length": 4}),
        Sample({"x": (2, 1, 2, 3, 1, 2, 2, 1)}, {"axis": -5, "length": 5}),
        Sample({"x": (0, 4, 2)}),
        Sample({"x": (2, 0, 1)}, {"length": 3}),
        Sample({"x": (33, 257, 1)}, {"onesided": True}, size="wide"),
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 3)}, BadTensorShape),
        ErrorCase({"x": (0, 1)}, BadTensorShape),
        ErrorCase({"x": (3, 2)}, InvalidArgument, {"axis": -1}),
        ErrorCase({"x": (3, 2)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": (3, 2)}, InvalidArgument, {"onesided": True}),
        ErrorCase({"x": (3, 1)}, InvalidArgument, {"onesided": True, "inverse": True}),
        ErrorCase({"x": (3, 1)}, InvalidArgument, {"length": -1}),
        ErrorCase({"x": (3, 1)}, BadTensorDtype, dtypes={"T": I32}),
    ],
)


def _stft_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    signal, window = inputs[0], inputs[1] if len(inputs) > 1 else None
    if not 1 <= signal[2] <= 2:
        raise BadTensorShape("stft", f"signal is {list(signal)}", allowed="a last dim of 1 (real) or 2 (complex)")
    if values["onesided"] and signal[2] == 2:
        raise InvalidArgument("stft", "onesided is set", allowed="real numbers", hint="leave it 0")
    length = values["length"]
    if length == 0:
        if window is None:
            raise InvalidArgument("stft", "neither a window nor a length is given", allowed="one of them, or both")
        length = window[0]
    if window is not None and window[0] != length:
        raise BadTensorShape("stft", f"window is {list(window)}", allowed=f"[{length}]")
    if not 1 <= length < _LONGEST:
        raise BadTensorShape("stft", f"the transform has length {length}", allowed="1 to 2^31 - 1")
    frames = extent("stft", "dim 1", signal[1], 0, 0, length, values["step"])
    return [(signal[0], frames, _bins(length, values["onesided"]), 2)]


def _stft(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    signal, window = inputs[0], find_optional(inputs, 1)
    length = values["length"] or (window.spec.shape[0] if window is not None else 0)
    compute = outputs[0].dtype.compute
    frames = e.cast(e("unfold", signal, axis=1, size=length, step=values["step"]), compute)
    xs = (frames,) if window is None else (frames, e.cast(window, compute))
    maps = "bjcf->bjfc" if window is None else "bjcf,f->bjfc"
    tapered = e.loop(maps, "x0" if window is None else "x0 * x1", *xs)
    return e.cast(e("dft", tapered, onesided=values["onesided"]), outputs[0].dtype)


def _frames(signal: Any, window: Any, length: int, step: int) -> Any:
    length = length or len(window)
    frames = np.lib.stride_tricks.sliding_window_view(signal, length, 1)[:, ::step].swapaxes(2, 3)
    return frames if window is None else frames * window[:, None]


declare(
    "stft",
    "STFT",
    "signal: T[b, t, c], window?: T[f] -> y: T[b, j, k, p]",
    {"T": FLOATS},
    family="contraction",
    doc=(
        "The `dft` of each frame of a signal, whose frames begin `step` apart and are multiplied by the window, if any:"
        " y[b, frame, bin, real and imaginary part] (ONNX STFT)."
    ),
    reference=lambda signal, window, length, step, onesided: _dft_reference(
        _frames(signal, window, length, step), -2, 0, 0, onesided
    ),
    attrs=attrs(
        "STF1",
        integer("length", 0, "of a frame; 0 for that of the window", minimum=0),
        integer("step", doc="from one frame to the next", minimum=1),
        _ONESIDED,
    ),
    shapes=_stft_shapes,
    normal_form=as_given,
    decompose=_stft,
    tolerance=Tolerance(
        2,
        lambda signal, window, length, step, onesided: _dft_scale(
            _frames(signal, window, length, step), -2, 0, 0, onesided
        ),
    ),
    flops=lambda i, o: 4.0 * o[0].numel * o[0].shape[2],
    samples=lambda: [
        Sample({"signal": (1, 9, 1), "window": (5,)}, {"step": 2, "onesided": True}),
        Sample({"signal": (2, 7, 2), "window": (3,)}, {"step": 1}),
        Sample({"signal": (3, 8, 1)}, {"length": 5, "step": 3}),
        Sample({"signal": (0, 8, 1)}, {"length": 5, "step": 3}),
        Sample({"signal": (2, 1025, 1), "window": (65,)}, {"step": 16, "onesided": True}, size="wide"),
    ],
    errors=[
        ErrorCase({"signal": (1, 9, 3), "window": (4,)}, BadTensorShape, {"step": 2}),
        ErrorCase({"signal": (1, 3, 1), "window": (4,)}, BadTensorShape, {"step": 2}),
        ErrorCase({"signal": (1, 9, 1), "window": (4,)}, BadTensorShape, {"step": 2, "length": 5}),
        ErrorCase({"signal": (1, 9, 1)}, InvalidArgument, {"step": 2}),
        ErrorCase({"signal": (1, 9, 2), "window": (4,)}, InvalidArgument, {"step": 2, "onesided": True}),
        ErrorCase({"signal": (1, 9, 1), "window": (4,)}, InvalidArgument, {"step": 0}),
        ErrorCase({"signal": (1, 9, 1), "window": (4,)}, BadTensorDtype, {"step": 2}, dtypes={"T": I32}),
    ],
)
