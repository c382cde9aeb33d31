"""pad: a tensor with a border of one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integers, number
from ..declare.conversion import convert
from ..declare.normal_form import as_given
from ..dtypes import PLAIN
from ..status import BadTensorShape, InvalidArgument


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,) = inputs
    low, high = values["low"], values["high"]
    if not len(low) == len(high) == len(x):
        raise InvalidArgument(
            "pad", f"{len(low)} low and {len(high)} high widths", allowed=f"{len(x)} of each, one a dim of x"
        )
    return [tuple(a + d + b for a, d, b in zip(low, x, high, strict=True))]


def _reference(x: Any, low: Any, high: Any, value: float) -> Any:
    border = convert(np.array(value), x.dtype)
    y = np.full([a + d + b for a, d, b in zip(low, x.shape, high, strict=True)], border)
    y[tuple(slice(a, a + d) for a, d in zip(low, x.shape, strict=True))] = x
    return y


pad = declare(
    "pad",
    "PAD_",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc=(
        "x with `low[i]` elements of `value` before and `high[i]` after it along each dim; the value is converted as"
        " `cast` does."
    ),
    reference=_reference,
    attrs=attrs(
        "PAD1",
        integers("low", doc="widths before, one a dim", minimum=0),
        integers("high", doc="widths after, one a dim", minimum=0),
        number("value", 0.0, "the border"),
    ),
    shapes=_shapes,
    normal_form=as_given,
    samples=lambda: [
        Sample({"x": shape}, {"low": low, "high": high, "value": value}, size=size)
        for shape, low, high, value, size in [
            ((), (), (), 0.0, "small"),
            ((7,), (2,), (3,), 1.5, "small"),
            ((7,), (0,), (0,), 0.0, "small"),
            ((3, 5, 3), (1, 0, 0), (0, 0, 0), 2.0, "small"),  # permuted, x's stride of dim 1 is the size of dim 2
            ((3, 5), (1, 0), (0, 2), -1.0, "small"),
            ((2, 3, 4), (0, 1, 1), (0, 1, 1), 0.0, "small"),
            ((1, 2, 5, 5), (0, 0, 1, 1), (0, 0, 1, 1), float("-inf"), "small"),
            ((0, 3), (1, 1), (1, 0), 2.0, "small"),
            ((2, 1, 2, 1, 2, 1, 2, 1), (0, 1, 0, 0, 0, 0, 1, 1), (1, 0, 0, 0, 0, 0, 0, 1), 3.0, "small"),
            ((61, 101, 99), (0, 1, 1), (1, 0, 1), -2.0, "wide"),
            ((40_000, 2), (0, 1), (0, 0), 1.0, "long"),
            ((64, 64, 64), (0, 1, 1), (0, 1, 1), 0.0, "medium"),
            ((64, 512, 512), (0, 1, 1), (0, 1, 1), 0.0, "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,)}, InvalidArgument, {"low": (1, 1), "high": (1,)}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"low": (-1,), "high": (1,)}),
        ErrorCase({"x": (3,)}, BadTensorShape, {"low": (1,), "high": (1,)}, outputs={"y": (4,)}),
    ],
    exact=True,
)
