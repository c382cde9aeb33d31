"""Nodes that read and write elements by index, and those whose result is as large as its content says."""

from __future__ import annotations

import math

from ..dtypes import I64
from .node import Handler, Node, Operand, Output, row, shape_of


def gather(kind: str) -> Handler:
    """Return the handler of a node that gathers along an axis."""

    def handle(node: Node) -> Output:
        return node.emit(kind, node.x(), node.x(1), axis=node.axis())

    return handle


def scatter_elements(node: Node) -> Output:
    """Write elements along an axis; also the older name, Scatter."""
    how = node.attrs.get("reduction", "none")
    return node.emit("scatter_elements", *node.tensors, axis=node.axis(), reduction=how)


def scatter_nd(node: Node) -> Output:
    """Write slices."""
    return node.emit("scatter_nd", *node.tensors, reduction=node.attrs.get("reduction", "none"))


def one_hot(node: Node) -> Output:
    """Mark the place that each index names by one of two values; negative indices count from the end."""
    depth, rank = int(node.number(1)), node.rank
    axis = node.axis(rank=rank + 1)
    places = node.cast(node.x(), I64)
    wide = node.full((), depth, I64)
    negative = node.emit("less", places, node.full((), 0, I64))
    places = node.emit("where", negative, node.emit("add", places, wide), places)
    line = node.emit("iota", shape=(depth,), to=I64)
    column = [1] * (rank + 1)
    column[axis] = depth
    shape = list(shape_of(places))
    shape.insert(axis, 1)
    hit = node.emit("equal", node.reshape(places, shape), node.reshape(line, column))
    off, on = (node.emit("slice", node.x(2), starts=(n,), ends=(n + 1,)) for n in (0, 1))
    return node.emit("where", hit, node.reshape(on, ()), node.reshape(off, ()))


def non_zero(node: Node) -> Output:
    """Return the places of what is not 0, one a column; those of a scalar have no rows, as the definition says."""
    found, count = node.emit_all("nonzero", node.x() if node.rank else node.reshape(node.x(), (1,)))
    if not node.rank:
        found = node.emit("slice", found, starts=(0,), ends=(0,))
    return node.cut(found, count, axis=1)


def compress(node: Node) -> Output:
    """Keep the parts of an axis, or the elements, for which a condition holds."""
    axis = node.axis() if "axis" in node.attrs else None
    condition, size = node.x(1), math.prod(node.shape()) if axis is None else node.shape()[axis]
    if shape_of(condition)[0] > size:
        condition = node.emit("slice", condition, starts=(0,), ends=(size,))
    found, count = node.emit_all("compress", node.x(), condition, axis=() if axis is None else axis)
    return node.cut(found, count, axis or 0)


def unique(node: Node) -> list[Output]:
    """Return the different elements in order of size, where they are first, which each one is, and how many.

    Unsorted they are in the order of where they are first.
    """
    if "axis" in node.attrs and node.rank != 1:
        raise node.refuse("an axis", "all elements")
    y, first, inverse, counts, count = node.emit_all("unique", node.x())
    total = math.prod(node.shape())
    inverse = node.reshape(inverse, (total,))
    if not node.attrs["sorted"]:
        line = node.emit("iota", shape=(total,), to=I64)
        known = node.emit("less", line, count)
        first, order = node.emit_all("sort", node.emit("where", known, first, node.full((), total, I64)), axis=0)
        y, counts = (node.emit("gather", x, order, axis=0) for x in (y, counts))
        _sorted, back = node.emit_all("sort", order, axis=0)
        inverse = node.emit("gather", back, inverse, axis=0)
    return [node.cut(y, count), node.cut(first, count), inverse, node.cut(counts, count)]


def non_max_suppression(node: Node) -> Output:
    """Return (batch, class, box) of the boxes that are kept."""
    limit = int(node.number(2)) if node.has(2) else 0
    found, count = node.emit_all(
        "non_max_suppression",
        node.x(),
        node.x(1),
        max_output_boxes_per_class=limit,
        iou_threshold=float(node.number(3)) if node.has(3) else 0.0,
        score_threshold=float(node.number(4)) if node.has(4) else float("-inf"),
        center_point_box=bool(node.attrs["center_point_box"]),
    )
    return node.cut(found, count)


def tensor_scatter(node: Node) -> Output:
    """Write rows into a cache at each sequence's place, or at 0; a circular one goes on at its start."""
    cache, update = node.x(), node.x(1)
    shape, axis = shape_of(cache), node.axis()
    batch, length, rows = shape[0], shape[axis], shape_of(update)[axis]
    begin: Operand = node.cast(node.x(2), I64) if node.has(2) else node.full((batch,), 0, I64)
    step = node.emit("iota", shape=(rows,), to=I64)
    places = node.emit("add", node.reshape(begin, (batch, 1)), node.reshape(step, (1, rows)))
    if node.attrs["mode"] == "circular":
        places = node.emit("remainder", places, node.full((), length, I64))
    column = [1] * len(shape)
    column[0], column[axis] = batch, rows
    index = node.expand(node.reshape(places, column), shape_of(update))
    return node.emit("scatter_elements", cache, index, update, axis=axis)


NODES: dict[str, Handler] = {
    "Compress": compress,
    "Gather": gather("gather"),
    "GatherElements": gather("gather_elements"),
    "GatherND": row("gather_nd", batch_dims="batch_dims"),
    "NonMaxSuppression": non_max_suppression,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "Unique": unique,
}
