"""Nodes that move elements: shapes, slices, pads, joins and splits."""

from __future__ import annotations

import math

import numpy as np

from ..importing.movement import slice_axes
from ..status import InvalidArgument
from .node import Handler, Node, Output
from .nodes_reductions import axes_of


def reshape(node: Node) -> Output:
    """Reshape: 0 copies a dim unless `allowzero`, one -1 is inferred."""
    dims = list(node.attrs["shape"]) if "shape" in node.attrs else node.ints(1)
    if not node.attrs.get("allowzero", 0):
        if len(dims) > node.rank and 0 in dims[node.rank :]:
            raise InvalidArgument(node.op_type, f"shape {dims} of {list(node.shape())}", allowed="a dim for each 0")
        dims = [node.shape()[n] if d == 0 else d for n, d in enumerate(dims)]
    if -1 in dims:
        known = math.prod(d for d in dims if d != -1)
        total = math.prod(node.shape())
        if dims.count(-1) > 1 or ((known == 0 or total % known) and not (known == 0 and total == 0)):
            raise InvalidArgument(node.op_type, f"shape {dims} of {list(node.shape())}", allowed="as many elements")
        dims[dims.index(-1)] = total // known if known else 0
    return node.reshape(node.x(), dims)


def flatten(node: Node) -> Output:
    """Make a matrix: the axes before `axis`, and the others."""
    axis, shape = int(node.attrs["axis"]), node.shape()
    if not -node.rank <= axis <= node.rank:
        raise InvalidArgument(node.op_type, f"axis {axis}", allowed=f"{-node.rank} to {node.rank}")
    axis += node.rank if axis < 0 else 0
    return node.reshape(node.x(), (math.prod(shape[:axis]), math.prod(shape[axis:])))


def transpose(node: Node) -> Output:
    """Transpose; without `perm` in reverse."""
    return node.transpose(node.x(), node.attrs.get("perm") or range(node.rank)[::-1])


def squeeze(node: Node) -> Output:
    """Remove axes of one element: those given, or all."""
    shape, axes = node.shape(), axes_of(node)
    if axes is None:
        axes = tuple(n for n, d in enumerate(shape) if d == 1)
    if any(shape[a] != 1 for a in axes):
        raise InvalidArgument(node.op_type, f"axes {axes} of {list(shape)}", allowed="axes of one element")
    return node.reshape(node.x(), [d for n, d in enumerate(shape) if n not in axes])


def unsqueeze(node: Node) -> Output:
    """Add axes of one element at places of the result."""
    given = node.attrs.get("axes")
    places = list(node.ints(1) if given is None else given)
    rank = node.rank + len(places)
    axes = {node.axis(a, rank) for a in places}
    if len(axes) != len(places):
        raise InvalidArgument(node.op_type, f"axes {places}", allowed="each once")
    old = iter(node.shape())
    return node.reshape(node.x(), [1 if n in axes else next(old) for n in range(rank)])


def expand(node: Node) -> Output:
    """Broadcast in both directions."""
    return node.expand(node.x(), np.broadcast_shapes(node.shape(), tuple(node.ints(1))))


def tile(node: Node) -> Output:
    """Repeat along axes; before version 6 along one, which is an input."""
    if node.version < 6:
        repeats = [1] * node.rank
        repeats[node.axis(node.number(2))] = int(node.number(1))
        return node.emit("tile", node.x(), repeats=tuple(repeats))
    return node.emit("tile", node.x(), repeats=tuple(node.ints(1)))


def concat(node: Node) -> Output:
    """Join along an axis."""
    return node.emit("concat", *node.tensors, axis=node.axis(node.attrs.get("axis", 1)))


