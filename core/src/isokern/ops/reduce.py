"""Reductions over any axes: reduce_sum, reduce_mean, reduce_prod, reduce_max, reduce_min; kernel stem `reduce`.

Normal form: y has x's shape with stride 0 along the reduced dims; the kept dims come first, and each kind is merged. So
y's strides say what is reduced (a kept dim of stride 0 would be an output that overlaps itself, which is refused).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag, integers
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import Descs, axis_of, coalesce
from ..declare.operator import Decompose
from ..dtypes import F64, FLOATS, NUMBERS, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .generic_reference import multiply, product_scale


def reduced_axes(where: str, rank: int, values: Mapping[str, Any]) -> list[int]:
    """Return the axes to reduce, counted from the front; all where none is named."""
    axes = [axis_of(where, a, rank) for a in values["axes"]] if values["axes"] else list(range(rank))
    if len(set(axes)) < len(axes):
        raise InvalidArgument(where, f"axes {values['axes']} name one twice", allowed="each once")
    return axes


def kept_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """Return the output's shape."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)


def spread(y: TensorDesc, shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> TensorDesc:
    """Return y in x's shape, with stride 0 along the reduced axes."""
    steps = iter(y.strides)
    strides = []
    for i in range(len(shape)):
        step = next(steps) if keepdims or i not in axes else 0
        strides.append(0 if i in axes else step or (1 if shape[i] == 0 else 0))  # only reduced dims may have stride 0
    return TensorDesc(y.dtype, shape, strides, y.offset)


def reduced_form(where: str) -> Any:
    """Return the normal form of a reduction of that name."""

    def normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
        """Return y in x's shape with stride 0 along the reduced dims, which come last; other dims are merged."""
        (x,), (y,) = inputs, outputs
        assert x is not None
        axes = reduced_axes(where, x.ndim, values)
        wide = spread(y, x.shape, axes, values["keepdims"])
        order = [i for i in range(x.ndim) if i not in axes] + axes
        y_, x_ = coalesce([wide.permute(order), x.permute(order)])
        return [x_], [y_]

    return normal_form


def reduced_shapes(where: str) -> Any:
    """Return the shape function of a reduction."""

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        (x,) = inputs
        axes = reduced_axes(where, len(x), values)
        return [kept_shape(x, axes, values["keepdims"])]

    return shapes


def restore_dims(e: Emitter[V], y: V, rank: int, axes: Sequence[int], shape: Sequence[int]) -> V:
    """Return y with the reduced axes as dims of 1, or as it is where there are none."""
    if not axes:
        return y
    groups: list[int] = []
    lead = 0
    for i in range(rank):  # a dim of 1 joins the kept dim before it, or the first
        if i in axes and groups:
            groups[-1] += 1
        elif i in axes:
            lead += 1
        else:
            groups.append(1 + lead)
            lead = 0
    return e("expand_shape", y, groups=tuple(groups), shape=tuple(shape))


def _loop(where: str) -> Decompose:
    """Return the decomposition into a loop nest in the compute type; means are divided at the end."""

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        (x,), element, loops = inputs, outputs[0].dtype, LETTERS[: inputs[0].spec.ndim]
        axes = reduced_axes(where, len(loops), values)
        kept = "".join(c for i, c in enumerate(loops) if i not in axes)
        combine = {"reduce_max": "maximum", "reduce_min": "minimum", "reduce_prod": "product"}.get(where, "sum")
        mean = where == "reduce_mean"
        wide = element.compute if mean and element.kind == "f" else element
        y = e.loop(f"{loops}->{kept}", "x0", x, combine=combine, dtype=wide)
        if mean:
            count = math.prod(x.spec.shape[a] for a in axes)
            y = e.loop(f"{kept}->{kept}", f"x0 / {constant(count)}", y, dtype=element)
        return restore_dims(e, y, len(loops), axes if values["keepdims"] else [], outputs[0].shape)

    return decompose


def reduction(
    name: str,
    kind: str,
    reference: Callable[..., Any],
    dtypes: tuple[DType, ...],
    *,
    doc: str,
    **fields: Any,
) -> Operator:
    """Declare one reduction, which of no elements is its identity."""
    near = {"x": "near_one"} if name == "reduce_prod" else {}  # long products of others leave the range
    extremes = {"reduce_max": ["peaks"], "reduce_min": ["valleys"], "reduce_mean": ["tiny"]}.get(name, [])
    shapes = [
        ((), ()),
        ((7,), ()),
        ((7,), (0,)),
        ((3, 5), (1,)),
        ((3, 5), (0,)),
        ((2, 3, 4), (0, 2)),
        ((2, 3, 4), (-1,)),
        ((5, 1025), (1,)),
        ((1025, 3), (0,)),
    ]
    shapes += [((2, 1, 3, 1, 2, 1, 2, 2), (1, 2, 6)), ((0, 3), (1,)), ((4, 33, 5), (1,))]
    shapes += [((3, 0), (1,)), ((0,), ()), ((0, 3), (0,)), ((2, 0, 5), (1,)), ((4, 0, 2, 0), (1, 3))]
    beyond = [(2**24 + 1, 2)] if name == "reduce_mean" else []  # elements that F32 cannot count
    wide = [((601, 1025), (1,), "wide"), ((601, 1025), (0,), "wide"), ((601, 1025), (), "wide")]
    bench = [*wide, ((64, 64), (1,), "small"), ((512, 512), (1,), "medium"), ((4096, 4096), (1,), "large")]
    return declare(
        name,
        kind,
        "x: T[*s] -> y: T[*d]",
        {"T": dtypes},
        family="reduction",
        stem="reduce",
        doc=doc,
        reference=reference,
        attrs=attrs(
            "RED1", integers("axes", (), "all where empty"), flag("keepdims", False, "leave reduced dims as 1")
        ),
        shapes=reduced_shapes(name),
        normal_form=reduced_form(name),
        decompose=_loop(name),
        flops=lambda i, o: float(i[0].numel if i[0] is not None else 0),
        samples=lambda: [
            *(
                Sample({"x": s}, {"axes": a, "keepdims": bool(i % 2)}, near if 1025 in s else {})
                for i, (s, a) in enumerate(shapes)
            ),
            *(Sample({"x": s}, {"axes": a}, near, size=size) for s, a, size in bench),
            *(
                Sample({"x": (200, 200)}, {"axes": (a,)}, values={"x": v}, size="long")
                for a in (0, 1)
                for v in extremes
            ),
            *(Sample({"x": (2, n)}, {"axes": (1,)}, near, size="long") for n in LENGTHS),
            *(Sample({"x": s}, {"axes": (0,)}, size="long", types={"T": (F64,)}) for s in beyond),
        ],
        errors=[
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (2,)}),
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (0, 0)}),
            ErrorCase({"x": (3, 4)}, BadTensorShape, {"axes": (0,)}, outputs={"y": (3,)}),
        ],
        **fields,
    )


