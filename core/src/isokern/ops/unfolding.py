"""Windows as a tensor of their own: sliding_windows, unfold and im2col_3d."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import Descs, as_given, axis_of, pointwise
from ..dtypes import I64, PLAIN
from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import extent
from .convolutions import borders, slide
from .pools import Shape, window


def _columns_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, windows = inputs[0], window("im2col_3d", values, 3)
    low, high = borders("im2col_3d", values["padding"], 3)
    count, volume = 1, x[1]
    for i in range(3):
        kernel, stride, dilation = windows[i]
        volume = volume * kernel
        count = count * extent("im2col_3d", f"dim {2 + i}", x[2 + i], low[i], high[i], kernel, stride, dilation)
    return [(x[0], volume, count)]


def _columns(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, windows = inputs[0], window("im2col_3d", values, 3)
    low, high = borders("im2col_3d", values["padding"], 3)
    y = e("pad", x, low=(0, 0, *low), high=(0, 0, *high)) if any((*low, *high)) else x
    kernel, stride, dilation = zip(*windows, strict=True)
    y = e("sliding_windows", y, axes=(2, 3, 4), sizes=kernel, steps=stride, dilations=dilation)
    return e.collapse(e("transpose", y, axes=(0, 1, 5, 6, 7, 2, 3, 4)), (1, 4, 3))


def _columns_reference(x: Any, **values: Any) -> Any:
    windows, (low, high) = window("", values, 3), borders("", values["padding"], 3)
    bits = x.view(f"u{x.dtype.itemsize}")  # NumPy makes no windows of F8E5M2
    room = np.zeros((*x.shape[:2], *(a + n + b for a, n, b in zip(low, x.shape[2:], high, strict=True))), bits.dtype)
    inner = [slice(None)] * 2 + [slice(a, a + n) for a, n in zip(low, x.shape[2:], strict=True)]
    room[tuple(inner)] = bits
    view = slide(room, windows, ((0,) * 3, (0,) * 3), 0)
    made = view.transpose(0, 1, 5, 6, 7, 2, 3, 4)
    return made.reshape(x.shape[0], math.prod(made.shape[1:5]), math.prod(made.shape[5:])).view(x.dtype)


declare(
    "im2col_3d",
    "I2C3",
    "x: T[n, c, d, h, w] -> y: T[n, k, l]",
    {"T": PLAIN},
    family="movement",
    doc="Each window of a volume as a column, channels slowest, 0 outside the volume: im2col in three dims.",
    reference=_columns_reference,
    attrs=attrs(
        "I2C3",
        integers("kernel", doc="window: one or three", minimum=1),
        integers("stride", (1,), "one or three", minimum=1),
        integers("padding", (0,), "one, three, or six: before each dim, then behind", minimum=0),
        integers("dilation", (1,), "one or three", minimum=1),
    ),
    shapes=_columns_shapes,
    normal_form=as_given,
    decompose=_columns,
    samples=lambda: [
        Sample({"x": (1, 1, 2, 2, 2)}, {"kernel": (2,)}),
        Sample({"x": (2, 3, 4, 3, 5)}, {"kernel": (2, 1, 3), "padding": (1, 0, 1), "stride": (2, 1, 1)}),
        Sample({"x": (1, 2, 3, 5, 4)}, {"kernel": (2,), "dilation": (1, 2, 1), "padding": (0, 1, 0, 1, 0, 0)}),
        Sample({"x": (0, 2, 3, 3, 3)}, {"kernel": (2,)}),
        Sample({"x": (1, 2, 11, 31, 33)}, {"kernel": (3,), "padding": (1,)}, size="wide"),
    ],
    errors=[
        ErrorCase({"x": (1, 1, 2, 3, 3)}, BadTensorShape, {"kernel": (3,)}),
        ErrorCase({"x": (1, 2, 2, 2)}, BadTensorShape, {"kernel": (1,)}),
        ErrorCase({"x": (1, 1, 2, 2, 2)}, InvalidArgument, {"kernel": (1, 1)}),
        ErrorCase({"x": (1, 1, 2, 2, 2)}, InvalidArgument, {"kernel": (1,), "stride": (0,)}),
    ],
    exact=True,
)


def _sliding(values: Mapping[str, Any], rank: int) -> list[tuple[int, int, int, int]]:
    """Return (axis, size, step, dilation) of each axis along which windows lie."""
    axes, sizes = values["axes"], values["sizes"]
    steps, dilations = values["steps"] or (1,) * len(axes), values["dilations"] or (1,) * len(axes)
    if not len(axes) == len(sizes) == len(steps) == len(dilations):
        given = f"{len(axes)} axes, {len(sizes)} sizes, {len(steps)} steps, {len(dilations)} dilations"
        raise InvalidArgument("sliding_windows", given, allowed="as many of each")
    found = []
    seen: set[int] = set()
    for axis, size, step, dilation in zip(axes, sizes, steps, dilations, strict=True):
        at = axis_of("sliding_windows", axis, rank)
        if at in seen:
            raise InvalidArgument("sliding_windows", f"axis {axis} twice", allowed="each axis once")
        seen.add(at)
        found.append((at, size, step, dilation))
    return found


def _sliding_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    if len(x) + len(values["axes"]) > MAX_RANK:
        given = f"x has rank {len(x)}, with {len(values['axes'])} axes"
        raise BadTensorShape("sliding_windows", given, allowed=f"up to {MAX_RANK} of both")
    places = list(x)
    sizes = []
    for axis, size, step, dilation in _sliding(values, len(x)):
        places[axis] = extent("sliding_windows", f"dim {axis}", x[axis], 0, 0, size, step, dilation)
        sizes.append(size)
    return [(*places, *sizes)]


def _windows_of(x: TensorDesc, y: TensorDesc, windows: Sequence[tuple[int, int, int]]) -> TensorDesc:
    """Return the view of x that has y's dims: its own, then one for each (axis, step, dilation)."""
    steps = list(x.strides)
    inner = []
    for axis, step, dilation in windows:
        steps[axis] = x.strides[axis] * step if y.shape[axis] > 1 else x.strides[axis]
        inner.append(x.strides[axis] * dilation)
    return TensorDesc(x.dtype, y.shape, [*steps, *inner], x.offset)


