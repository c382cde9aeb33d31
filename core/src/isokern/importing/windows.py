"""Windows that slide over planes: convolutions and poolings of one to three dims."""

from __future__ import annotations

from dataclasses import dataclass

from .emission import Emission
from .operand import Operand, shape_of


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

    def widen(self, count: int) -> Window:
        """Return the window with dims of 1 in front, which change nothing."""
        own = (self.kernel, self.stride, self.dilation, self.low, self.high)
        return Window(*((fill,) * count + part for fill, part in zip((1, 1, 1, 0, 0), own, strict=True)))


def convolve(
    node: Emission,
    stem: str,
    x: Operand,
    w: Operand,
    bias: Operand | None,
    rank: int,
    window: Window,
    how: dict[str, object],
) -> Operand:
    """Emit the convolution of a rank; in one dim the pads are two attributes."""
    if not 1 <= rank <= 3:
        raise node.refuse(f"planes of {rank} dims", "1 to 3")
    if rank == 1:
        one = {name: v[0] if isinstance(v, tuple) else v for name, v in how.items()}
        ends = {"padding": window.low[0], "end_padding": window.high[0]}
        return node.emit(f"{stem}1d", x, w, bias, **one, **ends)
    return node.emit(f"{stem}{rank}d", x, w, bias, padding=window.padding, **how)


def pool(node: Emission, kind: str, x: Operand, window: Window, ceil: bool, more: dict[str, object]) -> Operand:
    """Emit a pooling; one that rounds up is one of three dims, where the operator does so."""
    rank = len(window.kernel)
    if not 1 <= rank <= 3:
        raise node.refuse(f"planes of {rank} dims", "1 to 3")
    how = {"kernel": window.kernel, "stride": window.stride, "dilation": window.dilation, **more}
    if rank == 3 or kind == "lp_pool":
        return node.emit(f"{kind}{rank}d", x, padding=window.padding, ceil_mode=ceil, **how)
    if ceil:  # in three dims, where the operator rounds up
        rest = 3 - rank
        y = pool(node, kind, widen(node, x, rest), window.widen(rest), True, more)
        return node.reshape(y, (*shape_of(y)[:2], *shape_of(y)[2 + rest :]))
    if rank == 2:
        return node.emit(f"{kind}2d", x, padding=window.padding, **how)
    one = {name: v[0] if isinstance(v, tuple) else v for name, v in how.items()}
    return node.emit(f"{kind}1d", x, padding=window.low[0], end_padding=window.high[0], **one)


def widen(node: Emission, x: Operand, count: int) -> Operand:
    """Return planes with dims of 1 in front of their own."""
    n, c, *dims = shape_of(x)
    return node.reshape(x, (n, c, *[1] * count, *dims))
