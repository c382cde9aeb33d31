"""Launches of conv2d."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    size = 8 if t.y.dtype.itemsize == 8 else 4
    plain = t.y.dtype.itemsize == size
    kh = t.w.shape[2]
    kw = t.w.shape[3]
    oh = t.y.shape[2]
    ow = t.y.shape[3]
    rows = t.w.shape[0] // call.attrs.groups
    k = t.w.shape[1] * kh * kw
    sh = call.attrs.stride[0]
    sw = call.attrs.stride[-1]
    down = call.attrs.dilation[0] * (kh - 1)
    right = call.attrs.dilation[-1] * (kw - 1)
    skinny = rows <= 2
    direct = kh * kw * sh * sw == 1 and (not any(call.attrs.padding)) and (oh * ow * size >= 128)
    lies = not skinny and (k == 0 or (plain and direct and (t.x.strides[3] == 1) and (t.x.strides[2] == ow)))
    rows_lie = (
        (kw == 1 or t.w.strides[3] == 1)
        and (kh == 1 or t.w.strides[2] == kw)
        and (t.w.shape[1] == 1 or t.w.strides[1] == kh * kw)
    )
    taps_lie = k == 0 or (plain and rows_lie)
    planes = t.x.shape[0] * t.x.shape[1] * min(sh, down + 1) * min(sw, right + 1)
    high = oh + down // sh
    wide = ow if lies else ow + right // sw
    panels = ceil_div(oh * wide * size, 128)
    groups = t.y.shape[0] * call.attrs.groups
    wanted = ceil_div(4 * call.device.units, max(1, groups * panels))
    block = min(64, 8 * ceil_div(max(1, rows), 8 * max(1, wanted, ceil_div(rows, 64))))
    tiles = groups * ceil_div(rows, block) * panels
    own = 128 * tiles * k
    points = not skinny and (not lies) and (kh * kw == 1) and (not any(call.attrs.padding)) and (0 < own <= 2097152)
    beyond = 256 + right // sw * size
    taps_at = own if points else 0 if lies else 64 * ceil_div(planes * high * wide * size + beyond, 64)
    w_at = taps_at + (0 if lies or points else 8 * max(1, k))
    if taps_at > 1 << 31:
        call.refuse("planes of more than 2 GiB")
    call.workspace(w_at + (0 if taps_lie else t.w.numel * size))
    if not (lies or points):
        call.launch("conv2d_planes", groups=planes, local=1, planes=planes, high=high, wide=wide, taps_at=taps_at)
    if not taps_lie:
        call.launch("conv2d_filters", groups=t.w.shape[0], local=1, w_at=w_at)
    if not skinny:
        call.launch(
            "conv2d",
            groups=tiles,
            local=1,
            LIES=lies + 0,
            POINTS=points + 0,
            TAPS_LIE=taps_lie + 0,
            block=block,
            high=high,
            wide=wide,
            taps_at=taps_at,
            w_at=w_at,
        )
    if skinny:
        call.launch(
            "conv2d_skinny",
            groups=t.y.shape[0] * t.y.shape[1],
            local=1,
            TAPS_LIE=taps_lie + 0,
            high=high,
            wide=wide,
            taps_at=taps_at,
            w_at=w_at,
        )
