"""argmax: the index of the largest element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Sample, declare
from ..declare.attributes import attrs, flag, integer
from ..declare.normal_form import Descs, axis_of, coalesce
from ..dtypes import FLOATS, NUMBERS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .reduce import kept_shape, spread


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,) = inputs
    axis = axis_of("argmax", values["axis"], len(x))
    y = kept_shape(x, [axis], values["keepdims"])
    if x[axis] == 0 and 0 not in y:
        raise BadTensorShape(
            "argmax", f"x is {list(x)}: nothing to choose from along axis {axis}", allowed="at least one element"
        )
    return [y]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return y in x's shape with stride 0 along the axis, which comes last; the other dims are merged."""
    (x,), (y,) = inputs, outputs
    assert x is not None
    axis = values["axis"] % x.ndim
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    y_, x_ = coalesce([spread(y, x.shape, [axis], values["keepdims"]).permute(order), x.permute(order)], keep=1)
    return [x_], [y_]


argmax = declare(
    "argmax",
    "AMAX",
    "x: T[*s] -> y: I64[*d]",
    {"T": NUMBERS},
    family="reduction",
    doc="Index of the first largest element along `axis`; the first NaN counts as largest (NumPy's rule).",
    # NumPy rejects an empty x even if there are no results
    reference=lambda x, axis, keepdims: (np.argmax if x.size else np.sum)(x, axis, keepdims=keepdims),
    attrs=attrs("AMX1", integer("axis", -1, "the axis searched"), flag("keepdims", False, "leave the axis as 1")),
    shapes=_shapes,
    normal_form=_normal_form,
    flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
    samples=lambda: [
        *(
            Sample({"x": s}, {"axis": a, "keepdims": k}, size=size)
            for s, a, k, size in [
                ((1,), 0, False, "small"),
                ((7,), 0, True, "small"),
                ((3, 5), 1, False, "small"),
                ((3, 5), 0, True, "small"),
                ((2, 3, 4), 1, False, "small"),
                ((2, 3, 4), -1, True, "small"),
                ((5, 1025), 1, False, "small"),
                ((1025, 3), 0, False, "small"),
                ((0, 3), 1, False, "small"),
                ((2, 1, 2, 1, 3, 1, 2, 2), 4, False, "small"),
                ((601, 1025), 1, False, "wide"),
                ((601, 1025), 0, False, "wide"),
                ((512, 512), 1, False, "medium"),
                ((4096, 4096), 1, False, "large"),
            ]
        ),
        *(Sample({"x": (200, 200)}, {"axis": axis}, values={"x": "peaks"}, size="long") for axis in (0, 1)),
        *(
            Sample({"x": (199, 200)}, {"axis": axis}, values={"x": "nans"}, types={"T": FLOATS}, size="long")
            for axis in (0, 1)
        ),
        *(Sample({"x": (150, 150)}, {"axis": axis}, values={"x": "equal"}, size="long") for axis in (0, 1)),
        *(Sample({"x": (2, n)}, values={"x": "peaks"}, size="long") for n in LENGTHS),
        *(Sample({"x": (3, n)}, values={"x": "nans"}, types={"T": FLOATS}, size="long") for n in (4096, 40_000)),
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": ()}, InvalidArgument),
        ErrorCase({"x": (3, 0)}, BadTensorShape),
    ],
    exact=True,
)
