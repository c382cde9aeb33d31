"""Launches of conv2d."""

from isokern.simt.launch import Call, ceil_div, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    channels = t.w.shape[0] // max(1, call.attrs.groups)
    area = t.y.shape[2] * t.y.shape[3]
    half = t.y.dtype.name in ("F16", "BF16")
    pixels = t.y.shape[0] * area
    if not half and t.y.dtype.name != "F32":
        call.refuse("neither F16, BF16 nor F32")
    if half and "mma_" + t.y.dtype.name.lower() not in call.device.features:
        call.refuse("no tensor cores for this dtype")
    if call.device.group < 64:
        call.refuse("blocks of less than 64 threads")
    if channels <= 8 or pixels <= 16:
        call.refuse("few channels or pixels")
    if not tensor(t.w, t.w.shape[1:], t.w.strides[1:], t.w.offset).is_contiguous:
        call.refuse("filters do not lie along memory")
    chunk = 8 if half else 4
    adjacent = 2 if half else 4
    w_whole = 0 if t.w.strides[0] % chunk or t.w.offset % chunk else 1
    planes = tensor(t.y, t.y.shape[2:], t.y.strides[2:], t.y.offset).is_contiguous
    y_whole = (
        0
        if not planes
        or any(s % adjacent for s in (area, t.y.strides[1], t.y.offset))
        or (t.y.shape[0] > 1 and t.y.strides[0] % adjacent)
        else 1
    )
    large = (
        w_whole
        and min(channels, pixels) > 64
        and (call.attrs.groups * ceil_div(channels, 128) * ceil_div(pixels, 64 if half else 128) >= call.device.units)
    )
    group = min(call.device.group, 128 if half else 256 if large else 64)
    warp = 64 if large else 32
    rows = 2 * warp if half else 128 if group == 256 else 64
    cols = group // 2 if half else min(128, group)
    tiles = call.attrs.groups * ceil_div(channels, rows) * ceil_div(pixels, cols)
    call.launch(
        "conv2d_tiles",
        groups=tiles,
        local=group,
        BLOCK_ROWS=rows,
        BLOCK_COLS=cols,
        WARP_ROWS=warp,
        W_WHOLE=w_whole,
        Y_WHOLE=y_whole,
        channels=channels,
    )
