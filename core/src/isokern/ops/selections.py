"""Tensors made of indices, and elements chosen by them: one_hot, eye, arange, stack, masked_fill, im2col and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer, integers, number
from ..declare.conversion import convert
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import as_given, axis_of
from ..dtypes import BOOL, F32, FLOATS, I64, INDICES, NUMBERS, PLAIN, DType
from ..layout import MAX_RANK, TensorDesc, broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .conv2d import extent, pad_border, pair, patches, sides
from .iota import COUNTED

Shape = tuple[int, ...]


def _choose_numbers(element: DType, most: int) -> DType:
    """Return a dtype for numbers up to `most` in which truths of them become an element without another cast."""
    return element.compute if element.kind == "f" and most <= 1 << 24 else I64


def _one_hot(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), loops, element = inputs, LETTERS[: outputs[0].ndim], outputs[0].dtype
    wide = _choose_numbers(element, values["depth"])  # rounding moves no larger index below the depth
    numbers = e.iota(values["depth"], wide)
    found = e.loop(f"{loops[:-1]},{loops[-1]}->{loops}", "x0 == x1", e.cast(x, wide), numbers, dtype=BOOL)
    return e.cast(found, element)


def _one_hot_reference(indices: Any, depth: int, out: Sequence[TensorDesc]) -> Any:
    return (indices[..., None] == np.arange(depth)).astype(out[0].dtype.numpy)


declare(
    "one_hot",
    "ONEH",
    "indices: I[*i] -> y: T[*i, depth]",
    {"T": PLAIN, "I": INDICES},
    family="movement",
    doc="1 at the place that each index names, 0 elsewhere; a row of zeros for an index out of range (as in JAX).",
    reference=_one_hot_reference,
    attrs=attrs("ONH1", integer("depth", doc="length of the new last dim", minimum=0)),
    normal_form=as_given,
    decompose=_one_hot,
    samples=lambda: [
        Sample({"indices": shape}, {"depth": depth}, {"indices": "moderate"}, size=size)
        for shape, depth, size in [
            ((), 5, "small"),
            ((7,), 4, "small"),
            ((2, 3), 9, "small"),
            ((2, 1, 2, 1, 3, 1, 2), 2, "small"),
            ((0, 2), 3, "small"),
            ((3,), 0, "small"),
            ((3,), 1025, "small"),
            ((601,), 1025, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"indices": (3,)}, InvalidArgument, {"depth": -1}),
        ErrorCase({"indices": (3,)}, InvalidArgument),
        ErrorCase({"indices": (3,)}, BadTensorDtype, {"depth": 3}, dtypes={"indices": F32}),
        ErrorCase({"indices": (3,)}, BadTensorShape, {"depth": 3}, outputs={"y": (3, 4)}),
    ],
    exact=True,
)


def _eye(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (m, n), element = outputs[0].shape, outputs[0].dtype
    body = f"x1 - x0 == {max(-m - 1, min(values['k'], n + 1))}"
    wide = _choose_numbers(element, m + n + 1)
    return e.cast(e.loop("a,b->ab", body, e.iota(m, wide), e.iota(n, wide), dtype=BOOL), element)


def _eye_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    return [(values["rows"], values["rows"] if values["columns"] < 0 else values["columns"])]


declare(
    "eye",
    "EYE_",
    "-> y: T[m, n]",
    {"T": PLAIN},
    family="movement",
    doc="1 on diagonal k of a matrix, 0 elsewhere (NumPy's eye).",
    reference=lambda rows, columns, k, out: np.eye(rows, out[0].shape[1], k).astype(out[0].dtype.numpy),
    attrs=attrs(
        "EYE1",
        integer("rows", doc="of y", minimum=0),
        integer("columns", -1, "of y; as many as rows where -1", minimum=-1),
        integer("k", 0, "the diagonal: above the main one where positive"),
    ),
    shapes=_eye_shapes,
    normal_form=as_given,
    decompose=_eye,
    samples=lambda: [
        Sample({}, {"rows": m, "columns": n, "k": k}, size=size)
        for m, n, k, size in [
            (3, -1, 0, "small"),
            (3, 5, 1, "small"),
            (5, 3, -2, "small"),
            (3, 3, 7, "small"),
            (0, 3, 0, "small"),
            (3, 0, 0, "small"),
            (2, 1025, 3, "small"),
            (801, 803, 0, "wide"),
        ]
    ],
    errors=[
        ErrorCase({}, InvalidArgument),
        ErrorCase({}, InvalidArgument, {"rows": -1}),
        ErrorCase({}, InvalidArgument, {"rows": 2, "columns": -2}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"rows": 2}),
    ],
    exact=True,
)


def _arange_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    start, stop, step = values["start"], values["stop"], values["step"]
    if step == 0:
        raise InvalidArgument("arange", "step 0", allowed="any other step")
    span = stop - start if step > 0 else start - stop
    return [(max(0, (span + abs(step) - 1) // abs(step)),)]


def _arange(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y = outputs[0]
    own = y.dtype if y.dtype in COUNTED else I64
    return e.cast(e.iota(y.shape[0], own, start=values["start"], step=values["step"]), y.dtype)


declare(
    "arange",
    "ARNG",
    "-> y: T[n]",
    {"T": (I64, *(d for d in NUMBERS if d is not I64))},
    family="movement",
    doc=(
        "Whole numbers from start, up to but without stop, by step (NumPy's arange, ONNX Range): numbers of I64,"
        " converted as `cast` does."
    ),
    reference=lambda start, stop, step, out: convert(np.arange(start, stop, step), out[0].dtype.numpy),
    attrs=attrs(
        "ARG1",
        integer("start", 0, "the first number"),
        integer("stop", doc="where they end"),
        integer("step", 1, "from one to the next"),
    ),
    shapes=_arange_shapes,
    normal_form=as_given,
    decompose=_arange,
    samples=lambda: [
        Sample({}, {"start": a, "stop": b, "step": c}, size=size)
        for a, b, c, size in [
            (0, 7, 1, "small"),
            (5, -4, -3, "small"),
            (2, 2, 1, "small"),
            (3, 1, 1, "small"),
            (-2, 9, 4, "small"),
            (0, 1025, 1, "small"),
            (1, 600_001, 1, "wide"),
        ]
    ],
    errors=[
        ErrorCase({}, InvalidArgument, {"stop": 3, "step": 0}),
        ErrorCase({}, InvalidArgument),
    ],
    exact=True,
)


def _linspace(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit each end plus steps towards the other, from the nearer end, so that both ends are exact."""
    (n,), dtype = outputs[0].shape, outputs[0].dtype
    start, stop, last = values["start"], values["stop"], max(1, n - 1)
    near, far, step = constant(start), constant(stop), constant(stop / last - start / last)
    body = f"{near} + x0 * {step} if x0 < {n / 2} else {far} - ({n - 1} - x0) * {step}"
    return e.loop("a->a", body if n > 1 else f"{near} + 0 * x0", e.iota(n, dtype.compute), dtype=dtype)


