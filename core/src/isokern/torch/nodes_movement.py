"""Operators that move elements: shapes, slices, joins, splits and pads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import I64
from ..graph.ir import Value
from ..importing.movement import slice_axes
from ..status import InvalidArgument
from .node import AtenNode, Handler, Operand, Result, dtype_of, is_operand, shape_of


def view(node: AtenNode) -> Result:
    """Return the elements in other dims, or the bits in another type."""
    size = node.resolve(node.get("size", node.get("shape")), math.prod(node.shape))
    layer = _linear_of_rows(node, size)
    return node.reshape(node.x, size) if layer is None else layer


def _linear_of_rows(node: AtenNode, size: Sequence[int]) -> Operand | None:
    """Return a linear layer of a tensor itself where PyTorch makes a matrix of its rows first, and None elsewhere.

    Then what is applied to the result is next to the layer, and can be fused with it.
    """
    made = node.x.producer if isinstance(node.x, Value) else None
    rows = made.inputs[0] if made is not None and made.kind == "linear" and node.sole else None
    before = rows.producer if rows is not None else None
    x = before.inputs[0] if before is not None and before.kind == "reshape" else None
    if made is None or rows is None or x is None or x.spec.shape != (*size[:-1], rows.spec.shape[-1]):
        return None
    return node.emit("linear", x, *made.inputs[1:])


def permute(node: AtenNode) -> Result:
    """Return the axes in another order."""
    return node.transpose(node.x, [node.axis(d) for d in node["dims"]]) if node.rank else node.x


def exchange(node: AtenNode) -> Result:
    """Exchange two axes."""
    order = list(range(node.rank))
    if order:
        a, b = (node.axis(node.get(n, d)) for n, d in (("dim0", 0), ("dim1", -1)))
        order[a], order[b] = order[b], order[a]
    return node.transpose(node.x, order)


def unsqueeze(node: AtenNode) -> Result:
    """Add an axis of one element."""
    at = node.axis(node["dim"], node.rank + 1)
    return node.reshape(node.x, (*node.shape[:at], 1, *node.shape[at:]))


def squeeze(node: AtenNode) -> Result:
    """Remove axes of one element: those given, or all."""
    given = node.get("dim")
    axes = range(node.rank) if given is None else node.axes() if given != [] else ()
    gone = {a for a in axes if node.rank and node.shape[a] == 1}
    return node.reshape(node.x, [d for n, d in enumerate(node.shape) if n not in gone])


def expand(node: AtenNode) -> Result:
    """Broadcast; -1 keeps a dim."""
    size = [int(v) for v in node["size"]]
    for i in range(1, node.rank + 1):
        size[-i] = node.shape[-i] if size[-i] == -1 else size[-i]
    return node.expand(node.x, size)


def repeat(node: AtenNode) -> Result:
    """Repeat along axes, of which there may be more than the tensor has."""
    times = node.ints("repeats" if "repeats" in node.args else "dims")
    rank = max(len(times), node.rank)
    x = node.reshape(node.x, (*[1] * (rank - node.rank), *node.shape))
    return node.emit("tile", x, repeats=(*[1] * (rank - len(times)), *times))


def slice_(node: AtenNode) -> Result:
    """Take a part of an axis, as Python's slices do; a step is positive."""
    axis = node.axis(node.get("dim", 0))
    return _part(node, node.x, axis, node.get("start"), node.get("end"), node.get("step", 1))


def _part(node: AtenNode, x: Operand, axis: int, start: int | None, end: int | None, step: int = 1) -> Operand:
    places = slice(start, end, step).indices(shape_of(x)[axis])
    if places == (0, shape_of(x)[axis], 1):
        return x
    return slice_axes(node, x, [axis], [places])


def narrow(node: AtenNode) -> Result:
    """Take a part of an axis by its start and length."""
    axis, start = node.axis(node["dim"]), int(node["start"])
    start += node.shape[axis] if start < 0 else 0
    return _part(node, node.x, axis, start, start + int(node["length"]))


