"""Launches of matmul_transposed."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "added")
    mixed = call.op == "matmul_mixed"
    m = t.y.shape[-2]
    n = t.y.shape[-1]
    k = t.a.shape[-1]
    dense = t.b.dtype.block > 1 and call.op != "matmul_mixed"
    how = "float" if mixed else call.attrs.lhs_quantization
    rounded = how == "q8_0" and t.a.numel > 0
    b_k = t.b.strides[0 if mixed else 1]
    b_col = t.b.strides[1 if mixed else 0]
    group = min(256, call.device.group)
    cols = 64 if group >= 128 else 32 if group >= 32 else 16
    rows = 16 * group // cols
    tiled = group >= 16 and m > rows // 4 and (n > cols // 4)
    deep = group > 1 and (not mixed) and (k >= 512)
    tiles = ceil_div(m, rows) * ceil_div(n, cols) * math.prod(t.y.shape[:-2])
    a_along = rounded or abs(t.a.strides[-1]) < abs(t.a.strides[-2])
    if rounded:
        call.workspace(t.a.numel // 32 * 34)
        call.launch("matmul_round", items=t.a.numel // 32, y=None, b=None)
    t.a = None if rounded else t.a
    if tiled:
        call.launch(
            "matmul_tiles",
            groups=tiles,
            local=256,
            TILE_ROWS=rows,
            TILE_COLS=cols,
            ROUNDED=int(rounded),
            k=k,
            a_along=a_along,
            b_k=b_k,
            b_col=b_col,
        )
    if deep and (not tiled):
        call.launch(
            "matmul_dots",
            groups=t.y.numel,
            local=32 if dense else 128,
            DENSE=int(dense),
            ROUNDED=int(rounded),
            k=k,
            b_k=b_k,
            b_col=b_col,
        )
    if not deep and (not tiled):
        call.launch(
            "matmul_dots", items=t.y.numel, ALONE=1, DENSE=int(dense), ROUNDED=int(rounded), k=k, b_k=b_k, b_col=b_col
        )