def slice_(node: Node) -> Output:
    """Take parts of axes by start, end and step, which may be negative."""
    if "starts" in node.attrs:
        starts, ends = list(node.attrs["starts"]), list(node.attrs["ends"])
        axes, steps = list(node.attrs.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = node.ints(1), node.ints(2)
        axes = node.ints(3) if node.has(3) else list(range(len(starts)))
        steps = node.ints(4) if node.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise InvalidArgument(node.op_type, f"starts {starts}, ends {ends}, axes {axes}, steps {steps}")
    axes = [node.axis(a) for a in axes]
    # A backward slice that starts before the first element starts at it; in Python it would be empty
    starts = [
        -d if s < 0 and b < -d else b for b, s, d in zip(starts, steps, (node.shape()[a] for a in axes), strict=True)
    ]
    return slice_axes(node, node.x(), axes, list(zip(starts, ends, steps, strict=True)))


def split(node: Node) -> list[Output]:
    """Cut into parts along an axis: of sizes given, or equal ones, of which the last may be smaller."""
    axis = node.axis(node.attrs.get("axis", 0))
    dim, count = node.shape()[axis], len(node.wanted)
    if node.attrs.get("num_outputs", count) != count:
        raise InvalidArgument(node.op_type, f"num_outputs {node.attrs['num_outputs']}", allowed=f"{count}")
    sizes = node.attrs.get("split")
    if sizes is None and node.has(1):
        sizes = node.ints(1)
    if sizes is None:
        size = -(-dim // count) if "num_outputs" in node.attrs else dim // count
        sizes = [min(size, max(0, dim - n * size)) for n in range(count)]
    if sum(sizes) != dim or min(sizes, default=0) < 0:
        raise InvalidArgument(node.op_type, f"sizes {list(sizes)}", allowed=f"sizes of {dim} in all")
    found: list[Output] = []
    start = 0
    for size in sizes:
        found.append(node.emit("slice", node.x(), starts=(start,), ends=(start + size,), axes=(axis,)))
        start += size
    return found


def pad(node: Node) -> Output:
    """Pad axes; negative numbers cut."""
    mode, x, rank = node.attrs["mode"], node.x(), node.rank
    told = node.attrs.get("paddings" if node.version < 2 else "pads")
    pads = node.ints(1) if told is None else list(told)
    value = node.attrs.get("value", 0.0) if told is not None else node.number(2) if node.has(2) else 0
    axes = [node.axis(a) for a in node.ints(3)] if node.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        raise InvalidArgument(node.op_type, f"{len(pads)} pads", allowed=f"{2 * len(axes)}")
    low, high = [0] * rank, [0] * rank
    for n, axis in enumerate(axes):
        low[axis], high[axis] = pads[n], pads[n + len(axes)]
    if min(pads, default=0) < 0:
        cuts = [(max(0, -a), d - max(0, -b), 1) for a, b, d in zip(low, high, node.shape(), strict=True)]
        x = slice_axes(node, x, list(range(rank)), cuts)
        low, high = [max(0, p) for p in low], [max(0, p) for p in high]
    kinds = {"constant": "pad", "reflect": "pad_reflect", "edge": "pad_replicate", "wrap": "pad_circular"}
    if mode not in kinds:
        raise node.refuse(f"mode {mode!r}", ", ".join(kinds))
    if mode == "wrap" and any(p > d for p, d in zip((*low, *high), (*node.shape(), *node.shape()), strict=True)):
        for axis, (a, b, d) in enumerate(zip(low, high, node.shape(), strict=True)):  # it goes round more than once
            if (a or b) and d:
                x = node.emit("gather", x, np.arange(-a, d + b, dtype=np.int64) % d, axis=axis)
        return x
    more = {"value": value} if mode == "constant" else {}
    return node.emit(kinds[mode], x, low=tuple(low), high=tuple(high), **more)


def center_crop_pad(node: Node) -> Output:
    """Cut or pad axes on both sides."""
    shape = list(node.shape())
    axes = [node.axis(a) for a in node.attrs.get("axes", range(node.rank))]
    for axis, dim in zip(axes, node.ints(1), strict=True):
        shape[axis] = dim
    return node.emit("center_crop_pad", node.x(), shape=tuple(shape))


def reverse_sequence(node: Node) -> Output:
    """Reverse the first elements of each sequence; ours has the batch first."""
    if (node.attrs["batch_axis"], node.attrs["time_axis"]) == (1, 0):
        order = (1, 0, *range(2, node.rank))
        turned = node.emit("reverse_sequence", node.transpose(node.x(), order), node.x(1))
        return node.transpose(turned, order)
    return node.emit("reverse_sequence", node.x(), node.x(1))


def trilu(node: Node) -> Output:
    """Keep a triangle."""
    k = int(node.number(1)) if node.has(1) else 0
    return node.emit("triu" if node.attrs["upper"] else "tril", node.x(), k=k)


def depth_to_space(node: Node) -> Output:
    """Move channels to blocks of a plane, in either order."""
    block, mode = int(node.attrs["blocksize"]), node.attrs.get("mode", "DCR")
    return node.emit("depth_to_space", node.x(), block=block, mode=mode)


def space_to_depth(node: Node) -> Output:
    """Move blocks of a plane to channels, in either order."""
    block = int(node.attrs["blocksize"])
    if node.attrs.get("mode", "DCR") == "CRD":
        return node.emit("pixel_unshuffle", node.x(), block=block)
    return node.emit("space_to_depth", node.x(), block=block)


NODES: dict[str, Handler] = {
    "CenterCropPad": center_crop_pad,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Flatten": flatten,
    "Pad": pad,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