def _axes(axes: Sequence[int]) -> tuple[int, ...] | None:
    return tuple(axes) or None


def _sum(x: Any, axes: Any, keepdims: bool) -> Any:
    return np.sum(x, _axes(axes), dtype=x.dtype, keepdims=keepdims)


def _mean(x: Any, axes: Any, keepdims: bool) -> Any:
    with np.errstate(invalid="ignore"):
        return np.divide(_sum(x, axes, keepdims), np.prod([x.shape[a] for a in axes] if axes else x.shape))


def _every(x: Any, axes: Any) -> tuple[int, ...]:
    return tuple(reduced_axes("reduce_prod", x.ndim, {"axes": axes}))


def _product(x: Any, axes: Any, keepdims: bool, out: Sequence[TensorDesc] | None = None) -> Any:
    y = multiply(x, _every(x, axes), F64 if out is None else out[0].dtype.compute)
    return np.reshape(y, kept_shape(x.shape, _every(x, axes), keepdims))


def _product_scale(x: Any, axes: Any, keepdims: bool, compute: DType) -> Any:
    size = product_scale(x, _every(x, axes), compute)
    return np.reshape(size, kept_shape(x.shape, _every(x, axes), keepdims))


def _sum_scale(x: Any, axes: Any, keepdims: bool) -> Any:
    length = max(1.0, x.size / max(1, _sum(x, axes, keepdims).size))
    return (2 + np.log2(length)) * _sum(np.abs(x), axes, keepdims)


def _mean_scale(x: Any, axes: Any, keepdims: bool) -> Any:
    length = max(1.0, x.size / max(1, _sum(x, axes, keepdims).size))
    return (2 + np.log2(length)) * _mean(np.abs(x), axes, keepdims)


reduction(
    "reduce_sum",
    "RSUM",
    _sum,
    NUMBERS,
    tolerance=Tolerance(2, _sum_scale),
    doc=(
        "Sum over axes, added in blocks (error grows with log2 of the length); 0 for none; integers wrap in their type"
        " (PyTorch: in I64)."
    ),
)
reduction(
    "reduce_prod",
    "RPRD",
    _product,
    NUMBERS,
    tolerance=Tolerance(1, _product_scale),
    doc=(
        "Product over axes, in any order (error grows with the length); 1 for none; integers wrap in"
        " their type (PyTorch: in I64). Where the product of some elements leaves the compute type's range, it may be"
        " 0, infinite or NaN."
    ),
)
reduction(
    "reduce_mean",
    "RMEA",
    _mean,
    FLOATS,
    tolerance=Tolerance(3, _mean_scale),
    doc="Mean over axes; NaN for none.",
)


def _extreme(pick: Any, x: Any, axes: Any, keepdims: bool) -> Any:
    """Return the extreme along the axes; of nothing, for which NumPy raises, what no value is beyond."""
    last = {np.max: -np.inf, np.min: np.inf}[pick]
    if x.dtype.kind in "iu":
        last = (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)[pick is np.min]
    return pick(x, _axes(axes), keepdims=keepdims, initial=last)


reduction(
    "reduce_max",
    "RMAX",
    lambda x, axes, keepdims: _extreme(np.max, x, axes, keepdims),
    NUMBERS,
    tolerance=Tolerance(0),
    doc="Largest over axes; NaN if any is NaN; of none -∞, or the least integer of the type (ONNX ReduceMax).",
)
reduction(
    "reduce_min",
    "RMIN",
    lambda x, axes, keepdims: _extreme(np.min, x, axes, keepdims),
    NUMBERS,
    tolerance=Tolerance(0),
    doc="Smallest over axes; NaN if any is NaN; of none ∞, or the largest integer of the type (ONNX ReduceMin).",
)
