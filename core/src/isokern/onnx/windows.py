"""The geometry of windows that slide over planes: strides, dilations, and pads that nodes give or imply."""

from __future__ import annotations

from dataclasses import dataclass

from ..status import InvalidArgument
from .node import Node


@dataclass(frozen=True)
class Window:
    """Sizes along each axis of a plane; `low` and `high` are the pads."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def padding(self) -> tuple[int, ...]:
        """The pads in ONNX's order: those before every axis, then those after."""
        return (*self.low, *self.high)

    @property
    def reach(self) -> tuple[int, ...]:
        """The elements between the first and the last of a window, both counted."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


def window_of(node: Node, dims: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """Return the window of a node over a plane of those dims."""
    rank = len(dims)
    stride = _each(node, "strides", rank, 1)
    dilation = _each(node, "dilations", rank, 1)
    pads = _each(node, "pads", 2 * rank, 0)
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
