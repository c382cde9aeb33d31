"""Nodes of Fourier transforms: products with matrices of roots of unity, or an operator where those are large.

A short transform is a matrix product, and its roots are computed in float64 when the graph is built, so that what
cancels exactly does so here; `dft` computes them where it runs.
"""

from __future__ import annotations

import numpy as np

from ..status import InvalidArgument
from .elements import Array
from .node import Handler, Node, Operand, Output, dtype_of, shape_of

SHORT = 512  # elements of a transform whose matrix is a constant
LONGEST = 1 << 13  # of one that has no operator


def dft(node: Node) -> Output:
    """Transform an axis; the last axis has real and imaginary parts. A one-sided inverse takes half a spectrum."""
    axis = int(node.attrs["axis"]) if "axis" in node.attrs else int(node.number(2)) if node.has(2) else -2
    axis = node.axis(axis)
    length = int(node.number(1)) if node.has(1) else 0
    if axis == node.rank - 1 or node.shape()[-1] not in (1, 2):
        raise InvalidArgument(node.op_type, f"axis {axis} of {list(node.shape())}", allowed="another than the last")
    inverse, onesided = bool(node.attrs["inverse"]), bool(node.attrs["onesided"])
    if inverse and onesided:
        length = length or 2 * (node.shape()[axis] - 1)
        if not 0 < length <= LONGEST:
            raise node.refuse(f"an inverse of half a spectrum of length {length}", f"1 to {LONGEST}")
        return transform(node, node.x(), axis, length, half_spectrum(length))
    length = length or node.shape()[axis]
    if not 0 < length <= SHORT:
        how = {"length": length, "inverse": inverse, "onesided": onesided}
        return node.emit("dft", node.x(), axis=axis, **how)
    return transform(node, node.x(), axis, length, roots(length, inverse, onesided))


def roots(length: int, inverse: bool, onesided: bool) -> Array:
    """Return the matrix [element, part, frequency, part] of a transform."""
    count = length // 2 + 1 if onesided else length
    angle = 2 * np.pi / length * (np.outer(np.arange(length), np.arange(count)) % length)
    cos, sin = _exact(np.cos(angle)), _exact(np.sin(angle)) * (-1 if inverse else 1)
    # (re + i im) (cos - i sin), in the order of the parts
    found = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    return found / length if inverse else found


def half_spectrum(length: int) -> Array:
    """Return the matrix [frequency, part, element, 1] from half a spectrum to real elements."""
    count = length // 2 + 1
    twice = np.full(count, 2.0)
    twice[0] = 1
    if length % 2 == 0:
        twice[-1] = 1
    angle = 2 * np.pi / length * (np.outer(np.arange(count), np.arange(length)) % length)
    cos, sin = (twice[:, None] * _exact(f(angle)) / length for f in (np.cos, np.sin))
    return np.stack([cos, -sin], 1)[..., None]


def _exact(x: Array) -> Array:
    """Return numbers with those that are 0, but for the rounding of pi, as 0."""
    return np.where(np.abs(x) < 1e-15, 0.0, x)


def transform(node: Node, x: Operand, axis: int, length: int, matrix: Array) -> Operand:
    """Return the product of an axis, and of the parts, which are last, with a matrix; other elements count as 0."""
    shape, parts = shape_of(x), shape_of(x)[-1]
    used = min(shape[axis], matrix.shape[0])
    if shape[axis] > used:
        x = node.emit("slice", x, starts=(0,), ends=(used,), axes=(axis,))
    places = [n for n in range(len(shape)) if n != axis]
    order = [*places[:-1], axis, len(shape) - 1]
    rest = [shape[n] for n in places[:-1]]
    rows = node.reshape(node.transpose(x, order), (int(np.prod(rest)), used * parts))
    _n, _parts, count, out = matrix.shape
    held = node.cast(matrix[:used, :parts].reshape(used * parts, count * out), dtype_of(x))
    y = node.reshape(node.emit("matmul", rows, held), (*rest, count, out))
    back = [order.index(n) for n in range(len(shape))]
    return node.transpose(y, back)


def stft(node: Node) -> Output:
    """Transform frames; the frame's length is the window's, or an input."""
    step, onesided = int(node.number(1)), bool(node.attrs["onesided"])
    window = node.tensor(2)
    length = int(node.number(3)) if node.has(3) else shape_of(window)[0] if window is not None else 0
    signal = node.x() if node.rank == 3 else node.reshape(node.x(), (*node.shape(), 1))
    if not 0 < length <= SHORT:
        how = {"length": length, "step": step, "onesided": onesided}
        return node.emit("stft", signal, window, **how)
    frames = node.emit("unfold", signal, axis=1, size=length, step=step)  # [batch, frames, parts, length]
    if window is not None:
        frames = node.emit("mul", frames, window)
    frames = node.transpose(frames, (0, 1, 3, 2))
    return transform(node, frames, 2, length, roots(length, False, onesided))


NODES: dict[str, Handler] = {"DFT": dft, "STFT": stft}
