"""Launches of generic."""

import math

from isokern.ops.generic import find_widest
from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_reduction


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "init", "*x")
    if call.op == "generic" and call.attrs.combine == "none":
        call.launch("generic_map", all="x", items=t.y.numel)
        return
    kept = sum(s != 0 for s in t.y.strides)
    outputs, d = math.prod(t.y.shape[:kept]), math.prod(t.y.shape[kept:])
    across = sum(min(32, abs(desc.strides[kept - 1])) for desc in t.x)
    along = sum(min(32, abs(desc.strides[-1])) for desc in t.x)
    alone = call.device.group == 1 or d <= 32 or (outputs >= 32 and across <= along)
    nbytes = 4 * find_widest(t.x, t.y).compute.itemsize
    parts = launch_reduction(call, "generic_reduce", outputs, d, alone, nbytes, "x", kept=kept, d=d)
    if parts > 1:
        call.launch("generic_join", x=t.x[0], groups=outputs, local=64, outputs=outputs, kept=kept, parts=parts)
