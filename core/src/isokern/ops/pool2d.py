"""Pooling over windows of an image, NCHW: max_pool2d, avg_pool2d, adaptive_avg_pool2d; kernel stem `pool2d`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, flag, integers
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import FLOATS, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import extent, pad_border, pair, patches, sides

WINDOW = (
    integers("kernel", doc="window: one or two", minimum=1),
    integers("stride", (), "one or two; the window's size where empty", minimum=1),
    integers(
        "padding", (0, 0), "one, two (h, w) or four (top, left, bottom, right); below the window's size", minimum=0
    ),
    integers("dilation", (1, 1), "one or two", minimum=1),
)


def window_of(
    where: str, values: Mapping[str, Any]
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int], tuple[int, int]]:
    """Return the kernel, the stride, the padding (top, left, bottom, right) and the dilation."""
    kernel = pair(where, "kernel", values["kernel"])
    stride = pair(where, "stride", values["stride"] or kernel)
    return kernel, stride, sides(where, values["padding"]), pair(where, "dilation", values["dilation"])


def shapes_of(where: str) -> Any:
    """Return the function of the output's shape, whose errors name the operator."""

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        n, c, h, w = inputs[0]
        (kh, kw), (sh, sw), (top, left, bottom, right), (dh, dw) = window_of(where, values)
        if max(top, bottom) > dh * (kh - 1) or max(left, right) > dw * (kw - 1):
            raise InvalidArgument(
                where,
                f"padding={values['padding']} with kernel={values['kernel']}",
                allowed="less than the window, so that none lies in the padding alone",
            )
        return [
            (
                n,
                c,
                extent(where, "height", h, top, bottom, kh, sh, dh),
                extent(where, "width", w, left, right, kw, sw, dw),
            )
        ]

    return shapes


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    return float(inputs[0].numel if inputs[0] is not None else 0)


def _max(x: Any, **values: Any) -> Any:
    return patches(x, *window_of("", values), fill=-np.inf).max((-2, -1), initial=-np.inf)


def _mean(x: Any, count_include_pad: bool, **values: Any) -> Any:
    window = window_of("", values)
    total = patches(x, *window, fill=0.0).sum((-2, -1))
    if count_include_pad:
        return total / (window[0][0] * window[0][1])
    return total / patches(np.ones_like(x), *window, fill=0.0).sum((-2, -1))


def _mean_scale(x: Any, **values: Any) -> Any:
    return 4 * _mean(np.abs(x), **values)


SAMPLES: SampleTable = [
    ((1, 1, 2, 2), {"kernel": (2, 2)}, "small"),
    ((2, 3, 8, 8), {"kernel": (2, 2)}, "small"),
    ((1, 3, 9, 7), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0)}, "small"),
    ((1, 2, 10, 10), {"kernel": (3,), "stride": (2,), "padding": (1,)}, "small"),
    ((1, 2, 9, 9), {"kernel": (2, 3), "dilation": (2, 2), "stride": (1, 1)}, "small"),
    ((1, 2, 5, 6), {"kernel": (3, 3), "stride": (3, 3), "padding": (1, 0, 0, 1)}, "small"),
    ((2, 1, 7, 35), {"kernel": (1, 5), "stride": (1, 1)}, "small"),
    ((0, 2, 4, 4), {"kernel": (2, 2)}, "small"),
    ((1, 0, 4, 4), {"kernel": (2, 2)}, "small"),
    ((1, 1, 6, 6), {"kernel": (3, 3), "stride": (1, 1), "padding": (2, 2)}, "small"),
    ((1, 2, 9, 71), {"kernel": (2, 3), "stride": (1, 2), "padding": (1, 1)}, "small"),
    ((2, 17, 61, 59), {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 1)}, "wide"),
    ((1, 64, 56, 56), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}, "medium"),
    ((8, 64, 112, 112), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}, "large"),
]


