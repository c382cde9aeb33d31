"""concat: tensors one after the other along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer
from ..declare.normal_form import as_given, axis_of
from ..dtypes import PLAIN
from ..status import BadTensorShape, InvalidArgument


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    first = inputs[0]
    axis = axis_of("concat", values["axis"], len(first))
    for i, shape in enumerate(inputs):
        if len(shape) != len(first) or (*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]):
            raise BadTensorShape(
                "concat", f"input {i} is {list(shape)} with {list(first)}", allowed=f"equal dims but for axis {axis}"
            )
    return [(*first[:axis], sum(s[axis] for s in inputs), *first[axis + 1 :])]


concat = declare(
    "concat",
    "CNCT",
    "x...: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc="The inputs one after the other along `axis`; all other dims are equal.",
    reference=lambda x, axis: np.concatenate(x, axis),
    attrs=attrs("CNC1", integer("axis", 0, "the axis that grows")),
    shapes=_shapes,
    normal_form=as_given,
    samples=lambda: [
        Sample({"x": shapes}, {"axis": axis}, size=size)
        for shapes, axis, size in [
            ([(7,)], 0, "small"),
            ([(3,), (4,), (5,)], 0, "small"),
            ([(2, 3), (2, 4)], 1, "small"),
            ([(2, 3), (1, 3)], 0, "small"),
            ([(2, 3, 4), (2, 1, 4), (2, 2, 4)], 1, "small"),
            ([(2, 3), (2, 0), (2, 1)], -1, "small"),
            ([(0,), (0,)], 0, "small"),
            ([(2, 513), (2, 512)], 1, "small"),
            ([(1,)] * 12, 0, "small"),
            ([(601, 513), (601, 514)], 1, "wide"),
            ([(512, 512)] * 2, 1, "medium"),
            ([(4096, 2048)] * 2, 1, "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": [(2, 3), (3, 4)]}, BadTensorShape),
        ErrorCase({"x": [(2, 3), (2,)]}, BadTensorShape),
        ErrorCase({"x": [(2, 3)]}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": []}, InvalidArgument),
    ],
    exact=True,
)
