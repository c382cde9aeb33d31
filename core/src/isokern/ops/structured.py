"""Structured primitives: batch_matmul, conv_2d_nchw_fchw, pooling_nchw_sum and pooling_nchw_max.

Each is a loop nest with a fixed body, named as in linalg. They take their destination first and add to it (or take the
larger), and have no padding. All are computed by the kernel stem `generic`: a window is a view with strides of its own,
so all of them are that loop nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.normal_form import Descs
from ..dtypes import FLOATS, DType
from ..expr.tree import parse
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import extent, pair, patches
from .generic import nest
from .generic_reference import growth

NO_PADDING = (0, 0, 0, 0)


def _goes(types: Mapping[str, DType]) -> bool:
    """Return whether dtypes go together: a sum may be wider than its terms, F16 and BF16 into F32."""
    return types["U"] in (types["T"], types["T"].compute)


_TYPES: Any = {
    "types": {"T": FLOATS, "U": FLOATS},
    "combinations": _goes,
    "stem": "generic",
    "aliases": ("init",),
}


def _matmul_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return a loop nest over (b, m, n, k): all tensors have these dims, with stride 0 along those they lack."""
    init, x, w = inputs
    assert init is not None and x is not None and w is not None
    loops = (*outputs[0].shape, x.shape[2])

    def over(d: TensorDesc, b: int, m: int, n: int, k: int) -> TensorDesc:
        return TensorDesc(d.dtype, loops, (b, m, n, k), d.offset)

    (xb, xm, xk), (wb, wk, wn) = x.strides, w.strides
    y, start = (TensorDesc(d.dtype, loops, (*d.strides, 0), d.offset) for d in (outputs[0], init))
    return nest(y, start, [over(x, xb, xm, 0, xk), over(w, wb, 0, wn, wk)], 3)


def _matmul(init: Any, x: Any, w: Any) -> Any:
    return init + np.matmul(x, w)


def _matmul_scale(init: Any, x: Any, w: Any) -> Any:
    return (4 + np.log2(max(1, x.shape[2]))) * (np.abs(init) + np.matmul(np.abs(x), np.abs(w)))


declare(
    "batch_matmul",
    "BMAT",
    "init: U[b, m, n], x: T[b, m, k], w: T[b, k, n] -> y: U[b, m, n]",
    **_TYPES,
    family="contraction",
    expression=parse("x0 * x1"),
    combine="sum",
    doc="y = init + x @ w, matrix by matrix (linalg.batch_matmul).",
    reference=_matmul,
    tolerance=Tolerance(4, _matmul_scale),
    normal_form=_matmul_normal_form,
    flops=lambda i, o: 2.0 * o[0].numel * (i[1].shape[2] if i[1] is not None else 0),
    samples=lambda: [
        Sample({"init": (b, m, n), "x": (b, m, k), "w": (b, k, n)}, size=size)
        for b, m, k, n, size in [
            (1, 1, 1, 1, "small"),
            (2, 3, 5, 4, "small"),
            (3, 17, 33, 9, "small"),
            (1, 1, 70, 37, "small"),
            (2, 37, 70, 1, "small"),
            (2, 3, 0, 2, "small"),
            (0, 3, 4, 2, "small"),
            (2, 0, 4, 2, "small"),
            (2, 65, 64, 66, "small"),
            (2, 129, 130, 131, "wide"),
            (4, 256, 256, 256, "medium"),
            (8, 512, 512, 512, "large"),
        ]
    ],
    errors=[
        ErrorCase({"init": (2, 3, 5), "x": (2, 3, 4), "w": (2, 3, 5)}, BadTensorShape),
        ErrorCase({"init": (2, 3, 4), "x": (2, 3, 4), "w": (2, 4, 5)}, BadTensorShape),
        ErrorCase({"init": (3, 5), "x": (2, 3, 4), "w": (2, 4, 5)}, BadTensorShape),
    ],
)

Window = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


def _slid(where: str, init: Sequence[int], x: Sequence[int], window: Window, channels: int) -> list[tuple[int, ...]]:
    """Return the output's shape, after checking that init has it."""
    (kh, kw), (sh, sw), (dh, dw) = window
    if kh * kw == 0:
        raise BadTensorShape(where, f"window {kh}x{kw}", allowed="1x1 at least")
    y = (
        x[0],
        channels,
        extent(where, "height", x[2], 0, 0, kh, sh, dh),
        extent(where, "width", x[3], 0, 0, kw, sw, dw),
    )
    if tuple(init) != y:
        raise BadTensorShape(where, f"init is {list(init)}", allowed=f"{list(y)}, as y")
    return [y]


