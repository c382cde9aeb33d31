"""Data movement that only changes strides: copy, rearrange, slice, flatten, all computed by the kernel `rearrange`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.decomposition import LETTERS, Emitter, V
from ..declare.normal_form import Descs, axis_of, pointwise
from ..dtypes import PLAIN, U8
from ..layout import TensorDesc, broadcast_shapes, make_desc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

SHAPES = [(), (1,), (7,), (1025,), (3, 5), (64, 65), (2, 3, 4), (4, 1, 33), (2, 1, 2, 1, 3, 1, 2, 2), (0,), (3, 0, 2)]


def _bench(name: str = "x") -> list[Sample]:
    sizes = {"small": 64, "medium": 512, "large": 4096}
    wide = Sample({name: (769, 801)}, size="wide")
    return [wide, *(Sample({name: (n, n)}, size=size) for size, n in sizes.items())]


def broadcast(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit a loop that reads x for each element of y, to whose shape it broadcasts."""
    (x,), y = inputs, outputs[0]
    if y.dtype.storage:  # no loop computes in such a type, so its bits are read
        bits = broadcast(e, [e("bit_cast", x, dtypes={"U": U8})], values, [make_desc(U8, y.shape)])
        return e("bit_cast", bits, dtypes={"U": y.dtype})
    loops = LETTERS[: y.ndim]
    given, letters = e.squeeze(x, loops[y.ndim - x.spec.ndim :], dict(zip(loops, y.shape, strict=True)))
    missing = [c for c in loops if c not in letters]
    if not missing:
        return e.loop(f"{letters}->{loops}", "x0", given)
    shape = e.fill([y.shape[loops.index(c)] for c in missing], 0.0, y.dtype)  # its shape says how often x is repeated
    return e.loop(f"{letters},{''.join(missing)}->{loops}", "x0", given, shape)


def _copy_shape(
    inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None
) -> list[tuple[int, ...]]:
    """Return y's own shape where x broadcasts to it, else x's."""
    x = inputs[0]
    y = x if outputs is None else outputs[0]
    return [tuple(y) if broadcast_shapes(x, y) == tuple(y) else tuple(x)]


copy = declare(
    "copy",
    "COPY",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc="y = x, where x broadcasts to y's shape (NumPy's copyto) and both may have any strides.",
    reference=lambda x, out: np.broadcast_to(x, out[0].shape),
    shapes=_copy_shape,
    decompose=broadcast,
    samples=lambda: [
        *(Sample({"x": s}) for s in SHAPES),
        *(
            Sample({"x": s}, outputs={"y": t})
            for s, t in [((), (3,)), ((4, 1), (4, 5)), ((3,), (2, 3)), ((1, 3, 1), (2, 3, 4))]
        ),
        *_bench(),
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (4,)}),
        ErrorCase({"x": (2, 3)}, BadTensorShape, outputs={"y": (3,)}),
    ],
    exact=True,
)


rearrange = declare(
    "rearrange",
    "REAR",
    "x: T[*d] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc=(
        "y = x element by element, both with strides of their own: any permutation, transposition or change of layout"
        " is a view of one side. The shapes are equal; copy broadcasts."
    ),
    reference=lambda x: x,
    samples=lambda: [*(Sample({"x": s}) for s in SHAPES), *_bench()],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (1,)}),
        ErrorCase({"x": (2, 3)}, BadTensorShape, outputs={"y": (3, 2)}),
        ErrorCase({"x": (2, 3)}, BadTensorShape, outputs={"y": (6,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"y": PLAIN[1]}, outputs={"y": (3,)}),
    ],
    exact=True,
)


