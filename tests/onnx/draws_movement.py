"""Draws of nodes that move elements, or read and write them by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from draws import ABSENT, Draw, Drawn, Recipe, i64
from draws_elementwise import whole_numbers

# Movement


def reshape(d: Draw) -> Drawn:
    shape = d.shape(1 if d.version < 5 else 0)
    total = int(np.prod(shape))
    to = d.pick([[total], [-1, 1], [1, total, 1], [0, -1] if shape else [1], list(shape)])
    held: Any = to if "shape" in d.schema.attributes else i64(*to)
    return Drawn([d.tensor(0, shape)], {"shape": held})


def flatten(d: Draw) -> Drawn:
    shape = d.shape(1)
    low = -len(shape) if d.version >= 11 else 0
    return Drawn([d.tensor(0, shape)], {"axis": d.maybe(d.int(low, len(shape)))})


def transpose(d: Draw) -> Drawn:
    shape = d.shape(0)
    return Drawn([d.tensor(0, shape)], {"perm": d.maybe(d.permutation(len(shape))) if shape else ABSENT})


def squeeze(d: Draw) -> Drawn:
    shape = tuple(1 if d.chance(0.5) else n for n in d.shape())
    ones = [a for a, n in enumerate(shape) if n == 1]
    kept = ones[: d.int(1, len(ones))] if ones else []
    axes = [a - len(shape) if d.version >= 11 and d.chance(0.4) else a for a in kept]
    held: Any = axes if "axes" in d.schema.attributes else i64(*axes)
    return Drawn([d.tensor(0, shape)], {"axes": d.maybe(held) if axes else ABSENT})


def unsqueeze(d: Draw) -> Drawn:
    shape = d.shape(0, 3)
    more = d.int(1, 2)
    axes = d.axes(len(shape) + more)[:more]
    held: Any = axes if "axes" in d.schema.attributes else i64(*axes)
    rank = len(shape) + len(axes)
    places = sorted({a % rank for a in axes})
    if len(places) != len(axes) or any(not -rank <= a < rank for a in axes):
        held = [0] if "axes" in d.schema.attributes else i64(0)
    return Drawn([d.tensor(0, shape)], {"axes": held})


def expand(d: Draw) -> Drawn:
    shape = d.shape()
    return Drawn([d.tensor(0, d.like(shape)), i64(*(n if d.chance(0.7) else 1 for n in shape))], known=(1,))


def tile(d: Draw) -> Drawn:
    shape = d.shape(1)
    if d.version < 6:
        kind = d.kind(0)
        x = d.tensor(0, shape)
        return Drawn([x, np.asarray(d.int(1, 3), kind), np.asarray(d.int(0, len(shape) - 1), kind)], known=(1, 2))
    return Drawn([d.tensor(0, shape), i64(*d.ints(len(shape), 0 if d.chance(0.1) else 1, 3))], known=(1,))


def concat(d: Draw) -> Drawn:
    shape = list(d.shape(2 if d.version < 4 else 1))
    axis = d.axis(len(shape))
    parts = []
    for _ in range(d.int(1, 4)):
        shape[axis] = d.int(1, 4)
        parts.append(d.tensor(0, shape))
    if d.version < 4 and axis == 1:
        return Drawn(parts, {"axis": d.maybe(axis)})
    return Drawn(parts, {"axis": axis})


def slice_(d: Draw) -> Drawn:
    shape = d.shape()
    inputs = "starts" not in d.schema.attributes
    axes = d.axes(len(shape), since=10)
    if not inputs and d.chance(0.3):
        axes = list(range(len(axes)))
    steps = [d.pick([1, 1, 2, -1, -2]) if inputs else 1 for _ in axes]
    starts = [d.int(-6, 6) for _ in axes]
    ends = [d.int(-6, 6) if d.chance(0.7) else (2**31 - 1 if s > 0 else -(2**31)) for s in steps]
    hold: Callable[[list[int]], Any] = (lambda v: np.asarray(v, d.kind(1))) if inputs else list
    named: dict[str, Any] = {"starts": hold(starts), "ends": hold(ends), "axes": hold(axes)}
    if axes == list(range(len(axes))) and steps == [1] * len(axes):
        named["axes"] = d.maybe(named["axes"])
    if any(s != 1 for s in steps):
        named["steps"] = hold(steps)
    return Drawn([d.tensor(0, shape)], named)


def split(d: Draw) -> Drawn:
    shape = list(d.shape(1))
    axis = d.maybe(d.axis(len(shape)))
    count = d.int(1, 3)
    sizes = d.ints(count, 1, 3)
    if d.chance(0.4):
        sizes = [sizes[0]] * count
    shape[axis or 0] = sum(sizes)
    held: Any = sizes if "split" in d.schema.attributes else i64(*sizes)
    named: dict[str, Any] = {"axis": axis, "split": held}
    if len(set(sizes)) == 1 and d.chance(0.6):
        named["split"] = ABSENT
        named["num_outputs"] = count
        if "num_outputs" in d.schema.attributes and count > 1 and d.chance(0.5):
            shape[axis or 0] = max(count * sizes[0] - 1, 1)
    if d.version == 1 and named["split"] is not ABSENT and d.chance(0.5):
        return Drawn([d.tensor(0, shape), np.asarray(sizes, d.kind(0))], {"axis": axis}, count, known=(1,))
    return Drawn([d.tensor(0, shape)], named, count)


def pad(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    rank = len(shape)
    modes = ["constant", "constant", "reflect", "edge", *(["wrap"] if d.version >= 19 else [])]
    mode = d.pick(modes)
    if d.version < 18 and mode != "constant":
        shape = tuple(d.ints(4, 3, 5))  # of these ONNX Runtime pads the last two axes of some ranks alone
        rank = 4
    axes = list(range(rank))
    if "axes" in {f.name for f in d.schema.inputs} and d.chance(0.5):
        axes = d.axes(rank)
    most = [shape[a] - 1 if mode == "reflect" else 3 for a in axes]
    low = [d.int(0, min(m, 2)) for m in most]
    high = [d.int(0, min(m, 2)) for m in most]
    if mode == "constant" and d.chance(0.3):
        low = [-1 if shape[a] > 2 and d.chance(0.5) else n for a, n in zip(axes, low, strict=True)]
    kind = d.kind(0)
    value = d.array((), kind)
    as_input = "pads" not in d.schema.attributes and "paddings" not in d.schema.attributes
    held: Any = i64(*low, *high) if as_input else low + high
    named: dict[str, Any] = {"pads": held, "paddings": held, "mode": mode if mode != "constant" else d.maybe(mode)}
    if mode == "constant":
        named |= {"value": d.maybe(float(value)), "constant_value": d.maybe(value)}
    if axes != list(range(rank)):
        named["axes"] = i64(*axes)
    return Drawn([d.tensor(0, shape)], named)


def center_crop_pad(d: Draw) -> Drawn:
    shape = d.shape()
    axes = d.axes(len(shape)) if d.chance(0.5) else None
    count = len(shape) if axes is None else len(axes)
    return Drawn([d.tensor(0, shape), i64(*d.ints(count, 1, 6))], {"axes": axes}, known=(1,))


def reverse_sequence(d: Draw) -> Drawn:
    shape = d.shape(2)
    time = d.int(0, 1)
    lengths = i64(*d.ints(shape[1 - time], 1, shape[time]))
    named = {"time_axis": time, "batch_axis": 1 - time}
    return Drawn([d.tensor(0, shape), lengths], named if time or d.chance(0.5) else {})


def trilu(d: Draw) -> Drawn:
    return Drawn([d.tensor(0, d.shape(2))], {"k": d.maybe(np.int64(d.int(-3, 3))), "upper": d.maybe(d.int(0, 1))})


def depth_to_space(d: Draw) -> Drawn:
    n, c, h, w = d.ints(4, 1, 3)
    named = {"blocksize": 2, "mode": d.maybe(d.pick(["DCR", "CRD"]))}
    return Drawn([d.tensor(0, (n, 4 * c, h, w))], named)


def space_to_depth(d: Draw) -> Drawn:
    n, c, h, w = d.ints(4, 1, 3)
    return Drawn([d.tensor(0, (n, c, 2 * h, 2 * w))], {"blocksize": 2, "mode": d.maybe(d.pick(["DCR", "CRD"]), 0.3)})


# Indices


def gather(d: Draw) -> Drawn:
    shape = d.shape(1)
    axis = d.maybe(d.axis(len(shape)))
    return Drawn([d.tensor(0, shape), d.index(1, d.shape(0, 2), shape[axis or 0])], {"axis": axis})


def gather_elements(d: Draw) -> Drawn:
    shape = list(d.shape(1))
    axis = d.maybe(d.axis(len(shape)))
    dim = shape[axis or 0]
    x = d.tensor(0, shape)
    shape[axis or 0] = d.int(1, 5)
    return Drawn([x, d.index(1, shape, dim)], {"axis": axis})


def gather_nd(d: Draw) -> Drawn:
    shape = d.shape(1)
    batch = d.int(0, len(shape) - 1) if "batch_dims" in d.schema.attributes else 0
    deep = d.int(1, len(shape) - batch)
    lead = (*shape[:batch], *d.shape(1, 2))
    at = np.stack([d.rng.integers(0, shape[batch + n], lead) for n in range(deep)], -1).astype(np.int64)
    return Drawn([d.tensor(0, shape), at], {"batch_dims": batch or d.maybe(0)})


def scatter_elements(d: Draw) -> Drawn:
    shape = list(d.shape(1))
    axis = d.maybe(d.axis(len(shape)))
    at = axis or 0
    how = d.maybe(d.pick(["none", "add", "mul", *(["max", "min"] if d.version >= 18 else [])]))
    x = d.tensor(0, shape)
    count = d.int(1, shape[at])
    rows = np.stack([d.rng.permutation(shape[at])[:count] for _ in range(int(np.prod(shape)) // shape[at])])
    rest = [s for n, s in enumerate(shape) if n != at % len(shape)]
    index = np.moveaxis(rows.reshape(*rest, count), -1, at).astype(d.kind(1))
    return Drawn([x, index, d.array(index.shape, d.kind(0))], {"axis": axis, "reduction": how})


def scatter_nd(d: Draw) -> Drawn:
    shape = d.shape(1)
    deep = d.int(1, len(shape))
    how = d.maybe(d.pick(["none", "add", "mul", *(["max", "min"] if d.version >= 18 else [])]))
    places = d.rng.permutation(int(np.prod(shape[:deep])))[:3]
    at = np.stack(np.unravel_index(places, shape[:deep]), -1).astype(np.int64)
    return Drawn([d.tensor(0, shape), at, d.tensor(2, (len(places), *shape[deep:]))], {"reduction": how})


def one_hot(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    depth = d.int(2, 6)
    low = -depth if d.version >= 11 else 0
    at = np.asarray(d.rng.integers(low, depth, shape))
    kind = d.kind(0)
    at = (at % depth if np.dtype(kind).kind == "u" else at).astype(kind)
    held = np.asarray(depth, d.kind(1)) if d.chance(0.5) else np.asarray([depth], d.kind(1))
    axis = d.maybe(d.int(-len(shape) - 1, len(shape)))
    return Drawn([at, held, d.array((2,), d.kind(2))], {"axis": axis}, known=(1,))


def compress(d: Draw) -> Drawn:
    shape = d.shape(1)
    axis = d.maybe(d.axis(len(shape)))
    size = int(np.prod(shape)) if axis is None else shape[axis]
    return Drawn([d.tensor(0, shape), d.array((d.int(1, size),), np.bool_)], {"axis": axis})


def unique(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    axis = d.maybe(0, 0.5) if len(shape) == 1 else ABSENT
    return Drawn([whole_numbers(d, shape)], {"axis": axis, "sorted": d.maybe(d.int(0, 1))}, 4)


def non_max_suppression(d: Draw) -> Drawn:
    batch, boxes, classes = d.int(1, 2), d.int(1, 6), d.int(1, 2)
    corners = np.sort(d.array((batch, boxes, 2, 2), low=0, high=3), 2).reshape(batch, boxes, 4)
    scores = d.array((batch, classes, boxes), low=0, high=1)
    more = [i64(d.int(1, 4)), np.float32([d.float(0, 1)]), np.float32([d.float(0, 0.5)])]
    named = {"center_point_box": d.maybe(d.int(0, 1))}
    return Drawn([corners, scores, *more[: d.int(1, 3)]], named, known=(2, 3, 4))


def tensor_scatter(d: Draw) -> Drawn:
    batch, heads, length, width = d.ints(4, 2, 4)
    rows = d.int(1, 2)
    at = i64(*d.ints(batch, 0, length - rows))
    update = d.array((batch, heads, rows, width), d.kind(0))
    return Drawn(
        [d.tensor(0, (batch, heads, length, width)), update, at], {"mode": d.maybe(d.pick(["linear", "circular"]))}
    )


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(("Scatter", "ScatterElements"), scatter_elements),
    "CenterCropPad": center_crop_pad,
    "Compress": compress,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "NonMaxSuppression": non_max_suppression,
    "OneHot": one_hot,
    "Pad": pad,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "ScatterND": scatter_nd,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "TensorScatter": tensor_scatter,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unique": unique,
    "Unsqueeze": unsqueeze,
}
