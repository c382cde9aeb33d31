"""Launches of gemm."""

import math

from isokern import TensorDesc
from isokern.simt.launch import Call, ceil_div
from isokern.simt.launch_shared import check_block_product, choose_block


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "c")
    m, n = t.y.shape[-2:]
    half = check_block_product(call, t.y.dtype)
    if min(m, n) <= 4 or max(m, n) <= 16:
        call.refuse("few rows or columns")
    a_along, b_along = t.a.strides[-1] == 1, t.b.strides[-2] == 1
    if (not a_along and t.a.strides[-2] != 1) or (not b_along and t.b.strides[-1] != 1):
        call.refuse("a factor lies along memory in neither dim")
    chunk, adjacent = (8, 2) if half else (4, 4)
    heads = [i for i in range(t.y.ndim - 2) if t.y.shape[i] > 1]

    def is_whole(x: TensorDesc, across: int, count: int) -> bool:
        return all(s % count == 0 for s in (x.strides[across], x.offset, *(x.strides[i] for i in heads)))

    batch = math.prod(t.y.shape[:-2])
    large = min(m, n) > 64 and ceil_div(m, 128) * ceil_div(n, 128) * batch >= call.device.units
    group, rows, warp = choose_block(call.device, half, large)
    cols = warp * group // 64 if half else min(128, group)
    call.launch(
        "gemm_tiles",
        groups=ceil_div(m, rows) * ceil_div(n, cols) * batch,
        local=group,
        BLOCK_ROWS=rows,
        BLOCK_COLS=cols,
        WARP_ROWS=warp,
        A_ALONG=int(a_along),
        B_ALONG=int(b_along),
        A_WHOLE=int(is_whole(t.a, -2 if a_along else -1, chunk)),
        B_WHOLE=int(is_whole(t.b, -1 if b_along else -2, chunk)),
        Y_WHOLE=int(t.y.strides[-1] == 1 and is_whole(t.y, -2, adjacent)),
    )
