"""sort: the elements along an axis in order, and where they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Sample, declare
from ..declare.attributes import attrs, flag, integer
from ..declare.normal_form import axis_of
from ..dtypes import COMPUTED, FLOATS
from ..status import BadTensorShape, InvalidArgument
from .topk import axis_last


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,) = inputs
    axis_of("sort", values["axis"], len(x))
    return [x, x]


def argsort(x: Any, axis: int, descending: bool = False) -> Any:
    """Return the indices of a stable sort, in NumPy; NaN counts as largest."""
    wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
    if not descending:
        return np.argsort(wide, axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(wide, axis), axis, kind="stable"), axis)


def _reference(x: Any, axis: int, descending: bool) -> tuple[Any, Any]:
    order = argsort(x, axis, descending)
    return np.take_along_axis(x, order, axis), order


sort = declare(
    "sort",
    "SORT",
    "x: T[*s] -> y: T[*d], indices: I64[*d]",
    {"T": COMPUTED},
    family="reduction",
    doc=(
        "The elements along `axis` in rising (or falling) order, and their indices in x. Equal elements stay in the"
        " order of their indices, in both directions (in PyTorch with stable=True); -0 equals 0, and NaN counts as"
        " largest (as in topk and argmax)."
    ),
    reference=_reference,
    attrs=attrs("SRT1", integer("axis", -1, "the axis sorted"), flag("descending", False, "largest first")),
    shapes=_shapes,
    normal_form=axis_last,
    flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
    samples=lambda: [
        *(
            Sample({"x": s}, {"axis": a, "descending": falls}, size=size)
            for s, a, falls, size in [
                ((1,), 0, False, "small"),
                ((7,), 0, True, "small"),
                ((3, 5), 1, False, "small"),
                ((3, 5), 0, True, "small"),
                ((2, 3, 4), 1, False, "small"),
                ((5, 1025), -1, False, "small"),
                ((1025, 3), 0, True, "small"),
                ((0, 3), 1, False, "small"),
                ((3, 0), 1, True, "small"),
                ((2, 1, 2, 1, 3, 1, 2, 2), 4, False, "small"),
                ((101, 1025), 1, False, "wide"),
                ((512, 512), 1, False, "medium"),
                ((512, 32768), 1, False, "large"),
            ]
        ),
        *(
            Sample({"x": (39, 40)}, {"axis": a, "descending": a == 0}, {"x": "nans"}, types={"T": FLOATS}, size="long")
            for a in (0, 1)
        ),
        *(Sample({"x": (2, 300)}, {"descending": falls}, {"x": "equal"}, size="long") for falls in (False, True)),
        *(Sample({"x": (2, n)}, {"descending": n % 2 == 1}, size="long") for n in LENGTHS),
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": ()}, InvalidArgument),
        ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (3, 4), "indices": (3, 3)}),
    ],
    exact=True,
)
