"""Operators that pool windows of a plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..importing.windows import Window, pool
from .node import AtenNode, Handler, Operand, Result, dtype_of, is_float, shape_of


def _window(node: AtenNode, rank: int) -> Window:
    kernel = node.ints("kernel_size", rank)
    stride = node.ints("stride", rank) if node.get("stride") else kernel
    dilation = node.ints("dilation", rank) if "dilation" in node.args else (1,) * rank
    pads = node.ints("padding", rank) if "padding" in node.args else (0,) * rank
    return Window(kernel, stride, dilation, pads, pads)


def _planes(node: AtenNode, rank: int) -> tuple[Operand, bool]:
    """Return planes with a batch and channels, and whether they had no batch."""
    if not is_float(node.x):
        raise node.refuse(f"planes of {dtype_of(node.x)}", "floats")
    single = node.rank == rank + 1
    return (node.reshape(node.x, (1, *node.shape)), True) if single else (node.x, False)


def behind(dims: Sequence[int], window: Window) -> tuple[int, ...]:
    """Return how many elements behind the end rounding up reads in each dim."""
    found = []
    for size, reach, s, low, high in zip(dims, window.reach, window.stride, window.low, window.high, strict=True):
        room = size + low + high - reach
        count = -(-room // s)
        if count * s >= size + low:  # a window that begins behind the elements is none
            count -= 1
        found.append(max(0, count * s - room))
    return tuple(found)


def _drop_batch(node: AtenNode, ys: Sequence[Operand], single: bool) -> list[Operand]:
    return [node.reshape(y, shape_of(y)[1:]) if single else y for y in ys]


def max_pool(rank: int) -> Handler:
    """Return the handler of max_pool{rank}d, or of the one with places in two dims."""

    def handle(node: AtenNode) -> Result:
        x, single = _planes(node, rank)
        window = _window(node, rank)
        if node.get("ceil_mode"):
            more = behind(shape_of(x)[2:], window)
            high = tuple(h + m for h, m in zip(window.high, more, strict=True))
            window = Window(window.kernel, window.stride, window.dilation, window.low, high)
        if any(p >= r for p, r in zip(window.high, window.reach, strict=True)):
            raise node.refuse(f"pads {list(window.high)} of windows {list(window.reach)}", "smaller ones")
        if "indices" not in node.op_type:
            return _drop_batch(node, [pool(node, "max_pool", x, window, False, {})], single)[0]
        if rank != 2:
            return [*_drop_batch(node, [pool(node, "max_pool", x, window, False, {})], single), None]
        how = {"kernel": window.kernel, "stride": window.stride, "padding": window.padding, "dilation": window.dilation}
        if not node.reads(1):
            return [*_drop_batch(node, [node.emit("max_pool2d", x, **how)], single), None]
        return list(_drop_batch(node, node.emit_all("max_pool2d_with_indices", x, **how), single))

    return handle


def avg_pool(rank: int) -> Handler:
    """Return the handler of avg_pool{rank}d, in which pads count unless told otherwise."""

    def handle(node: AtenNode) -> Result:
        x, single = _planes(node, rank)
        window, count = _window(node, rank), bool(node.get("count_include_pad", True))
        ceil, divisor = bool(node.get("ceil_mode")), node.get("divisor_override")
        more = behind(shape_of(x)[2:], window) if ceil else (0,) * rank
        if not any(more):
            ceil = False
        if divisor is not None and (ceil and any(window.low)):
            raise node.refuse("a divisor of windows that pass the pads", "none, or no pads")
        if ceil and count and any(window.low):
            y = _with_zeros(node, x, window, more)
        else:
            how: dict[str, Any] = {"count_include_pad": True if divisor is not None else count and not ceil}
            if divisor is not None and ceil:
                raise node.refuse("a divisor of windows that pass the end", "none")
            y = pool(node, "avg_pool", x, window, ceil, how)
        if divisor is not None:
            y = node.emit("scale", y, value=math.prod(window.kernel) / float(divisor))
        return _drop_batch(node, [y], single)[0]

    return handle


def _with_zeros(node: AtenNode, x: Operand, window: Window, more: tuple[int, ...]) -> Operand:
    """Return averages that count the pads and leave out what is behind them: of a plane with the pads written out."""
    lead = (0, 0)
    padded = node.emit("pad", x, low=(*lead, *window.low), high=(*lead, *window.high))
    zero = (0,) * len(more)
    plain = Window(window.kernel, window.stride, window.dilation, zero, more)
    return pool(node, "avg_pool", padded, plain, False, {"count_include_pad": False})


def adaptive(kind: str, rank: int, pair: bool = False) -> Handler:
    """Return the handler of a pooling to a number of bins."""

    def handle(node: AtenNode) -> Result:
        x, single = _planes(node, rank)
        given = node["output_size"]
        given = [given] * rank if isinstance(given, int) else list(given)
        sizes = tuple(
            n if o is None else int(o) for o, n in zip(given * (rank // len(given)), shape_of(x)[2:], strict=True)
        )
        if 0 in sizes:
            raise node.refuse("no bins", "1 or more")
        y = _drop_batch(node, [node.emit(kind, x, output_size=sizes)], single)[0]
        if pair and node.reads(1):
            raise node.refuse("places of maxima", "the maxima alone")
        return [y, None] if pair else y

    return handle


NODES: dict[str, Handler] = {
    "_adaptive_avg_pool2d": adaptive("adaptive_avg_pool2d", 2),
    "_adaptive_avg_pool3d": adaptive("adaptive_avg_pool3d", 3),
    "adaptive_avg_pool1d": adaptive("adaptive_avg_pool1d", 1),
    "adaptive_avg_pool2d": adaptive("adaptive_avg_pool2d", 2),
    "adaptive_max_pool2d": adaptive("adaptive_max_pool2d", 2, pair=True),
    "adaptive_max_pool3d": adaptive("adaptive_max_pool3d", 3, pair=True),
    "avg_pool1d": avg_pool(1),
    "avg_pool2d": avg_pool(2),
    "avg_pool3d": avg_pool(3),
    "max_pool1d": max_pool(1),
    "max_pool2d": max_pool(2),
    "max_pool2d_with_indices": max_pool(2),
    "max_pool3d": max_pool(3),
    "max_pool3d_with_indices": max_pool(3),
}
