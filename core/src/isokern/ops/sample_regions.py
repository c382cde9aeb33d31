"""sample_regions: parts of images, each divided into a grid of bins that give a value each. Normal form: as given.

The stem of `roi_align` and `max_roi_pool`, which make the regions; places are computed in the compute type, by
operations that are rounded one after the other, so that every device reads the same elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, choice, integer
from ..declare.normal_form import as_given
from ..dtypes import F32, F64, FLOATS, I32, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

Shape = tuple[int, ...]
MOST = 1024  # samples of a bin along an axis
LONGEST = 1 << 22  # dims of x: neighbours are different numbers in F32 up to there
MODES = ("average", "maximum", "bins")


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, regions, _images = inputs
    if regions[1] != 4:
        given = f"regions is {list(regions)}"
        raise BadTensorShape("sample_regions", given, allowed="[regions, 4]: y, x, and the height and width of a bin")
    if x[2] == 0 or x[3] == 0 or x[2] > 4194304 or x[3] > 4194304:
        raise BadTensorShape("sample_regions", f"x is {list(x)}", allowed="images of 1 to 4194304 rows and columns")
    return [(regions[0], x[1], values["output_height"], values["output_width"])]


def keeps_places(types: Mapping[str, DType]) -> bool:
    """Return whether the regions have the compute type of x."""
    return types["U"] is types["T"].compute


def _run_of_bin(start: Any, size: Any, i: int, length: int) -> range:
    """Return the elements of bin i, of `size`, counted from `start`: those that it touches, within the image."""
    kind = size.dtype.type
    ends = [np.floor(kind(i) * size) + start, np.ceil(kind(i + 1) * size) + start]
    low, high = (int(min(max(e, 0), length)) if e == e else 0 for e in ends)
    return range(low, high)


def _taps_of_bin(start: Any, size: Any, i: int, length: int, ratio: int) -> list[list[tuple[int, Any]]]:
    """Return, for each sample of bin i along an axis, the two elements that it lies between and their weights."""
    kind = size.dtype.type
    count = ratio or (int(min(np.ceil(size), MOST)) if size > 0 else 0)
    taps: list[list[tuple[int, Any]]] = []
    first = start + kind(i) * size
    for k in range(count):
        at = first + (kind(k) + kind(0.5)) * size / kind(count)
        if not -1 <= at <= length:
            taps.append([])
            continue
        at = max(at, kind(0))
        low = min(int(at), length - 1)
        part = at - kind(low) if low < length - 1 else kind(0)
        taps.append([(low, float(1 - part)), (min(low + 1, length - 1), float(part))])
    return taps


def sample(x: Any, regions: Any, images: Any, output_height: int, output_width: int, sampling_ratio: int, mode: str,
           magnitude: bool = False) -> Any:  # fmt: skip
    """Return the reference, or the growth of its rounding errors: sums of magnitudes, times a factor for the terms."""
    y = np.zeros((len(regions), x.shape[1], output_height, output_width))
    values = np.abs(x) if magnitude else x
    for r, i, j in np.ndindex(len(regions), output_height, output_width):
        if not 0 <= images[r] < len(x):
            continue
        image, (top, left, height, width) = values[images[r]], regions[r]
        if mode == "bins":
            rows, columns = _run_of_bin(top, height, i, x.shape[2]), _run_of_bin(left, width, j, x.shape[3])
            if len(rows) and len(columns):
                y[r, :, i, j] = image[:, rows.start : rows.stop, columns.start : columns.stop].max((1, 2))
            continue
        down = _taps_of_bin(top, height, i, x.shape[2], sampling_ratio)
        across = _taps_of_bin(left, width, j, x.shape[3], sampling_ratio)
        found: list[Any] = []
        for a in down:
            for b in across:
                terms = [v * w * image[:, n, m] for n, v in a for m, w in b] or [np.zeros(x.shape[1])]
                found.append(np.max(terms, 0) if mode == "maximum" else np.sum(terms, 0))
        if found:
            y[r, :, i, j] = np.max(found, 0) if mode == "maximum" else np.sum(found, 0) / len(found)
            y[r, :, i, j] *= 6 + 2 * np.sqrt(len(found)) if magnitude else 1
    return y


def _scale(x: Any, regions: Any, images: Any, **values: Any) -> Any:
    return np.nan_to_num(sample(x, regions, images, magnitude=True, **values), nan=0.0)


def _reference(x: Any, regions: Any, images: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
    return sample(x, regions.astype(out[0].dtype.compute.numpy), images, **values)


def _places(x: Any, regions: Any, images: Any, compute: DType, **values: Any) -> Any:
    return _scale(x, regions.astype(compute.numpy), images, **values)


RATIO = integer("sampling_ratio", 0, "samples of a bin along each axis; 0 for as many as elements", minimum=0)
HEIGHT = integer("output_height", doc="bins down a region", minimum=1)
WIDTH = integer("output_width", doc="bins across a region", minimum=1)


def _sample_of(x: Shape, count: int, bins: Shape, size: str = "small", **values: Any) -> Sample:
    attributes = {"output_height": bins[0], "output_width": bins[1], **values}
    return Sample(
        {"x": x, "regions": (count, 4), "images": (count,)},
        attributes,
        {"images": f"length:{max(0, x[0] - 1)}"},
        size=size,
    )


_SOME = {"output_height": 2, "output_width": 3}
_PLAIN = {"x": (2, 3, 5, 6), "regions": (4, 4), "images": (4,)}

declare(
    "sample_regions",
    "SREG",
    "x: T[n, c, h, w], regions: U[r, 4], images: I64[r] -> y: T[r, c, oh, ow]",
    {"T": FLOATS, "U": (F32, F64)},
    combinations=keeps_places,
    family="pooling",
    doc=(
        "A value for each bin of each region, of an image of x by its number (0 for a number that is none). A region is"
        " the place of its first corner, down and across, and the height and width of a bin. `bins` is the largest"
        " element that a bin touches, from floor(i · height) + y to ceil((i + 1) · height) + y; 0 where that is none."
        " The others read at samples, sampling_ratio along each axis, or ceil(height) and ceil(width) of them, 1024 at"
        " most: at y + i · height + (k + 0.5) · height / samples. A sample lies between two rows and two columns,"
        " whose elements it weighs bilinearly; one up to 1 outside counts as at the edge, others give 0. `average`"
        " is the mean of the samples, `maximum` the largest weighted element of all. NaN stays NaN."
    ),
    reference=_reference,
    tolerance=Tolerance(2, _places),
    attrs=attrs("SRG1", HEIGHT, WIDTH, RATIO, choice("mode", MODES, "average", "what a bin gives")),
    shapes=_shapes,
    normal_form=as_given,
    flops=lambda i, o: 8.0 * o[0].numel,
    domains={"regions": "regions"},
    samples=lambda: [
        _sample_of((1, 1, 3, 4), 2, (2, 2)),
        _sample_of((2, 3, 9, 8), 5, (2, 3)),
        _sample_of((2, 3, 9, 8), 5, (2, 3), sampling_ratio=2),
        _sample_of((2, 3, 9, 8), 5, (3, 2), mode="maximum"),
        _sample_of((2, 3, 9, 8), 7, (2, 2), mode="bins"),
        _sample_of((1, 33, 4, 5), 1, (1, 1), sampling_ratio=3, mode="maximum"),
        _sample_of((3, 0, 4, 5), 2, (2, 2)),
        _sample_of((3, 2, 4, 5), 0, (2, 2), mode="bins"),
        _sample_of((0, 2, 4, 5), 2, (2, 2)),
        _sample_of((2, 150, 17, 19), 50, (7, 7), "wide", sampling_ratio=2),
        _sample_of((2, 256, 50, 50), 100, (7, 7), "medium", sampling_ratio=2),
        _sample_of((2, 256, 100, 100), 1000, (7, 7), "large", sampling_ratio=2),
    ],
    errors=[
        ErrorCase({**_PLAIN, "regions": (4, 5)}, BadTensorShape, _SOME),
        ErrorCase({**_PLAIN, "regions": (3, 4)}, BadTensorShape, _SOME),
        ErrorCase({**_PLAIN, "x": (2, 3, 0, 6)}, BadTensorShape, _SOME),
        ErrorCase({**_PLAIN, "x": (3, 5, 6)}, BadTensorShape, _SOME),
        ErrorCase(_PLAIN, InvalidArgument, {**_SOME, "output_height": 0}),
        ErrorCase(_PLAIN, InvalidArgument, {**_SOME, "mode": "median"}),
        ErrorCase(_PLAIN, BadTensorDtype, _SOME, dtypes={"T": I32}),
        ErrorCase(_PLAIN, BadTensorDtype, _SOME, dtypes={"T": F32, "U": F64}),
        ErrorCase(_PLAIN, BadTensorShape, _SOME, outputs={"y": (4, 3, 3, 3)}),
    ],
)
