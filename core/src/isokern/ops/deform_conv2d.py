"""deform_conv2d: a convolution whose windows read each element at a place of its own, as gathers and a product."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import as_given
from ..dtypes import FLOATS, I32, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .conv2d import extent
from .convolutions import GROUPS, borders, each
from .weighted_gather import WEIGHTED

Shape = tuple[int, ...]
WHERE = "deform_conv2d"


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, w, offset, _bias, mask = [*inputs, None, None][:5]
    groups, parts = values["groups"], values["offset_groups"]
    if w[0] % groups or x[1] != w[1] * groups or x[1] % parts:
        given = f"x has {x[1]} channels and w is {list(w)} with groups={groups} and offset_groups={parts}"
        raise BadTensorShape(WHERE, given, allowed="channels of x and filters that the groups share evenly")
    if w[2] == 0 or w[3] == 0 or x[2] > 4194304 or x[3] > 4194304:
        raise BadTensorShape(WHERE, f"x is {list(x)} and w {list(w)}", allowed="windows from 1, dims up to 4194304")
    stride = each(WHERE, "stride", values["stride"], 2)
    dilation = each(WHERE, "dilation", values["dilation"], 2)
    low, high = borders(WHERE, values["padding"], 2)
    y = [extent(WHERE, f"dim {2 + i}", x[2 + i], low[i], high[i], w[2 + i], stride[i], dilation[i]) for i in range(2)]
    places = parts * w[2] * w[3]
    if tuple(offset) != (x[0], 2 * places, *y):
        given = f"offset is {list(offset)}"
        raise BadTensorShape(WHERE, given, allowed=f"{[x[0], 2 * places, *y]}: offset_groups x window x 2 channels")
    if mask is not None and tuple(mask) != (x[0], places, *y):
        raise BadTensorShape(WHERE, f"mask is {list(mask)}", allowed=f"{[x[0], places, *y]}")
    return [(x[0], w[0], *y)]


def _axis(e: Emitter[V], offset: V, axis: int, kernel: int, outs: Shape, size: int, values: Mapping[str, Any]) -> Any:
    """Return which elements of an axis the windows read, [n, g, k, p, 2] in I64, and their weights.

    `kernel` is the window's width, `outs` the dims of y; a place outside has weight 0, and so has NaN.
    """
    stride, dilation = (each("", name, values[name], 2)[axis] for name in ("stride", "dilation"))
    low = borders("", values["padding"], 2)[0][axis]
    _n, _g, k, _, p = offset.spec.shape
    window = f"quotient(x0, {kernel})" if axis == 0 else f"remainder(x0, {kernel})"
    place = f"quotient(x1, {outs[1]})" if axis == 0 else f"remainder(x1, {outs[1]})"
    base = e.loop("k,p->kp", f"{window} * {dilation} + {place} * {stride} - {low}", e.iota(k, I64), e.iota(p, I64))
    moved = e.collapse(e("slice", offset, starts=(axis,), ends=(axis + 1,), axes=(3,)), (1, 1, 2, 1))
    at = e.loop("ngkp,kp->ngkp", "x0 + x1", moved, e.cast(base, moved.spec.dtype))
    at = e.loop("ngkp->ngkp", f"(x0 if x0 < {size + 1} else {size + 1}) if x0 > -2 else -2", at)
    places = e.loop("ngkp,t->ngkpt", "floor(x0) + x1", at, e.iota(2, at.spec.dtype))
    inside = f"1 - abs(x0 - x1) if x0 >= 0 and x0 < {size} else 0"
    weights = e.loop("ngkpt,ngkp->ngkpt", inside, places, at)
    return e.cast(e.loop("ngkpt->ngkpt", f"minimum(maximum(x0, 0), {size - 1})", places), I64), weights


def _deform(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w, offset, bias, mask = inputs[0], inputs[1], inputs[2], find_optional(inputs, 3), find_optional(inputs, 4)
    y = outputs[0]
    (n, c, h, v), (co, ci, kh, kw) = x.spec.shape, w.spec.shape
    groups, parts, wide = values["groups"], values["offset_groups"], y.dtype.compute
    if y.numel == 0 or x.spec.numel == 0:
        return _add_bias(e, e.fill(y.shape, 0.0, wide), bias, y)
    k, p, outs = kh * kw, y.shape[2] * y.shape[3], tuple(y.shape[2:])
    moved = e.reshape(e.cast(offset, wide), (n, parts, k, 2, p))
    (rows, down), (columns, across) = (_axis(e, moved, i, kw, outs, (h, v)[i], values) for i in (0, 1))
    index = e.collapse(e.loop("ngkpa,ngkpb->ngkpab", f"x0 * {v} + x1", rows, columns), (1, 1, 1, 1, 2))
    starts = e.reshape(e.iota(n * parts, I64), (n, parts))
    index = e.loop("ngkpt,ng->ngkpt", f"x0 + x1 * {h * v}", index, starts)
    weights = e.collapse(e.loop("ngkpa,ngkpb->ngkpab", "x0 * x1", down, across), (1, 1, 1, 1, 2))
    if mask is not None:
        given = e.reshape(e.cast(mask, wide), (n, parts, k, p))
        weights = e.loop("ngkpt,ngkp->ngkpt", "x0 * x1 if x0 != 0 else 0", weights, given)
    images = e("transpose", e.reshape(x, (n * parts, c // parts, h * v)), axes=(0, 2, 1))
    found = e("gather", e.reshape(images, (n * parts * h * v, c // parts)), index, axis=0)
    read = e.loop("ngkptc,ngkpt->ngckp", WEIGHTED, found, weights, combine="sum", dtype=wide)
    read = e.reshape(read, (n, groups, ci * k, p))
    filters = e.cast(e.reshape(w, (groups, co // groups, ci * k)), wide)
    made = e.reshape(e.loop("goq,ngqp->ngop", "x0 * x1", filters, read, combine="sum"), (n, co, *outs))
    return _add_bias(e, made, bias, y)


def _add_bias(e: Emitter[V], made: V, bias: V | None, y: TensorDesc) -> V:
    if bias is not None:
        made = e.loop("nohw,o->nohw", "x0 + x1", made, e.cast(bias, made.spec.dtype))
    return e.cast(made, y.dtype)


def _read(
    x: Any, w: Any, offset: Any, mask: Any, values: Mapping[str, Any], compute: DType, magnitude: bool
) -> tuple[Any, Any]:
    """Return what each window reads, [n, c, k, p], by NumPy; places are in the compute type."""
    (n, c, *sizes), (kh, kw), parts = x.shape, w.shape[2:], values["offset_groups"]
    kind: Any = np.dtype(compute.numpy).type
    outs, k, p = offset.shape[2:], kh * kw, offset.shape[2] * offset.shape[3]
    moved, window, place = (
        offset.reshape(n, parts, k, 2, p).astype(kind),
        np.indices((kh, kw)).reshape(2, k),
        np.indices(outs).reshape(2, p),
    )
    places = []
    for axis in (0, 1):
        stride, dilation = (each("", name, values[name], 2)[axis] for name in ("stride", "dilation"))
        base = window[axis][:, None] * dilation + place[axis] * stride - borders("", values["padding"], 2)[0][axis]
        places.append(moved[:, :, :, axis] + base.astype(kind))
    y = np.zeros((n, c, k, p))
    factor = np.ones((n, parts, k, p)) if mask is None else mask.reshape(n, parts, k, p)
    for i, g, m, q in np.ndindex(n, parts, k, p):
        own = slice(g * (c // parts), (g + 1) * (c // parts))
        taps: list[list[tuple[int, float]]] = []
        for axis in (0, 1):
            at = places[axis][i, g, m, q]
            at = min(at, kind(sizes[axis] + 1)) if at > -2 else kind(-2)
            first = np.floor(at)
            near = [(int(first) + t, float(kind(1) - abs(kind(first + t) - at))) for t in (0, 1)]
            taps.append([(j, u) for j, u in near if 0 <= j < sizes[axis] and u != 0])
        for r, u in taps[0]:
            for s, t in taps[1]:
                term = x[i, own, r, s] * u * t * factor[i, g, m, q]
                y[i, own, m, q] += np.abs(term) if magnitude else term
    return y, outs


def _combine(
    x: Any, w: Any, offset: Any, bias: Any, mask: Any, values: Mapping[str, Any], compute: DType, magnitude: bool
) -> Any:
    read, outs = _read(x, w, offset, mask, values, compute, magnitude)
    groups, (n, co) = values["groups"], (len(x), w.shape[0])
    size = math.prod(w.shape[1:])
    filters = (np.abs(w) if magnitude else w).reshape(groups, co // groups, size)
    rows = read.reshape(n, groups, size, outs[0] * outs[1])
    y = np.einsum("goq,ngqp->ngop", filters, rows).reshape(n, co, *outs)
    return y if bias is None else y + (np.abs(bias) if magnitude else bias)[:, None, None]


def _reference(x: Any, w: Any, offset: Any, bias: Any, mask: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
    return _combine(x, w, offset, bias, mask, values, out[0].dtype.compute, False)


def _scale(x: Any, w: Any, offset: Any, bias: Any, mask: Any, compute: DType, **values: Any) -> Any:
    growth = 8 + np.sqrt(np.prod(w.shape[1:]))
    return growth * np.nan_to_num(_combine(x, w, offset, bias, mask, values, compute, True), nan=0.0)


def _sample(x: Shape, w: Shape, y: Shape, more: str = "", size: str = "small", **values: Any) -> Sample:
    """Return a sample of y's dims `y`; `more` names the optional inputs: b and m."""
    places = values.get("offset_groups", 1) * w[2] * w[3]
    shapes: dict[str, Any] = {"x": x, "w": w, "offset": (x[0], 2 * places, *y)}
    if "b" in more:
        shapes["bias"] = w[:1]
    if "m" in more:
        shapes["mask"] = (x[0], places, *y)
    return Sample(shapes, values, size=size)


