"""grid_sample: images and volumes read at the places that a grid names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice, flag
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import F32, F64, FLOATS, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorShape
from .resampling import weight

Shape = tuple[int, ...]
# Coordinates beyond it count as this: neighbours are different numbers in F32 up to there, and fit in 64 bits in F64
FARTHEST = {F32: 1 << 22, F64: 1 << 30}
CUBIC_A = -0.75
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
PADDINGS = ("zeros", "border", "reflection")


def _grid_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, grid = inputs
    dims = len(x) - 2
    if dims < 1 or dims > 3 or len(grid) != len(x) or grid[0] != x[0] or grid[-1] != dims or 0 in x[2:]:
        given = f"x is {list(x)} and grid is {list(grid)}"
        raise BadTensorShape("grid_sample", given, allowed="x[n, c, *s] and grid[n, *o, k] of k = 1 to 3 dims *s, *o")
    if max(x[2:]) > 4194304:
        raise BadTensorShape("grid_sample", f"x is {list(x)}", allowed="dims of up to 4194304 elements")
    return [(*x[:2], *grid[1:-1])]


def _axis_taps(e: Emitter[V], at: V, size: int, values: Mapping[str, Any]) -> tuple[V, V]:
    """Return which elements of an axis each place [n, p] reads, [taps, n, p] in I64, and their weights.

    Taps come first, so that loops over places are long.
    """
    far, mode = FARTHEST[at.spec.dtype], values["mode"]
    known = f"minimum(maximum(x0 if x0 == x0 else -1, {-far}), {far})"
    place = f"({known} + 1) * {size - 1} / 2" if values["align_corners"] else f"(({known} + 1) * {size} - 1) / 2"
    at = e.loop("np->np", f"minimum(maximum({place}, {-far}), {far})", at)
    taps = TAPS[mode]
    numbers = e.iota(taps, at.spec.dtype, start=1 - max(1, taps // 2))
    places = e.loop("t,np->tnp", "x0 + rint(x1)" if taps == 1 else "x0 + floor(x1)", numbers, at)
    own = "1 + 0 * x0" if taps == 1 else weight(mode, CUBIC_A, "abs(x0 - x1)")
    inside = f"({own}) if x0 >= 0 and x0 < {size} else 0" if values["padding"] == "zeros" else own
    weights = e.loop("tnp,np->tnp", inside, places, at)
    clamp = f"minimum(maximum({{}}, 0), {size - 1})"
    if values["padding"] != "reflection":
        return e.cast(e.loop("tnp->tnp", clamp.format("x0"), places), I64), weights
    whole, period = e.cast(places, I64), 2 * (size - 1 if values["align_corners"] else size)
    back = period if values["align_corners"] else period - 1
    if period:
        whole = e.loop("tnp->tnp", f"x0 - {period} * quotient(x0, {period})", whole)
    return e.loop("tnp->tnp", clamp.format(f"(x0 if x0 < {size} else {back} - x0)"), whole), weights


def _grid(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit indices and weights of the elements that a place reads, and a weighted gather of x, its channels last."""
    (x, grid), y = inputs, outputs[0]
    n, c, *sizes = x.spec.shape
    dims, points = len(sizes), math.prod(y.shape[2:])
    columns = e("transpose", e.reshape(e.cast(grid, y.dtype.compute), (n, points, dims)), axes=(2, 0, 1))
    index = weights = None
    for i, size in enumerate(sizes):
        column = e("slice", columns, starts=(dims - 1 - i,), ends=(dims - i,), axes=(0,))
        at, own = _axis_taps(e, e.collapse(column, (2, 1)), size, values)
        if index is None or weights is None:
            image = f"x1 * {size} + x0"  # the rows of all images are numbered in one
            index, weights = e.loop("tnp,n->tnp", image, at, e.iota(n, I64)), own
        else:
            index = e.collapse(e.loop("anp,bnp->abnp", f"x0 * {size} + x1", index, at), (2, 1, 1))
            weights = e.collapse(e.loop("anp,bnp->abnp", "x0 * x1", weights, own), (2, 1, 1))
    assert index is not None and weights is not None
    rows = e.reshape(e("transpose", x, axes=(0, *range(2, 2 + dims), 1)), (n * math.prod(sizes), c))
    taps = index.spec.shape[0]
    flat = e.reshape(e.cast(rows, weights.spec.dtype), (1, n * math.prod(sizes), c))
    picked, factors = (e("transpose", e.reshape(v, (taps, n * points)), axes=(1, 0)) for v in (index, weights))
    made = e.reshape(e("weighted_gather", flat, picked, factors), (n, points, c))
    return e.reshape(e("transpose", e.cast(made, y.dtype), axes=(0, 2, 1)), y.shape)


def _keys(d: Any) -> Any:
    a = CUBIC_A
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _inside(at: int, size: int, padding: str, align: bool) -> int:
    """Return the element that stands for `at`; -1 for zero."""
    if padding == "zeros":
        return at if 0 <= at < size else -1
    if padding == "border" or size == 1:
        return min(max(at, 0), size - 1)
    line = [*range(size), *(range(size - 2, 0, -1) if align else range(size - 1, -1, -1))]
    return int(line[at % len(line)])


