"""iota: numbers that increase along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer, integers
from ..declare.normal_form import Descs, axis_of
from ..dtypes import F32, F64, I32, I64
from ..layout import TensorDesc
from ..status import InvalidArgument

COUNTED = (I64, I32, F32, F64)
MOST = (1 << 63) - 1  # the largest number of 64 bits


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[tuple[int, ...]]:
    shape = tuple(values["shape"]) if outputs is None else tuple(outputs[0])
    axis = axis_of("iota", values["axis"], len(shape))
    last = values["start"] + values["step"] * max(0, shape[axis] - 1)
    if max(abs(values["start"]), abs(last)) > MOST:
        raise InvalidArgument("iota", f"numbers from {values['start']} to {last}", allowed="numbers of 64 bits")
    return [shape]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return y with the axis last."""
    (y,) = outputs
    axis = values["axis"] % y.ndim
    order = [a for a in range(y.ndim) if a != axis] + [axis]
    return [], [y.permute(order)]


def _reference(start: int, step: int, axis: int, shape: Any, out: Sequence[TensorDesc]) -> Any:
    y = out[0]
    line = start + step * np.arange(y.shape[axis])
    lifted = line.reshape([-1 if i == axis % y.ndim else 1 for i in range(y.ndim)])
    return np.broadcast_to(lifted, y.shape).astype(y.dtype.numpy)


declare(
    "iota",
    "IOTA",
    "-> y: T[*d]",
    {"T": COUNTED},
    family="movement",
    doc=(
        "y[…, i, …] = start + step · i along `axis`, in integers of 64 bits, converted to y's dtype as `cast` does."
        " Normal form: that axis is the last."
    ),
    reference=_reference,
    attrs=attrs(
        "IOT1",
        integer("start", 0, "the first number"),
        integer("step", 1, "from one to the next"),
        integer("axis", -1, "the axis they grow along"),
        integers("shape", (), "shape of an output that is not given", minimum=0),
    ),
    shapes=_shapes,
    normal_form=_normal_form,
    samples=lambda: [
        *(
            Sample({}, {"start": start, "step": step, "axis": axis}, outputs={"y": shape})
            for start, step, axis, shape in [
                (0, 1, 0, (7,)),
                (5, -3, -1, (3, 41)),
                (-2, 2, 0, (34, 5)),
                (1, 0, 1, (2, 33, 4)),
                (0, 1, 0, (1025,)),
                (3, 1, -1, (0, 3)),
                (3, 1, -1, (3, 0)),
                (0, 1, 3, (2, 1, 2, 3, 1, 2, 2, 3)),
                ((1 << 24) - 5, 1, -1, (2, 33)),
                (-(1 << 62), (1 << 53) + 1, 0, (1025,)),
            ]
        ),
        *(Sample({}, outputs={"y": (n, 64)}, size=size) for size, n in [("medium", 512), ("large", 65536)]),
        Sample({}, {"axis": 1}, outputs={"y": (3, 200_001)}, size="wide"),
    ],
    errors=[
        ErrorCase({}, InvalidArgument, {"axis": 1}, outputs={"y": (3,)}),
        ErrorCase({}, InvalidArgument, outputs={"y": ()}),
        ErrorCase({}, InvalidArgument, {"start": MOST}, outputs={"y": (3,)}),
        ErrorCase({}, InvalidArgument, {"step": -MOST}, outputs={"y": (3,)}),
    ],
    exact=True,
)
