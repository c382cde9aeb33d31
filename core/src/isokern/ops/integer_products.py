"""Products of quantized integers: matmul_integer, conv_integer, qlinear_matmul, qlinear_conv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.conversion import convert
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import Descs, as_given
from ..dtypes import F32, I8, I32, U8
from ..layout import TensorDesc, broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .conv2d import extent, pad_border, pair, patches, sides
from .gemm import product_normal_form

Shape = tuple[int, ...]
BYTES = (U8, I8)


def check_parameter(where: str, name: str, given: Sequence[int], length: int, of: str) -> None:
    """Raise BadTensorShape if a scale or a zero point is neither one number nor one for each row, or column."""
    if len(given) > 1 or (len(given) == 1 and given[0] not in (1, length)):
        raise BadTensorShape(where, f"{name} is {list(given)}", allowed=f"[], [1] or [{length}], one for each {of}")


def lift(e: Emitter[V], x: V, length: int, after: int) -> V:
    """Return a parameter with so many dims after its own: [], or [n, 1, …]."""
    if x.spec.ndim == 0 or (x.spec.shape == (1,) and length != 1):
        return e.reshape(x, ())
    return e.reshape(x, (x.spec.shape[0], *[1] * after))


def _centre(e: Emitter[V], x: V, zero: V | None, length: int, after: int) -> V:
    """Return x as I32, less its zero point."""
    x = e.cast(x, I32)
    return x if zero is None else e.pointwise("x0 - x1", x, lift(e, e.cast(zero, I32), length, after))


def _requantise(e: Emitter[V], total: V, factors: Sequence[V], y_scale: V, y_zero: V, y: TensorDesc) -> V:
    """Return sums of products in the type of y: times the scales of both sides, divided by that of y."""
    a, b = factors
    scale = e.pointwise("x0 * x1 / x2", a, b, e.reshape(y_scale, ()))
    zero = e.reshape(e.cast(y_zero, F32), ())
    return e.cast(e.pointwise("rint(x0 * x1) + x2", e.cast(total, F32), scale, zero), y.dtype)


def _subtract_zero(x: Any, zero: Any, shape: Sequence[int]) -> Any:
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero.astype(np.int32).reshape(() if zero.size == 1 else shape)


def _requantise_reference(total: Any, scale: Any, y_zero: Any, out: Sequence[TensorDesc]) -> Any:
    """Return the result of a QLinear operator, in F32 as kernels compute it."""
    with np.errstate(all="ignore"):
        wide = np.rint(total.astype(np.float32) * scale) + y_zero.astype(np.float32).reshape(())
    return convert(np.asarray(wide, np.float32), out[0].dtype.numpy)


# Products of matrices


def product_shapes(where: str, a: Shape, b: Shape) -> list[Shape]:
    """Return the shape of a @ b, whose leading dims broadcast, or raise BadTensorShape."""
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise BadTensorShape(where, f"a is {list(a)}, b is {list(b)}", allowed="a[…, m, k] and b[…, k, n]")
    lead = broadcast_shapes(a[:-2], b[:-2])
    if lead is None:
        raise BadTensorShape(where, f"a is {list(a)}, b is {list(b)}", allowed="leading dims that broadcast")
    return [(*lead, a[-2], b[-1])]


def _matmul_integer_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    a, b, a_zero, b_zero = [*inputs, None, None][:4]
    found = product_shapes("matmul_integer", a, b)
    if a_zero is not None:
        check_parameter("matmul_integer", "a_zero_point", a_zero, a[-2], "row of a")
    if b_zero is not None:
        check_parameter("matmul_integer", "b_zero_point", b_zero, b[-1], "column of b")
    return found


EXACT = 1024  # products of I8 whose sum F32 holds exactly: 1024 · 128² = 2^24


def _add_exactly(e: Emitter[V], a: V, b: V) -> V:
    """Return a @ b of I8 in I32.

    Devices multiply F32 faster than I32, so runs of k are multiplied in F32, and only their sums added in I32.
    """
    k = a.spec.shape[-1]
    if k > 16 * EXACT:  # so many parts would be a program of its own
        return e("matmul", e.cast(a, I32), e.cast(b, I32))
    total = None
    for start in range(0, max(1, k), EXACT):
        end = min(start + EXACT, k)
        left, right = a, b
        if k > EXACT:
            left = e("slice", a, starts=(start,), ends=(end,), axes=(a.spec.ndim - 1,))
            right = e("slice", b, starts=(start,), ends=(end,), axes=(b.spec.ndim - 2,))
        part = e.cast(e("matmul", e.cast(left, F32), e.cast(right, F32)), I32)
        total = part if total is None else e.pointwise("x0 + x1", total, part)
    assert total is not None
    return total


def _matmul_integer(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    a, b = inputs[:2]
    a_zero = find_optional(inputs, 2)
    b_zero = find_optional(inputs, 3)
    if a.spec.dtype is b.spec.dtype is I8 and a_zero is None and b_zero is None:
        return _add_exactly(e, a, b)
    rows, columns = a.spec.shape[-2], b.spec.shape[-1]
    return e("matmul", _centre(e, a, a_zero, rows, 1), _centre(e, b, b_zero, columns, 0))


def _integer_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of matmul; a_zero_point as a column that is repeated along the batch, b_zero_point as [n]."""
    a, b, a_zero, b_zero = inputs
    y = outputs[0]
    assert a is not None and b is not None
    batch, m, n = y.shape[:-2], y.shape[-2], y.shape[-1]
    a = a.broadcast_to((*batch, m, a.shape[-1]))
    b = b.broadcast_to((*batch, b.shape[-2], n))
    if a_zero is not None:
        step = a_zero.strides[0] if a_zero.ndim == 1 and a_zero.shape[0] == m else 0
        column = TensorDesc(a_zero.dtype, (m, 1), (step, 1), a_zero.offset)
        a_zero = column.broadcast_to((*batch, m, 1))
    if b_zero is not None:
        step = b_zero.strides[0] if b_zero.ndim == 1 and b_zero.shape[0] == n else 0
        b_zero = TensorDesc(b_zero.dtype, (n,), (step,), b_zero.offset)
    ins, outs = product_normal_form(y, a, b, b_zero, a_zero)
    return [ins[0], ins[1], ins[3], ins[2]], outs


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    a = inputs[0]
    return 2.0 * outputs[0].numel * (a.shape[-1] if a is not None else 0)


