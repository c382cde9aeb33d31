"""Launches of generic."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "init", "*x")
    if t.init is None:
        call.launch("generic_map", all="x", items=t.y.numel)
    kept = sum([s != 0 for s in t.y.strides])
    outputs = math.prod(t.y.shape[:kept])
    d = math.prod(t.y.shape[kept:])
    across = sum([min(32, abs(desc.strides[kept - 1])) for desc in t.x])
    along = sum([min(32, abs(desc.strides[-1])) for desc in t.x])
    alone = call.device.group == 1 or d <= 32 or (outputs >= 32 and across <= along)
    wide = 4 if t.x[0].dtype.compute.name == "F32" else 8
    wanted = ceil_div((2048 if alone else 8) * call.device.units, max(1, outputs))
    parts = max(1, min(wanted, d // (64 if alone else 4096)))
    length = ceil_div(d, parts)
    tasks = outputs * parts
    if t.init is not None and parts > 1:
        call.workspace(4 * wide * tasks)
    lone = t.init is not None and alone
    grouped = t.init is not None and (not alone)
    if lone and parts == 1:
        call.launch("generic_reduce", all="x", items=tasks, ALONE=1, outputs=outputs, kept=kept, d=d, length=length)
    if lone and parts > 1:
        call.launch(
            "generic_reduce", all="x", items=tasks, ALONE=1, PARTS=1, outputs=outputs, kept=kept, d=d, length=length
        )
    if grouped and parts == 1:
        call.launch("generic_reduce", all="x", groups=tasks, local=256, outputs=outputs, kept=kept, d=d, length=length)
    if grouped and parts > 1:
        call.launch(
            "generic_reduce", all="x", groups=tasks, local=256, PARTS=1, outputs=outputs, kept=kept, d=d, length=length
        )
    if t.init is not None and parts > 1:
        call.launch("generic_join", x=t.x[0], groups=outputs, local=64, outputs=outputs, kept=kept, parts=parts)