def _steps(where: str, values: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    return pair(where, "stride", values["stride"]), pair(where, "dilation", values["dilation"])


STEPS = (
    integers("stride", (1, 1), "one or two", minimum=1),
    integers("dilation", (1, 1), "one or two", minimum=1),
)


def _conv_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    where, (init, x, w), groups = "conv_2d_nchw_fchw", inputs, values["groups"]
    if groups < 1 or w[0] % groups or x[1] != w[1] * groups:
        raise BadTensorShape(
            where,
            f"x has {x[1]} channels and w is {list(w)} with groups={groups}",
            allowed="w[f, c/groups, kh, kw] with f a multiple of groups",
        )
    return _slid(where, init, x, (w[2:], *_steps(where, values)), w[0])


def _conv_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return a loop nest over (n, group, output, y, x, channel, ky, kx): windows are strides of x."""
    init, x, w = inputs
    assert init is not None and x is not None and w is not None
    (sh, sw), (dh, dw) = _steps("conv_2d_nchw_fchw", values)
    groups, (y,) = values["groups"], outputs
    f, c, kh, kw = w.shape
    own = f // groups
    loops = (y.shape[0], groups, own, *y.shape[2:], c, kh, kw)

    def out(d: TensorDesc) -> TensorDesc:
        n, ch, h, v = d.strides
        return TensorDesc(d.dtype, loops, (n, ch * own, ch, h, v, 0, 0, 0), d.offset)

    n, ch, h, v = x.strides
    xs = TensorDesc(x.dtype, loops, (n, ch * c, 0, h * sh, v * sw, ch, h * dh, v * dw), x.offset)
    f_, *inner = w.strides
    ws = TensorDesc(w.dtype, loops, (0, f_ * own, f_, 0, 0, *inner), w.offset)
    return nest(out(y), out(init), [xs, ws], 5)


def _conv(init: Any, x: Any, w: Any, stride: Any, dilation: Any, groups: int) -> Any:
    view = patches(x, w.shape[2:], pair("", "", stride), NO_PADDING, pair("", "", dilation), 0.0)
    n, _, oh, ow, kh, kw = view.shape
    view = view.reshape(n, groups, w.shape[1], oh, ow, kh, kw)
    weight = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    return init + np.einsum("ngihwkl,goikl->ngohw", view, weight, optimize=True).reshape(init.shape)


def _conv_scale(init: Any, x: Any, w: Any, **values: Any) -> Any:
    terms = max(1, w.shape[1] * w.shape[2] * w.shape[3])
    return (4 + np.log2(terms)) * _conv(np.abs(init), np.abs(x), np.abs(w), **values)


def _window(x: Any, kernel: Any, channels: int, size: str = "small", **values: Any) -> dict[str, Any]:
    """Return shapes and attributes of a sample; init has the output's shape."""
    reach = [d * (k - 1) + 1 for d, k in zip(pair("", "", values.get("dilation", (1,))), kernel, strict=True)]
    steps = pair("", "", values.get("stride", (1,)))
    out = [max(0, (n - r) // s + 1) for n, r, s in zip(x[2:], reach, steps, strict=True)]
    return {"init": (x[0], channels, *out), "x": x}


def _conv_sample(x: Any, w: Any, size: str = "small", **values: Any) -> Sample:
    return Sample({**_window(x, w[2:], w[0], **values), "w": w}, values, size=size)


declare(
    "conv_2d_nchw_fchw",
    "CNVP",
    "init: U[n, f, oh, ow], x: T[n, gc, h, v], w: T[f, c, kh, kw] -> y: U[n, f, oh, ow]",
    **_TYPES,
    family="contraction",
    expression=parse("x0 * x1"),
    combine="sum",
    doc="y = init + x convolved with w, NCHW, without padding (linalg.conv_2d_nchw_fchw); `groups` as in conv2d.",
    reference=_conv,
    tolerance=Tolerance(4, _conv_scale),
    attrs=attrs("CVP1", *STEPS, integer("groups", 1, "of channels, each convolved by itself", minimum=1)),
    shapes=_conv_shapes,
    normal_form=_conv_normal_form,
    flops=lambda i, o: 2.0 * o[0].numel * (i[2].numel // max(1, i[2].shape[0]) if i[2] is not None else 0),
    samples=lambda: [
        _conv_sample((1, 1, 1, 1), (1, 1, 1, 1)),
        _conv_sample((2, 3, 7, 38), (4, 3, 3, 3)),
        _conv_sample((1, 3, 9, 8), (5, 3, 3, 2), stride=(2, 1)),
        _conv_sample((1, 4, 9, 40), (6, 2, 3, 3), groups=2, dilation=(2,)),
        _conv_sample((2, 6, 5, 5), (6, 1, 3, 3), groups=6),
        _conv_sample((1, 33, 4, 5), (7, 33, 1, 1)),
        _conv_sample((0, 2, 4, 4), (3, 2, 2, 2)),
        _conv_sample((1, 0, 4, 4), (3, 0, 2, 2)),
        _conv_sample((1, 17, 34, 61), (19, 17, 3, 3), size="wide"),
        _conv_sample((1, 64, 58, 58), (64, 64, 3, 3), size="medium"),
        _conv_sample((1, 256, 16, 16), (256, 256, 3, 3), size="large"),
    ],
    errors=[
        ErrorCase({"init": (1, 2, 2, 2), "x": (1, 3, 4, 4), "w": (2, 4, 3, 3)}, BadTensorShape),
        ErrorCase({"init": (1, 2, 3, 2), "x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"init": (1, 2, 2, 2), "x": (1, 3, 2, 2), "w": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"init": (1, 2, 2, 2), "x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"stride": (0, 1)}),
        ErrorCase({"init": (1, 2, 2, 2), "x": (1, 3, 4, 4), "w": (2, 3, 3, 3)}, InvalidArgument, {"groups": 0}),
    ],
)


def _pool(name: str, kind: str, combine: str, doc: str, **fields: Any) -> None:
    def window(values: Mapping[str, Any]) -> Window:
        return (pair(name, "kernel", values["kernel"]), *_steps(name, values))

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        init, x = inputs
        return _slid(name, init, x, window(values), x[1])

    def normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
        """Return a loop nest over (n, c, y, x, ky, kx): windows are strides of x."""
        init, x = inputs
        assert init is not None and x is not None
        (kh, kw), (sh, sw), (dh, dw) = window(values)
        loops, (n, c, h, v) = (*outputs[0].shape, kh, kw), x.strides
        out, start = (TensorDesc(d.dtype, loops, (*d.strides, 0, 0), d.offset) for d in (outputs[0], init))
        return nest(out, start, [TensorDesc(x.dtype, loops, (n, c, h * sh, v * sw, h * dh, v * dw), x.offset)], 4)

    def reference(init: Any, x: Any, **values: Any) -> Any:
        kernel, stride, dilation = window(values)
        terms = patches(x, kernel, stride, NO_PADDING, dilation, 0.0)
        return init + terms.sum((4, 5)) if combine == "sum" else np.maximum(init, terms.max((4, 5), initial=-np.inf))

    def scale(init: Any, x: Any, **values: Any) -> Any:
        kernel, stride, dilation = window(values)
        return growth(patches(x, kernel, stride, NO_PADDING, dilation, 0.0), (4, 5), init)

    def sample(x: Any, kernel: Any, size: str = "small", **values: Any) -> Sample:
        return Sample(_window(x, kernel, x[1], **values), {"kernel": kernel, **values}, size=size)

    declare(
        name,
        kind,
        "init: U[n, c, oh, ow], x: T[n, c, h, v] -> y: U[n, c, oh, ow]",
        **_TYPES,
        family="pooling",
        expression=parse("x0"),
        combine=combine,
        doc=doc,
        reference=reference,
        attrs=attrs("PLP1", integers("kernel", doc="window: one or two", minimum=1), *STEPS),
        tolerance=Tolerance(4, scale) if combine == "sum" else Tolerance(0),
        shapes=shapes,
        normal_form=normal_form,
        flops=lambda i, o: float(i[1].numel if i[1] is not None else 0),
        samples=lambda: [
            sample((1, 1, 2, 2), (2, 2)),
            sample((2, 3, 8, 8), (2, 2), stride=(2,)),
            sample((1, 3, 9, 37), (3, 2), stride=(2, 1)),
            sample((1, 2, 9, 9), (2, 3), dilation=(2,)),
            sample((2, 1, 7, 35), (1, 5)),
            sample((1, 3, 33, 5), (33, 5)),
            sample((0, 2, 4, 4), (2, 2)),
            sample((1, 0, 4, 4), (2, 2)),
            sample((2, 17, 61, 59), (3, 3), size="wide", stride=(2, 1)),
            sample((1, 64, 58, 58), (3, 3), size="medium", stride=(2,)),
            sample((8, 64, 114, 114), (3, 3), size="large", stride=(2,)),
        ],
        errors=[
            ErrorCase({"init": (1, 1, 1, 1), "x": (1, 1, 2, 2)}, InvalidArgument),
            ErrorCase({"init": (1, 1, 2, 1), "x": (1, 1, 2, 2)}, BadTensorShape, {"kernel": (2, 2)}),
            ErrorCase({"init": (1, 1, 1, 1), "x": (1, 1, 2, 2)}, BadTensorShape, {"kernel": (3, 3)}),
            ErrorCase({"init": (1, 1, 1, 1), "x": (1, 1, 2, 2)}, InvalidArgument, {"kernel": (2, 2, 2)}),
        ],
        **fields,
    )


_pool(
    "pooling_nchw_sum",
    "PSUM",
    "sum",
    "y = init + the sum of each window, without padding (linalg.pooling_nchw_sum).",
)
_pool(
    "pooling_nchw_max",
    "PMAX",
    "maximum",
    "y = the larger of init and the maximum of each window, without padding (linalg.pooling_nchw_max); NaN if any is.",
)
