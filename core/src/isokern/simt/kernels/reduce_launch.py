"""Launches of reduce."""

import math

from isokern.simt.launch import Call, bits, convert_bits
from isokern.simt.launch_shared import describe_reduction, launch_any_reduction

NONE = {"reduce_max": -math.inf, "reduce_min": math.inf, "reduce_prod": 1.0, "reduce_mean": math.nan}


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t, kept, outputs, d = describe_reduction(call)
    if d == 0:
        value = convert_bits(NONE.get(call.op, 0.0), t.y.dtype)
        call.launch("reduce_none", items=outputs, x=None, y=bits(t.y), kept=kept, value=value)
        return
    launch_any_reduction(call, "reduce", t, 4 * t.x.dtype.compute.itemsize, kept=kept, outputs=outputs, d=d)
