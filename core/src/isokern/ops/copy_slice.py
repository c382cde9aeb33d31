"""copy_slice: a run of elements from one buffer into another, or within one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer
from ..declare.normal_form import Descs
from ..dtypes import PLAIN
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[tuple[int, ...]]:
    (n,) = inputs[0]
    y = inputs[0] if outputs is None else outputs[0]
    if len(y) != 1:
        raise BadTensorShape("copy_slice", f"y has shape {list(y)}", allowed="rank 1")
    for name, start, length in (("x_offset", values["x_offset"], n), ("y_offset", values["y_offset"], y[0])):
        if start + values["count"] > length:
            raise InvalidArgument(
                "copy_slice", f"{name} {start} + count {values['count']} passes the end", allowed=f"up to {length}"
            )
    return [tuple(y)]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the two runs of `count` elements: the offsets are in their descriptions, and not in the attributes."""

    def part(d: TensorDesc, start: int) -> TensorDesc:
        count = values["count"]
        return TensorDesc(d.dtype, (count,), d.strides, d.offset + start * d.strides[0] if count else 0)

    (x,), (y,) = inputs, outputs
    assert x is not None
    return [part(x, values["x_offset"])], [part(y, values["y_offset"])]


def _reference(x: Any, before: Sequence[Any], x_offset: int, y_offset: int, count: int) -> Any:
    y = before[0].copy()
    y[y_offset : y_offset + count] = x[x_offset : x_offset + count]
    return y


copy_slice = declare(
    "copy_slice",
    "CPSL",
    "x: T[n] -> y: T[m]",
    {"T": PLAIN},
    family="movement",
    doc=(
        "y[y_offset : y_offset + count] = x[x_offset : x_offset + count]; the rest of y keeps its content. x and y may"
        " be in one"
        " buffer and overlap (as memmove)."
    ),
    reference=_reference,
    attrs=attrs(
        "CPS1",
        integer("x_offset", 0, "first element read", minimum=0),
        integer("y_offset", 0, "first element written", minimum=0),
        integer("count", doc="elements", minimum=0),
    ),
    shapes=_shapes,
    normal_form=_normal_form,
    samples=lambda: [
        Sample({"x": (n,)}, {"x_offset": a, "y_offset": b, "count": count}, outputs={"y": (m,)}, size=size)
        for n, m, a, b, count, size in [
            (7, 7, 0, 0, 7, "small"),
            (7, 9, 2, 4, 5, "small"),
            (9, 3, 4, 0, 3, "small"),
            (5, 5, 1, 2, 0, "small"),
            (1, 1, 0, 0, 1, "small"),
            (9025, 9030, 0, 5, 9025, "small"),  # several rounds, of up to 8,192 elements, if the two overlap
            (0, 3, 0, 1, 0, "small"),
            (600_011, 600_007, 3, 1, 600_001, "wide"),
            (1 << 18, 1 << 18, 0, 0, 1 << 18, "medium"),
            (1 << 24, 1 << 24, 0, 0, 1 << 24, "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,)}, InvalidArgument, {"x_offset": 1, "count": 3}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"y_offset": 2, "count": 2}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"count": -1}),
        ErrorCase({"x": (3, 1)}, BadTensorShape, {"count": 1}),
    ],
    inout=("y",),
    aliases=("x",),
    exact=True,
)
