"""Launches of gemm."""

import math

from isokern.simt.launch import Call, bits, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "c")
    whole = t.y.dtype.kind in "iu"
    t.y = bits(t.y) if whole else t.y
    t.a = bits(t.a) if whole else t.a
    t.b = bits(t.b) if whole else t.b
    m = t.y.shape[-2]
    n = t.y.shape[-1]
    k = t.a.shape[-1]
    group = min(256, call.device.group)
    cols = 64 if group >= 128 else 32 if group >= 32 else 16
    rows = 16 * group // cols
    a_along = abs(t.a.strides[-1]) < abs(t.a.strides[-2])
    b_along = abs(t.b.strides[-2]) < abs(t.b.strides[-1])
    deep = group > 1 and m <= 4 and (k >= 4 * group) and b_along
    tiled = group >= 16 and (not deep) and (m > rows // 4) and (n > cols // 4)
    tiles = ceil_div(m, rows) * ceil_div(n, cols) * math.prod(t.y.shape[:-2])
    if tiled:
        call.launch(
            "gemm_tiles", groups=tiles, local=256, TILE_ROWS=rows, TILE_COLS=cols, k=k, a_along=a_along, b_along=b_along
        )
    if deep:
        call.launch("gemm_dots", groups=t.y.numel, local=256, k=k)
    if not tiled and (not deep):
        call.launch("gemm_items", items=t.y.numel, k=k)
