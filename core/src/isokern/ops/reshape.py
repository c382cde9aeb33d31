"""Reshapes and transposes for graphs: collapse_shape, expand_shape and transpose, all on the kernel `rearrange`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integers
from ..declare.normal_form import Descs, axis_of, pointwise
from ..dtypes import PLAIN
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument


def _groups(where: str, groups: Sequence[int], rank: int) -> list[slice]:
    """Return the dims of each group, which are adjacent; no groups where the flat tensor has rank 0."""
    if not groups:
        return []
    if sum(groups) != rank:
        raise InvalidArgument(where, f"groups {list(groups)}", allowed=f"numbers of dims that add up to {rank}")
    return [slice(end - n, end) for n, end in zip(groups, accumulate(groups), strict=True)]


def _unfold(flat: TensorDesc, shape: Sequence[int], groups: Sequence[slice]) -> TensorDesc:
    """Return the flat tensor in the finer shape."""
    strides: list[int] = [] if groups else [1] * len(shape)
    for dims, step in zip(groups, flat.strides, strict=True):
        own = shape[dims]
        strides += [step * math.prod(own[i + 1 :]) for i in range(len(own))]
    return TensorDesc(flat.dtype, shape, strides, flat.offset)


def _collapse_shape_of(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,), groups = inputs, values["groups"]
    if not groups and math.prod(x) != 1:
        raise BadTensorShape("collapse_shape", f"x is {list(x)} without groups", allowed="dims of 1 alone")
    return [tuple(math.prod(x[s]) for s in _groups("collapse_shape", groups, len(x)))]


def _collapse_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` in x's shape: y has x's dims, by strides."""
    (x,), (y,) = inputs, outputs
    assert x is not None
    return pointwise(inputs, [_unfold(y, x.shape, _groups("", values["groups"], x.ndim))], values)


def _expand_shape_of(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,), shape = inputs, tuple(values["shape"])
    groups = _groups("expand_shape", values["groups"], len(shape))
    if not groups and math.prod(shape) != 1:
        raise BadTensorShape("expand_shape", f"shape {list(shape)} without groups", allowed="dims of 1 alone")
    if len(groups) != len(x):
        raise InvalidArgument("expand_shape", f"{len(groups)} groups", allowed=f"{len(x)}, one a dim of x")
    for i, (s, d) in enumerate(zip(groups, x, strict=True)):
        if math.prod(shape[s]) != d:
            raise BadTensorShape(
                "expand_shape", f"dim {i} of x is {d}: {list(shape[s])}", allowed=f"dims with product {d}"
            )
    return [shape]


