"""Operators that read and write elements by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import BOOL, I32, I64
from .node import AtenNode, Handler, Operand, Result, dtype_of, is_operand, shape_of


def _indices(node: AtenNode, x: Operand) -> Operand:
    """Return indices in a dtype that operators take."""
    if dtype_of(x) is BOOL:
        raise node.refuse("truths as indices", "numbers: how many elements there are depends on them")
    return x if dtype_of(x) in (I64, I32) else node.cast(x, I64)


def _from_front(node: AtenNode, index: Operand, dim: int) -> Operand:
    """Return indices with those below 0 counted from the end."""
    if isinstance(index, np.ndarray):
        return np.where(index < 0, index + dim, index)
    negative = node.emit("less", index, node.full((), 0, dtype_of(index)))
    return node.emit("where", negative, node.emit("add", index, node.full((), dim, dtype_of(index))), index)


def embedding(node: AtenNode) -> Result:
    """Return rows of a table."""
    table, indices = node["weight"], _indices(node, node["indices"])
    if dtype_of(table).kind != "f":
        return node.emit("gather", table, indices, axis=0)
    return node.emit("embedding", table, indices, to=dtype_of(table))


def gather(node: AtenNode) -> Result:
    """Read elements along an axis at as many places as there are indices."""
    x, index = node.x, _indices(node, node["index"])
    if not math.prod(shape_of(index)):
        return node.full(shape_of(index), 0, dtype_of(x))
    axis = node.axis(node["dim"])
    if not node.rank:
        return node.reshape(
            node.emit("gather_elements", node.reshape(x, (1,)), node.reshape(index, (1,)), axis=0), shape_of(index)
        )
    return node.emit("gather_elements", x, index, axis=axis)


def index_select(node: AtenNode) -> Result:
    """Read parts of an axis."""
    x, index = node.x, _indices(node, node["index"])
    index = index if shape_of(index) else node.reshape(index, (1,))
    if not node.rank:
        return node.reshape(node.emit("gather", node.reshape(x, (1,)), index, axis=0), ())
    return node.emit("gather", x, index, axis=node.axis(node["dim"]))


def index(node: AtenNode) -> Result:
    """Read at indices of some dims, as NumPy's advanced indexing does."""
    x, given = node.x, list(node["indices"])
    places = [n for n, i in enumerate(given) if i is not None]
    if not places:
        return x
    tensors = [_from_front(node, _indices(node, given[n]), node.shape[n]) for n in places]
    if len(places) == 1:  # one axis, whose dims the indices' take the place of
        return node.emit("gather", x, tensors[0], axis=places[0])
    shape = np.broadcast_shapes(*(shape_of(t) for t in tensors))
    adjacent = places == list(range(places[0], places[-1] + 1))
    rest = [n for n in range(node.rank) if n not in places]
    rows = node.transpose(x, [*places, *rest])
    tuples = node.emit("stack", *[node.expand(node.cast(t, I64), shape) for t in tensors], axis=len(shape))
    y = node.emit("gather_nd", rows, tuples)
    if not adjacent or places[0] == 0:
        return y
    before = places[0]  # the indices' dims stand where the first of theirs was
    rank = len(shape)
    return node.transpose(y, [*range(rank, rank + before), *range(rank), *range(rank + before, len(shape_of(y)))])


def index_put(node: AtenNode) -> Result:
    """Write at indices of some dims."""
    x, given, how = node.x, list(node["indices"]), "add" if node.get("accumulate") else "none"
    if dtype_of(x) is BOOL and how == "add":
        raise node.refuse("sums of truths", "numbers")
    if (
        len(given) == 1
        and given[0] is not None
        and dtype_of(given[0]) is BOOL
        and math.prod(shape_of(node["values"])) == 1
    ):
        mask, value = given[0], node.reshape(node.cast(node["values"], dtype_of(x)), ())
        mask = node.reshape(mask, (*shape_of(mask), *[1] * (node.rank - len(shape_of(mask)))))
        value = node.emit("add", x, value) if how == "add" else value
        return node.emit("where", mask, value, x)
    places = [n for n, i in enumerate(given) if i is not None]
    rest = [n for n in range(node.rank) if n not in places]
    tensors = [_from_front(node, _indices(node, given[n]), node.shape[n]) for n in places]
    shape = np.broadcast_shapes(*(shape_of(t) for t in tensors))
    order = [*places, *rest]
    adjacent = places == list(range(places[0], places[-1] + 1))
    values = node.cast(node["values"], dtype_of(x))
    kept = tuple(node.shape[n] for n in rest)
    if adjacent and places[0] > 0:  # values have the indices' dims where the first of theirs is
        before = places[0]
        values = node.expand(values, (*kept[:before], *shape, *kept[before:]))
        rank = len(shape)
        values = node.transpose(
            values, [*range(before, before + rank), *range(before), *range(before + rank, rank + len(kept))]
        )
    values = node.expand(values, (*shape, *kept))
    tuples = node.emit("stack", *[node.expand(node.cast(t, I64), shape) for t in tensors], axis=len(shape))
    y = node.emit("scatter_nd", node.transpose(x, order), tuples, values, reduction=how)
    return node.transpose(y, [order.index(n) for n in range(node.rank)])


