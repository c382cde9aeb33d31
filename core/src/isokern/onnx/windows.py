"""The geometry of windows that slide over planes: strides, dilations, and pads that nodes give or imply."""

from __future__ import annotations

from ..importing.windows import Window
from ..status import InvalidArgument
from .node import Node


def window_of(node: Node, dims: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """Return the window of a node over a plane of those dims."""
    rank = len(dims)
    stride = _each(node, "strides", rank, 1)
    dilation = _each(node, "dilations", rank, 1)
    pads = _each(node, "pads", 2 * rank, 0)
    if (said := list(node.attrs.get("kernel_shape") or kernel)) != list(kernel):
        raise InvalidArgument(node.op_type, f"kernel_shape {said}", allowed=f"{list(kernel)}, as the weights have it")
    auto = node.attrs.get("auto_pad", "NOTSET")
    if len(kernel) != rank or min((*kernel, *stride, *dilation), default=1) < 1:
        given = f"kernel {list(kernel)}, strides {list(stride)}, dilations {list(dilation)}"
        raise InvalidArgument(node.op_type, given, allowed=f"{rank} numbers from 1")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        low, high = [], []
        for d, k, s, e in zip(dims, kernel, stride, dilation, strict=True):
            total = max((-(-d // s) - 1) * s + (k - 1) * e + 1 - d, 0)
            less, more = total // 2, total - total // 2
            low.append(less if auto == "SAME_UPPER" else more)
            high.append(more if auto == "SAME_UPPER" else less)
        return Window(kernel, stride, dilation, tuple(low), tuple(high))
    if auto == "VALID":
        pads = (0,) * 2 * rank
    return Window(kernel, stride, dilation, pads[:rank], pads[rank:])


def _each(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    found = tuple(node.attrs.get(name) or (default,) * count)
    if len(found) != count:
        raise InvalidArgument(node.op_type, f"{name} {list(found)}", allowed=f"{count} numbers")
    return found
