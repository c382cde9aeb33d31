"""Nodes that sample images."""

from __future__ import annotations

from ..dtypes import F32, F64
from .node import Handler, Node, Output, dtype_of
from .resizing import resize


def grid_sample(node: Node) -> Output:
    """Sample at places of a grid; older opsets call the modes bilinear and bicubic."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.attrs["mode"], node.attrs["mode"])
    how = {"padding": node.attrs["padding_mode"], "align_corners": bool(node.attrs["align_corners"])}
    x, grid = node.x(), node.x(1)
    if dtype_of(x) is dtype_of(grid):
        return node.emit("grid_sample", x, grid, mode=mode, **how)
    wide = F64 if F64 in (dtype_of(x), dtype_of(grid)) else F32
    return node.cast(node.emit("grid_sample", node.cast(x, wide), node.cast(grid, wide), mode=mode, **how), dtype_of(x))


def affine_grid(node: Node) -> Output:
    """Return the places that an affine map sends a grid to."""
    corners = bool(node.attrs["align_corners"])
    return node.emit("affine_grid", node.x(), shape=tuple(node.ints(1)), align_corners=corners)


def roi_align(node: Node) -> Output:
    """Pool regions."""
    names = ("output_height", "output_width", "spatial_scale", "sampling_ratio", "mode")
    how = {name: node.attrs[name] for name in names}
    aligned = node.attrs.get("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    return node.emit("roi_align", *node.tensors, aligned=aligned, **how)


def max_roi_pool(node: Node) -> Output:
    """Take maxima of regions."""
    height, width = node.attrs["pooled_shape"]
    scale = float(node.attrs["spatial_scale"])
    return node.emit("max_roi_pool", *node.tensors, output_height=height, output_width=width, spatial_scale=scale)


NODES: dict[str, Handler] = {
    "AffineGrid": affine_grid,
    "GridSample": grid_sample,
    "MaxRoiPool": max_roi_pool,
    "Resize": resize,
    "RoiAlign": roi_align,
    "Upsample": resize,
}
