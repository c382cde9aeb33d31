"""Operators that sample images."""

from __future__ import annotations

from typing import Any

from .node import AtenNode, Handler, Result, dtype_of, is_float


def upsample(rank: int, mode: str, exact: bool = False, antialias: bool = False) -> Handler:
    """Return the handler of a resampling of the last dims to sizes, or by factors that make them exactly."""

    def handle(node: AtenNode) -> Result:
        if not is_float(node.x):
            raise node.refuse(f"elements of type {dtype_of(node.x)}", "floats")
        dims = node.shape[2:]
        factors = node.get("scale_factors")
        if factors is None:
            names = ("scales_d", "scales_h", "scales_w") if rank > 1 else ("scales",)
            factors = [node.args[n] for n in names[-rank:] if n in node.args]
        sizes = node.get("output_size", node.get("input_size"))
        if sizes is None:
            sizes = [int(d * f) for d, f in zip(dims, factors, strict=True)]
        sizes = tuple(int(s) for s in sizes)
        aligned = bool(node.get("align_corners", False))
        told = (
            [] if aligned else [(d, s, f) for d, s, f in zip(dims, sizes, factors or (), strict=False) if f is not None]
        )
        if any(s != d * f for d, s, f in told):
            raise node.refuse(f"factors {list(factors)} of {list(dims)}", "whole sizes, or output_size")
        if antialias and aligned:
            raise node.refuse("align_corners with antialiasing", "one of both")
        how: dict[str, Any] = {"mode": mode}
        if mode == "nearest":
            how |= (
                {"nearest_mode": "round_prefer_ceil"}
                if exact
                else {"nearest_mode": "floor", "coordinates": "asymmetric"}
            )
        else:
            how["coordinates"] = "align_corners" if aligned else "half_pixel"
        if antialias:
            how |= {"antialias": True, "exclude_outside": True, "cubic_a": -0.5}
        return node.emit("interpolate", node.x, sizes=sizes, **how)

    return handle


def grid_sample(node: AtenNode) -> Result:
    """Sample at places of a grid; modes are numbers."""
    modes, pads = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    how = {"mode": modes[int(node["interpolation_mode"])], "padding": pads[int(node["padding_mode"])]}
    return node.emit("grid_sample", node["input"], node["grid"], align_corners=bool(node["align_corners"]), **how)


NODES: dict[str, Handler] = {
    "_upsample_bicubic2d_aa": upsample(2, "cubic", antialias=True),
    "_upsample_bilinear2d_aa": upsample(2, "linear", antialias=True),
    "_upsample_nearest_exact1d": upsample(1, "nearest", exact=True),
    "_upsample_nearest_exact2d": upsample(2, "nearest", exact=True),
    "_upsample_nearest_exact3d": upsample(3, "nearest", exact=True),
    "grid_sampler_2d": grid_sample,
    "grid_sampler_3d": grid_sample,
    "upsample_bicubic2d": upsample(2, "cubic"),
    "upsample_bilinear2d": upsample(2, "linear"),
    "upsample_linear1d": upsample(1, "linear"),
    "upsample_nearest1d": upsample(1, "nearest"),
    "upsample_nearest2d": upsample(2, "nearest"),
    "upsample_nearest3d": upsample(3, "nearest"),
    "upsample_trilinear3d": upsample(3, "linear"),
}