REDUCTIONS = {None: "none", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def scatter(node: AtenNode) -> Result:
    """Write elements along an axis, or add them; a source larger than the indices is read as far as they reach."""
    x, indices = node.x, _indices(node, node["index"])
    how = "add" if "scatter_add" in node.op_type else REDUCTIONS.get(node.get("reduce"))
    if how is None or node.get("include_self") is False:
        raise node.refuse(
            f"reduce {node.get('reduce')!r}, include_self {node.get('include_self')}", "sum, prod, amax, amin"
        )
    if dtype_of(x) is BOOL and how != "none":
        raise node.refuse("sums of truths", "numbers")
    if not math.prod(shape_of(indices)):
        return x
    source: Any = node.get("src", node.get("value"))
    if (is_operand(source) and shape_of(source) != ()) or not shape_of(indices):
        source = node.operand(source, dtype_of(x))
        if shape_of(source) != shape_of(indices):
            source = node.emit("slice", source, starts=(0,) * len(shape_of(indices)), ends=shape_of(indices))
    else:
        source = node.expand(node.operand(source, dtype_of(x)), shape_of(indices))
    if not node.rank:
        parts = [node.reshape(t, (1,)) for t in (x, indices, source)]
        return node.reshape(node.emit("scatter_elements", *parts, reduction=how), ())
    return node.emit("scatter_elements", x, indices, source, axis=node.axis(node["dim"]), reduction=how)


def index_add(node: AtenNode) -> Result:
    """Add parts of an axis at indices."""
    x, indices = node.x, _indices(node, node["index"])
    indices = indices if shape_of(indices) else node.reshape(indices, (1,))
    if dtype_of(x).kind != "f" or not node.rank:
        raise node.refuse(f"{dtype_of(x)} of rank {node.rank}", "floats of rank 1 or more")
    return node.emit(
        "index_add", x, indices, node["source"], axis=node.axis(node["dim"]), alpha=float(node.get("alpha", 1))
    )


def masked_scatter(node: AtenNode) -> Result:
    """Write the elements of a source one after the other where a mask is true."""
    x, count = node.x, math.prod(node.shape)
    mask = node.reshape(node.expand(node.cast(node["mask"], BOOL), node.shape), (count,))
    source = node["source"]
    size = math.prod(shape_of(source))
    if not count or not size:
        return x
    running = node.emit("cumsum", node.cast(mask, I64), axis=0)
    place = node.emit("clip", node.emit("sub", running, node.full((), 1, I64)), min=0.0, max=float(size - 1))
    taken = node.emit("gather", node.reshape(source, (size,)), place, axis=0)
    return node.reshape(node.emit("where", mask, taken, node.reshape(x, (count,))), node.shape)


def bucketize(node: AtenNode) -> Result:
    """Return how many bounds are below each number: a comparison with each of them."""
    x, bounds = node["self"], node.get("boundaries", node.get("sorted_sequence"))
    if not is_operand(x) or len(shape_of(bounds)) != 1 or node.get("sorter") is not None:
        raise node.refuse("a number, bounds for each row, or an order", "a tensor and one row of bounds")
    wide = node.reshape(x, (*shape_of(x), 1))
    kind = "greater_equal" if node.get("right") or node.get("side") == "right" else "greater"
    below = node.emit(kind, wide, node.cast(bounds, dtype_of(x)))
    return node.cast(node.emit("reduce_sum", node.cast(below, I64), axes=(len(shape_of(x)),)), node.wanted)


NODES: dict[str, Handler] = {
    "_unsafe_index": index,
    "_unsafe_index_put": index_put,
    "bucketize": bucketize,
    "embedding": embedding,
    "gather": gather,
    "index": index,
    "index_add": index_add,
    "index_put": index_put,
    "index_select": index_select,
    "masked_scatter": masked_scatter,
    "searchsorted": bucketize,
    "scatter": scatter,
    "scatter_add": scatter,
    "scatter_reduce": scatter,
}
