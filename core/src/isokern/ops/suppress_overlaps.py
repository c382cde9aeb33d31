"""suppress_overlaps: of boxes in the order of their scores, those that no better one overlaps. Normal form: as given.

The order of all operations is part of the definition, so that every device keeps the same boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer, number
from ..declare.normal_form import as_given
from ..dtypes import FLOATS, I32, DType, dtype
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    boxes, valid = inputs
    if boxes[2] != 4:
        raise BadTensorShape("suppress_overlaps", f"boxes is {list(boxes)}", allowed="four corners: [g, n, 4]")
    return [valid]


def widen(x: Any) -> Any:
    """Return floats in their compute type."""
    element: DType = dtype(x.dtype)
    return x.astype(element.compute.numpy)


def greedy(boxes: Any, valid: Any, iou_threshold: float, limit: int) -> Any:
    """Return which boxes stay, by NumPy in the compute type."""
    corners, threshold = widen(boxes), widen(boxes).dtype.type(iou_threshold)
    keep, left = np.array(valid), np.where(limit == 0, np.iinfo(np.int64).max, limit) * np.ones(len(boxes), np.int64)
    areas = (corners[..., 2] - corners[..., 0]) * (corners[..., 3] - corners[..., 1])
    for i in range(boxes.shape[1]):
        keep[:, i] &= left > 0
        left -= keep[:, i]
        a, b = corners[:, i, None], corners[:, i + 1 :]
        sides = [
            np.where(a[..., k + 2] < b[..., k + 2], a[..., k + 2], b[..., k + 2])
            - np.where(a[..., k] > b[..., k], a[..., k], b[..., k])
            for k in (0, 1)
        ]
        sides = [np.where(s > 0, s, 0).astype(corners.dtype) for s in sides]
        shared = sides[0] * sides[1]
        total = areas[:, i, None] + areas[:, i + 1 :]
        keep[:, i + 1 :] &= ~(keep[:, i, None] & (shared / (total - shared) > threshold))
    return keep


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    return 8.0 * outputs[0].numel * outputs[0].shape[1]


LIMIT = integer("limit", 0, "how many boxes of a group stay at most; 0 for all", minimum=0)
THRESHOLD = number("iou_threshold", 0.5, "the share above which boxes overlap", minimum=0, maximum=1)

declare(
    "suppress_overlaps",
    "SUPP",
    "boxes: T[g, n, 4], valid: BOOL[g, n] -> keep: BOOL[g, n]",
    {"T": FLOATS},
    family="reduction",
    doc=(
        "The greedy step of non-maximum suppression, in each of g groups: a valid box i stays unless one before it that"
        " stays overlaps it, which is where the area that they share, divided by that of both together, is above"
        " iou_threshold. Boxes are corners (a0, a1, b0, b1), with a0 ≤ b0 and a1 ≤ b1, best first. Computed in F32 or"
        " F64, each operation rounded: the sides of the shared box, min(b) - max(a), or 0 where that is not positive;"
        " areas, their sum less the shared area, and the quotient. NaN overlaps nothing."
    ),
    reference=greedy,
    attrs=attrs("SUP1", THRESHOLD, LIMIT),
    shapes=_shapes,
    normal_form=as_given,
    flops=_flops,
    domains={"boxes": "boxes"},
    samples=lambda: [
        *(
            Sample({"boxes": (g, n, 4), "valid": (g, n)}, {"iou_threshold": share, "limit": limit}, size=size)
            for g, n, share, limit, size in [
                (1, 1, 0.5, 0, "small"),
                (1, 7, 0.5, 0, "small"),
                (3, 33, 0.3, 0, "small"),
                (2, 40, 0.0, 5, "small"),
                (2, 300, 0.1, 0, "small"),
                (2, 9, 1.0, 1, "small"),
                (0, 5, 0.5, 0, "small"),
                (2, 0, 0.5, 0, "small"),
                (1, 1025, 0.25, 60, "long"),
                (60, 130, 0.3, 0, "wide"),
                (80, 1000, 0.5, 100, "medium"),
                (80, 8400, 0.5, 300, "large"),
            ]
        ),
        Sample({"boxes": (2, 20, 4), "valid": (2, 20)}, {}, {"boxes": "any"}),
    ],
    errors=[
        ErrorCase({"boxes": (2, 5, 3), "valid": (2, 5)}, BadTensorShape),
        ErrorCase({"boxes": (5, 4), "valid": (5,)}, BadTensorShape),
        ErrorCase({"boxes": (2, 5, 4), "valid": (2, 4)}, BadTensorShape),
        ErrorCase({"boxes": (2, 5, 4), "valid": (2, 5)}, InvalidArgument, {"iou_threshold": 1.5}),
        ErrorCase({"boxes": (2, 5, 4), "valid": (2, 5)}, InvalidArgument, {"limit": -1}),
        ErrorCase({"boxes": (2, 5, 4), "valid": (2, 5)}, BadTensorDtype, dtypes={"T": I32}),
    ],
    exact=True,
)