def pick(node: AtenNode, x: Operand, axis: int, index: int) -> Operand:
    """Return the part of an axis at an index, without the axis."""
    shape = shape_of(x)
    if not -shape[axis] <= index < shape[axis]:
        raise InvalidArgument(node.op_type, f"index {index}", allowed=f"{-shape[axis]} to {shape[axis] - 1}")
    index %= shape[axis]
    return node.reshape(_part(node, x, axis, index, index + 1), (*shape[:axis], *shape[axis + 1 :]))


def select(node: AtenNode) -> Result:
    """Take one part of an axis."""
    return pick(node, node.x, node.axis(node["dim"]), int(node["index"]))


def unbind(node: AtenNode) -> Result:
    """Take every part of an axis."""
    axis = node.axis(node.get("dim", 0))
    return [pick(node, node.x, axis, n) for n in range(node.shape[axis])]


def _cut(node: AtenNode, sizes: Sequence[int]) -> list[Operand | None]:
    axis, found, start = node.axis(node.get("dim", 0)), [], 0
    for size in sizes:
        found.append(_part(node, node.x, axis, start, start + size))
        start += size
    return list(found)


def split(node: AtenNode) -> Result:
    """Cut an axis into parts of one size, of which the last may be smaller."""
    size, dim = int(node["split_size"]), node.shape[node.axis(node.get("dim", 0))]
    return _cut(node, [min(size, dim - n) for n in range(0, dim, size)] if size and dim else [dim])


def split_with_sizes(node: AtenNode) -> Result:
    """Cut an axis into parts of sizes that are given."""
    return _cut(node, node.ints("split_sizes"))


