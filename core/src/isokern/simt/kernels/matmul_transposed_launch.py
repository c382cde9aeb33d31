"""Launches of matmul_transposed."""

import math
from typing import Any

from isokern.dtypes import BLOCKS
from isokern.simt.launch import Call, ceil_div
from isokern.simt.launch_shared import choose_tile


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "added")
    mixed = call.op == "matmul_mixed"
    m, n = t.y.shape[-2:]
    k = t.a.shape[-1]
    rounded = not mixed and call.attrs.lhs_quantization == "q8_0" and t.a.numel > 0
    b_k, b_col = t.b.strides if mixed else reversed(t.b.strides)
    a_along = rounded or abs(t.a.strides[-1]) < abs(t.a.strides[-2])
    if rounded:
        call.workspace(t.a.numel // 32 * 34)
        call.launch("matmul_round", items=t.a.numel // 32, y=None, b=None)
        t.a = None
    rows, cols = choose_tile(call.device)
    b_steps: dict[str, Any] = {"k": k, "b_k": b_k, "b_col": b_col}
    if call.device.group >= 16 and m > rows // 4 and n > cols // 4:
        tiles = ceil_div(m, rows) * ceil_div(n, cols) * math.prod(t.y.shape[:-2])
        macros: dict[str, Any] = {"TILE_ROWS": rows, "TILE_COLS": cols, "ROUNDED": int(rounded)}
        call.launch("matmul_tiles", groups=tiles, local=256, **macros, a_along=a_along, **b_steps)
        return
    dense = t.b.dtype in BLOCKS and not mixed
    macros = {"DENSE": int(dense), "ROUNDED": int(rounded)}
    if call.device.group > 1 and not mixed and k >= 512:
        call.launch("matmul_dots", groups=t.y.numel, local=32 if dense else 128, **macros, **b_steps)
    else:
        call.launch("matmul_dots", items=t.y.numel, ALONE=1, **macros, **b_steps)
