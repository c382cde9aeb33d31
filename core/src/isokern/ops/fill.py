"""fill: a tensor of one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integers, number
from ..declare.conversion import convert
from ..dtypes import PLAIN
from ..layout import TensorDesc
from ..status import InvalidArgument


def _reference(value: float, shape: Any, out: Sequence[TensorDesc]) -> Any:
    return np.full(out[0].shape, convert(np.array(value), out[0].dtype.numpy))


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[tuple[int, ...]]:
    return [values["shape"] if outputs is None else outputs[0]]


fill = declare(
    "fill",
    "FILL",
    "-> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc="Every element of y becomes `value`, converted to y's dtype as `cast` does: saturated, where PyTorch wraps.",
    reference=_reference,
    attrs=attrs(
        "FIL1",
        number("value", 0.0, "what to write"),
        integers("shape", (), "shape of an output that is not given", minimum=0),
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
            Sample({}, {"value": 1.0}, outputs={"y": (n,)}, size=size)
            for size, n in [("wide", 600_001), ("medium", 1 << 18), ("large", 1 << 24)]
        ),
    ],
    errors=[
        ErrorCase({}, InvalidArgument, {"value": "x"}),
        ErrorCase({"x": (3,)}, InvalidArgument),
        ErrorCase({}, InvalidArgument, {"shape": (-1,)}),
    ],
    exact=True,
)
