"""Launches of rearrange."""

import math

from isokern.simt.launch import Call, bits, ceil_div, pieces


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y = bits(t.y)
    t.x = bits(t.x)
    last = t.y.ndim - 1
    n = t.y.shape[-1]
    dense = [d for d in range(last) if abs(t.x.strides[d]) == 1 and t.y.shape[d] >= 8]
    transposed = len(dense) > 0 and abs(t.x.strides[last]) > 1 and (n >= 8)
    lines = n * 2 >= min(64, call.device.group)
    order = [d for d in range(last) if d not in dense[:1]] + dense[:1] + [last]
    if lines and (not transposed) and (t.y.numel > 0):
        call.launch("rearrange_lines", groups=pieces(t.y), local=256)
    if not lines and (not transposed):
        call.launch("rearrange_elements", items=t.y.numel)
    squares = ceil_div(t.y.shape[order[-2]], 32) * ceil_div(n, 32) if transposed else 0
    others = math.prod([t.y.shape[d] for d in order[:-2]])
    if transposed:
        call.launch("rearrange_squares", groups=others * squares, local=256, y=t.y.permute(order), x=t.x.permute(order))