def _multiply(a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    return np.matmul(_subtract_zero(a, a_zero, (-1, 1)), _subtract_zero(b, b_zero, (-1,)))


PRODUCTS: SampleTable = [
    ((2, 3), (3, 4), (), (), "small"),
    ((1, 7), (7, 1), None, None, "small"),
    ((5, 33), (33, 7), (5,), (7,), "small"),
    ((3, 1, 2, 9), (4, 9, 5), (1,), None, "small"),
    ((2, 0), (0, 3), (), None, "small"),
    ((0, 3), (3, 4), None, (4,), "small"),
    ((2, 5), (5, 1), (2,), (1,), "small"),
    ((2, 17, 300), (300, 40), (17,), (), "small"),
    ((4, 1, 1100), (4, 1100, 35), (), (35,), "small"),
    ((301, 257), (257, 401), (), (401,), "wide"),
    ((256, 256), (256, 256), (), (256,), "medium"),
    ((1024, 1024), (1024, 1024), (), (1024,), "large"),
    ((1, 4096), (4096, 4096), (), None, "large"),
]

declare(
    "matmul_integer",
    "MMIN",
    "a: A[*p], b: B[*q], a_zero_point?: A[*z], b_zero_point?: B[*w] -> y: I32[*d]",
    {"A": BYTES, "B": BYTES},
    family="contraction",
    doc=(
        "(a - a_zero_point) @ (b - b_zero_point) in I32, of 8-bit integers (ONNX MatMulInteger): a zero point is one"
        " number, or one for each row of a or column of b. Leading dims broadcast; sums wrap."
    ),
    reference=lambda a, b, a_zero_point, b_zero_point: _multiply(a, b, a_zero_point, b_zero_point),
    shapes=_matmul_integer_shapes,
    normal_form=_integer_normal_form,
    decompose=_matmul_integer,
    constants=("b",),
    flops=_flops,
    samples=lambda: [
        Sample(
            {n: s for n, s in zip(("a", "b", "a_zero_point", "b_zero_point"), row[:4], strict=True) if s is not None},
            size=row[4],
        )
        for row in PRODUCTS
    ],
    errors=[
        ErrorCase({"a": (2, 3), "b": (4, 2)}, BadTensorShape),
        ErrorCase({"a": (3,), "b": (3, 2)}, BadTensorShape),
        ErrorCase({"a": (2, 2, 3), "b": (3, 3, 2)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 2), "a_zero_point": (3,)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 2), "b_zero_point": (1, 2)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 2)}, BadTensorDtype, dtypes={"A": F32}),
    ],
    domains={"a": "any", "b": "any", "a_zero_point": "any", "b_zero_point": "any"},
    exact=True,
)


