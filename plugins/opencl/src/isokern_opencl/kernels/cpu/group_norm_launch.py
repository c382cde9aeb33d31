"""Launches of group_norm on a processor."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    n, c, *sizes = t.y.shape
    groups, inner = (call.attrs.groups if call.op == "group_norm" else c), math.prod(sizes)
    if t.y.numel == 0:
        return
    d = c // groups * inner
    y, x = (desc.reshape((n, groups, d)) for desc in (t.y, t.x))
    if y is None or x is None or y.strides[-1] != 1 or x.strides[-1] != 1:
        call.refuse("groups do not lie along memory")
    t.y, t.x, taken = y, x, max(1, 16384 // d)
    call.launch(
        "group_norm",
        groups=ceil_div(n * groups, taken),
        local=1,
        rows=n * groups,
        taken=taken,
        large=y.numel * y.dtype.itemsize >= 2097152,
        group_count=groups,
        channels=c // groups,
        inner=inner,
    )
