"""Launches of gemm."""

import math
from typing import Any

from isokern.simt.launch import Call, ceil_div
from isokern.simt.launch_shared import choose_rows


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "c")
    if t.y.numel == 0:
        return
    size = 8 if t.y.dtype.itemsize == 8 else 4
    m, n, k = t.a.shape[-2], t.b.shape[-1], t.a.shape[-1]
    batch = math.prod(t.y.shape[:-2])
    along = t.y.dtype.kind == "f" and k >= 64 and t.a.strides[-1] == 1 and t.b.strides[-2] == 1
    if along and min(m, n) <= 4:
        groups = batch * ceil_div(max(m, n), 8)
        call.launch("gemm_dots", groups=groups, local=1, transposed=n > m, SKINNY=min(m, n))
        return
    sums_a = n <= 4 and m * size >= 512 and t.a.strides[-2] == 1
    sums_b = m <= 4 and n * size >= 512 and t.b.strides[-1] == 1
    if t.y.dtype.kind == "f" and (sums_a or sums_b):
        rows, cols = (m, n) if sums_b else (n, m)
        groups = batch * ceil_div(cols * size, 512)
        call.launch("gemm_sums", groups=groups, local=1, transposed=not sums_b, SKINNY=rows)
        return
    plain = t.y.dtype.itemsize == size
    a_lies = k == 0 or (plain and (k == 1 or t.a.strides[-1] == 1))
    b_lies = k == 0 or (plain and (k == 1 or t.b.strides[-2] == 1))
    straight_cost = 8 * ceil_div(m, 8) * ceil_div(n * size, 128) + 2 * m * (not a_lies) + n + n * (m > 64)
    transposed_cost = 8 * ceil_div(n, 8) * ceil_div(m * size, 128) + 2 * n * (not b_lies) + m + m * (n > 64)
    transposed = transposed_cost < straight_cost
    rows, cols, lies = (n, m, b_lies) if transposed else (m, n, a_lies)
    lefts, rights = (1 if all(s == 0 for s in desc.strides[:-2]) else batch for desc in (t.a, t.b))
    if transposed:
        lefts, rights = rights, lefts
    packs = rows > 64 and k > 0
    panels = ceil_div(cols * size, 128)
    packed = rights * panels * k * 128 if packs else 0
    copied = 0 if lies else lefts * rows * k * size
    if packed + copied > 1 << 31:
        call.refuse("panels of more than 2 GiB")
    call.workspace(packed + copied)
    if packs:
        groups = rights * ceil_div(panels, 8) * ceil_div(k, 64)
        call.launch("gemm_right", groups=groups, local=1, transposed=transposed)
    if not lies:
        groups = lefts * ceil_div(rows, 128) * ceil_div(k, 64)
        call.launch("gemm_left", groups=groups, local=1, transposed=transposed, at=packed)
    block = choose_rows(call.device, rows, batch * panels)
    values: dict[str, Any] = {"transposed": transposed, "block": block, "lefts": lefts, "rights": rights, "at": packed}
    groups = batch * ceil_div(rows, block) * panels
    call.launch("gemm", groups=groups, local=1, LIES=int(lies), PACKED=int(packs), **values)
