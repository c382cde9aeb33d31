"""Launches of reduce."""

import math
from typing import Any

from isokern.simt.launch import Call, ceil_div, count_parts, whole_pack
from isokern.simt.launch_shared import count_lanes


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    kept = sum(s != 0 for s in t.y.strides)
    outputs, d = math.prod(t.x.shape[:kept]), math.prod(t.x.shape[kept:])
    takes = 16 // t.x.dtype.itemsize
    adjacent = t.x.shape[kept - 1]
    transposed = t.x.permute([i for i in range(t.x.ndim) if i != kept - 1] + [kept - 1]) if kept else t.x
    rows = kept < t.x.ndim and t.x.strides[-1] == 1 and whole_pack([t.x])
    wide = kept > 0 and d >= 16 and adjacent >= 16 * takes
    if t.x.numel == 0 or not (rows or (wide and transposed.strides[-1] == 1 and whole_pack([transposed]))):
        call.refuse("x does not lie along memory by packs")
    group, lanes = min(256, call.device.group), count_lanes(call.device, ceil_div(d, takes))
    tasks = ceil_div(outputs * lanes, group) if rows else outputs // adjacent * ceil_div(adjacent, 32 * takes)
    most = d // (4096 if rows else 128)
    parts = 1 if rows and lanes != group else count_parts(8 * call.device.units, tasks, most)
    length = ceil_div(ceil_div(d, parts), takes) * takes if rows else ceil_div(d, parts)
    parts = ceil_div(d, length)
    macros: dict[str, Any] = {"EACH": takes, "STRAIGHT": int(kept + 1 >= t.x.ndim), "PARTS": int(parts > 1)}
    values: dict[str, Any] = {"outputs": outputs, "kept": kept, "d": d}
    if rows:
        call.launch("reduce_rows", groups=tasks * parts, local=256, LANES=lanes, **macros, **values, length=length)
    else:
        call.launch("reduce_columns", groups=tasks * parts, local=256, **macros, tiles=tasks, **values, length=length)
    if parts > 1:
        call.workspace(4 * t.x.dtype.compute.itemsize * outputs * parts)
        call.launch("reduce_join", groups=outputs, local=64, EACH=1, **values, parts=parts)
