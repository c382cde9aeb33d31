"""Sequences and optional values inside a model: lists of operands while the graph is built, and nothing after."""

from __future__ import annotations

import numpy as np

from ..importing.movement import slice_axes
from ..status import InvalidArgument
from .node import Handler, Node, Operand, Output, Parts, shape_of

MAX_PARTS = 10_000  # of a tensor that is cut into a sequence


def parts_of(node: Node, i: int = 0) -> tuple[Operand, ...]:
    """Return the elements of a sequence; InvalidArgument where the input is none."""
    found = node.get(i)
    if not isinstance(found, Parts):
        raise InvalidArgument(node.op_type, f"input {i} is no sequence")
    return found.elements


def construct(node: Node) -> Output:
    """Return the sequence of the inputs."""
    return Parts(tuple(node.x(i) for i in range(len(node.inputs))))


def empty(node: Node) -> Output:
    """Return the sequence of nothing."""
    return Parts(())


def _place(node: Node, i: int, count: int, last: int) -> int:
    """Return a place in a sequence, counted from the front; the input is optional."""
    place = int(node.number(i)) if node.has(i) else last
    if not -count <= place <= last:
        allowed = f"{-count} to {last}" if last >= 0 else "none, as the sequence is empty"
        raise InvalidArgument(node.op_type, f"position {place}", allowed=allowed)
    return place + count if place < 0 else place


def insert(node: Node) -> Output:
    """Return a sequence with one more element, by default at its end."""
    parts = parts_of(node)
    at = _place(node, 2, len(parts), len(parts))
    return Parts((*parts[:at], node.x(1), *parts[at:]))


def erase(node: Node) -> Output:
    """Return a sequence without one element, by default the last."""
    parts = parts_of(node)
    at = _place(node, 1, len(parts), len(parts) - 1)
    return Parts((*parts[:at], *parts[at + 1 :]))


def at(node: Node) -> Output:
    """Return one element."""
    parts = parts_of(node)
    return parts[_place(node, 1, len(parts), len(parts) - 1)]


def length(node: Node) -> Output:
    """Return the number of elements."""
    return np.asarray(len(parts_of(node)), np.int64)


def concat(node: Node) -> Output:
    """Join the elements along an axis, or along a new one."""
    parts, new = parts_of(node), bool(node.attrs["new_axis"])
    if not parts:
        raise InvalidArgument(node.op_type, "an empty sequence", allowed="one element or more")
    axis = node.axis(rank=len(shape_of(parts[0])) + new)
    return node.emit("stack" if new else "concat", *parts, axis=axis)


def split(node: Node) -> Output:
    """Cut a tensor into parts: of sizes given, of one size, or of 1, and then perhaps without the axis."""
    axis, dim = node.axis(), node.shape()[node.axis()]
    if node.has(1) and node.shape(1):
        sizes = node.ints(1)
    else:
        size = int(node.number(1)) if node.has(1) else 1
        if size < 1 or dim > size * MAX_PARTS:
            raise InvalidArgument(node.op_type, f"split {size} of {dim}", allowed=f"1 or more, of {MAX_PARTS} parts")
        sizes = [min(size, dim - n * size) for n in range(-(-dim // size))]
    if sum(sizes) != dim or min(sizes, default=0) < 0:
        raise InvalidArgument(node.op_type, f"sizes {sizes}", allowed=f"sizes of {dim} in all")
    found, start = [], 0
    for size in sizes:
        part = slice_axes(node, node.x(), [axis], [(start, start + size, 1)])
        if not node.has(1) and not node.attrs["keepdims"]:
            part = node.reshape(part, [d for n, d in enumerate(shape_of(part)) if n != axis])
        found.append(part)
        start += size
    return Parts(tuple(found))


def has_element(node: Node) -> Output:
    """Return whether there is a value."""
    return np.asarray(node.has(0))


def element(node: Node) -> Output:
    """Return the value itself; InvalidArgument where there is none."""
    if node.get(0) is None:
        raise InvalidArgument(node.op_type, "there is no value", allowed="a value")
    return node.get(0)


NODES: dict[str, Handler] = {
    "ConcatFromSequence": concat,
    "Optional": lambda node: node.get(0),
    "OptionalGetElement": element,
    "OptionalHasElement": has_element,
    "SequenceAt": at,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
