"""Resampling: interpolate, axis by axis, and coordinates of an image by affine_grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice, flag, integers, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import FLOATS, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .conv2d import LONGEST

Shape = tuple[int, ...]
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDINGS = {  # the element nearest to n / c, as an integer quotient
    "round_prefer_floor": "quotient(2 * ({n}) + {c} - 1, 2 * {c})",
    "round_prefer_ceil": "quotient(2 * ({n}) + {c}, 2 * {c})",
    "floor": "quotient({n}, {c})",
    "ceil": "quotient({n} + {c} - 1, {c})",
}
RADIUS = {"linear": 1, "cubic": 2}  # of the weights' support, in elements


def _line(coordinates: str, size: int, out: int) -> tuple[int, int, int]:
    """Return a, b and c: place i of y lies at (a·i + b) / c in x."""
    if coordinates == "align_corners":
        return size - 1, 0, max(1, out - 1)
    if coordinates == "asymmetric":
        return size, 0, out
    if coordinates == "pytorch_half_pixel" and out == 1:
        return 0, 0, 1
    return 2 * size, size - out, 2 * out


def weight(mode: str, cubic_a: float, distance: str) -> str:
    """Return the weight at a distance, in elements (Keys 1981 for cubic)."""
    if mode == "linear":
        return f"maximum(1 - {distance}, 0)"
    a = constant(cubic_a)
    near = f"(({a} + 2) * {distance} - ({a} + 3)) * {distance} * {distance} + 1"
    far = f"(({a} * {distance} - 5 * {a}) * {distance} + 8 * {a}) * {distance} - 4 * {a}"
    return f"{near} if {distance} <= 1 else {far} if {distance} < 2 else 0"


def _stretch(size: int, out: int, values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return p and q, of which p / q is how much wider the weights are, and the radius of their support."""
    p, q = (size, out) if values["antialias"] and size > out else (1, 1)
    return p, q, -(-RADIUS[values["mode"]] * p // q)


def _axis_taps(e: Emitter[V], size: int, out: int, values: Mapping[str, Any], dtype: DType) -> tuple[V, V | None]:
    """Return which elements each place reads [out, taps], and their weights (None for nearest).

    A place is a quotient of integers, n / c, so that its element, and the numerator of each distance, are exact.
    """
    a, b, c = _line(values["coordinates"], size, out)
    n, mode, places = f"x0 * {a} + {b}", values["mode"], e.iota(out, I64)
    if mode == "nearest":
        body = ROUNDINGS[values["nearest_mode"]].format(n=n, c=c)
        return e.loop("o->o", f"minimum(maximum({body}, 0), {size - 1})", places), None
    p, q, radius = _stretch(size, out, values)
    taps = e.iota(2 * radius, I64, start=1 - radius)
    at = e.loop("o,t->ot", f"quotient({n}, {c}) + x1", places, taps)
    parts = e.loop("ot,o->ot", f"abs(x0 * {c} - ({n.replace('x0', 'x1')})) * {q}", at, places)
    unit = c * p  # parts of the weights' unit of distance
    if mode == "linear":
        weights = e.loop("ot->ot", f"x0 / {unit}", e.cast(e.loop("ot->ot", f"maximum({unit} - x0, 0)", parts), dtype))
    else:
        distance = e.loop("ot->ot", f"x0 / {unit}", e.cast(parts, dtype))
        weights = e.loop("ot->ot", weight(mode, values["cubic_a"], "x0"), distance)
    if values["exclude_outside"]:
        inside = e.cast(e.loop("ot->ot", f"1 if x0 >= 0 and x0 < {size} else 0", at), dtype)
        weights = e.loop("ot,ot->ot", "x0 * x1", inside, weights)
    if values["antialias"] or values["exclude_outside"]:
        weights = e.loop("ot,o->ot", "x0 / x1", weights, e.loop("ot->o", "x0", weights, combine="sum"))
    return e.loop("ot->ot", f"minimum(maximum(x0, 0), {size - 1})", at), weights


def _interpolate(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit a gather, or a weighted one, for each axis that changes; the shrinking ones first."""
    x, y = inputs[0], outputs[0]
    lead, nearest = x.spec.ndim - len(values["sizes"]), values["mode"] == "nearest"
    shape = list(x.spec.shape)
    for axis in sorted(range(lead, x.spec.ndim), key=lambda i: y.shape[i] / max(1, shape[i])):
        if shape[axis] == y.shape[axis]:
            continue
        wide = x if nearest else e.cast(x, y.dtype.compute)
        rows = e.reshape(wide, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
        at, weights = _axis_taps(e, shape[axis], y.shape[axis], values, y.dtype.compute)
        x = e("gather", rows, at, axis=1) if weights is None else e("weighted_gather", rows, at, weights)
        shape[axis] = y.shape[axis]
    return e.cast(e.reshape(x, shape), y.dtype) if tuple(shape) != inputs[0].spec.shape else e("copy", x)


def _sizes_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, sizes = inputs[0], values["sizes"]
    lead = len(x) - len(sizes)
    if len(sizes) == 0 or lead < 0 or 0 in x[lead:]:
        given = f"x is {list(x)} and sizes={tuple(sizes)}"
        raise BadTensorShape("interpolate", given, allowed="a size for each of x's last dims, which are at least 1")
    for size in sizes:
        if size >= LONGEST:
            raise BadTensorShape("interpolate", f"sizes={tuple(sizes)}", allowed="sizes below 2^31")
    if values["antialias"] and values["mode"] == "nearest":
        raise InvalidArgument("interpolate", "antialias with mode=nearest", allowed="linear or cubic")
    return [(*x[:lead], *sizes)]


def _taps_of(i: int, size: int, out: int, values: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Return the elements that place i reads, each with its weight, for the reference."""
    a, b, c = _line(values["coordinates"], size, out)
    place, mode, last = Fraction(a * i + b, c), values["mode"], size - 1
    if mode == "nearest":
        half = Fraction(1, 2)
        found = {
            "round_prefer_floor": math.ceil(place - half),
            "round_prefer_ceil": math.floor(place + half),
            "floor": math.floor(place),
            "ceil": math.ceil(place),
        }[values["nearest_mode"]]
        return [(min(max(found, 0), last), 1.0)]
    wide = max(Fraction(1), Fraction(size, out)) if values["antialias"] else Fraction(1)
    radius = math.ceil(RADIUS[mode] * wide)
    numbers = math.floor(place) + np.arange(1 - radius, radius + 1)
    d, k = np.array([float(abs(int(n) - place) / wide) for n in numbers]), values["cubic_a"]
    near, far = ((k + 2) * d - (k + 3)) * d * d + 1, ((k * d - 5 * k) * d + 8 * k) * d - 4 * k
    weights = np.maximum(1 - d, 0) if mode == "linear" else np.where(d <= 1, near, np.where(d < 2, far, 0))
    if values["exclude_outside"]:
        weights = np.where((numbers >= 0) & (numbers < size), weights, 0)
    if values["antialias"] or values["exclude_outside"]:
        weights = weights / weights.sum()
    return [(int(n), float(w)) for n, w in zip(np.clip(numbers, 0, last), weights, strict=True)]


def _resample(x: Any, magnitude: bool = False, **values: Any) -> Any:
    sizes = values["sizes"]
    y = x
    order = sorted(range(x.ndim - len(sizes), x.ndim), key=lambda i: sizes[i - x.ndim] / x.shape[i])
    for axis in order:
        if y.shape[axis] == sizes[axis - x.ndim]:
            continue
        rows = np.moveaxis(y, axis, 0)
        made = np.zeros((sizes[axis - x.ndim], *rows.shape[1:]))
        for i in range(made.shape[0]):
            for at, w in _taps_of(i, rows.shape[0], made.shape[0], values):
                if w != 0:
                    made[i] += (abs(w) + (values["mode"] == "cubic") if magnitude else w) * rows[at]
        y = np.moveaxis(made, 0, axis)
    return y


def _interpolated_scale(x: Any, **values: Any) -> Any:
    wide = [s / n for s, n in zip(x.shape[::-1], values["sizes"][::-1], strict=False)]
    return (6 * len(wide) + sum(map(math.sqrt, wide))) * _resample(np.abs(x), magnitude=True, **values)


PYTORCH = {"coordinates": "asymmetric", "nearest_mode": "floor"}
RESIZED: SampleTable = [
    ((5,), (8,), {}),
    ((2, 3, 4, 5), (7, 3), {**PYTORCH, "mode": "nearest"}),
    ((1, 2, 3, 4, 5), (2, 6, 9), {"mode": "linear", "coordinates": "align_corners"}),
    ((2, 1, 7, 5), (3, 11), {"mode": "cubic", "exclude_outside": True}),
    ((1, 2, 9, 4), (4, 4), {"mode": "cubic", "antialias": True, "exclude_outside": True, "cubic_a": -0.5}),
    ((3, 6), (1,), {"mode": "linear", "coordinates": "pytorch_half_pixel"}),
    ((2, 3, 1, 2, 1, 2, 3, 2), (3, 4), {"mode": "linear"}),
    ((0, 2, 3, 3), (2, 5), {"mode": "linear"}),
]

declare(
    "interpolate",
    "INTP",
    "x: T[*s] -> y: T[*d]",
    {"T": FLOATS},
    family="movement",
    doc=(
        "x resampled along its last dims to `sizes` (ONNX Resize by sizes; PyTorch's interpolate, whose"
        " scale_factor means sizes with recompute_scale_factor). With half_pixel, element i"
        " of n lies at (i + 1/2) / n of the axis; with align_corners the first and the last elements fall"
        " together; asymmetric places i at i·n/size. linear weighs the two nearest elements along each axis (bilinear"
        " in two dims), cubic four (Keys 1981). Elements outside x are those at its end, or without weight"
        " (exclude_outside). antialias widens the weights where an axis shrinks (PyTorch's with exclude_outside)."
        " An element of weight 0 does not count."
    ),
    reference=_resample,
    tolerance=Tolerance(4, _interpolated_scale),
    attrs=attrs(
        "INT1",
        integers("sizes", doc="of y's last dims", minimum=1),
        choice("mode", ("nearest", "linear", "cubic"), "nearest", "how elements near a place make its value"),
        choice("coordinates", COORDINATES, "half_pixel", "where in x a place of y lies"),
        choice("nearest_mode", tuple(ROUNDINGS), "round_prefer_floor", "which element is the nearest"),
        number("cubic_a", -0.75, "slope of the cubic weights at distance 1", minimum=-4, maximum=4),
        flag("exclude_outside", False, "give elements outside x no weight"),
        flag("antialias", False, "low-pass where an axis shrinks"),
    ),
    shapes=_sizes_shapes,
    normal_form=as_given,
    decompose=_interpolate,
    samples=lambda: [
        *(Sample({"x": x}, {"sizes": sizes, **values}) for x, sizes, values in RESIZED),
        Sample({"x": (2, 9, 101, 97)}, {"sizes": (211, 203), "mode": "linear"}, size="wide"),
    ],
    errors=[
        ErrorCase({"x": (2, 3)}, InvalidArgument),
        ErrorCase({"x": (2, 3)}, BadTensorShape, {"sizes": ()}),
        ErrorCase({"x": (3,)}, BadTensorShape, {"sizes": (2, 2)}),
        ErrorCase({"x": (3, 0)}, BadTensorShape, {"sizes": (2,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"sizes": (0,)}),
        ErrorCase({"x": (0, 4)}, BadTensorShape, {"sizes": (1 << 31,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"sizes": (2,), "antialias": True}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"sizes": (2,), "mode": "bilinear"}),
    ],
)


# affine_grid


def _axis_line(e: Emitter[V], size: int, align: bool, dtype: DType) -> V:
    """Return the coordinates of an axis, from -1 to 1."""
    length = max(1, size - 1) if align else size
    first = -length if align else 1 - size
    return e.loop("a->a", f"(2 * x0 + {first}) / {length}", e.iota(size, dtype)) if size else e.iota(0, dtype)


def _affine_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    theta, size = inputs[0], values["shape"]
    dims = theta[1]
    if dims < 1 or dims > 3 or theta[2] != dims + 1 or len(size) != dims + 2 or size[0] != theta[0]:
        given = f"theta is {list(theta)} and shape={tuple(size)}"
        raise BadTensorShape("affine_grid", given, allowed="theta[n, k, k + 1] and shape (n, c, …) of k dims behind")
    return [(*theta[:1], *size[2:], dims)]


def _affine(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    theta, y = inputs[0], outputs[0]
    dims = theta.spec.shape[1]
    wide, sizes = y.dtype.compute, y.shape[1:-1]
    columns = [e.collapse(e("slice", theta, starts=(i,), ends=(i + 1,), axes=(2,)), (1, 2)) for i in range(dims + 1)]
    lines = [_axis_line(e, size, values["align_corners"], wide) for size in sizes]
    letters = LETTERS[:dims]
    maps = ",".join(["ni"] * (dims + 1) + list(letters)) + f"->ni{letters}"  # lines are long, dim i is not
    body = " + ".join([f"x{i} * x{2 * dims - i}" for i in range(dims)] + [f"x{dims}"])
    made = e.loop(maps, body, *(e.cast(c, wide) for c in columns), *lines, dtype=y.dtype)
    return e("transpose", made, axes=(0, *range(2, 2 + dims), 1))


def _affine_reference(theta: Any, shape: Any, align_corners: bool) -> Any:
    lines = [np.linspace(-1, 1, s) if align_corners and s > 1 else (2 * np.arange(s) + 1) / s - 1 for s in shape[2:]]
    if align_corners:
        lines = [line if line.size > 1 else line - 1 for line in lines]
    mesh = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones([line.size for line in lines])])
    return np.moveaxis(np.tensordot(theta, mesh, 1), 1, -1)


def _affine_scale(theta: Any, shape: Any, align_corners: bool) -> Any:
    terms = np.abs(theta).sum(-1).reshape(theta.shape[0], *[1] * (len(shape) - 2), theta.shape[1])
    return 4 * np.broadcast_to(terms, (theta.shape[0], *shape[2:], theta.shape[1]))


declare(
    "affine_grid",
    "AFGR",
    "theta: T[n, k, e] -> y: T[n, *o, k]",
    {"T": FLOATS},
    family="movement",
    doc=(
        "y[n, …] = theta[n] @ (x, y, …, 1): the coordinates, moved by an affine map, of an image's places, each axis"
        " from -1 to 1 and the last axis first (ONNX AffineGrid; 1 to 3 dims). -1 and 1 are the middles of the first"
        " and the last elements with align_corners, else their outer edges; with align_corners one element alone lies"
        " at -1, in PyTorch at 0."
    ),
    reference=_affine_reference,
    tolerance=Tolerance(4, _affine_scale),
    attrs=attrs(
        "AFG1",
        integers("shape", doc="shape of the image: (n, c, h, w), or another number of dims behind c", minimum=0),
        flag("align_corners", False, "the middles of the elements at the ends lie at -1 and 1"),
    ),
    shapes=_affine_shapes,
    normal_form=as_given,
    decompose=_affine,
    samples=lambda: [
        Sample({"theta": (n, len(o), len(o) + 1)}, {"shape": (n, 3, *o), "align_corners": align}, size=size)
        for n, o, align, size in [
            (2, (3, 4), False, "small"),
            (1, (5,), True, "small"),
            (2, (1, 3), True, "small"),
            (2, (2, 3, 5), False, "small"),
            (0, (2, 3), False, "small"),
            (2, (0, 3), False, "small"),
            (2, (401, 403), True, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"theta": (2, 2, 2)}, BadTensorShape, {"shape": (2, 1, 3, 3)}),
        ErrorCase({"theta": (2, 2, 3)}, BadTensorShape, {"shape": (1, 1, 3, 3)}),
        ErrorCase({"theta": (2, 2, 3)}, BadTensorShape, {"shape": (2, 1, 3)}),
        ErrorCase({"theta": (2, 3)}, BadTensorShape, {"shape": (2, 1, 3)}),
        ErrorCase({"theta": (2, 2, 3)}, InvalidArgument, {"shape": (2, 1, 3, -3)}),
    ],
)
