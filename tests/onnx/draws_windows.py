"""Draws of nodes that slide windows over planes, sample or resize them."""

from __future__ import annotations

from typing import Any

import numpy as np
from draws import ABSENT, FLOATS, Draw, Drawn, Recipe, i64

# Windows


def draw_window(d: Draw, kernel: list[int], dilated: bool = True) -> dict[str, Any]:
    """Return strides, dilations and pads of a window, some of them left to their defaults."""
    rank = len(kernel)
    named: dict[str, Any] = {"strides": d.maybe(d.ints(rank, 1, 2))}
    auto = d.maybe(d.pick(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]), 0.3)
    named["auto_pad"] = auto
    if auto in (None, "NOTSET"):
        named["pads"] = d.maybe([d.int(0, min(1, k - 1)) for k in kernel * 2])
    if dilated and auto in (None, "NOTSET", "VALID"):
        named["dilations"] = d.maybe(d.ints(rank, 1, 2), 0.4)
    return named


def pool(d: Draw) -> Drawn:
    name = d.schema.name
    rank = d.int(1, 2 if d.version < 7 else 3)
    kernel = d.ints(rank, 1, 3)
    named = {"kernel_shape": kernel, **draw_window(d, kernel)}
    named["ceil_mode"] = d.maybe(d.int(0, 1))
    if "ceil_mode" in d.schema.attributes and named["ceil_mode"] and named["auto_pad"] is not None:
        named["ceil_mode"] = ABSENT
    named["count_include_pad"] = d.maybe(d.int(0, 1))
    if name == "LpPool":
        p = d.int(1, 3)
        named["p"] = d.maybe(float(p) if d.version < 2 else p)
    x = d.tensor(0, (d.int(1, 2), d.int(1, 3), *d.ints(rank, 5, 7)), *((0.1, 3) if name == "LpPool" else (-3, 3)))
    count = 2 if name == "MaxPool" and d.version >= 8 and rank < 3 and d.chance(0.4) else 1
    if count == 2:
        named["storage_order"] = d.maybe(0)
    return Drawn([x], named, count, loose=4)


def global_pool(d: Draw) -> Drawn:
    p = d.int(1, 3)
    x = d.tensor(0, (d.int(1, 2), d.int(1, 3), *d.ints(d.int(1, 3), 1, 5)), 0.1, 3)
    return Drawn([x], {"p": d.maybe(float(p) if d.version < 2 else p)}, loose=4)


def conv(d: Draw) -> Drawn:
    rank = d.int(1, 3)
    groups, c, m = d.pick([1, 1, 2]), d.int(1, 2), d.int(1, 2)
    kernel = d.ints(rank, 1, 3)
    named = {**draw_window(d, kernel), "group": d.maybe(groups) if groups == 1 else groups}
    named["kernel_shape"] = d.maybe(kernel)
    x, w = d.tensor(0, (d.int(1, 2), groups * c, *d.ints(rank, 5, 7))), d.tensor(1, (groups * m, c, *kernel))
    return Drawn([x, w, d.maybe(d.tensor(0, (groups * m,)))], named, known=(1,) if d.chance(0.5) else (), loose=8)


def conv_transpose(d: Draw) -> Drawn:
    rank = d.int(1, 3)
    groups, c, m = d.pick([1, 1, 2]), d.int(1, 2), d.int(1, 2)
    kernel = d.ints(rank, 2, 3)
    named = {
        **draw_window(d, kernel),
        "group": d.maybe(groups) if groups == 1 else groups,
        "kernel_shape": d.maybe(kernel),
    }
    strides = named["strides"] or [1] * rank
    if named["auto_pad"] is None:
        named["output_padding"] = d.maybe([d.int(0, s - 1) for s in strides], 0.4)
    x, w = d.tensor(0, (d.int(1, 2), groups * c, *d.ints(rank, 2, 4))), d.tensor(1, (groups * c, m, *kernel))
    return Drawn([x, w, d.maybe(d.tensor(0, (groups * m,)))], named, loose=8)


def deform_conv(d: Draw) -> Drawn:
    c, m, kh, kw, groups = d.int(1, 2), d.int(1, 2), 2, 2, d.int(1, 2)
    h, w = d.ints(2, 3, 5)
    x = d.tensor(0, (1, c * groups, h, w))
    offsets = d.array((1, 2 * kh * kw * groups, h - 1, w - 1), d.kind(0), -1, 1)
    mask = d.maybe(d.array((1, kh * kw * groups, h - 1, w - 1), d.kind(0), 0, 1))
    weight = d.tensor(1, (m, c * groups, kh, kw))
    bias = d.maybe(d.tensor(0, (m,)))
    return Drawn(
        [x, weight, offsets, bias, mask],
        {"offset_group": groups, "kernel_shape": d.maybe([2, 2]), "pads": [0] * 4},
        loose=8,
    )


def max_unpool(d: Draw) -> Drawn:
    n, c, h, w = d.int(1, 2), d.int(1, 2), d.int(1, 3), d.int(1, 3)
    count = 4 * h * w
    at = np.stack([d.rng.permutation(count)[: h * w] for _ in range(n * c)]) + count * np.arange(n * c)[:, None]
    named = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return Drawn([d.tensor(0, (n, c, h, w)), at.reshape(n, c, h, w).astype(np.int64)], named)


def col2im(d: Draw) -> Drawn:
    n, c, h, w = d.int(1, 2), d.int(1, 2), d.int(3, 5), d.int(3, 5)
    named = {"dilations": d.maybe([1, 1]), "strides": d.maybe([1, 1]), "pads": d.maybe([0] * 4)}
    x = d.tensor(0, (n, c * 4, (h - 1) * (w - 1)))
    return Drawn([x, i64(h, w), i64(2, 2)], named, known=(1, 2))


