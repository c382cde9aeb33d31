"""Launches of rearrange."""

import math

from isokern.simt.launch import Call, bits, ceil_div, pieces


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y, t.x = bits(t.y), bits(t.x)
    last, n = t.y.ndim - 1, t.y.shape[-1]
    dense = [d for d in range(last) if abs(t.x.strides[d]) == 1 and t.y.shape[d] >= 8][:1]
    if dense and abs(t.x.strides[last]) > 1 and n >= 8:
        order = [*(d for d in range(last) if d not in dense), *dense, last]
        y, x = t.y.permute(order), t.x.permute(order)
        squares = ceil_div(y.shape[-2], 32) * ceil_div(n, 32)
        call.launch("rearrange_squares", groups=math.prod(y.shape[:-2]) * squares, local=256, y=y, x=x)
    elif n * 2 < min(64, call.device.group):
        call.launch("rearrange_elements", items=t.y.numel)
    elif t.y.numel > 0:
        call.launch("rearrange_lines", groups=pieces(t.y), local=256)