def slices(shape: Sequence[int], values: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Return (start, length, step) for each axis; `ends` are clamped as NumPy does."""
    starts, ends = values["starts"], values["ends"]
    axes = values["axes"] or tuple(range(len(starts)))
    steps = values["steps"] or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InvalidArgument(
            "slice",
            f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps",
            allowed="as many of each",
        )
    picked = [(0, d, 1) for d in shape]
    seen: set[int] = set()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = axis_of("slice", axis, len(shape))
        if step == 0 or at in seen:
            raise InvalidArgument(
                "slice", f"step {step} along axis {axis}", allowed="steps other than 0, each axis once"
            )
        seen.add(at)
        first, length = _clamp(start, end, step, shape[at])
        picked[at] = (first, length, step)
    return picked


def _clamp(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Return (first element, length) of start:end:step of `size` elements, as NumPy counts them."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = max(start + size, low) if start < 0 else min(start, high)
    last = max(end + size, low) if end < 0 else min(end, high)
    if end == -(2**63) and step > 0:  # stands for no end
        last = high
    passed = last - first if step > 0 else first - last
    return first, max(0, (passed + abs(step) - 1) // abs(step))


def _slice_shape(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return [tuple([length for _, length, _ in slices(inputs[0], values)])]


def _slice_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` of y and the picked part of x: starts are in its offset, steps in its strides."""
    (x,) = inputs
    assert x is not None
    return pointwise([slice_desc(x, slices(x.shape, values))], outputs, values)


def slice_desc(x: TensorDesc, picked: Sequence[tuple[int, int, int]]) -> TensorDesc:
    """Return the view of x by (start, length, step) along each axis."""
    shape = [length for _, length, _ in picked]
    offset = x.offset
    if 0 not in shape:
        offset += sum(start * s for (start, _, _), s in zip(picked, x.strides, strict=True))
    strides = [s * step if length > 1 else s for (_, length, step), s in zip(picked, x.strides, strict=True)]
    return TensorDesc(x.dtype, shape, strides, offset)


def _slice_reference(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    index = [slice(None)] * x.ndim
    for i, axis in enumerate(axes or range(len(starts))):
        end = ends[i] if ends[i] != -(2**63) else None
        index[axis] = slice(starts[i], end, steps[i] if steps else 1)
    return x[tuple(index)]


slice_ = declare(
    "slice",
    "SLIC",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc=(
        "The part of x from starts to ends by steps along axes, clamped as NumPy's slices are; an end of -2^63 means"
        " 'to the start'."
    ),
    reference=_slice_reference,
    attrs=attrs(
        "SLC1",
        integers("starts"),
        integers("ends"),
        integers("axes", (), "all in order where empty"),
        integers("steps", (), "1 where empty"),
    ),
    shapes=_slice_shape,
    normal_form=_slice_normal_form,
    samples=lambda: [
        Sample({"x": shape}, {"starts": starts, "ends": ends, "axes": axes, "steps": steps}, size=size)
        for shape, starts, ends, axes, steps, size in [
            ((7,), (2,), (5,), (), (), "small"),
            ((7,), (-3,), (100,), (), (), "small"),
            ((7,), (5,), (2,), (), (), "small"),
            ((7,), (6,), (-(2**63),), (), (-2,), "small"),
            ((4, 5), (1, 0), (3, 5), (), (2, 2), "small"),
            ((4, 5, 6), (1, 2), (3, 6), (0, -1), (), "small"),
            ((3, 0), (1,), (3,), (), (), "small"),
            ((2, 3, 2, 3), (0, 1), (2, 3), (0, 3), (1, 1), "small"),
            ((800, 803), (1, 2), (799, 801), (), (), "wide"),
            ((1024, 1024), (1, 1), (1023, 1023), (), (), "medium"),
            ((4096, 4096), (1, 1), (4095, 4095), (), (), "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (4,)}, InvalidArgument, {"starts": (0,), "ends": (2, 3)}),
        ErrorCase({"x": (4,)}, InvalidArgument, {"starts": (0,), "ends": (2,), "axes": (1,)}),
        ErrorCase({"x": (4,)}, InvalidArgument, {"starts": (0,), "ends": (2,), "steps": (0,)}),
        ErrorCase({"x": (4,)}, InvalidArgument, {"starts": (0,)}),
    ],
    exact=True,
)


def _flat_run(shape: Sequence[int], values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first of the dims that are merged, and the first one behind them."""
    if len(shape) == 0:
        return 0, 0
    start = axis_of("flatten", values["start_axis"], len(shape), "start_axis")
    end = axis_of("flatten", values["end_axis"], len(shape), "end_axis")
    if start > end:
        raise InvalidArgument(
            "flatten", f"start_axis {start} is behind end_axis {end}", allowed="start_axis up to end_axis"
        )
    return start, end + 1


def _flat_shape(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    shape = tuple(inputs[0])
    start, end = _flat_run(shape, values)
    return [(*shape[:start], math.prod(shape[start:end]), *shape[end:])]


def _flatten_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` in x's shape: y has x's dims, by strides."""
    (x,), (y,) = inputs, outputs
    assert x is not None
    start, end = _flat_run(x.shape, values)
    run = x.shape[start:end]
    inner = [y.strides[start] * math.prod(run[i + 1 :]) for i in range(len(run))]
    strides = [*y.strides[:start], *inner, *y.strides[start + 1 :]]
    return pointwise(inputs, [TensorDesc(y.dtype, x.shape, strides, y.offset)], values)


def _collapse_shape(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,) = inputs
    if x.spec.ndim == 0:
        return e("expand_shape", x, groups=(), shape=(1,))
    start, end = _flat_run(x.spec.shape, values)
    return e.collapse(x, (*(1,) * start, end - start, *(1,) * (x.spec.ndim - end)))


flatten = declare(
    "flatten",
    "FLAT",
    "x: T[*d] -> y: T[*e]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc=(
        "x with its dims from `start_axis` to `end_axis` made one, in row-major order (PyTorch's nn.Flatten); a scalar"
        " becomes one element of rank 1. ONNX's Flatten of axis 1 is the default."
    ),
    reference=lambda x, start_axis, end_axis: x.reshape(
        _flat_shape([x.shape], {"start_axis": start_axis, "end_axis": end_axis})[0]
    ),
    attrs=attrs(
        "FLT2",
        integer("start_axis", 1, "first dim that becomes part of the one"),
        integer("end_axis", -1, "last dim that does"),
    ),
    shapes=_flat_shape,
    normal_form=_flatten_normal_form,
    decompose=_collapse_shape,
    samples=lambda: [
        *(
            Sample({"x": shape}, {"start_axis": start, "end_axis": end})
            for shape, start, end in [
                ((), 0, -1),
                ((7,), 0, 0),
                ((2, 3, 4), 1, -1),
                ((2, 3, 4), 0, -1),
                ((2, 3, 4), 0, 1),
                ((2, 3, 4), -1, 2),
                ((2, 3, 4, 5), 1, 2),
                ((2, 3, 4, 5), -4, -2),
                ((0, 3), 0, 1),
                ((3, 0, 2), 1, 2),
                ((2, 1, 2, 1, 3, 1, 2, 2), 2, 6),
            ]
        ),
        *(
            Sample({"x": shape}, size=size)
            for shape, size in [((16, 41, 1001), "wide"), ((256, 16, 64), "medium"), ((256, 256, 256), "large")]
        ),
    ],
    errors=[
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"start_axis": 2}),
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"end_axis": 2}),
        ErrorCase({"x": (2, 3, 4)}, InvalidArgument, {"start_axis": 2, "end_axis": 1}),
        ErrorCase({"x": (2, 3)}, BadTensorShape, {"start_axis": 1}, outputs={"y": (3, 2)}),
    ],
    exact=True,
)
