"""Launches of gemm."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "c")
    m = t.y.shape[-2]
    n = t.y.shape[-1]
    batch = math.prod(t.y.shape[:-2])
    half = t.y.dtype.name in ("F16", "BF16")
    if not half and t.y.dtype.name != "F32":
        call.refuse("neither F16, BF16 nor F32")
    if half and "mma_" + t.y.dtype.name.lower() not in call.device.features:
        call.refuse("no tensor cores for this dtype")
    if call.device.group < 64:
        call.refuse("blocks of less than 64 threads")
    if min(m, n) <= 4 or max(m, n) <= 16:
        call.refuse("few rows or columns")
    a_along = 1 if t.a.strides[-1] == 1 else 0
    b_along = 1 if t.b.strides[-2] == 1 else 0
    if (not a_along and t.a.strides[-2] != 1) or (not b_along and t.b.strides[-1] != 1):
        call.refuse("a factor lies along memory in neither dim")
    chunk = 8 if half else 4
    adjacent = 2 if half else 4
    heads = [i for i in range(t.y.ndim - 2) if t.y.shape[i] > 1]
    a_steps = [t.a.strides[-2 if a_along else -1], t.a.offset] + [t.a.strides[i] for i in heads]
    b_steps = [t.b.strides[-1 if b_along else -2], t.b.offset] + [t.b.strides[i] for i in heads]
    y_steps = [t.y.strides[-2], t.y.offset] + [t.y.strides[i] for i in heads]
    a_whole = 0 if any(s % chunk for s in a_steps) else 1
    b_whole = 0 if any(s % chunk for s in b_steps) else 1
    y_whole = 0 if t.y.strides[-1] != 1 or any(s % adjacent for s in y_steps) else 1
    large = min(m, n) > 64 and ceil_div(m, 128) * ceil_div(n, 128) * batch >= call.device.units
    group = min(call.device.group, 128 if half else 256 if large else 64)
    warp = 64 if large else 32
    rows = 2 * warp if half else 128 if group == 256 else 64
    cols = warp * group // 64 if half else min(128, group)
    tiles = ceil_div(m, rows) * ceil_div(n, cols) * batch
    call.launch(
        "gemm_tiles",
        groups=tiles,
        local=group,
        BLOCK_ROWS=rows,
        BLOCK_COLS=cols,
        WARP_ROWS=warp,
        A_ALONG=a_along,
        B_ALONG=b_along,
        A_WHOLE=a_whole,
        B_WHOLE=b_whole,
        Y_WHOLE=y_whole,
    )