def _qlinear_matmul_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    found = product_shapes("qlinear_matmul", a, b)
    for name, given in (("a_scale", a_scale), ("a_zero_point", a_zero)):
        check_parameter("qlinear_matmul", name, given, a[-2], "row of a")
    for name, given in (("b_scale", b_scale), ("b_zero_point", b_zero)):
        check_parameter("qlinear_matmul", name, given, b[-1], "column of b")
    for name, given in (("y_scale", y_scale), ("y_zero_point", y_zero)):
        check_parameter("qlinear_matmul", name, given, 1, "tensor")
    return found


def _qlinear_matmul(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    rows, columns = a.spec.shape[-2], b.spec.shape[-1]
    factors = lift(e, a_scale, rows, 1), lift(e, b_scale, columns, 0)
    return _requantise(e, e("matmul_integer", a, b, a_zero, b_zero), factors, y_scale, y_zero, outputs[0])


def _qlinear_matmul_reference(
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    out: Sequence[TensorDesc],
) -> Any:
    rows = a_scale.reshape(() if a_scale.size == 1 else (-1, 1))
    columns = b_scale.reshape(() if b_scale.size == 1 else (-1,))
    with np.errstate(all="ignore"):
        scale = rows * columns / y_scale.reshape(())
    return _requantise_reference(_multiply(a, b, a_zero_point, b_zero_point), scale, y_zero_point, out)


Q_PRODUCT = ("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point")

declare(
    "qlinear_matmul",
    "QLMM",
    "a: A[*p], a_scale: F32[*r], a_zero_point: A[*z], b: B[*q], b_scale: F32[*c], b_zero_point: B[*w],"
    " y_scale: F32[*u], y_zero_point: Y[*v] -> y: Y[*d]",
    {"A": BYTES, "B": BYTES, "Y": BYTES},
    family="contraction",
    doc=(
        "rint(sums · (a_scale · b_scale / y_scale)) + y_zero_point, saturated, of matmul_integer's sums, the scales in"
        " F32 (ONNX QLinearMatMul). Scales and zero points are one number, or one for each row of a or column of b."
    ),
    reference=_qlinear_matmul_reference,
    shapes=_qlinear_matmul_shapes,
    normal_form=as_given,
    decompose=_qlinear_matmul,
    flops=_flops,
    samples=lambda: [
        Sample(
            dict(zip(Q_PRODUCT, (a, row, row, b, column, column, (), ()), strict=True)),
            {},
            {"a_scale": "positive", "b_scale": "positive", "y_scale": "positive"},
            size=size,
        )
        for a, b, row, column, size in [
            ((2, 3), (3, 4), (), (), "small"),
            ((5, 33), (33, 7), (5,), (7,), "small"),
            ((3, 2, 9), (9, 5), (1,), (5,), "small"),
            ((0, 3), (3, 4), (), (4,), "small"),
            ((301, 257), (257, 401), (), (401,), "wide"),
            ((1024, 1024), (1024, 1024), (), (1024,), "large"),
        ]
    ],
    errors=[
        ErrorCase(dict(zip(Q_PRODUCT, ((2, 3), (), (), (4, 2), (), (), (), ()), strict=True)), BadTensorShape),
        ErrorCase(dict(zip(Q_PRODUCT, ((2, 3), (3,), (), (3, 2), (), (), (), ()), strict=True)), BadTensorShape),
        ErrorCase(dict(zip(Q_PRODUCT, ((2, 3), (), (), (3, 2), (), (), (2,), ()), strict=True)), BadTensorShape),
        ErrorCase(
            dict(zip(Q_PRODUCT, ((2, 3), (), (), (3, 2), (), (), (), ()), strict=True)),
            BadTensorDtype,
            dtypes={"Y": I32},
        ),
    ],
    domains={"a": "any", "b": "any", "a_zero_point": "any", "b_zero_point": "any", "y_zero_point": "any"},
    exact=True,
)


# Convolutions

_CONV = (
    integers("stride", (1, 1), "one or two", minimum=1),
    integers("padding", (0, 0), "one, two (h, w) or four (top, left, bottom, right)", minimum=0),
    integers("dilation", (1, 1), "one or two", minimum=1),
    integer("groups", 1, "of channels", minimum=1),
)


def _conv_shape(where: str, x: Shape, w: Shape, values: Mapping[str, Any]) -> Shape:
    groups = values["groups"]
    if x[1] != w[1] * groups or w[0] % groups != 0:
        raise BadTensorShape(
            where,
            f"x is {list(x)}, w is {list(w)}, groups {groups}",
            allowed="x with groups · w.shape[1] channels, and w.shape[0] a multiple of groups",
        )
    if w[2] == 0 or w[3] == 0:
        raise BadTensorShape(where, f"w is {list(w)}", allowed="a window of at least 1×1")
    sh, sw = pair(where, "stride", values["stride"])
    dh, dw = pair(where, "dilation", values["dilation"])
    top, left, bottom, right = sides(where, values["padding"])
    rows = extent(where, "height", x[2], top, bottom, w[2], sh, dh)
    return (x[0], w[0], rows, extent(where, "width", x[3], left, right, w[3], sw, dw))


def _surround(e: Emitter[V], x: V, zero: V | None, padding: Sequence[int]) -> V:
    """Return x with a border (top, left, bottom, right) of its zero point."""
    if zero is None:
        return pad_border(e, x, padding, 0)
    value = e.reshape(zero, (1, 1, 1, 1))
    for axis, before, after in ((2, padding[0], padding[2]), (3, padding[1], padding[3])):
        shape = list(x.spec.shape)
        parts = [x]
        if before > 0:
            parts.insert(0, e.repeat(value, [*shape[:axis], before, *shape[axis + 1 :]]))
        if after > 0:
            parts.append(e.repeat(value, [*shape[:axis], after, *shape[axis + 1 :]]))
        x = parts[0] if len(parts) == 1 else e("concat", *parts, axis=axis)
    return x


def _sums(e: Emitter[V], inputs: Sequence[V | None], y: TensorDesc, values: Mapping[str, Any]) -> V:
    """Return the convolution of bytes less their zero points: the filters of each group, times windows as columns."""
    x, w, x_zero, w_zero = inputs
    assert x is not None and w is not None
    groups, kernel = values["groups"], w.spec.shape[2:]
    if y.numel == 0 or w.spec.numel == 0:
        return e.fill(y.shape, 0, I32)
    border, pointwise = sides("", values["padding"]), tuple(kernel) == (1, 1) and set(values["stride"]) == {1}
    x = _surround(e, x, x_zero, border)
    n, c, h, width = x.spec.shape
    fields = {name: values[name] for name in ("stride", "dilation")}
    columns = e.reshape(x, (n, c, h * width)) if pointwise else e("im2col", x, kernel=kernel, **fields)
    length, places = columns.spec.shape[1:]
    split = e.reshape(columns, (n, groups, length // groups, places))
    by_group = groups, w.spec.shape[0] // groups, length // groups
    if groups == 1 or w_zero is None or w_zero.spec.numel == 1:
        return e.reshape(e("matmul_integer", e.reshape(w, by_group), split, w_zero, x_zero), y.shape)
    split = _centre(e, split, x_zero, 1, 0)
    filters = e.reshape(_centre(e, w, w_zero, w.spec.shape[0], 3), by_group)
    return e.reshape(e.loop("ngkl,gok->ngol", "x0 * x1", split, filters, combine="sum"), y.shape)


def _convolve(x: Any, w: Any, values: Mapping[str, Any]) -> Any:
    """Return the reference of `_sums`, window by window."""
    where, groups = "conv_integer", values["groups"]
    stride, dilation = pair(where, "stride", values["stride"]), pair(where, "dilation", values["dilation"])
    view = patches(x, w.shape[2:], stride, sides(where, values["padding"]), dilation, 0)
    n, c, oh, ow = view.shape[:4]
    view = view.reshape(n, groups, c // groups, oh, ow, *w.shape[2:])
    filters = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    return np.einsum("ngchwij,gocij->ngohw", view, filters, dtype=np.int32).reshape(n, w.shape[0], oh, ow)


CONVOLUTIONS: SampleTable = [
    ((2, 6, 7, 7), (40, 6, 3, 3), {"padding": (1, 0, 2, 1)}, "small"),
    ((1, 2, 4, 5), (3, 2, 3, 2), {}, "small"),
    ((2, 4, 5, 5), (6, 2, 3, 3), {"padding": (1, 1), "groups": 2}, "small"),
    ((1, 3, 7, 6), (3, 1, 2, 2), {"stride": (2,), "dilation": (2, 1), "groups": 3}, "small"),
    ((1, 1, 3, 4), (1, 1, 1, 1), {"padding": (0, 1, 1, 0)}, "small"),
    ((0, 2, 3, 4), (2, 2, 2, 2), {}, "small"),
    ((2, 3, 4, 5), (4, 3, 1, 1), {}, "small"),
    ((1, 3, 20, 37), (33, 3, 7, 5), {"stride": (2,), "padding": (3, 2)}, "small"),
    ((2, 10, 9, 8), (66, 5, 3, 2), {"stride": (1, 2), "dilation": (2, 1), "groups": 2}, "small"),
    ((1, 300, 6, 7), (64, 300, 3, 3), {"padding": (1, 1)}, "small"),
    ((2, 17, 6, 23), (32, 17, 1, 1), {}, "small"),
    ((1, 9, 11, 13), (48, 9, 1, 1), {"stride": (3, 2), "padding": (1, 1)}, "small"),
    ((1, 4, 33, 18), (16, 4, 3, 3), {"stride": (1, 3)}, "small"),
    ((1, 8, 61, 99), (5, 8, 3, 3), {"padding": (1, 1)}, "wide"),
    ((1, 8, 61, 99), (64, 8, 3, 3), {"padding": (1, 1)}, "wide"),
    ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": (1, 1)}, "large"),
    ((1, 256, 14, 14), (256, 256, 3, 3), {"padding": (1, 1)}, "large"),
]


def _conv_flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    w = next(d for d in inputs[1:] if d is not None and d.ndim == 4)
    return 2.0 * outputs[0].numel * (w.numel // max(1, w.shape[0]))


def _conv_integer_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, w, x_zero, w_zero = [*inputs, None, None][:4]
    found = _conv_shape("conv_integer", x, w, values)
    if x_zero is not None:
        check_parameter("conv_integer", "x_zero_point", x_zero, 1, "tensor")
    if w_zero is not None:
        check_parameter("conv_integer", "w_zero_point", w_zero, w[0], "output channel")
    return [found]


def _conv_integer(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w = inputs[:2]
    x_zero = find_optional(inputs, 2)
    w_zero = find_optional(inputs, 3)
    return _sums(e, (x, w, x_zero, w_zero), outputs[0], values)


def _conv_integer_reference(x: Any, w: Any, x_zero_point: Any, w_zero_point: Any, **values: Any) -> Any:
    return _convolve(_subtract_zero(x, x_zero_point, ()), _subtract_zero(w, w_zero_point, (-1, 1, 1, 1)), values)


declare(
    "conv_integer",
    "CVIN",
    "x: A[n, c, h, w], w: B[o, i, kh, kw], x_zero_point?: A[*z], w_zero_point?: B[*v] -> y: I32[n, o, oh, ow]",
    {"A": BYTES, "B": BYTES},
    family="contraction",
    doc=(
        "conv2d in I32 of 8-bit integers less their zero points (ONNX ConvInteger): one for x, and one for w or for"
        " each of its output channels. The border counts as x_zero_point; sums wrap."
    ),
    reference=_conv_integer_reference,
    attrs=attrs("CVI1", *_CONV),
    shapes=_conv_integer_shapes,
    normal_form=as_given,
    decompose=_conv_integer,
    constants=("w",),
    flops=_conv_flops,
    samples=lambda: [
        Sample({"x": x, "w": w, **({"x_zero_point": (), "w_zero_point": w[:1]} if i % 2 else {})}, values, size=size)
        for i, (x, w, values, size) in enumerate(CONVOLUTIONS)
    ],
    errors=[
        ErrorCase({"x": (1, 3, 4, 4), "w": (2, 2, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 2, 2, 2), "w": (2, 2, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (1, 2, 4, 4), "w": (2, 2, 3, 0)}, BadTensorShape),
        ErrorCase({"x": (1, 2, 4, 4), "w": (2, 2, 3, 3)}, InvalidArgument, {"stride": (0,)}),
        ErrorCase({"x": (1, 2, 4, 4), "w": (2, 2, 3, 3), "x_zero_point": (2,)}, BadTensorShape),
        ErrorCase({"x": (1, 2, 4, 4), "w": (2, 2, 3, 3)}, BadTensorDtype, dtypes={"B": I32}),
    ],
    domains={"x": "any", "w": "any", "x_zero_point": "any", "w_zero_point": "any"},
    exact=True,
)

Q_CONV = ("x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "bias")


def _qlinear_conv_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = [*inputs, None][:9]
    found = _conv_shape("qlinear_conv", x, w, values)
    singles = (("x_scale", x_scale), ("x_zero_point", x_zero), ("y_scale", y_scale), ("y_zero_point", y_zero))
    for name, given in singles:
        check_parameter("qlinear_conv", name, given, 1, "tensor")
    for name, given in (("w_scale", w_scale), ("w_zero_point", w_zero)):
        check_parameter("qlinear_conv", name, given, w[0], "output channel")
    if bias is not None and tuple(bias) != (w[0],):
        raise BadTensorShape("qlinear_conv", f"bias is {list(bias)}", allowed=f"[{w[0]}], one for each output channel")
    return [found]


def _qlinear_conv(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
    bias = find_optional(inputs, 8)
    channels = w.spec.shape[0]
    total = _sums(e, (x, w, x_zero, w_zero), outputs[0], values)
    if bias is not None:
        total = e.pointwise("x0 + x1", total, e.reshape(bias, (channels, 1, 1)))
    factors = e.reshape(x_scale, ()), lift(e, w_scale, channels, 2)
    return _requantise(e, total, factors, y_scale, y_zero, outputs[0])


def _qlinear_conv_reference(
    x: Any,
    x_scale: Any,
    x_zero_point: Any,
    w: Any,
    w_scale: Any,
    w_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    bias: Any,
    out: Sequence[TensorDesc],
    **values: Any,
) -> Any:
    total = _conv_integer_reference(x, w, x_zero_point, w_zero_point, **values)
    total = total if bias is None else total + bias.reshape(-1, 1, 1)
    channels = w_scale.reshape(() if w_scale.size == 1 else (-1, 1, 1))
    with np.errstate(all="ignore"):
        scale = x_scale.reshape(()) * channels / y_scale.reshape(())
    return _requantise_reference(total, scale, y_zero_point, out)


declare(
    "qlinear_conv",
    "QLCV",
    "x: A[n, c, h, w], x_scale: F32[*r], x_zero_point: A[*z], w: B[o, i, kh, kw], w_scale: F32[*s],"
    " w_zero_point: B[*v], y_scale: F32[*u], y_zero_point: Y[*t], bias?: I32[o] -> y: Y[n, o, oh, ow]",
    {"A": BYTES, "B": BYTES, "Y": BYTES},
    family="contraction",
    doc=(
        "rint((sums + bias) · (x_scale · w_scale / y_scale)) + y_zero_point, saturated, of conv_integer's sums, the"
        " scales in F32 (ONNX QLinearConv). w_scale and w_zero_point are one number, or one for each output channel."
    ),
    reference=_qlinear_conv_reference,
    attrs=attrs("QLC1", *_CONV),
    shapes=_qlinear_conv_shapes,
    normal_form=as_given,
    decompose=_qlinear_conv,
    stem="conv_integer",
    constants=("w",),
    flops=_conv_flops,
    samples=lambda: [
        Sample(
            dict(zip(Q_CONV, (x, (), (), w, w[: i % 2], w[: i % 2], (), (), w[:1]), strict=True)),
            values,
            {"x_scale": "positive", "w_scale": "positive", "y_scale": "positive"},
            size=size,
        )
        for i, (x, w, values, size) in enumerate(CONVOLUTIONS)
    ],
    errors=[
        ErrorCase(dict(zip(Q_CONV, (x, s, (), w, t, (), (), (), b), strict=True)), BadTensorShape)
        for x, s, w, t, b in [
            ((1, 3, 4, 4), (), (2, 2, 3, 3), (), (2,)),
            ((1, 2, 4, 4), (), (2, 2, 0, 3), (), (2,)),
            ((1, 2, 4, 4), (2,), (2, 2, 3, 3), (), (2,)),
            ((1, 2, 4, 4), (), (2, 2, 3, 3), (3,), (2,)),
            ((1, 2, 4, 4), (), (2, 2, 3, 3), (), (3,)),
        ]
    ],
    domains={
        "x": "any",
        "w": "any",
        "x_zero_point": "any",
        "w_zero_point": "any",
        "y_zero_point": "any",
        "bias": "moderate",
    },
    exact=True,
)