def _padded_windows(
    e: Emitter[V], where: str, x: V, y: TensorDesc, values: Mapping[str, Any], value: float, dtype: DType
) -> V:
    """Emit the pooling primitive over x with a border of `value`, which is also its initial value."""
    kernel, stride, border, dilation = window_of(where, values)
    init = e.fill(y.shape, value, dtype)
    kind = "pooling_nchw_sum" if value == 0 else "pooling_nchw_max"
    return e(kind, init, pad_border(e, x, border, value), kernel=kernel, stride=stride, dilation=dilation)


def _max_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    return _padded_windows(e, "max_pool2d", inputs[0], outputs[0], values, -np.inf, outputs[0].dtype)


def _mean_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the sums, divided by how many elements of each window are inside x; windows over ones count them."""
    (x,), y = inputs, outputs[0]
    wide = y.dtype.compute
    total = _padded_windows(e, "avg_pool2d", x, y, values, 0.0, wide)
    kernel, _, border, _ = window_of("avg_pool2d", values)
    if values["count_include_pad"] or not any(border):
        return e.loop("abcd->abcd", f"x0 / {constant(kernel[0] * kernel[1])}", total, dtype=y.dtype)
    ones = e.fill((1, 1, *x.spec.shape[2:]), 1.0, wide)
    counts = _padded_windows(e, "avg_pool2d", ones, TensorDesc(wide, (1, 1, *y.shape[2:])), values, 0.0, wide)
    return e.loop("abcd,cd->abcd", "x0 / x1", total, e.collapse(counts, (3, 1)), dtype=y.dtype)


def pool(name: str, kind: str, record: Any, more: SampleTable, **fields: Any) -> Operator:
    """Declare a windowed pooling operator."""
    return declare(
        name,
        kind,
        "x: T[n, c, h, w] -> y: T[n, c, oh, ow]",
        {"T": FLOATS},
        family="pooling",
        stem="pool2d",
        attrs=record,
        shapes=shapes_of(name),
        normal_form=as_given,
        flops=_flops,
        samples=lambda: [Sample({"x": x}, values, size=size) for x, values, size in [*SAMPLES, *more]],
        errors=[
            ErrorCase({"x": (1, 1, 2, 2)}, InvalidArgument),
            ErrorCase({"x": (1, 1, 2, 2)}, BadTensorShape, {"kernel": (3, 3)}),
            ErrorCase({"x": (1, 1, 4, 4)}, InvalidArgument, {"kernel": (2, 2), "padding": (2, 2)}),
            ErrorCase({"x": (1, 4, 4)}, BadTensorShape, {"kernel": (2, 2)}),
            ErrorCase({"x": (1, 1, 4, 4)}, InvalidArgument, {"kernel": (2, 2, 2)}),
        ],
        **fields,
    )


pool(
    "max_pool2d",
    "MXPL",
    attrs("MXP1", *WINDOW),
    [],
    decompose=_max_parts,
    doc="Maximum of each window; padding counts as -∞; NaN in a window gives NaN.",
    reference=_max,
    tolerance=Tolerance(0),
)
pool(
    "avg_pool2d",
    "AVPL",
    attrs("AVP1", *WINDOW, flag("count_include_pad", False, "divide by the whole window at the borders")),
    [((1, 1, 6, 6), {"kernel": (3, 3), "stride": (1, 1), "padding": (2, 2), "count_include_pad": True}, "small")],
    decompose=_mean_parts,
    doc=(
        "Mean of each window, over the elements inside x (or the whole window with count_include_pad, as PyTorch's are"
        " unless told otherwise)."
    ),
    reference=_mean,
    tolerance=Tolerance(4, _mean_scale),
)


def bins(size: int, out: int) -> list[slice]:
    """Return the run of elements of each bin."""
    return [slice(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def _adaptive(x: Any, output_size: Any) -> Any:
    oh, ow = pair("", "", output_size)
    y = np.empty((*x.shape[:2], oh, ow))
    for i, rows in enumerate(bins(x.shape[2], oh)):
        for j, columns in enumerate(bins(x.shape[3], ow)):
            y[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
    return y


def _adaptive_loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit windows for even bins, and for uneven ones two loop nests.

    Each nest has a matrix that says which element is in which bin.
    """
    (x,), y = inputs, outputs[0]
    (h, w), (oh, ow) = x.spec.shape[2:], y.shape[2:]
    wide = y.dtype.compute
    if h and w and h % oh == 0 and w % ow == 0:
        steps: dict[str, Any] = {"kernel": (h // oh, w // ow), "stride": (h // oh, w // ow)}
        total = e("pooling_nchw_sum", e.fill(y.shape, 0.0, wide), x, **steps)
        return e.loop("abcd->abcd", f"x0 / {constant(h * w // (oh * ow))}", total, dtype=y.dtype)
    made = e.cast(x, wide)
    for size, bins, maps in ((h, oh, "abhw,ch->abcw"), (w, ow, "abhw,cw->abhc")):
        begin, end = f"quotient(x0 * {size}, {bins})", f"quotient((x0 + 1) * {size} + {bins - 1}, {bins})"
        numbers = e.iota(bins, I64), e.iota(size, I64)
        inside = e.cast(e.loop("c,h->ch", f"x1 >= {begin} and x1 < {end}", *numbers), wide)
        count = e.loop("ch->c", "x0", inside, combine="sum")
        total = e.loop(maps, "x0 if x1 != 0 else 0", made, inside, combine="sum")
        at = maps.partition("->")[2]
        made = e.loop(f"{at},c->{at}", "x0 / x1", total, count)
    return e.cast(made, y.dtype)


def _adaptive_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    n, c, h, w = inputs[0]
    oh, ow = pair("adaptive_avg_pool2d", "output_size", values["output_size"])
    if (h == 0 or w == 0) and n * c:
        raise BadTensorShape("adaptive_avg_pool2d", f"x is {list(inputs[0])}", allowed="height and width from 1")
    return [(n, c, oh, ow)]


declare(
    "adaptive_avg_pool2d",
    "ADPL",
    "x: T[n, c, h, w] -> y: T[n, c, oh, ow]",
    {"T": FLOATS},
    family="pooling",
    stem="pool2d",
    doc="Mean over oh × ow bins: bin i covers rows floor(i·h/oh) to ceil((i+1)·h/oh) (PyTorch's rule).",
    reference=_adaptive,
    tolerance=Tolerance(4, lambda x, output_size: 4 * _adaptive(np.abs(x), output_size)),
    attrs=attrs("ADP1", integers("output_size", doc="one or two", minimum=1)),
    shapes=_adaptive_shapes,
    normal_form=as_given,
    decompose=_adaptive_loops,
    flops=_flops,
    samples=lambda: [
        Sample({"x": (1, 1, 16384, 3)}, {"output_size": (1, 3)}, values={"x": "positive"}, size="long"),
        Sample({"x": (1, 2, 9, 9)}, {"output_size": (2, 2)}, values={"x": "tiny"}, size="long"),
        *(
            Sample({"x": x}, {"output_size": o}, size=size)
            for x, o, size in [
                ((1, 1, 1, 1), (1, 1), "small"),
                ((2, 3, 8, 8), (2, 2), "small"),
                ((1, 3, 7, 5), (3, 2), "small"),
                ((1, 2, 9, 9), (1,), "small"),
                ((1, 2, 4, 4), (4, 4), "small"),
                ((1, 2, 3, 3), (5, 4), "small"),
                ((0, 2, 3, 3), (2, 2), "small"),
                ((1, 0, 3, 3), (2, 2), "small"),
                ((3, 1, 35, 33), (4, 7), "small"),
                ((2, 16, 61, 59), (7, 5), "wide"),
                ((1, 512, 28, 28), (1, 1), "medium"),
                ((16, 512, 56, 56), (7, 7), "large"),
            ]
        ),
    ],
    errors=[
        ErrorCase({"x": (1, 1, 4, 4)}, InvalidArgument),
        ErrorCase({"x": (1, 1, 0, 4)}, BadTensorShape, {"output_size": (1, 1)}),
        ErrorCase({"x": (1, 4, 4)}, BadTensorShape, {"output_size": (1, 1)}),
        ErrorCase({"x": (1, 1, 4, 4)}, InvalidArgument, {"output_size": (0, 1)}),
    ],
)
