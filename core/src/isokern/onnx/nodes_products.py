"""Nodes that are matrix products and convolutions, of floats."""

from __future__ import annotations

from ..importing.products import multiply
from ..importing.windows import convolve
from .node import Handler, Node, Output, is_float, shape_of
from .windows import window_of


def matmul(node: Node) -> Output:
    """Multiply matrices, with batches broadcast; a vector is a row on the left and a column on the right."""
    return multiply(node, node.x(), node.x(1))


def gemm(node: Node) -> Output:
    """Return alpha a b + beta c."""
    a, b, c = node.x(), node.x(1), node.tensor(2)
    alpha, beta = float(node.attrs["alpha"]), float(node.attrs["beta"])
    trans_a, trans_b = bool(node.attrs["transA"]), bool(node.attrs["transB"])
    if is_float(a):
        how = {"trans_a": trans_a, "trans_b": trans_b, "alpha": alpha}
        n = shape_of(b)[0 if trans_b else 1]
        if c is not None and beta == 1.0 and shape_of(c) in ((n,), (1, n)):  # as [1, n] it is a bias for m = 1 too
            c = node.reshape(c, (n,))
        if c is None or (shape_of(c) == (n,) and beta == 1.0):
            return node.emit("gemm", a, b, c, **how)
        full = node.expand(c, (shape_of(a)[1 if trans_a else 0], n))
        return node.emit("gemm", a, b, None, full, beta=beta, **how)
    if alpha != 1.0 or (c is not None and beta != 1.0):
        raise node.refuse(f"integers with alpha {alpha} and beta {beta}", "1 and 1")
    a, b = (node.transpose(x, (1, 0)) if t else x for x, t in ((a, trans_a), (b, trans_b)))
    y = node.emit("matmul", a, b)
    return y if c is None else node.emit("add", y, c)


def conv(node: Node) -> Output:
    """Convolve planes of one to three dims."""
    x, w = node.x(), node.x(1)
    rank = node.rank - 2
    window = window_of(node, node.shape()[2:], tuple(shape_of(w)[2:]))
    how = {"stride": window.stride, "dilation": window.dilation, "groups": int(node.attrs["group"])}
    return convolve(node, "conv", x, w, node.tensor(2), rank, window, how)


def conv_transpose(node: Node) -> Output:
    """Convolve backwards; an `output_shape` says how much is cut off."""
    x, w = node.x(), node.x(1)
    dims, kernel = node.shape()[2:], tuple(shape_of(w)[2:])
    rank = len(dims)
    if not 1 <= rank <= 3:
        raise node.refuse(f"planes of {rank} dims", "1 to 3")
    auto = node.attrs.get("auto_pad", "NOTSET")
    same = auto in ("SAME_UPPER", "SAME_LOWER")
    plain = Node(**{**vars(node), "attrs": {**node.attrs, "auto_pad": "NOTSET" if same else auto}})
    window = window_of(plain, dims, kernel)
    more = list(node.attrs.get("output_padding") or [0] * rank)
    wanted = list(node.attrs.get("output_shape") or [])[-rank:]
    if not wanted and same:
        wanted = [d * s for d, s in zip(dims, window.stride, strict=True)]
    low, high = list(window.low), list(window.high)
    for n, size in enumerate(wanted):
        total = window.stride[n] * (dims[n] - 1) + more[n] + window.reach[n] - size
        if total < 0:
            more[n], total = more[n] - total, 0
        less = total // 2
        low[n], high[n] = (less, total - less) if auto == "SAME_UPPER" else (total - less, less)
    return node.emit(
        f"conv_transpose{rank}d",
        x,
        w,
        node.tensor(2),
        stride=window.stride,
        padding=(*low, *high),
        output_padding=tuple(more),
        dilation=window.dilation,
        groups=int(node.attrs["group"]),
    )


def deform_conv(node: Node) -> Output:
    """Convolve at places that an input moves."""
    window = window_of(node, node.shape()[2:], tuple(node.shape(1)[2:]))
    return node.emit(
        "deform_conv2d",
        *node.tensors,
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
        groups=int(node.attrs["group"]),
        offset_groups=int(node.attrs["offset_group"]),
    )


def det(node: Node) -> Output:
    """Return determinants."""
    return node.emit("det", node.x())


NODES: dict[str, Handler] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv,
    "Det": det,
    "Gemm": gemm,
    "MatMul": matmul,
}
