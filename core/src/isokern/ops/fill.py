"""fill: a tensor of one value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer, integers, number
from ..declare.conversion import convert
from ..dtypes import PLAIN
from ..layout import TensorDesc
from ..status import InvalidArgument


def split_integer(value: int) -> tuple[float, int]:
    """Return an integer of up to 64 bits as the nearest float64 towards 0, and what is left: `value` and `offset`.

    >>> split_integer(2**63 - 1)
    (9.223372036854775e+18, 1023)
    """
    near = float(value)
    if abs(int(near)) > abs(value):
        near = math.nextafter(near, 0)
    return near, value - int(near)


def _reference(value: float, offset: int, shape: Any, out: Sequence[TensorDesc]) -> Any:
    element = out[0].dtype
    if element.kind not in "iu":
        given = value + offset if offset else value  # -0 + 0 is 0
        return np.full(out[0].shape, convert(np.array(given), element.numpy))
    assert element.numpy is not None
    bits = int(convert(np.array(value), element.numpy)) + offset
    return np.full(out[0].shape, np.array(bits % (1 << 64), np.uint64).astype(element.numpy))


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[tuple[int, ...]]:
    return [values["shape"] if outputs is None else outputs[0]]


fill = declare(
    "fill",
    "FILL",
    "-> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc=(
        "Every element of y becomes `value`, converted to y's dtype as `cast` does (saturated, although PyTorch wraps),"
        " plus `offset`. Integers beyond float64 are sums: 2⁵³ + 1 is value=2⁵³, offset=1. The sum of"
        " integers wraps; that of other types is rounded to float64 and then converted."
    ),
    reference=_reference,
    attrs=attrs(
        "FIL2",
        number("value", 0.0, "what to write"),
        integers("shape", (), "shape of an output that is not given", minimum=0),
        integer("offset", 0, "added to the value"),
    ),
    shapes=_shapes,
    samples=lambda: [
        *(
            Sample({}, {"value": value}, outputs={"y": shape})
            for value, shape in [
                (0, ()),
                (1, (7,)),
                (-1.5, (3, 5)),
                (300.7, (1025,)),
                (float("nan"), (5,)),
                (float("inf"), (2, 3, 4)),
                (2.0, (0, 3)),
                (-0.0, (3,)),
                (1e10, (4, 1, 3)),
            ]
        ),
        *(
            Sample({}, {"value": value, "offset": offset}, outputs={"y": shape})
            for value, offset, shape in [
                (2.0**53, 1, (5,)),
                (-(2.0**53), -1, (3, 5)),
                (2.0**63 - 1024, 1023, (33,)),
                (2.0**64 - 2048, 2047, (2, 3)),
                (-(2.0**63), 1, (7,)),
                (3.5, -4, (1025,)),
                (0.0, 2**63 - 1, (3,)),
            ]
        ),
        *(
            Sample({}, {"value": 1.0}, outputs={"y": (n,)}, size=size)
            for size, n in [("wide", 600_001), ("medium", 1 << 18), ("large", 1 << 24)]
        ),
    ],
    errors=[
        ErrorCase({}, InvalidArgument, {"value": "x"}),
        ErrorCase({"x": (3,)}, InvalidArgument),
        ErrorCase({}, InvalidArgument, {"shape": (-1,)}),
        ErrorCase({}, InvalidArgument, {"offset": 0.5}),
        ErrorCase({}, InvalidArgument, {"offset": 2**63}),
    ],
    exact=True,
)
