"""non_max_suppression and nms: boxes by falling score, without those that a better one overlaps.

How many stay only the device knows: as in compactions.py, the results have room for all that may, and `count` says how
many there are. Boxes are sorted, gathered in that order, thinned out by `suppress_overlaps`, and moved together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, flag, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import BOOL, FLOATS, I32, I64
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .compactions import ROOM
from .sort import argsort
from .suppress_overlaps import THRESHOLD, greedy, widen

Shape = tuple[int, ...]


def _corners(e: Emitter[V], boxes: V, center: bool) -> V:
    """Emit corners of boxes [n, 4], the smaller ones first, in the compute type."""
    wide = e.cast(boxes, boxes.spec.dtype.compute)
    columns = [e.collapse(e("slice", wide, starts=(i,), ends=(i + 1,), axes=(1,)), (2,)) for i in range(4)]
    made = []
    for low in (True, False):
        for k in (0, 1):
            if center:
                body = "x0 - x1 / 2" if low else "x0 + x1 / 2"
            else:
                body = "x0 if x0 < x1 else x1" if low else "x0 if x0 > x1 else x1"
            made.append(e.reshape(e.loop("n,n->n", body, columns[k], columns[k + 2]), (boxes.spec.shape[0], 1)))
    return e("concat", *made, axis=1)


def _move_kept(e: Emitter[V], keep: V, rows: V, room: int) -> tuple[V, V]:
    """Emit the rows whose flag in the vector `keep` is set, moved together in `room` of them, and their count."""
    count = e("count_nonzero", keep)
    order = e("slice", e.all("sort", keep, axis=0, descending=True)[1], starts=(0,), ends=(room,), axes=(0,))
    within = e.loop("a,->a", "x0 < x1", e.iota(room, I64), count, dtype=BOOL)
    found = e("gather", rows, order, axis=0)
    mask = e.reshape(within, (room, *(1 for _ in found.spec.shape[1:])))
    return e("where", mask, found, e.fill((), 0.0, I64)), count


def _none(e: Emitter[V], outputs: Sequence[TensorDesc]) -> tuple[V, ...]:
    return tuple(e.fill(o.shape, 0.0, o.dtype) for o in outputs)


# non_max_suppression


def _room(scores: Sequence[int], limit: int) -> int:
    """Return how many rows the result has room for."""
    return scores[0] * scores[1] * min(scores[2], limit)


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    boxes, scores = inputs
    if boxes[2] != 4:
        raise BadTensorShape("non_max_suppression", f"boxes is {list(boxes)}", allowed="[batch, boxes, 4]")
    limit = values["max_output_boxes_per_class"]
    return [(scores[0] * scores[1] * min(scores[2], limit), 3), ()]


def _suppress(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, ...]:
    boxes, scores = inputs
    b, c, n = scores.spec.shape
    room = outputs[0].shape[0]
    if room == 0:
        return _none(e, outputs)
    ordered, places = e.all("sort", scores, axis=2, descending=True)
    valid = e.loop("bcn->bcn", f"x0 > {constant(values['score_threshold'])}", ordered, dtype=BOOL)
    corners = _corners(e, e.reshape(boxes, (b * n, 4)), values["center_point_box"])
    rows = e.loop("bcn,b->bcn", f"x0 + x1 * {n}", places, e.iota(b, I64))
    found = e.reshape(e("gather", corners, rows, axis=0), (b * c, n, 4))
    keep = e(
        "suppress_overlaps",
        found,
        e.reshape(valid, (b * c, n)),
        iou_threshold=values["iou_threshold"],
        limit=values["max_output_boxes_per_class"],
    )
    batches = e.loop("bcn,b->bcn", "x1 + 0 * x0", places, e.iota(b, I64))
    classes = e.loop("bcn,c->bcn", "x1 + 0 * x0", places, e.iota(c, I64))
    columns = [e.reshape(v, (b * c * n, 1)) for v in (batches, classes, places)]
    return _move_kept(e, e.reshape(keep, (b * c * n,)), e("concat", *columns, axis=1), room)


def _to_corners(boxes: Any, center: bool) -> Any:
    wide = widen(boxes)
    a, b = wide[..., :2], wide[..., 2:]
    if center:
        half = b / wide.dtype.type(2)
        return np.concatenate([a - half, a + half], -1)
    return np.concatenate([np.where(a < b, a, b), np.where(a > b, a, b)], -1)


def _reference(
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: int,
    iou_threshold: float,
    score_threshold: float,
    center_point_box: bool,
) -> tuple[Any, Any]:
    b, c, n = scores.shape
    rows: list[Any] = [np.zeros((0, 3), np.int64)]
    corners, limit = _to_corners(boxes, center_point_box), max_output_boxes_per_class
    order = argsort(scores, 2, descending=True)
    wide = widen(scores)
    for i, j in np.ndindex(b, c if limit else 0):
        at = order[i, j]
        valid = wide[i, j, at] > wide.dtype.type(score_threshold)
        keep = greedy(corners[i, at][None], valid[None], iou_threshold, limit)[0]
        rows.append(np.stack([np.full(n, i), np.full(n, j), at], 1)[keep])
    found = np.concatenate(rows)
    y = np.zeros((_room(scores.shape, limit), 3), np.int64)
    y[: len(found)] = found
    return y, np.asarray(len(found))


def _sample(b: int, c: int, n: int, size: str = "small", **values: Any) -> Sample:
    given = {"max_output_boxes_per_class": 5, **values}
    return Sample({"boxes": (b, n, 4), "scores": (b, c, n)}, given, size=size)


_PLAIN = {"boxes": (2, 5, 4), "scores": (2, 3, 5)}
_SOME = {"max_output_boxes_per_class": 2}

declare(
    "non_max_suppression",
    "NMSP",
    "boxes: T[b, n, 4], scores: T[b, c, n] -> y: I64[m, 3], count: I64[]",
    {"T": FLOATS},
    family="reduction",
    doc=(
        "For each batch and class, the boxes with a score above score_threshold by falling score, without those whose"
        " intersection over union with a better one that stays is above iou_threshold, and at most"
        " max_output_boxes_per_class of them (ONNX NonMaxSuppression). A row of y is (batch, class, box); of equal"
        f" scores the box of lower number comes first; {ROOM}. y has room for as many rows as may be. Boxes are two"
        " corners, in any order, or the center and the sizes with center_point_box; computed in F32 or F64."
    ),
    reference=_reference,
    attrs=attrs(
        "NMS1",
        integer("max_output_boxes_per_class", doc="how many boxes of a class stay at most", minimum=0),
        number("iou_threshold", 0.0, "the share above which boxes overlap", minimum=0, maximum=1),
        number("score_threshold", float("-inf"), "what scores must be above"),
        flag("center_point_box", False, "boxes are a center and two sizes, not two corners"),
    ),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_suppress,
    domains={"boxes": "boxes", "scores": "moderate"},
    samples=lambda: [
        _sample(1, 1, 6, iou_threshold=0.5),
        _sample(2, 3, 17, iou_threshold=0.25, score_threshold=-1.5),
        _sample(1, 2, 40, iou_threshold=0.1, center_point_box=True),
        _sample(2, 1, 33, score_threshold=2.0, max_output_boxes_per_class=100),
        _sample(1, 2, 9, score_threshold=100.0),
        _sample(1, 2, 9, max_output_boxes_per_class=0),
        _sample(0, 2, 9),
        _sample(2, 0, 9),
        _sample(1, 2, 0),
        _sample(4, 20, 257, "wide", iou_threshold=0.3, max_output_boxes_per_class=20),
        _sample(1, 20, 1000, "medium", iou_threshold=0.5, max_output_boxes_per_class=100),
        _sample(1, 80, 8400, "large", iou_threshold=0.5, max_output_boxes_per_class=100),
    ],
    errors=[
        ErrorCase({**_PLAIN, "boxes": (2, 5, 3)}, BadTensorShape, _SOME),
        ErrorCase({**_PLAIN, "boxes": (3, 5, 4)}, BadTensorShape, _SOME),
        ErrorCase({**_PLAIN, "scores": (2, 5)}, BadTensorShape, _SOME),
        ErrorCase(_PLAIN, InvalidArgument),
        ErrorCase(_PLAIN, InvalidArgument, {**_SOME, "iou_threshold": 2.0}),
        ErrorCase(_PLAIN, BadTensorDtype, _SOME, dtypes={"T": I32}),
        ErrorCase(_PLAIN, BadTensorShape, _SOME, outputs={"y": (2, 3), "count": ()}),
    ],
    exact=True,
)


# nms


def _nms_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    boxes = inputs[0]
    if boxes[1] != 4:
        raise BadTensorShape("nms", f"boxes is {list(boxes)}", allowed="corners (x0, y0, x1, y1): [n, 4]")
    return [(boxes[0],), ()]


def _nms(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, ...]:
    boxes, scores = inputs
    n = scores.spec.shape[0]
    if n == 0:
        return _none(e, outputs)
    order = e.all("sort", scores, axis=0, descending=True)[1]
    found = e.reshape(e("gather", boxes, order, axis=0), (1, n, 4))
    keep = e("suppress_overlaps", found, e.fill((1, n), 1.0, BOOL), iou_threshold=values["iou_threshold"])
    return _move_kept(e, e.reshape(keep, (n,)), order, n)


def _nms_reference(boxes: Any, scores: Any, iou_threshold: float) -> tuple[Any, Any]:
    order = argsort(scores, 0, descending=True)
    keep = greedy(boxes[order][None], np.ones((1, len(order)), bool), iou_threshold, 0)[0]
    y = np.zeros(len(order), np.int64)
    y[: keep.sum()] = order[keep]
    return y, np.asarray(keep.sum())


declare(
    "nms",
    "NMS_",
    "boxes: T[n, 4], scores: T[n] -> y: I64[n], count: I64[]",
    {"T": FLOATS},
    family="reduction",
    doc=(
        "The numbers of the boxes (x0, y0, x1, y1), x0 ≤ x1 and y0 ≤ y1, by falling score, without those whose"
        " intersection over union with a better one that stays is above iou_threshold (torchvision's nms); of equal"
        f" scores the box of lower number comes first; {ROOM}."
    ),
    reference=_nms_reference,
    attrs=attrs("NMS2", THRESHOLD),
    shapes=_nms_shapes,
    normal_form=as_given,
    decompose=_nms,
    domains={"boxes": "boxes", "scores": "moderate"},
    samples=lambda: [
        *(
            Sample({"boxes": (n, 4), "scores": (n,)}, {"iou_threshold": share}, size=size)
            for n, share, size in [
                (1, 0.5, "small"),
                (7, 0.3, "small"),
                (50, 0.2, "small"),
                (0, 0.5, "small"),
                (301, 0.1, "long"),
                (1500, 0.5, "wide"),
                (1000, 0.5, "medium"),
                (8400, 0.5, "large"),
            ]
        )
    ],
    errors=[
        ErrorCase({"boxes": (5, 3), "scores": (5,)}, BadTensorShape),
        ErrorCase({"boxes": (5, 4), "scores": (4,)}, BadTensorShape),
        ErrorCase({"boxes": (5, 4), "scores": (5,)}, InvalidArgument, {"iou_threshold": -0.5}),
        ErrorCase({"boxes": (5, 4), "scores": (5,)}, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase({"boxes": (5, 4), "scores": (5,)}, BadTensorShape, outputs={"y": (4,), "count": ()}),
    ],
    exact=True,
)
