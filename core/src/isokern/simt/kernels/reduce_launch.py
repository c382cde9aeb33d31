"""Launches of reduce."""

import math

from isokern.simt.launch import Call, bits, convert_bits
from isokern.simt.launch_shared import launch_reduction

NONE = {"reduce_max": -math.inf, "reduce_min": math.inf, "reduce_prod": 1.0, "reduce_mean": math.nan}


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    kept = sum(s != 0 for s in t.y.strides)
    outputs, d = math.prod(t.x.shape[:kept]), math.prod(t.x.shape[kept:])
    if d == 0:
        value = convert_bits(NONE.get(call.op, 0.0), t.y.dtype)
        call.launch("reduce_none", items=outputs, x=None, y=bits(t.y), kept=kept, value=value)
        return
    adjacent = kept > 0 and abs(t.x.strides[kept - 1]) < abs(t.x.strides[-1])
    alone = d <= 32 or (adjacent and outputs >= 32)
    parts = launch_reduction(call, "reduce", outputs, d, alone, 4 * t.x.dtype.compute.itemsize, kept=kept, d=d)
    if parts > 1:
        call.launch("reduce_join", groups=outputs, local=64, outputs=outputs, kept=kept, d=d, parts=parts)