def _linspace_scale(start: float, stop: float, count: int) -> Any:
    return np.full(count, 2 * (abs(start) + abs(stop)))


declare(
    "linspace",
    "LNSP",
    "-> y: T[count]",
    {"T": FLOATS},
    family="movement",
    doc="`count` numbers from start to stop, both included, at equal distances (NumPy's linspace).",
    reference=lambda start, stop, count: np.linspace(start, stop, count),
    tolerance=Tolerance(1, _linspace_scale),
    attrs=attrs(
        "LNS1",
        number("start", doc="the first number", minimum=-1e30, maximum=1e30),
        number("stop", doc="the last one", minimum=-1e30, maximum=1e30),
        integer("count", doc="of numbers", minimum=0),
    ),
    normal_form=as_given,
    decompose=_linspace,
    samples=lambda: [
        Sample({}, {"start": a, "stop": b, "count": n}, size=size)
        for a, b, n, size in [
            (0.0, 1.0, 5, "small"),
            (-3.5, 7.25, 33, "small"),
            (2.0, -1.0, 2, "small"),
            (2.0, 5.0, 1, "small"),
            (2.0, 5.0, 0, "small"),
            (0.1, 0.1, 7, "small"),
            (0.0, 100.0, 1025, "small"),
            (-1.0, 1.0, 600_001, "wide"),
        ]
    ],
    errors=[
        ErrorCase({}, InvalidArgument, {"start": 0.0, "stop": 1.0}),
        ErrorCase({}, InvalidArgument, {"start": 0.0, "stop": 1.0, "count": -1}),
        ErrorCase({}, InvalidArgument, {"start": 0.0, "stop": float("inf"), "count": 3}),
    ],
)


