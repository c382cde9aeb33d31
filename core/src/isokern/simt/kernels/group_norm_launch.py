"""Launches of group_norm and instance_norm: rows are the elements of groups."""

import math

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_rows


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    n, c, *sizes = t.y.shape
    groups = call.attrs.groups if call.op == "group_norm" else c
    channels, inner = c // max(1, groups), math.prod(sizes)
    if t.y.numel == 0:
        return
    y, x = (desc.reshape((n, groups, channels * inner)) for desc in (t.y, t.x))
    if y is None or x is None:
        call.refuse("an item's elements do not lie along memory with one step")
    t.y, t.x = y, x
    launch_rows(call, "layer_norm", y, 4, group_count=groups, channels=channels, inner=inner)
