"""Samples of rows, for the devices that split them in several ways."""

from __future__ import annotations

from isokern.declare.operator import Sample

SEVERAL_AXES = [
    Sample({"x": shape}, {"axes": axes, "keepdims": True})
    for shape, axes in (
        ((3, 50, 4, 700), (0, 2)),
        ((3, 50, 4, 700), (1, 3)),
        ((9, 40, 41, 5), ()),
        ((60, 4, 70, 3), (0, 1, 2)),
    )
]


def case(op: str, shape: tuple[int, ...], axis: int) -> Sample | None:
    """Return a sample of the operator over `axis`; None where the operator supports only the last axis."""
    if op in ("rms_norm", "layer_norm"):
        rest = {"w": shape[-1:], **({"bias": shape[-1:]} if op == "layer_norm" else {})}
        return Sample({"x": shape, **rest}, {"eps": 1e-6}) if axis == len(shape) - 1 else None
    return Sample({"x": shape}, {"axes": (axis,)} if op.startswith("reduce") else {"axis": axis})
