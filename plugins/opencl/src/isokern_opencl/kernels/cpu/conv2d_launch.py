"""Launches of conv2d."""

from typing import Any

from isokern.simt.launch import Call, ceil_div
from isokern.simt.launch_shared import choose_rows


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    size = 8 if t.y.dtype.itemsize == 8 else 4
    plain = t.y.dtype.itemsize == size
    (channels, kh, kw), (oh, ow) = t.w.shape[1:], t.y.shape[2:]
    rows, k = t.w.shape[0] // call.attrs.groups, channels * kh * kw
    sh, sw = call.attrs.stride[0], call.attrs.stride[-1]
    down, right = call.attrs.dilation[0] * (kh - 1), call.attrs.dilation[-1] * (kw - 1)
    skinny = rows <= 2
    point = kh * kw == 1 and not any(call.attrs.padding)
    direct = point and sh * sw == 1 and oh * ow * size >= 128 and t.x.strides[2:] == (ow, 1)
    lies = not skinny and (k == 0 or (plain and direct))
    cols_lie = (kw == 1 or t.w.strides[3] == 1) and (kh == 1 or t.w.strides[2] == kw)
    taps_lie = k == 0 or (plain and cols_lie and (channels == 1 or t.w.strides[1] == kh * kw))
    high, wide = oh + down // sh, ow if lies else ow + right // sw
    groups, panels = t.y.shape[0] * call.attrs.groups, ceil_div(oh * wide * size, 128)
    block = choose_rows(call.device, rows, groups * panels)
    tiles = groups * ceil_div(rows, block) * panels
    # The workspace: panels of points, or planes and the offsets of taps; then filters
    own = 128 * tiles * k
    points = not skinny and not lies and point and 0 < own <= 2 << 20
    planes = t.x.shape[0] * t.x.shape[1] * min(sh, down + 1) * min(sw, right + 1)
    beyond = 256 + right // sw * size
    taps_at = own if points else 0 if lies else 64 * ceil_div(planes * high * wide * size + beyond, 64)
    w_at = taps_at + (0 if lies or points else 8 * max(1, k))
    if taps_at > 1 << 31:
        call.refuse("planes of more than 2 GiB")
    call.workspace(w_at + (0 if taps_lie else t.w.numel * size))
    values: dict[str, Any] = {"high": high, "wide": wide, "taps_at": taps_at}
    if not (lies or points):
        call.launch("conv2d_planes", groups=planes, local=1, planes=planes, **values)
    if not taps_lie:
        call.launch("conv2d_filters", groups=t.w.shape[0], local=1, w_at=w_at)
    values |= {"TAPS_LIE": int(taps_lie), "w_at": w_at}
    if skinny:
        call.launch("conv2d_skinny", groups=t.y.shape[0] * t.y.shape[1], local=1, **values)
    else:
        call.launch("conv2d", groups=tiles, local=1, LIES=int(lies), POINTS=int(points), block=block, **values)
