"""Resize: `interpolate` where it has the same geometry, else a product with a matrix of weights along each axis.

Weights follow the definition of ONNX's Resize: where place i of the result lies in the input, and how much each element
near it counts. They depend on sizes and attributes alone, so they are constants.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..importing.products import contract
from ..status import InvalidArgument
from .elements import Array
from .node import Node, Operand, Output, dtype_of, is_float, shape_of

MATCHING = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
MAX_SIZE = 1 << 20  # of an axis
MAX_WEIGHTS = 1 << 24  # of a matrix


def resize(node: Node) -> Output:
    """Resize the axes whose size or coordinates change."""
    attrs, shape = node.attrs, node.shape()
    old = node.op_type == "Upsample" or node.version < 11
    axes = [node.axis(a) for a in attrs.get("axes") or range(node.rank)]
    sizes: list[int] | None = None
    if "height_scale" in attrs:  # Upsample of version 1
        scales = [1.0] * (node.rank - 2) + [float(attrs["height_scale"]), float(attrs["width_scale"])]
    elif old:
        scales = [float(s) for s in attrs.get("scales") or node.constant(1).reshape(-1)]
    else:
        scales = [float(v) for v in node.constant(2)] if node.has(2) and node.shape(2) != (0,) else []
        sizes = node.ints(3) if node.has(3) else None
    mode = {"bilinear": "linear"}.get(attrs["mode"], str(attrs["mode"]))
    places = "asymmetric" if old else str(attrs["coordinate_transformation_mode"])
    if sizes is not None:
        sizes, scales = _fit(attrs.get("keep_aspect_ratio_policy", "stretch"), sizes, [shape[a] for a in axes])
    elif len(scales) == len(axes):
        # The product of F32 numbers, as ONNX Runtime and PyTorch compute it: 10 times 0.7 is 7 there
        sizes = [math.floor(np.float32(shape[a]) * np.float32(s)) for a, s in zip(axes, scales, strict=True)]
    if sizes is None or not len(sizes) == len(scales) == len(axes) or not all(0 < s <= MAX_SIZE for s in sizes):
        raise InvalidArgument(node.op_type, f"scales {scales} and sizes {sizes}", allowed=f"one for each of {axes}")
    crop = places == "tf_crop_and_resize"
    roi = [float(v) for v in node.constant(1)] if crop and node.has(1) else [0.0] * len(axes) + [1.0] * len(axes)
    changed = [n for n, a in enumerate(axes) if sizes[n] != shape[a] or scales[n] != 1.0 or crop]
    x = node.x()
    if not changed:
        return x
    exact = all(sizes[n] == shape[axes[n]] * scales[n] for n in changed)
    roundings = [_rounding(node, old, scales[n]) for n in changed]
    first = min(axes[n] for n in changed)
    alike = mode != "nearest" or len(set(roundings)) == 1
    if exact and alike and places in MATCHING and is_float(x) and mode in ("nearest", "linear", "cubic"):
        full = list(shape)
        for n in changed:
            full[axes[n]] = sizes[n]
        how: dict[str, Any] = {"mode": mode, "coordinates": places, "nearest_mode": roundings[0]}
        if not old:
            how |= {"cubic_a": float(attrs["cubic_coeff_a"]), "exclude_outside": bool(attrs["exclude_outside"])}
            how["antialias"] = bool(attrs.get("antialias", 0))
        return node.emit("interpolate", x, sizes=tuple(full[first:]), **how)
    outside: list[tuple[int, Array]] = []
    for n, nearest in zip(changed, roundings, strict=True):
        axis, count = axes[n], len(axes)
        # In F32 if places are rounded, as ONNX Runtime computes them: 1 / 0.1 is 10 then
        i = np.arange(sizes[n], dtype=np.float32 if mode == "nearest" else np.float64)
        at = _places(places, i, shape[axis], scales[n], roi[n], roi[n + count])
        if crop:
            outside.append((axis, (at < 0) | (at > shape[axis] - 1)))
        if mode == "nearest":
            x = node.emit("gather", x, _nearest(nearest, at, shape[axis]), axis=axis)
        else:
            x = _product(node, x, axis, _weights(node, mode, at, shape[axis], scales[n]))
    return _fill(node, x, outside, float(attrs.get("extrapolation_value", 0.0)))


def _rounding(node: Node, old: bool, scale: float) -> str:
    """Return how a place is rounded to an element.

    Before version 11 the definition does not say it; in ONNX's test of version 10 and in ONNX Runtime, an axis that
    shrinks reads the element behind the place, and one that grows the element before it.
    """
    if old:
        return "ceil" if scale < 1 else "floor"
    return str(node.attrs.get("nearest_mode", "round_prefer_floor"))


def _fit(policy: str, sizes: list[int], dims: list[int]) -> tuple[list[int], list[float]]:
    """Return sizes and scales; a policy other than stretching uses one scale for all axes."""
    if min(dims, default=1) < 1:
        return sizes, []
    scales = [s / d for s, d in zip(sizes, dims, strict=True)]
    if policy == "stretch":
        return sizes, scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [math.floor(scale * d + 0.5) for d in dims], [scale] * len(dims)


def _places(kind: str, i: Array, dim: int, scale: float, start: float, end: float) -> Array:
    """Return where each element i of the result lies in the input."""
    size = len(i)
    if kind == "asymmetric":
        return i / scale
    if kind == "align_corners":
        return i * (dim - 1) / (dim * scale - 1) if dim * scale != 1 else np.zeros(size)
    if kind == "pytorch_half_pixel" and size == 1:
        return np.zeros(size)
    if kind == "tf_crop_and_resize":
        if size == 1:
            return np.full(1, 0.5 * (start + end) * (dim - 1))
        return start * (dim - 1) + i * (end - start) * (dim - 1) / (size - 1)
    if kind == "tf_half_pixel_for_nn":  # of versions 11 and 12
        return (i + 0.5) / scale
    if kind == "half_pixel_symmetric":
        adjustment = size / (dim * scale)
        center = dim / 2
        return center * (1 - adjustment) + (i + 0.5) / scale - 0.5
    return (i + 0.5) / scale - 0.5


def _nearest(mode: str, at: Array, dim: int) -> Array:
    """Return the element that each place reads."""
    if mode == "round_prefer_floor":
        found = np.ceil(at - 0.5)
    elif mode == "round_prefer_ceil":
        found = np.floor(at + 0.5)
    else:
        found = np.floor(at) if mode == "floor" else np.ceil(at)
    return np.clip(found, 0, dim - 1).astype(np.int64)


def _weights(node: Node, mode: str, at: Array, dim: int, scale: float) -> Array:
    """Return the weight of each element (columns) at each place (rows); elements beyond the ends are the end's own."""
    if len(at) * dim > MAX_WEIGHTS:
        raise node.refuse(f"{len(at)} places in {dim} elements", f"a product of {MAX_WEIGHTS}")
    stretch = scale if node.attrs.get("antialias", 0) and scale < 1 else 1.0
    radius = math.ceil((1 if mode == "linear" else 2) / stretch)
    base = np.floor(at).astype(np.int64)
    found = np.zeros((len(at), dim))
    taps = np.arange(1 - radius, radius + 1)
    places = base[:, None] + taps[None]
    weights = _kernel(mode, float(node.attrs.get("cubic_coeff_a", -0.75)), np.abs(at[:, None] - places) * stretch)
    inside = (places >= 0) & (places < dim)
    if node.attrs.get("exclude_outside", 0):
        weights = np.where(inside, weights, 0)
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    np.add.at(found, (np.arange(len(at))[:, None].repeat(len(taps), 1), np.clip(places, 0, dim - 1)), weights)
    return found


def _kernel(mode: str, a: float, d: Array) -> Array:
    """Return the weight at a distance: a triangle, or Keys' cubic (1981)."""
    if mode == "linear":
        return np.asarray(np.maximum(0, 1 - d))
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _product(node: Node, x: Operand, axis: int, weights: Array) -> Operand:
    """Return the product of a matrix of weights and an axis."""
    if not is_float(x):
        raise node.refuse(f"interpolation of {dtype_of(x)}", "floats, or the mode nearest")
    rank = len(shape_of(x))
    letters = "abcdefgh"[:rank]
    out = letters.replace(letters[axis], "z")
    matrix = node.cast(weights, dtype_of(x))
    return contract(node, [x, matrix], [letters, f"z{letters[axis]}"], out)


def _fill(node: Node, x: Operand, outside: list[tuple[int, Array]], value: float) -> Operand:
    """Return `x` with a value where a place lies outside the input along any axis."""
    rank = len(shape_of(x))
    for axis, mask in outside:
        if mask.any():
            column = mask.reshape([-1 if n == axis else 1 for n in range(rank)])
            x = node.emit("where", column, node.full((), value, dtype_of(x)), x)
    return x
