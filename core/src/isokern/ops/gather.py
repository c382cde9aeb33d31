"""gather: rows (or slices) of a table selected by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer
from ..declare.normal_form import as_given, axis_of
from ..dtypes import PLAIN, TOKENS
from ..status import BadTensorDtype, InvalidArgument


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, indices = inputs
    axis = axis_of("gather", values["axis"], len(x))
    return [(*x[:axis], *indices, *x[axis + 1 :])]


def _reference(x: Any, indices: Any, axis: int) -> Any:
    size = x.shape[axis]
    known = (-size <= indices) & (indices < size)
    y = (
        np.take(x, np.where(known, indices, 0), axis)
        if size
        else np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis:][1:]), x.dtype)
    )
    at = axis % x.ndim
    return np.where(np.asarray(known).reshape((*indices.shape, *[1] * (x.ndim - at - 1))), y, np.zeros((), x.dtype))


gather = declare(
    "gather",
    "GATH",
    "x: T[*s], indices: I[*i] -> y: T[*d]",
    {"T": PLAIN, "I": TOKENS},
    family="movement",
    doc=(
        "x[…, indices, …] along `axis` (ONNX Gather, NumPy take). Negative indices count from the end. An index out of"
        " range writes zeros in its place and raises InvalidArgument at the call on a synchronous device, else at the"
        " next synchronize."
    ),
    reference=_reference,
    attrs=attrs("GTH1", integer("axis", 0, "the axis of x that the indices pick from")),
    shapes=_shapes,
    normal_form=as_given,
    samples=lambda: [
        Sample({"x": shape, "indices": index}, {"axis": axis}, {"indices": f"index:{shape[axis]}"}, size=size)
        for shape, index, axis, size in [
            ((7,), (3,), 0, "small"),
            ((7,), (), 0, "small"),
            ((5, 4), (6,), 0, "small"),
            ((5, 4), (2, 3), 1, "small"),
            ((5, 4), (2,), -1, "small"),
            ((2, 3, 4), (5,), 1, "small"),
            ((2, 3, 4), (0,), 1, "small"),
            ((9, 33), (12,), 0, "small"),
            ((3, 2, 5, 4), (2, 3, 2), 2, "small"),
            ((3, 0), (2,), 0, "small"),
            ((7,), (4103,), 0, "long"),  # the portable kernels check so many indices in parts
            ((600, 1025), (603,), 0, "wide"),
            ((4096, 256), (1024,), 0, "medium"),
            ((32768, 1024), (8192,), 0, "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (2,)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": (), "indices": (2,)}, InvalidArgument),
        ErrorCase({"x": (3,), "indices": (2,)}, BadTensorDtype, dtypes={"I": PLAIN[0]}),
    ],
    exact=True,
    device_error="indices[{at}] is {value}, out of range for the axis",
)