def chunk(node: AtenNode) -> Result:
    """Cut an axis into a number of parts, or fewer."""
    dim = node.shape[node.axis(node.get("dim", 0))]
    size = max(1, -(-dim // int(node["chunks"])))
    return _cut(node, [min(size, dim - n) for n in range(0, max(dim, 1), size)])


def cat(node: AtenNode) -> Result:
    """Join along an axis; vectors of nothing are left out, whatever the other shapes are."""
    given = [node.cast(t, node.wanted) for t in node["tensors"]]
    kept = [t for t in given if shape_of(t) != (0,)] or given[:1]
    axis = node.axis(node.get("dim", 0), len(shape_of(kept[0])))
    return kept[0] if len(kept) == 1 else node.emit("concat", *kept, axis=axis)


def stack(node: AtenNode) -> Result:
    """Join along a new axis."""
    given = [node.cast(t, node.wanted) for t in node["tensors"]]
    return node.emit("stack", *given, axis=node.axis(node.get("dim", 0), len(shape_of(given[0])) + 1))


def flip(node: AtenNode) -> Result:
    """Reverse axes."""
    axes = tuple(node.axis(d) for d in node["dims"])
    return node.emit("flip", node.x, axes=axes) if axes and node.rank else node.x


def roll(node: AtenNode) -> Result:
    """Rotate along axes, or the flat tensor."""
    shifts, dims = node.ints("shifts"), tuple(node.get("dims") or ())
    if not dims:
        flat = node.emit("roll", node.reshape(node.x, (math.prod(node.shape),)), shifts=shifts, axes=(0,))
        return node.reshape(flat, node.shape)
    return node.lift("roll", node.x, shifts=shifts, axes=tuple(node.axis(d) for d in dims))[0]


def pad_constant(node: AtenNode) -> Result:
    """Pad with a value; negative widths cut."""
    low, high = _widths(node, node.ints("pad"))
    value = node.number(node.get("value", 0))
    if value is None:
        raise node.refuse("a value that is a tensor", "a number")
    return _pad(node, low, high, "pad", value=float(value))


def _widths(node: AtenNode, given: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the widths before and behind each axis; PyTorch's begin with the last axis."""
    low, high = [0] * node.rank, [0] * node.rank
    for n in range(len(given) // 2):
        low[node.rank - 1 - n], high[node.rank - 1 - n] = given[2 * n], given[2 * n + 1]
    return low, high


def _pad(node: AtenNode, low: Sequence[int], high: Sequence[int], kind: str, **attrs: Any) -> Result:
    y: Operand = node.x
    if min((*low, *high), default=0) < 0 and kind == "pad":  # what is cut may be of any size
        parts = [(max(0, -a), d - max(0, -b), 1) for a, b, d in zip(low, high, node.shape, strict=True)]
        y = slice_axes(node, y, list(range(node.rank)), parts)
    elif min((*low, *high), default=0) < 0:
        raise node.refuse(f"pads {list(low)} and {list(high)}", "none below 0")
    if not any(v > 0 for v in (*low, *high)):
        return y
    return node.emit(kind, y, low=tuple(max(0, v) for v in low), high=tuple(max(0, v) for v in high), **attrs)


def pad_by(kind: str) -> Handler:
    """Return the handler of a pad that repeats elements."""
    return lambda node: _pad(node, *_widths(node, node.ints("padding" if "padding" in node.args else "pad")), kind)


def pad_mode(node: AtenNode) -> Result:
    """Pad by a mode that is named."""
    mode = node.get("mode", "constant")
    if mode == "constant":
        low, high = _widths(node, node.ints("pad"))
        return _pad(node, low, high, "pad", value=float(node.get("value") or 0))
    return pad_by({"reflect": "pad_reflect", "replicate": "pad_replicate", "circular": "pad_circular"}[mode])(node)


def triangle(kind: str) -> Handler:
    """Return the handler of tril or triu."""
    return lambda node: node.emit(kind, node.x, k=int(node.get("diagonal", 0)))


def diagonal(node: AtenNode) -> Result:
    """Return a diagonal of two axes as the last axis."""
    a, b = node.axis(node.get("dim1", 0)), node.axis(node.get("dim2", 1))
    order = [*(n for n in range(node.rank) if n not in (a, b)), a, b]
    return node.emit("diagonal", node.transpose(node.x, order), offset=int(node.get("offset", 0)))


def unfold(node: AtenNode) -> Result:
    """Return windows along an axis as a further, last axis."""
    axis = node.axis(node["dimension"])
    if not node.rank:
        return node.reshape(node.x, (int(node["size"]),))
    return node.emit("unfold", node.x, axis=axis, size=int(node["size"]), step=int(node["step"]))


def shuffle(kind: str, name: str) -> Handler:
    """Return the handler of pixel_shuffle or pixel_unshuffle, with any number of dims in front of an image's three."""

    def handle(node: AtenNode) -> Result:
        lead, last = node.shape[:-3], node.shape[-3:]
        y = node.emit(kind, node.reshape(node.x, (math.prod(lead), *last)), block=int(node[name]))
        return node.reshape(y, (*lead, *shape_of(y)[1:]))

    return handle


def as_strided(node: AtenNode) -> Result:
    """Return a view by strides, of a tensor that is contiguous: the elements that these name."""
    size, stride = node.ints("size"), node.ints("stride")
    offset = int(node.get("storage_offset") or 0)
    x, count = node.x, math.prod(node.shape)
    if not node.plain:
        raise node.refuse("a view by strides of a part", "a whole tensor")
    places = np.full(size, offset, np.int64)
    for n, (d, s) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(d) * s).reshape([-1 if m == n else 1 for m in range(len(size))])
    if places.size and places.max() >= count:
        raise node.refuse("a view by strides that leaves the tensor", "places within it")
    if np.array_equal(places.reshape(-1), np.arange(count)):
        return node.reshape(x, size)
    return node.emit("gather", node.reshape(x, (count,)), places, axis=0)


def select_scatter(node: AtenNode) -> Result:
    """Write one part of an axis."""
    axis = node.axis(node["dim"])
    index = int(node["index"]) % node.shape[axis]
    src = node.reshape(node.cast(node["src"], dtype_of(node.x)), (*node.shape[:axis], 1, *node.shape[axis + 1 :]))
    return _join(node, axis, index, index + 1, src)


def slice_scatter(node: AtenNode) -> Result:
    """Write a part of an axis; by steps, at each of its places."""
    axis = node.axis(node.get("dim", 0))
    start, end, step = slice(node.get("start"), node.get("end"), node.get("step", 1)).indices(node.shape[axis])
    src = node.cast(node["src"], dtype_of(node.x))
    if step == 1:
        src = node.expand(src, (*node.shape[:axis], max(0, end - start), *node.shape[axis + 1 :]))
        return _join(node, axis, start, max(start, end), src)
    places = np.arange(start, end, step, dtype=np.int64)
    src = node.expand(src, (*node.shape[:axis], len(places), *node.shape[axis + 1 :]))
    return node.emit("scatter", node.x, places, src, axis=axis) if len(places) else node.x


def _join(node: AtenNode, axis: int, start: int, end: int, src: Operand) -> Operand:
    """Return a tensor with a part of an axis replaced."""
    parts = [_part(node, node.x, axis, 0, start), src, _part(node, node.x, axis, end, None)]
    kept = [p for p in parts if shape_of(p)[axis]]
    if not kept:
        return node.x
    return kept[0] if len(kept) == 1 else node.emit("concat", *kept, axis=axis)


def repeat_interleave(node: AtenNode) -> Result:
    """Repeat each part of an axis a number of times."""
    times = node["repeats"]
    if is_operand(times):
        raise node.refuse("a number of times for each part", "one number")
    if node.get("dim") is None:
        return node.emit(
            "repeat_interleave", node.reshape(node.x, (math.prod(node.shape),)), repeats=int(times), axis=0
        )
    return node.lift("repeat_interleave", node.x, repeats=int(times), axis=node.axis(node["dim"]))[0]


def diag_embed(node: AtenNode) -> Result:
    """Return matrices with a diagonal that is given."""
    rank = node.rank + 1
    a, b = node.axis(node.get("dim1", -2), rank), node.axis(node.get("dim2", -1), rank)
    y = node.emit("diag_embed", node.x, offset=int(node.get("offset", 0)))
    rest = iter(range(rank - 2))
    return node.transpose(y, [rank - 2 if n == a else rank - 1 if n == b else next(rest) for n in range(rank)])


def one_hot(node: AtenNode) -> Result:
    """Mark the place that each index names."""
    if int(node["num_classes"]) < 0:
        raise node.refuse("as many classes as the indices say", "a number")
    return node.emit("one_hot", node.x, depth=int(node["num_classes"]), to=I64)


NODES: dict[str, Handler] = {
    "_reshape_alias": view,
    "_unsafe_view": view,
    "as_strided": as_strided,
    "cat": cat,
    "channel_shuffle": lambda node: node.emit("channel_shuffle", node.x, groups=int(node["groups"])),
    "chunk": chunk,
    "constant_pad_nd": pad_constant,
    "diag_embed": diag_embed,
    "diagonal": diagonal,
    "expand": expand,
    "flip": flip,
    "narrow": narrow,
    "one_hot": one_hot,
    "narrow_copy": narrow,
    "pad": pad_mode,
    "permute": permute,
    "permute_copy": permute,
    "pixel_shuffle": shuffle("pixel_shuffle", "upscale_factor"),
    "pixel_unshuffle": shuffle("pixel_unshuffle", "downscale_factor"),
    "reflection_pad1d": pad_by("pad_reflect"),
    "reflection_pad2d": pad_by("pad_reflect"),
    "reflection_pad3d": pad_by("pad_reflect"),
    "repeat": repeat,
    "repeat_interleave": repeat_interleave,
    "replication_pad1d": pad_by("pad_replicate"),
    "replication_pad2d": pad_by("pad_replicate"),
    "replication_pad3d": pad_by("pad_replicate"),
    "reshape": view,
    "roll": roll,
    "select": select,
    "select_scatter": select_scatter,
    "slice": slice_,
    "slice_scatter": slice_scatter,
    "split": split,
    "split_with_sizes": split_with_sizes,
    "squeeze": squeeze,
    "stack": stack,
    "t": exchange,
    "tile": repeat,
    "transpose": exchange,
    "tril": triangle("tril"),
    "triu": triangle("triu"),
    "unbind": unbind,
    "unbind_copy": unbind,
    "unfold": unfold,
    "unsqueeze": unsqueeze,
    "view": view,
    "view_copy": view,
}