def _sliding_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` of y and of x's windows, which share elements."""
    (x,), (y,) = inputs, outputs
    assert x is not None
    windows = [(axis, step, dilation) for axis, _, step, dilation in _sliding(values, x.ndim)]
    return pointwise([_windows_of(x, y, windows)], outputs, values)


def _sliding_gathers(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit a gather along each axis, and the dims of the windows behind all others."""
    y, rank = inputs[0], inputs[0].spec.ndim
    windows = _sliding(values, rank)
    order, behind = list(range(rank)), []
    for axis, size, step, dilation in sorted(windows):
        at = order[axis]
        numbers = e.iota(outputs[0].shape[axis], I64), e.iota(size, I64)
        y = e("gather", y, e.loop("a,b->ab", f"x0 * {step} + x1 * {dilation}", *numbers), axis=at)
        order = [i + 1 if i > at else i for i in order]
        behind.append((axis, at + 1))
    places = dict(behind)
    axes = (*order, *(places[axis] for axis, *_ in windows))
    return y if axes == tuple(range(len(axes))) else e("transpose", y, axes=axes)


def _sliding_reference(x: Any, **values: Any) -> Any:
    windows = _sliding(values, x.ndim)
    reach = [d * (k - 1) + 1 for _, k, _, d in windows]
    bits = x.view(f"u{x.dtype.itemsize}")  # as above
    view = np.lib.stride_tricks.sliding_window_view(bits, reach, tuple(axis for axis, *_ in windows))
    index = [slice(None)] * x.ndim + [slice(None, None, d) for *_, d in windows]
    for axis, _, step, _ in windows:
        index[axis] = slice(None, None, step)
    return view[tuple(index)].view(x.dtype)


SLIDING: SampleTable = [
    ((7,), {"axes": (0,), "sizes": (3,)}, "small"),
    ((3, 5), {"axes": (0,), "sizes": (2,)}, "small"),
    ((2, 3, 9), {"axes": (-1,), "sizes": (4,), "steps": (3,)}, "small"),
    ((2, 5, 9), {"axes": (2, 1), "sizes": (3, 2), "steps": (2, 1), "dilations": (1, 3)}, "small"),
    ((2, 1, 2, 1, 4, 3), {"axes": (4, 5), "sizes": (2, 3), "steps": (2, 5)}, "small"),
    ((4, 3), {"axes": (), "sizes": ()}, "small"),
    ((0, 5), {"axes": (1,), "sizes": (2,), "steps": (2,)}, "small"),
    ((2, 1025), {"axes": (1,), "sizes": (5,), "steps": (4,)}, "small"),
    ((3, 4, 407), {"axes": (1, 2), "sizes": (2, 9), "steps": (1, 3)}, "small"),
    ((2, 3, 4, 21), {"axes": (1, 2, 3), "sizes": (2, 3, 2)}, "small"),
    ((1, 8, 103, 101), {"axes": (2, 3), "sizes": (3, 3)}, "wide"),
]

declare(
    "sliding_windows",
    "SLWN",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc=(
        "Windows of `sizes` elements along `axes`, each a step behind the one before, its elements `dilations` apart,"
        " as new last dims in the order of the axes (NumPy's sliding_window_view)."
    ),
    reference=_sliding_reference,
    attrs=attrs(
        "SLW1",
        integers("axes", doc="along which windows lie"),
        integers("sizes", doc="elements of a window along each", minimum=1),
        integers("steps", (), "from one window to the next; 1 where empty", minimum=1),
        integers("dilations", (), "from one element to the next; 1 where empty", minimum=1),
    ),
    shapes=_sliding_shapes,
    normal_form=_sliding_form,
    decompose=_sliding_gathers,
    samples=lambda: [Sample({"x": x}, values, size=size) for x, values, size in SLIDING],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, {"axes": (0,), "sizes": (4,)}),
        ErrorCase({"x": (3, 3)}, InvalidArgument, {"axes": (2,), "sizes": (1,)}),
        ErrorCase({"x": (3, 3)}, InvalidArgument, {"axes": (0, -2), "sizes": (1, 1)}),
        ErrorCase({"x": (3, 3)}, InvalidArgument, {"axes": (0, 1), "sizes": (1,)}),
        ErrorCase({"x": (3, 3)}, InvalidArgument, {"axes": (0,), "sizes": (0,)}),
        ErrorCase({"x": (1,) * 8}, BadTensorShape, {"axes": (0,), "sizes": (1,)}),
    ],
    exact=True,
)


def _unfold_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, size, step = inputs[0], values["size"], values["step"]
    if len(x) == MAX_RANK:
        raise BadTensorShape("unfold", f"x has rank {len(x)}", allowed=f"up to {MAX_RANK - 1}")
    axis = axis_of("unfold", values["axis"], len(x))
    return [(*x[:axis], extent("unfold", f"dim {axis}", x[axis], 0, 0, size, step), *x[axis + 1 :], size)]


def _unfold_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` of y and of x's windows, which share elements."""
    (x,), (y,) = inputs, outputs
    assert x is not None
    axis = axis_of("unfold", values["axis"], x.ndim)
    return pointwise([_windows_of(x, y, [(axis, values["step"], 1)])], outputs, values)