def _expand_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` in y's shape: x has y's dims, by strides."""
    (x,) = inputs
    assert x is not None
    shape = outputs[0].shape
    return pointwise([_unfold(x, shape, _groups("", values["groups"], len(shape)))], outputs, values)


_FINE: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((1, 1, 1), ()),
    ((7,), (1,)),
    ((2, 3, 4), (3,)),
    ((2, 3, 4), (1, 2)),
    ((2, 35), (2,)),
    ((2, 3, 4, 5), (2, 2)),
    ((2, 3, 1), (1, 1, 1)),
    ((1, 1, 5), (2, 0, 1)),
    ((3, 0, 2), (1, 2)),
    ((2, 1, 2, 1, 3, 1, 2, 2), (3, 1, 4)),
]
_WIDE = [("wide", (801, 7, 101)), ("medium", (256, 16, 64)), ("large", (256, 256, 256))]


def _flat(shape: Sequence[int], groups: Sequence[int]) -> tuple[int, ...]:
    return _collapse_shape_of([tuple(shape)], {"groups": groups})[0]


declare(
    "collapse_shape",
    "CLPS",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc="x with runs of dims made one: `groups` says how many dims each dim of y takes (tensor.collapse_shape).",
    reference=lambda x, groups: x.reshape(_flat(x.shape, groups)),
    attrs=attrs("CLS1", integers("groups", doc="dims of x in each dim of y", minimum=0)),
    shapes=_collapse_shape_of,
    normal_form=_collapse_normal_form,
    samples=lambda: [
        *(Sample({"x": shape}, {"groups": groups}) for shape, groups in _FINE),
        *(Sample({"x": shape}, {"groups": (1, 2)}, size=size) for size, shape in _WIDE),
    ],
    errors=[
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"groups": (3,)}),
        ErrorCase({"x": (2, 3)}, BadTensorShape, {"groups": (2,)}, outputs={"y": (5,)}),
    ],
    exact=True,
)

declare(
    "expand_shape",
    "EXPS",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc=(
        "x with dims made several: y has `shape`, `groups` says how many of its dims each dim of x becomes"
        " (tensor.expand_shape)."
    ),
    reference=lambda x, groups, shape: x.reshape(shape),
    attrs=attrs(
        "EXP1",
        integers("groups", doc="dims of y from each dim of x", minimum=0),
        integers("shape", doc="of y", minimum=0),
    ),
    shapes=_expand_shape_of,
    normal_form=_expand_normal_form,
    samples=lambda: [
        *(Sample({"x": _flat(shape, groups)}, {"groups": groups, "shape": shape}) for shape, groups in _FINE),
        *(Sample({"x": _flat(shape, (1, 2))}, {"groups": (1, 2), "shape": shape}, size=size) for size, shape in _WIDE),
    ],
    errors=[
        ErrorCase({"x": (6,)}, BadTensorShape, {"groups": (2,), "shape": (2, 4)}),
        ErrorCase({"x": (6,)}, InvalidArgument, {"groups": (1, 1), "shape": (2, 3)}),
        ErrorCase({"x": (6,)}, InvalidArgument, {"groups": (2,), "shape": (6,)}),
    ],
    exact=True,
)


def _order(where: str, axes: Sequence[int], rank: int) -> list[int]:
    order = [axis_of(where, a, rank) for a in axes] if axes else list(range(rank))[::-1]
    if sorted(order) != list(range(rank)):
        raise InvalidArgument(where, f"axes {list(axes)} of rank {rank}", allowed=f"a permutation of 0..{rank - 1}")
    return order


def _transpose_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` of y and x with its axes in y's order."""
    (x,) = inputs
    assert x is not None
    return pointwise([x.permute(_order("transpose", values["axes"], x.ndim))], outputs, values)


def _transpose_shape(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,) = inputs
    return [tuple([x[a] for a in _order("transpose", values["axes"], len(x))])]


declare(
    "transpose",
    "TRNS",
    "x: T[*s] -> y: T[*d]",
    {"T": PLAIN},
    family="movement",
    stem="rearrange",
    doc=(
        "x with its dims in another order: dim i of y is dim axes[i] of x (NumPy's transpose); the reverse order where"
        " empty."
    ),
    reference=lambda x, axes: x.transpose(tuple(axes) or None),
    attrs=attrs("TRN1", integers("axes", (), "dims of x in the order of y")),
    shapes=_transpose_shape,
    normal_form=_transpose_normal_form,
    samples=lambda: [
        *(
            Sample({"x": shape}, {"axes": axes})
            for shape, axes in [
                ((), ()),
                ((7,), (0,)),
                ((3, 35), ()),
                ((2, 3, 4), (1, 2, 0)),
                ((2, 3, 4), (0, -1, 1)),
                ((64, 65), (1, 0)),
                ((2, 3, 4, 5), (0, 2, 1, 3)),
                ((0, 3), (1, 0)),
                ((2, 1, 2, 1, 3, 1, 2, 2), (7, 0, 6, 1, 5, 2, 4, 3)),
            ]
        ),
        *(Sample({"x": (n, n + 1)}, size=size) for size, n in [("wide", 801), ("medium", 512), ("large", 4096)]),
    ],
    errors=[
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"axes": (0, 0)}),
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"axes": (0,)}),
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"axes": (0, 2)}),
        ErrorCase({"x": (2, 3)}, BadTensorShape, outputs={"y": (2, 3)}),
    ],
    exact=True,
)
