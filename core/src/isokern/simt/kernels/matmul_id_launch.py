"""Launches of matmul_id."""

from typing import Any

from isokern.dtypes import BLOCKS
from isokern.simt.launch import Call, ceil_div
from isokern.simt.launch_shared import choose_tile


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "indices")
    n, k = t.b.shape[1:]
    b, count, pairs = t.b, t.b.shape[0], t.indices.numel
    given: dict[str, Any] = {"count": count, "pairs": pairs}
    if pairs > 0:
        call.launch("experts_check", groups=1, local=256, y=None, a=None, b=None, **given)
    if pairs * n == 0:
        return
    rounded = call.attrs.lhs_quantization == "q8_0" and k > 0
    steps: dict[str, Any] = {"count": count, "k": k, "b_col": b.strides[1], "b_k": b.strides[2]}
    height, width = choose_tile(call.device)
    if call.device.group >= 16 and pairs > height // 4 * count and n > width // 4:
        # Indices are of 8 bytes at most; pairs without an expert are one more
        rows = ceil_div(8 * (pairs + 2 * count + 3), 256) * 256
        call.workspace(rows + 4 * pairs * k)
        call.launch("experts_sort", groups=1, local=256, y=None, a=None, b=None, height=height, **given)
        shape: dict[str, Any] = {"rows": rows, "count": count, "k": k, "ROUNDED": int(rounded)}
        call.launch("experts_gather", groups=pairs, local=128, y=None, b=None, indices=None, **shape)
        tiles = min(pairs, pairs // height + count + 1) * ceil_div(n, width)
        t.a = t.indices = None
        macros: dict[str, Any] = {"TILE_ROWS": height, "TILE_COLS": width}
        call.launch("experts_tiles", groups=tiles, local=256, rows=rows, **macros, **steps)
        return
    if rounded:
        call.workspace(t.a.numel // 32 * 34)
        call.launch("matmul_round", items=t.a.numel // 32, y=None, b=None, indices=None, count=count)
        t.a = None
    dense = b.dtype in BLOCKS
    steps |= {"DENSE": int(dense), "ROUNDED": int(rounded)}
    if call.device.group > 1 and k >= 512:
        call.launch("experts_dots", groups=t.y.numel, local=32 if dense else 128, **steps)
    else:
        call.launch("experts_dots", items=t.y.numel, ALONE=1, **steps)