def _fill_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, mask = inputs
    if broadcast_shapes(x, mask) != x:
        raise BadTensorShape("masked_fill", f"mask is {list(mask)}", allowed=f"what broadcasts to {list(x)}")
    return [x]


declare(
    "masked_fill",
    "MSKF",
    "x: T[*s], mask: BOOL[*m] -> y: T[*s]",
    {"T": PLAIN},
    family="movement",
    doc="`value`, converted as `cast` does, where mask is true, else x (PyTorch's masked_fill); mask broadcasts to x.",
    reference=lambda x, mask, value: np.where(mask, convert(np.array(value), x.dtype), x),
    attrs=attrs("MKF1", number("value", doc="what to write")),
    shapes=_fill_shapes,
    normal_form=as_given,
    decompose=lambda e, i, v, o: e("where", i[1], e.fill((), v["value"], o[0].dtype), i[0]),
    samples=lambda: [
        Sample({"x": x, "mask": mask}, {"value": value}, size=size)
        for x, mask, value, size in [
            ((), (), 1.0, "small"),
            ((7,), (7,), -2.5, "small"),
            ((3, 5), (5,), float("-inf"), "small"),
            ((2, 3, 4), (3, 1), float("nan"), "small"),
            ((3, 0), (3, 1), 0.0, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), (3, 1, 2, 1), 1e10, "small"),
            ((2, 1025), (2, 1025), 300.7, "small"),
            ((601, 1025), (1025,), 1.0, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,), "mask": (2, 3)}, BadTensorShape, {"value": 0.0}),
        ErrorCase({"x": (3,), "mask": (4,)}, BadTensorShape, {"value": 0.0}),
        ErrorCase({"x": (3,), "mask": (3,)}, InvalidArgument),
        ErrorCase({"x": (3,), "mask": (3,)}, BadTensorDtype, {"value": 0.0}, dtypes={"mask": F32}),
    ],
    exact=True,
)


def _stack_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    first = inputs[0]
    if len(first) == MAX_RANK:
        raise BadTensorShape("stack", f"input 0 has rank {len(first)}", allowed=f"up to {MAX_RANK - 1}")
    axis = axis_of("stack", values["axis"], len(first) + 1)
    for i, shape in enumerate(inputs):
        if shape != first:
            raise BadTensorShape("stack", f"input {i} is {list(shape)}", allowed=f"{list(first)}, as the first")
    return [(*first[:axis], len(inputs), *first[axis:])]


