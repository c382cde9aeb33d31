"""Launches of conv2d."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    channels = t.w.shape[0] // max(1, call.attrs.groups)
    pixels = t.y.shape[0] * t.y.shape[2] * t.y.shape[3]
    group = min(256, call.device.group)
    cols = 64 if group >= 128 else 32 if group >= 32 else 16
    rows = 16 * group // cols
    tiled = group >= 16 and channels > rows // 4 and (pixels > cols // 4)
    row_tiles = ceil_div(channels, rows)
    col_tiles = ceil_div(pixels, cols)
    if tiled:
        call.launch(
            "conv2d_tiles",
            groups=call.attrs.groups * row_tiles * col_tiles,
            local=256,
            TILE_ROWS=rows,
            TILE_COLS=cols,
            channels=channels,
        )
    if not tiled:
        call.launch("conv2d_items", items=t.y.numel, channels=channels)