def _read(
    x: Any, grid: Any, mode: str, padding: str, align_corners: bool, compute: DType, magnitude: bool = False
) -> Any:
    """Return the values of the reference, or sums of their terms' magnitudes; places are in the compute type.

    A cubic weight is as inexact as the terms that it is the difference of, which are up to 4.
    """
    sizes, kind, far = x.shape[2:], np.float64 if compute is F64 else np.float32, FARTHEST[compute]
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    places = np.clip(np.where(np.isnan(grid), -1, grid), -far, far).astype(kind)
    for n, *at in np.ndindex(y.shape[0], *y.shape[2:]):
        terms: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        point = (n, *at)
        for size, g in zip(sizes, places[point][::-1], strict=True):
            lifted = g + kind(1)
            p = lifted * kind(size - 1) / kind(2) if align_corners else (lifted * kind(size) - kind(1)) / kind(2)
            p = float(min(max(p, -far), far))
            first = np.rint(p) if mode == "nearest" else np.floor(p) - (mode == "cubic")
            own = first + np.arange(TAPS[mode])
            d = np.abs(own - p)
            w = np.ones(1) if mode == "nearest" else np.maximum(1 - d, 0) if mode == "linear" else _keys(d)
            found = [_inside(int(o), size, padding, align_corners) for o in own]
            if magnitude:
                w = np.where(w == 0, 0, np.abs(w) + (4 if mode == "cubic" else 0))
            terms = [((*i, f), a * b) for i, a in terms for f, b in zip(found, w, strict=True) if f >= 0 and b != 0]
        for index, w in terms:
            to, place = (n, slice(None), *at), (n, slice(None), *index)
            y[to] += w * x[place]
    return y


def _sample_grid(x: Any, grid: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
    return _read(x, grid, compute=out[0].dtype.compute, **values)


def _grid_scale(x: Any, grid: Any, compute: DType, **values: Any) -> Any:
    return 4 * (x.ndim - 1) * _read(np.abs(x), grid, compute=compute, magnitude=True, **values)


READ: SampleTable = [
    ((1, 1, 3), (1, 4, 1), {}),
    ((2, 3, 4, 5), (2, 3, 2, 2), {}),
    ((1, 2, 5, 3), (1, 4, 3, 2), {"mode": "nearest", "padding": "border"}),
    ((1, 2, 4, 5), (1, 3, 3, 2), {"mode": "cubic", "padding": "reflection", "align_corners": True}),
    ((1, 2, 2, 3, 4), (1, 2, 1, 3, 3), {"padding": "reflection"}),
    ((2, 1, 1, 3), (2, 2, 2, 2), {"mode": "cubic", "padding": "reflection", "align_corners": True}),
    ((1, 9, 4, 5), (1, 5, 6, 2), {"padding": "border"}),
    ((2, 41, 3), (2, 7, 1), {"mode": "cubic"}),
    ((1, 11, 2, 3, 2), (1, 3, 2, 5, 3), {"align_corners": True}),
    ((0, 2, 3, 3), (0, 2, 2, 2), {}),
    ((1, 2, 3, 3), (1, 0, 2, 2), {"mode": "nearest"}),
]

declare(
    "grid_sample",
    "GRSA",
    "x: T[n, c, *s], grid: T[n, *o] -> y: T[n, c, *d]",
    {"T": FLOATS},
    family="movement",
    doc=(
        "x read at grid[n, …], which has a place for each element of y: coordinates of x's 1 to 3 last dims, the last"
        " dim's first, from -1 to 1 (PyTorch's grid_sample, ONNX GridSample). NaN counts as -1. -1 and 1 are the"
        " middles of the elements at the ends with align_corners, else their outer edges. linear weighs 2 elements"
        " along each axis, cubic 4; one outside x is 0, the nearest one of x (border), or one of x reflected at the"
        " edges that -1 and 1 name. An element of weight 0 does not count. Places are computed in the"
        " compute type, F32 or F64."
    ),
    reference=_sample_grid,
    tolerance=Tolerance(4, _grid_scale),
    attrs=attrs(
        "GRS1",
        choice("mode", tuple(TAPS), "linear", "how elements near a place make its value"),
        choice("padding", PADDINGS, "zeros", "what stands for an element outside x"),
        flag("align_corners", False, "the middles of the elements at the ends lie at -1 and 1"),
    ),
    shapes=_grid_shapes,
    normal_form=as_given,
    decompose=_grid,
    domains={"grid": "unit"},
    samples=lambda: [
        *(Sample({"x": x, "grid": grid}, values) for x, grid, values in READ),
        Sample({"x": (1, 3, 4, 5), "grid": (1, 4, 5, 2)}, {"padding": "reflection"}, {"grid": "moderate"}),
        Sample({"x": (1, 263, 31, 29), "grid": (1, 71, 67, 2)}, size="long"),
        Sample({"x": (2, 32, 61, 59), "grid": (2, 71, 67, 2)}, size="wide"),
    ],
    errors=[
        ErrorCase({"x": (2, 3), "grid": (2, 3)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 4, 4), "grid": (2, 3, 3, 3)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 4, 4), "grid": (1, 3, 3, 2)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 0, 4), "grid": (2, 3, 3, 2)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 4, 4), "grid": (2, 3, 2)}, BadTensorShape),
    ],
)
