"""Launches of rearrange."""

import math

from isokern.simt.launch import Call, bits, ceil_div
from isokern.simt.launch_shared import is_large, launch_runs


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y, t.x = bits(t.y), bits(t.x)
    last, d, size = t.y.ndim - 1, t.y.shape[-1], t.y.dtype.itemsize
    if t.y.strides[last] != 1 or d < 16:
        call.refuse("y does not lie along memory for 16 elements")
    if t.x.strides[last] == 1:
        launch_runs(call, "rearrange_runs", t.y)
        return
    dense = [i for i in range(last) if t.x.strides[i] == 1 and t.y.shape[i] >= 16][:1]
    if not dense:
        call.refuse("x does not lie along memory for 16 elements")
    order = [*(i for i in range(last) if i not in dense), *dense, last]
    stream = is_large(t.y) and size > 1 and all(s * size % 64 == 0 for s in t.y.strides[:-1])
    t.y, t.x = t.y.permute(order), t.x.permute(order)
    high, wide = ceil_div(t.y.shape[-2], 128), ceil_div(d, 128)
    groups = math.prod(t.y.shape[:-2]) * high * wide
    call.launch("rearrange_squares", groups=groups, local=1, high=high, wide=wide, stream=stream)
