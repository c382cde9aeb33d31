"""topk: the largest elements along an axis, and their indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer
from ..declare.normal_form import Descs, axis_of, coalesce
from ..dtypes import BOOL, FLOATS, NUMBERS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,) = inputs
    axis, k = axis_of("topk", values["axis"], len(x)), values["k"]
    if k > x[axis]:
        raise InvalidArgument("topk", f"k={k} along axis {axis} of x {list(x)}", allowed=f"up to {x[axis]}")
    y = (*x[:axis], k, *x[axis + 1 :])
    return [y, y]


def axis_last(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Move the axis last in all three tensors, and merge the other dims."""
    (x,) = inputs
    assert x is not None
    axis = values["axis"] % x.ndim
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    moved = [d.permute(order) for d in (*outputs, x)]
    y, indices, x_ = coalesce(moved, keep=1)
    return [x_], [y, indices]


def _reference(x: Any, k: int, axis: int) -> tuple[Any, Any]:
    last = np.moveaxis(x, axis, -1)
    if last.dtype.kind in "fV":
        wide = last.astype(np.float64)
        order = np.lexsort((np.where(np.isnan(wide), 0, -wide), ~np.isnan(wide)), axis=-1)
    else:
        order = np.argsort(~last, -1, kind="stable")
    order = order[..., :k]
    return np.moveaxis(np.take_along_axis(last, order, -1), -1, axis), np.moveaxis(order, -1, axis)


topk = declare(
    "topk",
    "TOPK",
    "x: T[*s] -> y: T[*d], indices: I64[*d]",
    {"T": NUMBERS},
    family="reduction",
    doc=(
        "The k largest elements along `axis`, largest first, and their indices. Of equal elements the first comes"
        " first (in PyTorch any); NaN counts as largest (as in argmax)."
    ),
    reference=_reference,
    attrs=attrs("TPK1", integer("k", doc="how many", minimum=0), integer("axis", -1, "the axis searched")),
    shapes=_shapes,
    normal_form=axis_last,
    flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
    samples=lambda: [
        *(
            Sample({"x": s}, {"k": k, "axis": a}, size=size)
            for s, k, a, size in [
                ((1,), 1, 0, "small"),
                ((7,), 3, 0, "small"),
                ((3, 5), 5, 1, "small"),
                ((3, 5), 2, 0, "small"),
                ((2, 3, 4), 2, 1, "small"),
                ((5, 1025), 40, -1, "small"),
                ((1025, 3), 7, 0, "small"),
                ((0, 3), 2, 1, "small"),
                ((3, 4), 0, 1, "small"),
                ((2, 1, 2, 1, 3, 1, 2, 2), 2, 4, "small"),
                ((101, 1025), 9, 1, "wide"),
                ((512, 512), 8, 1, "medium"),
                ((512, 32768), 40, 1, "large"),
            ]
        ),
        *(
            Sample({"x": s}, {"k": 3, "axis": axis}, values={"x": "peaks"}, size="long")
            for s, axis in [((200, 40), 0), ((40, 200), 1)]
        ),
        *(
            Sample(
                {"x": s},
                {"k": 3, "axis": axis},
                values={"x": "nans"},
                types={"T": FLOATS},
                size="long",
            )
            for s, axis in [((200, 40), 0), ((40, 200), 1)]
        ),
        Sample({"x": (40, 150)}, {"k": 3}, values={"x": "equal"}, size="long"),
        *(Sample({"x": (2, n)}, {"k": 5}, size="long") for n in LENGTHS),
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"k": 5}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"k": 1, "axis": 2}),
        ErrorCase({"x": ()}, InvalidArgument, {"k": 1}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"k": -1}),
        ErrorCase({"x": (3, 4)}, BadTensorDtype, {"k": 1}, dtypes={"T": BOOL}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"k": 2}, outputs={"y": (3, 2), "indices": (3, 3)}),
    ],
    exact=True,
)
