"""Launches of gemm."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "c")
    size = 8 if t.y.dtype.itemsize == 8 else 4
    m = t.a.shape[-2]
    n = t.b.shape[-1]
    k = t.a.shape[-1]
    batch = math.prod(t.y.shape[:-2])
    plain = t.y.dtype.itemsize == size
    floats = t.y.dtype.kind == "f"
    a_lies = k == 0 or (plain and (k == 1 or t.a.strides[-1] == 1))
    b_lies = k == 0 or (plain and (k == 1 or t.b.strides[-2] == 1))
    along = floats and k >= 64 and (t.a.strides[-1] == 1) and (t.b.strides[-2] == 1)
    dots_a = along and n <= 4
    dots_b = along and m <= 4
    sums_a = floats and n <= 4 and (m * size >= 512) and (t.a.strides[-2] == 1)
    sums_b = floats and m <= 4 and (n * size >= 512) and (t.b.strides[-1] == 1)
    straight_cost = 8 * ceil_div(m, 8) * ceil_div(n * size, 128) + 2 * m * (not a_lies) + n + n * (m > 64)
    transposed_cost = 8 * ceil_div(n, 8) * ceil_div(m * size, 128) + 2 * n * (not b_lies) + m + m * (n > 64)
    skinny = "dots" if dots_a or dots_b else "sums" if sums_a or sums_b else ""
    transposed = n > m if skinny == "dots" else not sums_b if skinny else transposed_cost < straight_cost
    left = t.b if transposed else t.a
    right = t.a if transposed else t.b
    rows = n if transposed else m
    cols = m if transposed else n
    lies = b_lies if transposed else a_lies
    packs = rows > 64 and k > 0
    lefts = 1 if all(s == 0 for s in left.strides[:-2]) else batch
    rights = 1 if all(s == 0 for s in right.strides[:-2]) else batch
    panels = ceil_div(cols * size, 128)
    wanted = ceil_div(4 * call.device.units, max(1, batch * panels))
    block = min(64, 8 * ceil_div(max(1, rows), 8 * max(1, wanted, ceil_div(rows, 64))))
    packed = rights * panels * k * 128 if packs else 0
    copied = 0 if lies else lefts * rows * k * size
    call.workspace(0 if skinny else packed + copied)
    if not skinny and packed + copied > 1 << 31:
        call.refuse("panels of more than 2 GiB")
    if skinny == "dots":
        call.launch("gemm_dots", groups=batch * ceil_div(rows, 8), local=1, transposed=transposed, SKINNY=cols)
    if skinny == "sums":
        call.launch("gemm_sums", groups=batch * ceil_div(cols * size, 512), local=1, transposed=transposed, SKINNY=rows)
    if packs and (not skinny):
        call.launch("gemm_right", groups=rights * ceil_div(panels, 8) * ceil_div(k, 64), local=1, transposed=transposed)
    if not (skinny or lies):
        call.launch(
            "gemm_left",
            groups=lefts * ceil_div(rows, 128) * ceil_div(k, 64),
            local=1,
            transposed=transposed,
            at=packed,
        )
    tiles = batch * ceil_div(rows, block) * panels
    if not skinny:
        call.launch(
            "gemm",
            groups=tiles,
            local=1,
            transposed=transposed,
            LIES=lies + 0,
            PACKED=packs + 0,
            block=block,
            lefts=lefts,
            rights=rights,
            at=packed,
        )
