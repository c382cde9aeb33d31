"""Operators that make tensors from numbers."""

from __future__ import annotations

import math

import numpy as np

from .elements import THEIRS, to_array
from .library import library as torch
from .node import AtenNode, Handler, Result, dtype_of

MAX_RANGE = 1 << 24  # elements, which are part of the graph


def full(value: float | None = None, name: str = "fill_value") -> Handler:
    """Return the handler of a tensor of one value, with dims that are given or those of another tensor."""

    def handle(node: AtenNode) -> Result:
        size = node.get("size")
        shape = node.shape if size is None else tuple(int(d) for d in size)
        number = value if value is not None else node.number(node[name])
        if number is None:  # a scalar that is computed
            return node.expand(node.cast(node[name], node.wanted), shape)
        if node.wanted.kind in "iu" and isinstance(number, float) and not number.is_integer():
            number = math.trunc(number)
        return node.full(shape, number, node.wanted)

    return handle


def fill(node: AtenNode) -> Result:
    """Return a tensor of one value, with the dims and the dtype of another."""
    value = node.number(node["value"])
    if value is None:
        return node.expand(node.cast(node["value"], dtype_of(node.x)), node.shape)
    return node.full(node.shape, value, dtype_of(node.x))


def arange(node: AtenNode) -> Result:
    """Return start, start + step, … before end, as PyTorch computes them."""
    start, end, step = node.get("start", 0), node["end"], node.get("step", 1)
    if abs(end - start) >= MAX_RANGE * abs(step):
        raise node.refuse(f"the range from {start} to {end} by {step}", f"fewer than {MAX_RANGE} elements")
    return to_array(node.op_type, torch.arange(start, end, step, dtype=THEIRS[node.wanted]))


def iota(node: AtenNode) -> Result:
    """Return start, start + step, … of a length."""
    start, step, length = int(node["start"]), int(node["step"]), int(node["length"])
    if length >= MAX_RANGE:
        raise node.refuse(f"{length} elements", f"fewer than {MAX_RANGE}")
    return (start + np.arange(length) * step).astype(node.wanted.numpy)


def scalar_tensor(node: AtenNode) -> Result:
    """Return a scalar."""
    return np.asarray(node["s"]).astype(node.wanted.numpy)


def eye(node: AtenNode) -> Result:
    """Return ones on the diagonal."""
    rows = int(node["n"])
    return np.eye(rows, int(node.get("m", rows)), dtype=node.wanted.numpy)


def linspace(node: AtenNode) -> Result:
    """Return numbers at equal distances, as PyTorch computes them."""
    start, end = (node.number(node[n]) for n in ("start", "end"))
    if start is None or end is None:
        raise node.refuse("ends that are computed", "numbers")
    return to_array(node.op_type, torch.linspace(start, end, int(node["steps"]), dtype=THEIRS[node.wanted]))


def triangle_indices(upper: bool) -> Handler:
    """Return the handler of the places of a triangle, rows and columns."""

    def handle(node: AtenNode) -> Result:
        make = np.triu_indices if upper else np.tril_indices
        return np.stack(make(int(node["row"]), int(node["offset"]), int(node["col"]))).astype(node.wanted.numpy)

    return handle


NODES: dict[str, Handler] = {
    "arange": arange,
    "empty": full(0),
    "empty_like": full(0),
    "empty_permuted": full(0),
    "empty_strided": full(0),
    "eye": eye,
    "fill": fill,
    "full": full(),
    "full_like": full(),
    "iota": iota,
    "linspace": linspace,
    "new_empty": full(0),
    "new_full": full(),
    "new_ones": full(1),
    "new_zeros": full(0),
    "ones": full(1),
    "ones_like": full(1),
    "scalar_tensor": scalar_tensor,
    "tril_indices": triangle_indices(False),
    "triu_indices": triangle_indices(True),
    "zeros": full(0),
    "zeros_like": full(0),
}
