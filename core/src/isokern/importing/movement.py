"""Parts of tensors, as Python's slices have them."""

from __future__ import annotations

from .emission import Emission
from .operand import Operand, shape_of

FAR = 2**31  # beyond every dim


def slice_axes(node: Emission, x: Operand, axes: list[int], parts: list[tuple[int, int, int]]) -> Operand:
    """Return the parts (start, end, step) of axes as Python slices have them; backward ones are flipped slices."""
    found: dict[str, list[int]] = {"starts": [], "ends": [], "axes": [], "steps": []}
    flipped = []
    for axis, (start, end, step) in zip(axes, parts, strict=True):
        places = range(*slice(start, end, step).indices(shape_of(x)[axis]))
        if step < 0:
            places = places[::-1]
            flipped.append(axis)
        first, last = (places[0], places[-1] + 1) if len(places) else (0, 0)
        for name, value in (("starts", first), ("ends", last), ("axes", axis), ("steps", abs(step))):
            found[name].append(min(value, FAR))
    y = node.emit("slice", x, **{name: tuple(values) for name, values in found.items()})
    return node.emit("flip", y, axes=tuple(flipped)) if flipped else y