_PLAIN = {"x": (1, 4, 5, 5), "w": (6, 4, 3, 3), "offset": (1, 18, 3, 3)}

declare(
    WHERE,
    "DFCV",
    "x: T[n, c, h, v], w: T[co, ci, kh, kw], offset: T[n, p, oh, ow], bias?: T[co], mask?: T[n, q, oh, ow]"
    " -> y: T[n, co, oh, ow]",
    {"T": FLOATS},
    family="contraction",
    doc=(
        "A convolution whose windows read x at places that offset moves (ONNX DeformConv, torchvision's deform_conv2d;"
        " Dai et al. 2017, and with mask, Zhu et al. 2019): element (i, j) of the window at (a, b) reads x at row a ·"
        " stride - padding + i · dilation + its offset, and at such a column, bilinearly, where elements outside x are"
        " 0, times its mask. offset has for each of offset_groups, and each element of the window, a channel of rows"
        " and one of columns. Places are computed in the compute type; NaN reads 0."
    ),
    reference=_reference,
    tolerance=Tolerance(4, _scale),
    attrs=attrs(
        "DFC1",
        integers("stride", (1,), "one or two", minimum=1),
        integers("padding", (0,), "one, two, or four: before each dim, then behind", minimum=0),
        integers("dilation", (1,), "one or two", minimum=1),
        GROUPS,
        integer("offset_groups", 1, "groups of channels with offsets of their own", minimum=1),
    ),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_deform,
    flops=lambda i, o: 2.0 * o[0].numel * (i[1].numel / max(1, i[1].shape[0]) if i[1] is not None else 0),
    domains={"offset": "unit", "mask": "unit"},
    samples=lambda: [
        _sample((1, 1, 3, 4), (1, 1, 2, 2), (2, 3)),
        _sample((2, 4, 5, 6), (6, 4, 3, 3), (5, 6), "bm", padding=(1,)),
        _sample((1, 4, 6, 5), (4, 2, 3, 2), (3, 2), "m", groups=2, offset_groups=2, stride=(2,), padding=(1, 0, 1, 0)),
        _sample((2, 6, 5, 5), (3, 6, 2, 2), (3, 3), "b", offset_groups=3, dilation=(2,)),
        _sample((1, 0, 3, 3), (2, 0, 2, 2), (2, 2), "b"),
        _sample((0, 2, 3, 3), (2, 2, 2, 2), (2, 2), "m"),
        _sample((1, 8, 61, 59), (12, 8, 3, 3), (61, 59), "bm", "wide", padding=(1,)),
        _sample((1, 64, 56, 56), (64, 64, 3, 3), (56, 56), "m", "medium", padding=(1,)),
        _sample((4, 128, 56, 56), (128, 128, 3, 3), (56, 56), "m", "large", padding=(1,)),
        Sample(
            {"x": (1, 2, 4, 4), "w": (2, 2, 2, 2), "offset": (1, 8, 3, 3)}, values={"offset": "moderate"}, size="long"
        ),
    ],
    errors=[
        ErrorCase({**_PLAIN, "w": (6, 3, 3, 3)}, BadTensorShape),
        ErrorCase({**_PLAIN, "offset": (1, 9, 3, 3)}, BadTensorShape),
        ErrorCase({**_PLAIN, "offset": (1, 18, 4, 3)}, BadTensorShape),
        ErrorCase({**_PLAIN, "mask": (1, 8, 3, 3)}, BadTensorShape),
        ErrorCase({**_PLAIN, "bias": (5,)}, BadTensorShape),
        ErrorCase({**_PLAIN, "x": (4, 5, 5)}, BadTensorShape),
        ErrorCase(_PLAIN, BadTensorShape, {"offset_groups": 3}),
        ErrorCase(_PLAIN, InvalidArgument, {"stride": (1, 1, 1)}),
        ErrorCase(_PLAIN, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase(_PLAIN, BadTensorShape, outputs={"y": (1, 6, 3, 4)}),
    ],
)
