"""Launches of batch_norm."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = max(1, t.y.shape[-1])
    if d < 16:
        call.refuse("the last dim is shorter than 16")
    if t.y.strides[-1] != 1 or t.x.strides[-1] != 1:
        call.refuse("the last dim does not lie along memory")
    rows = t.y.numel // d
    outer = math.prod(t.y.shape[1:-1])
    taken = max(1, 8192 // d)
    parts = ceil_div(d, 8192)
    large = t.y.numel * t.y.dtype.itemsize >= 2097152
    call.launch(
        "batch_norm",
        groups=ceil_div(rows, taken) * parts,
        local=1,
        rows=rows,
        outer=outer,
        taken=taken,
        parts=parts,
        large=large,
    )
