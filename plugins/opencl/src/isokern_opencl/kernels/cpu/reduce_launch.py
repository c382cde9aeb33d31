"""Launches of reduce."""

import math
from typing import Any

from isokern.simt.launch import Call, ceil_div, count_parts


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.x.dtype.kind != "f" or t.x.numel == 0:
        call.refuse("only floats, and some of them")
    kept, n = sum(s != 0 for s in t.y.strides), t.x.shape[-1]
    outputs, d = math.prod(t.x.shape[:kept]), math.prod(t.x.shape[kept:])
    if d < 16:
        call.refuse("fewer than 16 elements an output")
    columns = t.x.shape[kept - 1] if kept else 1
    along = t.x.strides[-1] == 1 and n >= 16
    if not along and (columns < 16 or t.x.strides[kept - 1] != 1):
        call.refuse("x does not lie along memory for 16 elements")
    taken = max(1, 16384 // d) if along else 2048
    tasks = ceil_div(outputs, taken) if along else outputs // columns * ceil_div(columns, taken)
    pieces = d // n * ceil_div(n, 8192) if along else d
    parts = count_parts(4 * call.device.units, tasks, pieces if along else d // 64)
    values: dict[str, Any] = {"outputs": outputs, "kept": kept, "d": d}
    shares: dict[str, Any] = {"tasks": tasks, "length": ceil_div(pieces, parts), "PARTS": int(parts > 1)}
    if along:
        call.launch("reduce_rows", groups=tasks * parts, local=1, **values, **shares, taken=taken, pieces=pieces)
    else:
        call.launch("reduce_columns", groups=tasks * parts, local=1, **values, **shares)
    if parts > 1:
        call.workspace(4 * t.x.dtype.compute.itemsize * outputs * parts)
        call.launch("reduce_join", items=outputs, ALONE=1, **values, parts=parts, PARTS=0)
