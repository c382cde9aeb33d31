"""Launches of gemm."""

import math
from typing import Any

from isokern.simt.launch import Call, bits, ceil_div
from isokern.simt.launch_shared import choose_tile


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "c")
    if t.y.dtype.kind in "iu":
        t.y, t.a, t.b = bits(t.y), bits(t.a), bits(t.b)
    m, n = t.y.shape[-2:]
    k = t.a.shape[-1]
    group = min(256, call.device.group)
    rows, cols = choose_tile(call.device)
    a_along = abs(t.a.strides[-1]) < abs(t.a.strides[-2])
    b_along = abs(t.b.strides[-2]) < abs(t.b.strides[-1])
    if group > 1 and m <= 4 and k >= 4 * group and b_along:
        call.launch("gemm_dots", groups=t.y.numel, local=256, k=k)
    elif group >= 16 and m > rows // 4 and n > cols // 4:
        tiles = ceil_div(m, rows) * ceil_div(n, cols) * math.prod(t.y.shape[:-2])
        shape: dict[str, Any] = {"TILE_ROWS": rows, "TILE_COLS": cols}
        call.launch("gemm_tiles", groups=tiles, local=256, **shape, k=k, a_along=a_along, b_along=b_along)
    else:
        call.launch("gemm_items", items=t.y.numel, k=k)
