"""roi_align and max_roi_pool: regions of interest of images, each as a grid of bins. Made of `sample_regions`.

The regions are scaled and divided here, in the compute type. A gather checks the indices of roi_align, and reports one
that is out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, choice, flag, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import F32, FLOATS, I32, I64, INDICES, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .sample_regions import HEIGHT, RATIO, WIDTH, sample

Shape = tuple[int, ...]
SCALE = number("spatial_scale", 1.0, "factor from a region's places to rows and columns of x")
ROUND = "trunc(x0) + (copysign(1, x0) if abs(x0 - trunc(x0)) >= 0.5 else 0)"  # halves away from 0
INDEX_ERROR = "batch_indices[{at}] is {value}, out of range for the images"


def _shapes_of(where: str, columns: int) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        x, rois = inputs[0], inputs[1]
        if rois[1] != columns:
            raise BadTensorShape(where, f"rois is {list(rois)}", allowed=f"rows of {columns}")
        if x[2] == 0 or x[3] == 0 or x[2] > 4194304 or x[3] > 4194304:
            raise BadTensorShape(where, f"x is {list(x)}", allowed="images of 1 to 4194304 rows and columns")
        return [(rois[0], x[1], values["output_height"], values["output_width"])]

    return shapes


def _column(e: Emitter[V], rois: V, i: int) -> V:
    return e.collapse(e("slice", rois, starts=(i,), ends=(i + 1,), axes=(1,)), (2,))


def _emit(e: Emitter[V], x: V, columns: Sequence[V], images: V, mode: str, values: Mapping[str, Any]) -> V:
    """Emit the values of regions of these y, x, bin heights and bin widths."""
    r = images.spec.shape[0]
    regions = e("concat", *(e.reshape(c, (r, 1)) for c in columns), axis=1)
    return e(
        "sample_regions",
        x,
        regions,
        images,
        output_height=values["output_height"],
        output_width=values["output_width"],
        sampling_ratio=values.get("sampling_ratio", 0),
        mode=mode,
    )


def _find_images(images: Any, count: int) -> Any:
    """Return the images that indices name, counted from the end where negative; 0 for one out of range."""
    at = np.asarray(images, np.int64)
    at = np.where(at < 0, at + count, at)
    return np.where((at >= 0) & (at < count), at, 0)


# roi_align


def _align(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, rois, images = inputs
    wide = e.cast(rois, x.spec.dtype.compute)
    back = " - 0.5" if values["aligned"] else ""
    place = f"x0 * {constant(values['spatial_scale'])}{back}"
    left, top, right, bottom = (e.loop("r->r", place, _column(e, wide, i)) for i in range(4))
    size = "x1 - x0" if values["aligned"] else "x1 - x0 if x1 - x0 > 1 else 1"
    bins = [
        e.loop("r,r->r", f"({size}) / {values[name]}", *ends)
        for name, ends in (("output_height", (top, bottom)), ("output_width", (left, right)))
    ]
    mode = "average" if values["mode"] == "avg" else "maximum"
    known = e("gather", e.iota(x.spec.shape[0], I64), images, axis=0)
    return _emit(e, x, [top, left, *bins], known, mode, values)


def _aligned_regions(rois: Any, values: Mapping[str, Any], compute: DType) -> Any:
    kind: Any = np.dtype(compute.numpy).type
    places = rois.astype(kind) * kind(values["spatial_scale"])
    places = places - kind(0.5) if values["aligned"] else places
    sizes = places[:, 2:] - places[:, :2]
    if not values["aligned"]:
        sizes = np.where(sizes > 1, sizes, kind(1))
    bins = sizes / np.array([values["output_width"], values["output_height"]], kind)
    return np.concatenate([places[:, 1::-1], bins[:, ::-1]], 1)


def _align_values(x: Any, rois: Any, images: Any, values: Mapping[str, Any], compute: DType, magnitude: bool) -> Any:
    return sample(
        x,
        _aligned_regions(rois, values, compute),
        _find_images(images, len(x)),
        values["output_height"],
        values["output_width"],
        values["sampling_ratio"],
        "average" if values["mode"] == "avg" else "maximum",
        magnitude,
    )


def _align_reference(x: Any, rois: Any, batch_indices: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
    return _align_values(x, rois, batch_indices, values, out[0].dtype.compute, False)


def _align_scale(x: Any, rois: Any, batch_indices: Any, compute: DType, **values: Any) -> Any:
    return np.nan_to_num(_align_values(x, rois, batch_indices, values, compute, True), nan=0.0)


def _sample_of(x: Shape, count: int, bins: Shape, size: str = "small", **values: Any) -> Sample:
    attributes = {"output_height": bins[0], "output_width": bins[1], "spatial_scale": 0.75, **values}
    given = {"x": x, "rois": (count, 4), "batch_indices": (count,)}
    return Sample(given, attributes, {"batch_indices": f"index:{x[0]}"}, size=size)


_SOME = {"output_height": 2, "output_width": 3}
_PLAIN = {"x": (2, 3, 5, 6), "rois": (4, 4), "batch_indices": (4,)}

declare(
    "roi_align",
    "ROIA",
    "x: T[n, c, h, w], rois: T[r, 4], batch_indices: I[r] -> y: T[r, c, oh, ow]",
    {"T": FLOATS, "I": INDICES},
    family="pooling",
    doc=(
        "Regions (x0, y0, x1, y1) of the images that batch_indices name, each divided into bins; a bin is the mean of"
        " bilinear samples, or the largest weighted element of them (ONNX RoiAlign, torchvision's roi_align; Mask"
        " R-CNN, He et al. 2017). Places are multiplied by spatial_scale, and with `aligned` moved by half an element"
        " (ONNX's half_pixel); without, a region is at least 1 wide and high (output_half_pixel). Samples as in"
        " `sample_regions`: sampling_ratio along each axis, or as many as a bin has elements. An index out of range"
        " raises InvalidArgument as `gather` does, and the first image stands for it."
    ),
    reference=_align_reference,
    tolerance=Tolerance(2, _align_scale),
    attrs=attrs(
        "ROI1",
        HEIGHT,
        WIDTH,
        SCALE,
        RATIO,
        choice("mode", ("avg", "max"), "avg", "the mean or the largest of a bin"),
        flag("aligned", True, "places are moved by half an element"),
    ),
    shapes=_shapes_of("roi_align", 4),
    normal_form=as_given,
    decompose=_align,
    flops=lambda i, o: 8.0 * o[0].numel,
    domains={"rois": "boxes"},
    samples=lambda: [
        _sample_of((1, 1, 3, 4), 2, (2, 2)),
        _sample_of((2, 3, 9, 8), 5, (2, 3)),
        _sample_of((2, 3, 9, 8), 5, (3, 2), sampling_ratio=2, aligned=False),
        _sample_of((2, 3, 9, 8), 5, (2, 2), mode="max"),
        _sample_of((2, 3, 9, 8), 5, (2, 2), mode="max", sampling_ratio=3, spatial_scale=2.0),
        _sample_of((3, 0, 4, 5), 2, (2, 2)),
        _sample_of((3, 2, 4, 5), 0, (2, 2)),
        _sample_of((2, 150, 17, 19), 50, (7, 7), "wide", sampling_ratio=2),
        _sample_of((2, 256, 50, 50), 100, (7, 7), "medium", sampling_ratio=2),
        _sample_of((2, 256, 100, 100), 1000, (7, 7), "large", sampling_ratio=2),
    ],
    errors=[
        ErrorCase({**_PLAIN, "rois": (4, 5)}, BadTensorShape, _SOME),
        ErrorCase({**_PLAIN, "batch_indices": (3,)}, BadTensorShape, _SOME),
        ErrorCase({**_PLAIN, "x": (3, 5, 6)}, BadTensorShape, _SOME),
        ErrorCase(_PLAIN, InvalidArgument, {"output_height": 2}),
        ErrorCase(_PLAIN, InvalidArgument, {**_SOME, "sampling_ratio": -1}),
        ErrorCase(_PLAIN, BadTensorDtype, _SOME, dtypes={"T": I32}),
        ErrorCase(_PLAIN, BadTensorDtype, _SOME, dtypes={"I": F32}),
        ErrorCase(_PLAIN, BadTensorShape, _SOME, outputs={"y": (4, 3, 3, 3)}),
    ],
    device_error=INDEX_ERROR,
)


# max_roi_pool


def _pool(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, rois = inputs
    wide = e.cast(rois, x.spec.dtype.compute)
    images = e.cast(_column(e, rois, 0), I64)
    scaled = [e.loop("r->r", f"x0 * {constant(values['spatial_scale'])}", _column(e, wide, i)) for i in range(1, 5)]
    left, top, right, bottom = (e.loop("r->r", ROUND, c) for c in scaled)
    size = "x1 - x0 + 1 if x1 - x0 > 0 else 1"
    bins = [
        e.loop("r,r->r", f"({size}) / {values[name]}", *ends)
        for name, ends in (("output_height", (top, bottom)), ("output_width", (left, right)))
    ]
    return _emit(e, x, [top, left, *bins], images, "bins", values)


def _pool_reference(x: Any, rois: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
    kind: Any = np.dtype(out[0].dtype.compute.numpy).type
    scaled = rois[:, 1:].astype(kind) * kind(values["spatial_scale"])
    whole = np.trunc(scaled)
    places = whole + np.where(np.abs(scaled - whole) >= 0.5, np.copysign(kind(1), scaled), kind(0))
    sizes = places[:, 2:] - places[:, :2]
    sizes = np.where(sizes > 0, sizes + kind(1), kind(1))
    bins = sizes / np.array([values["output_width"], values["output_height"]], kind)
    regions = np.concatenate([places[:, 1::-1], bins[:, ::-1]], 1)
    images = np.nan_to_num(np.clip(np.trunc(rois[:, 0]), -(2**31), 2**31)).astype(np.int64)
    return sample(
        x,
        regions,
        images,
        values["output_height"],
        values["output_width"],
        0,
        "bins",
    )


def _pool_sample(x: Shape, count: int, bins: Shape, size: str = "small", **values: Any) -> Sample:
    attributes = {"output_height": bins[0], "output_width": bins[1], **values}
    return Sample({"x": x, "rois": (count, 5)}, attributes, size=size)


_POOLED = {"x": (2, 3, 5, 6), "rois": (4, 5)}

declare(
    "max_roi_pool",
    "RPOO",
    "x: T[n, c, h, w], rois: T[r, 5] -> y: T[r, c, oh, ow]",
    {"T": FLOATS},
    family="pooling",
    doc=(
        "The largest element of each bin of regions (image, x0, y0, x1, y1) (ONNX MaxRoiPool, torchvision's roi_pool;"
        " Fast R-CNN, Girshick 2015). Places are multiplied by spatial_scale and rounded, halves away from 0; a region"
        " has its last row and column, and at least one; bin i touches rows floor(i · height) to ceil((i + 1) · height)"
        " of it, and is 0 where the image has none of these. The image's number is truncated; a region of an image that"
        " is none is 0."
    ),
    reference=_pool_reference,
    tolerance=Tolerance(0, None),
    attrs=attrs("RPO1", HEIGHT, WIDTH, SCALE),
    shapes=_shapes_of("max_roi_pool", 5),
    normal_form=as_given,
    decompose=_pool,
    domains={"rois": "rois"},
    samples=lambda: [
        _pool_sample((1, 1, 3, 4), 2, (2, 2)),
        _pool_sample((1, 3, 9, 8), 5, (2, 3), spatial_scale=0.5),
        _pool_sample((1, 3, 9, 8), 7, (3, 2), spatial_scale=1.75),
        _pool_sample((1, 0, 4, 5), 2, (2, 2)),
        _pool_sample((1, 2, 4, 5), 0, (2, 2)),
        _pool_sample((1, 150, 17, 19), 50, (7, 7), "wide"),
        _pool_sample((1, 256, 50, 50), 100, (7, 7), "medium"),
        _pool_sample((1, 256, 100, 100), 1000, (7, 7), "large"),
    ],
    errors=[
        ErrorCase({**_POOLED, "rois": (4, 4)}, BadTensorShape, _SOME),
        ErrorCase({**_POOLED, "x": (3, 5, 6)}, BadTensorShape, _SOME),
        ErrorCase(_POOLED, InvalidArgument, {"output_width": 2}),
        ErrorCase(_POOLED, BadTensorDtype, _SOME, dtypes={"T": I32}),
        ErrorCase(_POOLED, BadTensorShape, _SOME, outputs={"y": (4, 3, 3, 3)}),
    ],
)