def roi_align(d: Draw) -> Drawn:
    n, c, count = d.int(1, 2), d.int(1, 2), d.int(1, 3)
    kind = d.kind(0)
    boxes = np.sort(d.array((count, 2, 2), kind, 0, 6), 1).reshape(count, 4) + np.asarray([0, 0, 1, 1], kind)
    named = {"mode": d.maybe("avg"), "output_height": d.maybe(d.int(1, 3)), "output_width": d.maybe(d.int(1, 3))}
    named |= {"sampling_ratio": d.maybe(d.int(1, 3)), "spatial_scale": d.maybe(d.float(0.5, 1))}
    named["coordinate_transformation_mode"] = d.maybe(d.pick(["half_pixel", "output_half_pixel"]))
    x = d.tensor(0, (n, c, 6, 7))
    return Drawn([x, boxes, d.rng.integers(0, n, count).astype(np.int64)], named, loose=8)


def max_roi_pool(d: Draw) -> Drawn:
    n, c, count = d.int(1, 2), d.int(1, 2), d.int(1, 3)
    kind = d.kind(0)
    corners = np.sort(d.rng.integers(0, 6, (count, 2, 2)), 1).reshape(count, 4)
    rois = np.concatenate([d.rng.integers(0, n, (count, 1)), corners], 1).astype(kind)
    return Drawn([d.tensor(0, (n, c, 6, 7)), rois], {"pooled_shape": [d.int(1, 3), d.int(1, 3)]})


def grid_sample(d: Draw) -> Drawn:
    n, c, h, w = d.int(1, 2), d.int(1, 2), d.int(2, 5), d.int(2, 5)
    modes = ["bilinear", "nearest", "bicubic"] if d.version < 20 else ["linear", "nearest", "cubic"]
    named = {"mode": d.maybe(d.pick(modes)), "align_corners": d.maybe(d.int(0, 1))}
    named["padding_mode"] = d.maybe(d.pick(["zeros", "border", "reflection"]))
    x = d.tensor(0, (n, c, h, w), only=FLOATS)
    grid = d.array((n, d.int(1, 4), d.int(1, 4), 2), d.kind(1), -1.2, 1.2)
    return Drawn([x, grid], named, loose=8 if grid.dtype != np.float16 else 500)


def affine_grid(d: Draw) -> Drawn:
    n, flat = d.int(1, 2), d.chance(0.5)
    theta = d.tensor(0, (n, 2, 3) if flat else (n, 3, 4))
    size = i64(n, d.int(1, 3), *d.ints(2 if flat else 3, 2, 4))
    return Drawn([theta, size], {"align_corners": d.maybe(d.int(0, 1))}, known=(1,), loose=4)


def upsample(d: Draw) -> Drawn:
    shape = (1, d.int(1, 2), d.int(1, 4), d.int(1, 4))
    scales = [1.0, 1.0, float(d.int(1, 3)), d.pick([1.0, 2.0, 2.5])]
    named: dict[str, Any] = {"mode": d.maybe(d.pick(["nearest", "linear" if d.version > 1 else "bilinear"]))}
    if d.version == 1:
        named |= {"height_scale": scales[2], "width_scale": scales[3]}
    named["scales"] = scales if "scales" in d.schema.attributes else np.float32(scales)
    return Drawn([d.tensor(0, shape, only=(np.float32,))], named, loose=4)


def resize(d: Draw) -> Drawn:
    shape = (1, d.int(1, 2), d.int(2, 5), d.int(2, 20))
    scales = [1.0, 1.0, d.pick([0.5, 1.0, 1.5, 2.0]), d.pick([1.0, 2.0, 2.5, 0.7, 0.6, 1.2])]
    x = d.tensor(0, shape, only=(np.float32,))
    if d.version == 10:
        scales[3] = 1.5 if scales[3] == 1.2 else scales[3]  # ONNX Runtime copies where the dims stay
        return Drawn([x, np.float32(scales)], {"mode": d.maybe(d.pick(["nearest", "linear"]))}, known=(1,), loose=8)
    mode = d.maybe(d.pick(["nearest", "linear", "cubic"]))
    places = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    places += ["tf_half_pixel_for_nn"] if d.version < 13 and mode in (None, "nearest") else []
    places += ["half_pixel_symmetric"] if d.version >= 19 else []
    named: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.maybe(d.pick(places))}
    if mode in (None, "nearest"):
        named["nearest_mode"] = d.maybe(d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if mode == "cubic":
        named |= {"cubic_coeff_a": d.maybe(d.float(-0.8, -0.4)), "exclude_outside": d.maybe(d.int(0, 1))}
    if mode in ("linear", "cubic") and d.chance(0.3):
        named["antialias"] = 1
    if d.chance(0.5):
        sizes = i64(*shape[:2], d.int(1, 7), d.int(1, 7))
        return Drawn(
            [x],
            {"roi": np.float32([]), "scales": np.float32([]) if d.version < 13 else ABSENT, "sizes": sizes, **named},
            loose=8,
        )
    return Drawn([x], {"roi": np.float32([]), "scales": np.float32(scales), **named}, loose=8)


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), global_pool),
    "AffineGrid": affine_grid,
    "Col2Im": col2im,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv,
    "GridSample": grid_sample,
    "MaxRoiPool": max_roi_pool,
    "MaxUnpool": max_unpool,
    "Resize": resize,
    "RoiAlign": roi_align,
    "Upsample": upsample,
}
