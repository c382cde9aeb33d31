"""Samples of rows, for the devices that split them in several ways."""

from __future__ import annotations

from isokern.declare.operator import Sample


def case(op: str, shape: tuple[int, ...], axis: int) -> Sample | None:
    """Return a sample of the operator over `axis`; None where the operator supports only the last axis."""
    if op in ("rms_norm", "layer_norm"):
        rest = {"w": shape[-1:], **({"bias": shape[-1:]} if op == "layer_norm" else {})}
        return Sample({"x": shape, **rest}, {"eps": 1e-6}) if axis == len(shape) - 1 else None
    return Sample({"x": shape}, {"axes": (axis,)} if op.startswith("reduce") else {"axis": axis})
