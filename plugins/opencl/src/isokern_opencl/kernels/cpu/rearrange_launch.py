"""Launches of rearrange."""

import math

from isokern.simt.launch import Call, bits, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y = bits(t.y)
    t.x = bits(t.x)
    last = t.y.ndim - 1
    d = t.y.shape[-1]
    size = t.y.dtype.itemsize
    large = t.y.numel * t.y.dtype.itemsize >= 2097152
    if t.y.strides[last] != 1 or d < 16:
        call.refuse("y does not lie along memory for 16 elements")
    along = t.x.strides[last] == 1
    dense = [i for i in range(last) if t.x.strides[i] == 1 and t.y.shape[i] >= 16]
    if not along and len(dense) == 0:
        call.refuse("x does not lie along memory for 16 elements")
    rows = t.y.numel // d
    taken = max(1, 8192 // d)
    parts = ceil_div(d, 8192)
    if along:
        call.launch(
            "rearrange_runs",
            groups=ceil_div(rows, taken) * parts,
            local=1,
            rows=rows,
            taken=taken,
            parts=parts,
            stream=large,
        )
    order = [i for i in range(last) if i not in dense[:1]] + dense[:1] + [last]
    lines = size > 1 and all(s * size % 64 == 0 for s in t.y.strides[:-1])
    t.y = t.y.permute(order)
    t.x = t.x.permute(order)
    high = ceil_div(t.y.shape[-2], 128) if last else 0
    wide = ceil_div(d, 128)
    others = math.prod(t.y.shape[:-2])
    if not along:
        call.launch(
            "rearrange_squares",
            groups=others * high * wide,
            local=1,
            y=t.y,
            x=t.x,
            high=high,
            wide=wide,
            stream=large and lines,
        )
