"""Launches of reduce."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    kept = sum([s != 0 for s in t.y.strides])
    outputs = math.prod(t.x.shape[:kept])
    d = math.prod(t.x.shape[kept:])
    adjacent = kept > 0 and abs(t.x.strides[kept - 1]) < abs(t.x.strides[-1]) and (outputs >= 32)
    alone = d <= 32 or adjacent
    wide = 4 if t.x.dtype.compute.name == "F32" else 8
    wanted = ceil_div((2048 if alone else 8) * call.device.units, max(1, outputs))
    parts = max(1, min(wanted, d // (64 if alone else 4096)))
    length = ceil_div(d, parts)
    tasks = outputs * parts
    if parts > 1:
        call.workspace(4 * wide * tasks)
    if alone and parts == 1:
        call.launch("reduce", items=tasks, ALONE=1, outputs=outputs, kept=kept, d=d, length=length)
    if alone and parts > 1:
        call.launch("reduce", items=tasks, ALONE=1, PARTS=1, outputs=outputs, kept=kept, d=d, length=length)
    if not alone and parts == 1:
        call.launch("reduce", groups=tasks, local=256, outputs=outputs, kept=kept, d=d, length=length)
    if not alone and parts > 1:
        call.launch("reduce", groups=tasks, local=256, PARTS=1, outputs=outputs, kept=kept, d=d, length=length)
    if parts > 1:
        call.launch("reduce_join", groups=outputs, local=64, outputs=outputs, kept=kept, d=d, parts=parts)
