"""Launches of conv2d."""

from isokern.simt.launch import Call, ceil_div, tensor
from isokern.simt.launch_shared import check_block_product, choose_block


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    groups = call.attrs.groups
    channels = t.w.shape[0] // max(1, groups)
    area = t.y.shape[2] * t.y.shape[3]
    pixels = t.y.shape[0] * area
    half = check_block_product(call, t.y.dtype)
    if channels <= 8 or pixels <= 16:
        call.refuse("few channels or pixels")
    if not tensor(t.w, t.w.shape[1:], t.w.strides[1:], t.w.offset).is_contiguous:
        call.refuse("filters do not lie along memory")
    chunk, adjacent = (8, 2) if half else (4, 4)
    w_whole = t.w.strides[0] % chunk == 0 and t.w.offset % chunk == 0
    planes = tensor(t.y, t.y.shape[2:], t.y.strides[2:], t.y.offset)
    steps = (area, t.y.strides[1], t.y.offset, *(t.y.strides[:1] if t.y.shape[0] > 1 else ()))
    tiles = groups * ceil_div(channels, 128) * ceil_div(pixels, 64 if half else 128)
    large = w_whole and min(channels, pixels) > 64 and tiles >= call.device.units
    group, rows, warp = choose_block(call.device, half, large)
    cols = group // 2 if half else min(128, group)
    call.launch(
        "conv2d_tiles",
        groups=groups * ceil_div(channels, rows) * ceil_div(pixels, cols),
        local=group,
        BLOCK_ROWS=rows,
        BLOCK_COLS=cols,
        WARP_ROWS=warp,
        W_WHOLE=int(w_whole),
        Y_WHOLE=int(planes.is_contiguous and all(s % adjacent == 0 for s in steps)),
        channels=channels,
    )
