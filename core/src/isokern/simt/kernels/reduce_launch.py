"""Launches of reduce."""

import math

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_reduction


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    kept = sum(s != 0 for s in t.y.strides)
    outputs, d = math.prod(t.x.shape[:kept]), math.prod(t.x.shape[kept:])
    adjacent = kept > 0 and abs(t.x.strides[kept - 1]) < abs(t.x.strides[-1])
    alone = d <= 32 or (adjacent and outputs >= 32)
    parts = launch_reduction(call, "reduce", outputs, d, alone, 4 * t.x.dtype.compute.itemsize, kept=kept, d=d)
    if parts > 1:
        call.launch("reduce_join", groups=outputs, local=64, outputs=outputs, kept=kept, d=d, parts=parts)