def _unfold(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    axis, size, step = ((values[n],) for n in ("axis", "size", "step"))
    return e("sliding_windows", inputs[0], axes=axis, sizes=size, steps=step)


def _unfold_reference(x: Any, axis: int, size: int, step: int) -> Any:
    bits = x.view(f"u{x.dtype.itemsize}")  # as above
    windows = np.moveaxis(np.lib.stride_tricks.sliding_window_view(bits, size, axis), axis % x.ndim, 0)
    return np.moveaxis(windows[::step], 0, axis % x.ndim).view(x.dtype)


declare(
    "unfold",
    "UNFD",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc="Windows of `size` elements, each `step` behind the one before, along `axis`, as a new last dim"
    " (PyTorch's Tensor.unfold).",
    reference=_unfold_reference,
    attrs=attrs(
        "UNF1",
        integer("axis", -1, "along which windows lie"),
        integer("size", doc="of a window", minimum=1),
        integer("step", 1, "from one window to the next", minimum=1),
    ),
    shapes=_unfold_shapes,
    normal_form=_unfold_form,
    decompose=_unfold,
    samples=lambda: [
        Sample({"x": x}, {"axis": axis, "size": size, "step": step}, size=of)
        for x, axis, size, step, of in [
            ((7,), 0, 3, 1, "small"),
            ((3, 5), 0, 2, 1, "small"),
            ((2, 3, 9), -1, 4, 3, "small"),
            ((2, 1, 2, 1, 4, 1, 2), 4, 2, 2, "small"),
            ((0, 5), 1, 2, 2, "small"),
            ((2, 1025), 1, 5, 4, "small"),
            ((301, 1025), 1, 4, 2, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, {"size": 4}),
        ErrorCase({"x": ()}, InvalidArgument, {"size": 1}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"size": 1, "axis": 1}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"size": 0}),
        ErrorCase({"x": (1,) * 8}, BadTensorShape, {"size": 1}),
    ],
    exact=True,
)
