"""Transposed convolutions in 1 to 3 dims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integers
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.epilogue import ACTIVATION, finish
from ..declare.normal_form import as_given
from ..declare.operator import Decompose
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import LONGEST
from .convolutions import (
    GROUPS,
    PLACES,
    SPATIAL,
    WINDOWS,
    Shape,
    add_and_activate,
    borders,
    check_channels,
    each,
)
from .phases import Dim, Phase, dim_of


def _transposed_shapes(where: str, dims: int) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x, w = inputs[0], inputs[1]
        groups = values["groups"]
        if w[0] % groups:
            raise BadTensorShape(where, f"w is {list(w)} with groups={groups}", allowed="w[c, co/groups, …]")
        check_channels(where, x, w, groups, w[0] // groups, w[1] * groups)
        stride = each(where, "stride", values["stride"], dims)
        dilation = each(where, "dilation", values["dilation"], dims)
        extra = each(where, "output_padding", values["output_padding"], dims)
        low, high = borders(where, values["padding"], dims)
        made = []
        for i in range(dims):
            if extra[i] >= max(stride[i], dilation[i]):
                given = f"output_padding {extra[i]} with stride {stride[i]} and dilation {dilation[i]}"
                raise InvalidArgument(where, given, allowed="less than the stride or the dilation")
            reach = dilation[i] * (w[2 + i] - 1)
            size = (x[2 + i] - 1) * stride[i] + reach + extra[i] + 1 - low[i] - high[i]
            if x[2 + i] < 1 or size < 1 or max(reach, size, low[i], high[i], stride[i] * x[2 + i]) >= LONGEST:
                given = f"dim {2 + i} of x is {x[2 + i]}, with stride {stride[i]} and padding {low[i]}+{high[i]}"
                raise BadTensorShape(where, given, allowed="what gives a dim of y from 1 to 2^31 - 1")
            made.append(size)
        return [(x[0], w[1] * groups, *made)]

    return shapes


def _taps_of(e: Emitter[V], w: V, dims: Sequence[Dim], groups: int) -> V:
    """Return w[c, co/groups, *k] as [co, c/groups, *(taps, step)], with zeros behind taps that not all phases have."""
    c, co, *kernel = w.spec.shape
    split = e.reshape(w, (groups, c // groups, co, *kernel))
    made = e("transpose", split, axes=(0, 2, 1, *range(3, 3 + len(kernel))))
    filters = e.reshape(made, (groups * co, c // groups, *kernel))
    behind = [-k % d.step for k, d in zip(kernel, dims, strict=True)]
    if any(behind):
        filters = e("pad", filters, low=(0,) * (2 + len(kernel)), high=(0, 0, *behind))
    pairs = [((k + b) // d.step, d.step) for k, b, d in zip(kernel, behind, dims, strict=True)]
    return e.reshape(filters, (groups * co, c // groups, *(n for pair in pairs for n in pair)))


def _filters_of(e: Emitter[V], taps: V, phase: Sequence[Phase]) -> V:
    """Return the filters of a phase, [co·residues, c/groups, *taps], each from its last tap on."""
    dims, (co, ci) = len(phase), taps.spec.shape[:2]
    starts, ends, axes, steps = [], [], [], []
    for i, p in enumerate(phase):
        starts += [p.taps - 1, p.first]
        ends += [-(1 << 63), p.first + p.residues]
        axes += [2 + 2 * i, 3 + 2 * i]
        steps += [-1, 1]
    made = e("slice", taps, starts=tuple(starts), ends=tuple(ends), axes=tuple(axes), steps=tuple(steps))
    made = e("transpose", made, axes=(0, *range(3, 3 + 2 * dims, 2), 1, *range(2, 2 + 2 * dims, 2)))
    return e.reshape(made, (co * math.prod(p.residues for p in phase), ci, *(p.taps for p in phase)))


def _window_of(e: Emitter[V], x: V, dims: Sequence[Dim], phase: Sequence[Phase]) -> tuple[V, Shape, Shape]:
    """Return the part of x that a phase reads, and the zeros that it reads before and behind that."""
    starts, ends, before, behind = [], [], [], []
    for size, d, p in zip(x.spec.shape[2:], dims, phase, strict=True):
        room, first = d.places + (p.taps - 1) * d.spread, d.first - p.shift - (p.taps - 1) * d.spread
        starts.append(min(max(first, 0), size))
        ends.append(max(starts[-1], min(size, first + room)))
        before.append(min(max(-first, 0), room))
        behind.append(room - before[-1] - (ends[-1] - starts[-1]))
    if any(starts) or tuple(ends) != x.spec.shape[2:]:
        x = e("slice", x, starts=tuple(starts), ends=tuple(ends), axes=tuple(range(2, x.spec.ndim)))
    if 0 in x.spec.shape[2:]:  # a phase that lies in the padding, of which a convolution would have no image
        zeros: Shape = (0,) * len(dims)
        return e("pad", x, low=(0, 0, *before), high=(0, 0, *behind)), zeros, zeros
    return x, tuple(before), tuple(behind)


def _transposed_parts(name: str, dims: int) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        """Emit a convolution for each run of residues of the strides that read x alike, and y of these.

        No product with a zero between the elements of x is made, which would be most of them.
        """
        x, w, bias, y = inputs[0], inputs[1], find_optional(inputs, 2), outputs[0]
        stride, dilation = (each(name, n, values[n], dims) for n in ("stride", "dilation"))
        low, _ = borders(name, values["padding"], dims)
        lines = [dim_of(*d) for d in zip(stride, dilation, w.spec.shape[2:], low, y.shape[2:], strict=True)]
        taps, places = _taps_of(e, w, lines, values["groups"]), [d.places for d in lines]
        parts = []
        for phase in itertools.product(*(d.phases for d in lines)):
            shape = (*y.shape[:2], *(p.residues for p in phase), *places)
            if 0 in (p.taps for p in phase):
                zeros = e.fill(shape, 0.0, y.dtype.compute)
                parts.append(finish(e, zeros, [(bias, "b", 1.0)], values["activation"], y.dtype))
                continue
            count = math.prod(p.residues for p in phase)
            terms = bias
            if bias is not None and count > 1:
                terms = e.collapse(e.repeat(e.reshape(bias, (y.shape[1], 1)), (y.shape[1], count)), (2,))
            part, before, behind = _window_of(e, x, lines, phase)
            made = e(
                f"conv{dims}d", part, _filters_of(e, taps, phase), terms, groups=values["groups"],
                activation=values["activation"], **_conv_window(before, behind, [d.spread for d in lines]),
            )  # fmt: skip
            parts.append(e.reshape(made, shape))
        return _join(e, parts, lines, y)

    return decompose


def _conv_window(before: Shape, behind: Shape, dilation: Sequence[int]) -> dict[str, Any]:
    """Return the attributes of a convolution with that padding."""
    if len(before) == 1:
        return {"padding": before[0], "end_padding": behind[0], "dilation": dilation[0]}
    return {"padding": (*before, *behind), "dilation": tuple(dilation)}


def _join(e: Emitter[V], parts: Sequence[V], dims: Sequence[Dim], y: TensorDesc) -> V:
    """Return y of the parts [n, co, *residues, *places] of its phases."""
    count = len(dims)
    for i in reversed(range(count)):
        n = len(dims[i].phases)
        runs = [parts[at : at + n] for at in range(0, len(parts), n)]
        parts = [run[0] if n == 1 else e("concat", *run, axis=2 + i) for run in runs]
    (made,) = parts
    if any(d.stride > 1 for d in dims):
        made = e("transpose", made, axes=(0, 1, *(a for i in range(count) for a in (2 + count + i, 2 + i))))
    made = e.reshape(made, (*y.shape[:2], *(d.places * d.stride for d in dims)))
    if made.spec.shape == y.shape:
        return made
    starts, ends = tuple(d.cut for d in dims), tuple(d.cut + n for d, n in zip(dims, y.shape[2:], strict=True))
    return e("slice", made, starts=starts, ends=ends, axes=tuple(range(2, 2 + count)))


def _conv_transpose(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int,
    activation: str,
) -> Any:  # fmt: skip
    """Return the sum over the taps of w of x times each, at the places that the tap gives; x is 0 beyond its ends."""
    dims, (low, high) = w.ndim - 2, borders("", padding, w.ndim - 2)
    steps, spread, extra = (each("", "", v, dims) for v in (stride, dilation, output_padding))
    ends, inner, shape, cut = [], [], [], []
    for i in range(dims):
        reach = spread[i] * (w.shape[2 + i] - 1)
        size = (x.shape[2 + i] - 1) * steps[i] + reach + 1 + extra[i] - low[i] - high[i]
        first = min(low[i] // steps[i], -((reach - low[i]) // steps[i]))  # to last: elements of x that may count
        last = (low[i] + size - 1) // steps[i]
        before = max(0, -first)
        ends.append((before, max(0, last + 1 - x.shape[2 + i])))
        inner.append(slice(first + before, last + 1 + before))
        shape.append((last - first) * steps[i] + max(reach, steps[i] - 1) + 1)
        cut.append(slice(low[i] - first * steps[i], low[i] - first * steps[i] + size))
    lead = (slice(None), slice(None))
    window, result = (*lead, *inner), (*lead, *cut)
    padded = np.pad(x, ((0, 0), (0, 0), *ends))[window]
    own = (groups, w.shape[0] // groups)
    given = padded.reshape(x.shape[0], *own, *padded.shape[2:])
    y = np.zeros((x.shape[0], groups, w.shape[1], *shape))
    for tap in np.ndindex(w.shape[2:]):
        at = [
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, s, n in zip(tap, spread, steps, padded.shape[2:], strict=True)
        ]
        place, factors = (*lead, slice(None), *at), (*lead, *tap)
        y[place] += np.einsum("ngc...,gcm->ngm...", given, w[factors].reshape(*own, w.shape[1]))
    whole = y.reshape(x.shape[0], groups * w.shape[1], *shape)
    return add_and_activate(whole[result], bias, activation)


def _transposed_scale(x: Any, w: Any, bias: Any, **values: Any) -> Any:
    sizes: list[Any] = [None if t is None else np.abs(t) for t in (x, w, bias)]
    slope = 1 if values["activation"] in ("none", "relu") else 4
    terms = math.prod(w.shape[2:]) * w.shape[0]
    return slope * (2 + math.sqrt(terms)) * _conv_transpose(*sizes, **{**values, "activation": "none"})


SPREAD: SampleTable = [  # x, w, whether there is a bias, and attributes, in 1, 2 or 3 dims by the first so many
    ((1, 1), (1, 1), (1, 1, 1), (1, 1, 1), 0, {}),
    ((2, 4), (4, 3), (5, 4, 3), (3, 2, 3), 1, {"stride": (2,), "padding": (1,), "output_padding": (1,)}),
    ((1, 4), (4, 2), (4, 3, 2), (2, 3, 1), 1, {"groups": 2, "stride": (3,), "dilation": (2,), "activation": "relu"}),
    ((1, 2), (2, 1), (4, 5, 6), (2, 1, 3), 0, {"groups": 2, "padding": (2,), "stride": (2,)}),
    ((2, 2), (2, 3), (3, 4, 2), (4, 5, 4), 1, {"stride": (3,), "padding": (2,), "activation": "relu"}),
    ((1, 2), (2, 2), (3, 2, 2), (3, 4, 2), 0, {"stride": (4,), "dilation": (6,), "output_padding": (5,)}),
    ((1, 1), (1, 1), (1, 2, 1), (4, 5, 4), 0, {"stride": (3,), "padding": (3, 3, 3, 0, 0, 0)}),
    ((0, 3), (3, 2), (2, 2, 2), (2, 2, 2), 1, {}),
    ((1, 0), (0, 2), (2, 2, 2), (2, 2, 2), 1, {"stride": (2,), "activation": "silu"}),
]
LARGE: SampleTable = [
    ((2, 16, 1501), (16, 24, 4), {"stride": (2,), "padding": (1,)}),
    ((1, 16, 33, 31), (16, 24, 4, 4), {"stride": (2,), "padding": (1,)}),
    ((1, 8, 5, 17, 15), (8, 12, 4, 4, 4), {"stride": (2,), "padding": (1,)}),
]


def _transposed_samples(dims: int) -> list[Sample]:
    made = []
    for n, w, sizes, kernel, given, values in SPREAD:
        filters = (*w, *kernel[:dims])
        bias = {"bias": (w[1] * values.get("groups", 1),)} if given else {}
        if len(values.get("padding", ())) == 6:
            values = {**values, "padding": (*values["padding"][:dims], *values["padding"][3 : 3 + dims])}
        made.append(Sample({"x": (*n, *sizes[:dims]), "w": filters, **bias}, values))
    x, w, values = LARGE[dims - 1]
    return [*made, Sample({"x": x, "w": w, "bias": (w[1],)}, values, size="wide")]


def _transposed_errors(dims: int) -> list[ErrorCase]:
    x, w = (1, 4, *[3] * dims), (4, 2, *[2] * dims)
    return [
        ErrorCase({"x": x, "w": (3, *w[1:])}, BadTensorShape),
        ErrorCase({"x": x[1:], "w": w}, BadTensorShape),
        ErrorCase({"x": x, "w": w, "bias": (3,)}, BadTensorShape),
        ErrorCase({"x": x, "w": w}, BadTensorShape, {"padding": (2,)}),
        ErrorCase({"x": (1, 4, *[0] * dims), "w": w}, BadTensorShape, {"stride": (4,)}),
        ErrorCase({"x": x, "w": w}, BadTensorShape, {"groups": 3}),
        ErrorCase({"x": x, "w": w}, InvalidArgument, {"output_padding": (1,)}),
        ErrorCase({"x": x, "w": w}, InvalidArgument, {"stride": (1,) * (dims + 1)}),
    ]


for _dims, _name in enumerate(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1):
    _room, _window, _places = SPATIAL[_dims - 1], WINDOWS[_dims - 1], PLACES[_dims - 1]
    declare(
        _name,
        f"CVT{_dims}",
        f"x: T[n, c, {_room}], w: T[c, m, {_window}], bias?: T[groups*m] -> y: T[n, groups*m, {_places}]",
        {"T": FLOATS},
        family="contraction",
        doc=(
            "activation(sum + bias) of the sums of x[i]·w[c, co/groups, k] at i·stride + k·dilation - padding (ONNX"
            " ConvTranspose). Each dim of y is (x's - 1)·stride + dilation·(w's - 1) + 1 - padding + output_padding."
            " Beyond its ends x counts as 0, and is multiplied too: an infinite weight makes NaN of it."
        ),
        reference=_conv_transpose,
        tolerance=Tolerance(2, _transposed_scale),
        attrs=attrs(
            f"CVT{_dims}",
            integers("stride", (1,), f"from one element of x to the next in y: one or {_dims}", minimum=1),
            integers("padding", (0,), "cut off y: one, one a dim, or all before and all behind", minimum=0),
            integers("output_padding", (0,), f"more at the end of y: one or {_dims}", minimum=0),
            integers("dilation", (1,), f"from one element of w to the next: one or {_dims}", minimum=1),
            GROUPS,
            ACTIVATION,
        ),
        shapes=_transposed_shapes(_name, _dims),
        normal_form=as_given,
        decompose=_transposed_parts(_name, _dims),
        flops=lambda i, o: 2.0 * (i[0].numel * i[1].numel / max(1, i[1].shape[0]) if i[0] and i[1] else 0),
        samples=lambda dims=_dims: _transposed_samples(dims),
        errors=_transposed_errors(_dims),
    )