def _stack(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y = outputs[0]
    axis = values["axis"] % y.ndim
    single = (*y.shape[:axis], 1, *y.shape[axis + 1 :])
    return e("concat", *(e.reshape(x, single) for x in inputs), axis=axis)


declare(
    "stack",
    "STCK",
    "x...: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc="The inputs, all of one shape, one after the other along a new axis (NumPy's stack).",
    reference=lambda x, axis: np.stack(x, axis),
    attrs=attrs("STK1", integer("axis", 0, "the new axis of y")),
    shapes=_stack_shapes,
    normal_form=as_given,
    decompose=_stack,
    samples=lambda: [
        Sample({"x": shapes}, {"axis": axis}, size=size)
        for shapes, axis, size in [
            ([(7,)], 0, "small"),
            ([()] * 3, 0, "small"),
            ([(3, 5)] * 2, 2, "small"),
            ([(2, 3, 4)] * 3, -2, "small"),
            ([(3, 0)] * 2, 1, "small"),
            ([(1025,)] * 5, 1, "small"),
            ([(601, 513)] * 2, 1, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": [(2, 3), (3, 2)]}, BadTensorShape),
        ErrorCase({"x": [(2, 3)]}, InvalidArgument, {"axis": 3}),
        ErrorCase({"x": [(1,) * 8]}, BadTensorShape),
        ErrorCase({"x": []}, InvalidArgument),
    ],
    exact=True,
)


def _block_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    for i, shape in enumerate(inputs):
        if len(shape) != 2:
            raise BadTensorShape("block_diag", f"input {i} is {list(shape)}", allowed="rank 2")
    return [(sum([s[0] for s in inputs]), sum([s[1] for s in inputs]))]


def _blocks(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    left, width, rows = 0, outputs[0].shape[1], []
    for x in inputs:
        n = x.spec.shape[1]
        rows.append(e("pad", x, low=(0, left), high=(0, width - left - n)))
        left += n
    return e("concat", *rows, axis=0)


def _block_reference(x: Any) -> Any:
    y = np.zeros((sum(a.shape[0] for a in x), sum(a.shape[1] for a in x)), x[0].dtype)
    top = left = 0
    for a in x:
        y[top : top + a.shape[0], left : left + a.shape[1]] = a
        top, left = top + a.shape[0], left + a.shape[1]
    return y


declare(
    "block_diag",
    "BLKD",
    "x...: T[*s] -> y: T[m, n]",
    {"T": PLAIN},
    family="movement",
    doc="Matrices along the diagonal of a larger one, 0 elsewhere (SciPy and PyTorch's block_diag).",
    reference=_block_reference,
    shapes=_block_shapes,
    normal_form=as_given,
    decompose=_blocks,
    samples=lambda: [
        Sample({"x": shapes}, size=size)
        for shapes, size in [
            ([(3, 5)], "small"),
            ([(2, 3), (1, 4), (3, 1)], "small"),
            ([(2, 0), (0, 3), (1, 1)], "small"),
            ([(0, 2), (0, 3)], "small"),
            ([(1, 1025), (2, 3)], "small"),
            ([(301, 513), (401, 514)], "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": [(2, 3), (3,)]}, BadTensorShape),
        ErrorCase({"x": [(2, 3)]}, BadTensorShape, outputs={"y": (3, 2)}),
        ErrorCase({"x": []}, InvalidArgument),
    ],
    exact=True,
)


def _windows(values: Mapping[str, Any]) -> Any:
    names = ("kernel", "stride", "dilation")
    (kh, kw), (sh, sw), (dh, dw) = [pair("im2col", n, values[n]) for n in names]
    return (kh, kw), (sh, sw), sides("im2col", values["padding"]), (dh, dw)


def _im2col_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    n, c, h, w = inputs[0]
    (kh, kw), (sh, sw), (top, left, bottom, right), (dh, dw) = _windows(values)
    rows = extent("im2col", "height", h, top, bottom, kh, sh, dh)
    return [(n, c * kh * kw, rows * extent("im2col", "width", w, left, right, kw, sw, dw))]


def _im2col(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the windows of the image with its border, channels and places of a window before places of windows."""
    (x,), (kernel, stride, border, dilation) = inputs, _windows(values)
    padded = pad_border(e, x, border, 0.0)
    y = e("sliding_windows", padded, axes=(2, 3), sizes=kernel, steps=stride, dilations=dilation)
    return e.collapse(e("transpose", y, axes=(0, 1, 4, 5, 2, 3)), (1, 3, 2))


def _im2col_reference(x: Any, **values: Any) -> Any:
    kernel, stride, border, dilation = _windows(values)
    top, left, bottom, right = border
    bits = x.view(f"u{x.dtype.itemsize}")  # NumPy makes no windows of F8E5M2
    room = np.zeros((*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right), bits.dtype)
    room[:, :, top : top + x.shape[2], left : left + x.shape[3]] = bits
    view = patches(room, kernel, stride, (0, 0, 0, 0), dilation, 0).transpose(0, 1, 4, 5, 2, 3)
    n, c, kh, kw, oh, ow = view.shape
    return view.reshape(n, c * kh * kw, oh * ow).view(x.dtype)


WINDOWS: SampleTable = [
    ((1, 1, 2, 2), {"kernel": (2, 2)}, "small"),
    ((2, 3, 5, 6), {"kernel": (3, 2), "padding": (1, 1)}, "small"),
    ((1, 2, 7, 5), {"kernel": (2,), "stride": (2,), "dilation": (2, 1)}, "small"),
    ((1, 2, 3, 4), {"kernel": (1, 1), "padding": (0, 1, 1, 0)}, "small"),
    ((0, 2, 3, 4), {"kernel": (2, 2)}, "small"),
    ((1, 0, 3, 4), {"kernel": (2, 2)}, "small"),
    ((1, 1, 2, 1025), {"kernel": (2, 3)}, "small"),
    ((1, 8, 101, 99), {"kernel": (3, 3), "padding": (1, 1)}, "wide"),
]

declare(
    "im2col",
    "IM2C",
    "x: T[n, c, h, w] -> y: T[n, k, l]",
    {"T": PLAIN},
    family="movement",
    doc="Each window of an image as a column, channels slowest, 0 outside the image (PyTorch's unfold).",
    reference=_im2col_reference,
    attrs=attrs(
        "I2C1",
        integers("kernel", doc="window: one or two", minimum=1),
        integers("stride", (1, 1), "one or two", minimum=1),
        integers("padding", (0, 0), "one, two (h, w) or four (top, left, bottom, right)", minimum=0),
        integers("dilation", (1, 1), "one or two", minimum=1),
    ),
    shapes=_im2col_shapes,
    normal_form=as_given,
    decompose=_im2col,
    samples=lambda: [Sample({"x": x}, values, size=size) for x, values, size in WINDOWS],
    errors=[
        ErrorCase({"x": (1, 1, 2, 2)}, BadTensorShape, {"kernel": (3, 3)}),
        ErrorCase({"x": (1, 2, 2)}, BadTensorShape, {"kernel": (1, 1)}),
        ErrorCase({"x": (1, 1, 2, 2)}, InvalidArgument, {"kernel": (1, 1, 1)}),
        ErrorCase({"x": (1, 1, 2, 2)}, InvalidArgument, {"kernel": (1, 1), "stride": (0,)}),
    ],
    exact=True,
)


def _reverse(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the index of each element in the flat tensor of steps, and gather by it."""
    x, lengths = inputs
    n, t, *rest = x.spec.shape
    body = f"x0 * {t} + (x2 - 1 - x1 if x1 < x2 and x2 <= {t} else x1)"
    at = e.loop("a,b,a->ab", body, e.iota(n, I64), e.iota(t, I64), e.cast(lengths, I64))
    return e("gather", e.collapse(x, (2, *(1 for _ in rest))), at, axis=0)


def _reverse_reference(x: Any, lengths: Any) -> Any:
    t = np.arange(x.shape[1])
    size = lengths[:, None].astype(np.int64)
    at = np.where((t < size) & (size <= x.shape[1]), size - 1 - t, t)
    return x[np.arange(x.shape[0])[:, None], at]


declare(
    "reverse_sequence",
    "RVSQ",
    "x: T[n, t, *s], lengths: I[n] -> y: T[n, t, *s]",
    {"T": PLAIN, "I": INDICES},
    family="movement",
    doc="The first lengths[i] steps of each sequence x[i] in the reverse order (ONNX ReverseSequence, batch first).",
    reference=_reverse_reference,
    normal_form=as_given,
    decompose=_reverse,
    samples=lambda: [
        Sample({"x": x, "lengths": x[:1]}, values={"lengths": "moderate"}, size=size)
        for x, size in [
            ((1, 1), "small"),
            ((3, 5), "small"),
            ((2, 8, 4), "small"),
            ((7, 9, 2, 3), "small"),
            ((0, 3), "small"),
            ((3, 0), "small"),
            ((2, 5, 1025), "small"),
            ((601, 8, 131), "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,), "lengths": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "lengths": (4,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "lengths": (3,)}, BadTensorDtype, dtypes={"I": F32}),
    ],
    exact=True,
)
