"""Nodes that pool windows of a plane, and their inverses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..dtypes import F32, I64
from ..importing.windows import Window, pool as emit_pool, widen
from .node import Handler, Node, Operand, Output, dtype_of, is_float, row, shape_of
from .windows import window_of

MAX_PLACES = 1 << 10  # of a block that Col2Im adds, of whose square a constant is


def pool(kind: str) -> Handler:
    """Return the handler of AveragePool, LpPool or MaxPool without indices."""

    def handle(node: Node) -> Output | tuple[Output, ...]:
        if kind == "max_pool" and len(node.wanted) > 1 and node.wanted[1]:
            return max_pool_with_indices(node)
        window = window_of(node, node.shape()[2:], tuple(node.attrs["kernel_shape"]))
        more: dict[str, object] = {}
        if kind == "avg_pool":
            more["count_include_pad"] = bool(node.attrs.get("count_include_pad", 0))
        elif kind == "lp_pool":
            more["p"] = int(node.attrs["p"])
        ceil = bool(node.attrs.get("ceil_mode", 0)) and node.attrs["auto_pad"] == "NOTSET"
        x = node.x()
        if is_float(x):
            return emit_pool(node, kind, x, window, ceil, more)
        return node.cast(emit_pool(node, kind, node.cast(x, F32), window, ceil, more), dtype_of(x))  # of 8 bits: exact

    return handle


def max_pool_with_indices(node: Node) -> tuple[Output, ...]:
    """Return maxima, and where in the whole input they are; ours counts in each plane alone."""
    window = window_of(node, node.shape()[2:], tuple(node.attrs["kernel_shape"]))
    if len(window.kernel) > 2:
        raise node.refuse(f"indices in {len(window.kernel)} dims", "1 or 2")
    if node.attrs.get("ceil_mode", 0) and node.attrs["auto_pad"] == "NOTSET":
        window = _round_up(window, node.shape()[2:])
    x, rest = node.x(), 2 - len(window.kernel)
    wide = window.widen(rest)
    plane = widen(node, x, rest)
    n, c, h, w = shape_of(plane)
    floats = plane if is_float(plane) else node.cast(plane, F32)
    y, at = node.emit_all(
        "max_pool2d_with_indices",
        floats,
        kernel=wide.kernel,
        stride=wide.stride,
        padding=wide.padding,
        dilation=wide.dilation,
    )
    if node.attrs.get("storage_order", 0):  # columns first
        width = node.full((), w, I64)
        line = node.emit("trunc_divide", at, width)
        column = node.emit("remainder", at, width)
        at = node.emit("add", node.emit("mul", column, node.full((), h, I64)), line)
    planes = node.reshape(node.emit("iota", shape=(n * c,), step=h * w, to=I64), (n, c, 1, 1))
    at = node.emit("add", at, planes)
    dims = shape_of(y)[:2] + shape_of(y)[2 + rest :]
    return node.reshape(node.cast(y, dtype_of(x)), dims), node.reshape(at, dims)


def global_lp_pool(node: Node) -> Output:
    """Take norms of whole planes."""
    return node.emit("global_lp_pool", node.x(), p=int(node.attrs["p"]))


def _round_up(window: Window, dims: tuple[int, ...]) -> Window:
    """Return the window with pads behind that let it come to the end; it never begins in them."""
    high = []
    for d, s, r, low, more in zip(dims, window.stride, window.reach, window.low, window.high, strict=True):
        count = -(-(d + low + more - r) // s) + 1
        count -= (count - 1) * s >= d + low
        high.append(max(more, (count - 1) * s + r - d - low))
    return replace(window, high=tuple(high))


def max_unpool(node: Node) -> Output:
    """Put elements where a pooling took them from: indices count in the whole output, ours in each plane alone."""
    x, at = node.x(), node.x(1)
    dims = node.shape()[2:]
    window = window_of(node, dims, tuple(node.attrs["kernel_shape"]))
    plain = [
        (d - 1) * s + k - a - b
        for d, s, k, a, b in zip(dims, window.stride, window.kernel, window.low, window.high, strict=True)
    ]
    size = node.ints(2)[2:] if node.has(2) else plain
    place = node.emit("remainder", at, node.full((), math.prod(plain), I64))
    y = node.emit("max_unpool", x, place, size=tuple(plain))
    if size == plain:
        return y
    kept = [min(a, b) for a, b in zip(size, plain, strict=True)]  # `output_shape` cuts, or adds zeros behind
    y = node.emit("slice", y, starts=(0,) * len(kept), ends=tuple(kept), axes=tuple(range(2, 2 + len(kept))))
    more = [a - b for a, b in zip(size, kept, strict=True)]
    return node.emit("pad", y, low=(0,) * node.rank, high=(0, 0, *more))


def col2im(node: Node) -> Output:
    """Add columns to an image; one that has no two dims is a transposed convolution with a kernel for each place."""
    size, kernel = node.ints(1), tuple(node.ints(2))
    window = window_of(node, tuple(size), kernel)
    if len(size) != 2:
        return _fold(node, size, window)
    return node.emit(
        "fold",
        node.x(),
        size=tuple(size),
        kernel=kernel,
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
    )


def _fold(node: Node, size: list[int], window: Window) -> Operand:
    """Return columns added to an image of one or three dims: each channel's places are a group."""
    rank, (n, rows, _columns) = len(size), node.shape()
    if rank not in (1, 3):
        raise node.refuse(f"images of {rank} dims", "1 to 3")
    room = [d + a + b - r for d, a, b, r in zip(size, window.low, window.high, window.reach, strict=True)]
    places = math.prod(window.kernel)
    if places > MAX_PLACES:
        raise node.refuse(f"blocks of {places} elements", f"up to {MAX_PLACES}")
    channels = rows // places
    x = node.reshape(node.x(), (n, rows, *(r // s + 1 for r, s in zip(room, window.stride, strict=True))))
    one = np.eye(places, dtype=np.float32).reshape(places, 1, *window.kernel)
    return node.emit(
        f"conv_transpose{rank}d",
        x,
        node.cast(np.tile(one, (channels, 1, *[1] * rank)), dtype_of(x)),
        stride=window.stride,
        padding=window.padding,
        output_padding=tuple(r % s for r, s in zip(room, window.stride, strict=True)),
        dilation=window.dilation,
        groups=channels,
    )


NODES: dict[str, Handler] = {
    "AveragePool": pool("avg_pool"),
    "Col2Im": col2im,
    "GlobalAveragePool": row("global_avg_pool"),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": row("global_max_pool"),
    "LpPool": pool("lp_pool"),
    "MaxPool": pool("max_pool"),
    "MaxUnpool": max_unpool,
}
