"""Launches of reduce."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.x.dtype.kind != "f" or t.x.numel == 0:
        call.refuse("only floats, and some of them")
    kept = sum([s != 0 for s in t.y.strides])
    outputs = math.prod(t.x.shape[:kept])
    d = math.prod(t.x.shape[kept:])
    if d < 16:
        call.refuse("fewer than 16 elements an output")
    n = t.x.shape[-1]
    columns = t.x.shape[kept - 1] if kept else 1
    along = t.x.strides[-1] == 1 and n >= 16
    adjacent = kept > 0 and t.x.strides[kept - 1] == 1 and (columns >= 16)
    if not along and (not adjacent):
        call.refuse("x does not lie along memory for 16 elements")
    pieces = d // n * ceil_div(n, 8192) if along else d
    taken = max(1, 16384 // d) if along else 2048
    tasks = ceil_div(outputs, taken) if along else outputs // columns * ceil_div(columns, taken)
    parts = max(1, min(ceil_div(4 * call.device.units, tasks), pieces if along else d // 64))
    length = ceil_div(pieces, parts)
    if parts > 1:
        call.workspace(4 * t.x.dtype.compute.itemsize * outputs * parts)
    shared = 1 if parts > 1 else 0
    if along:
        call.launch(
            "reduce_rows",
            groups=tasks * parts,
            local=1,
            tasks=tasks,
            outputs=outputs,
            kept=kept,
            d=d,
            taken=taken,
            length=length,
            pieces=pieces,
            PARTS=shared,
        )
    if not along:
        call.launch(
            "reduce_columns",
            groups=tasks * parts,
            local=1,
            tasks=tasks,
            outputs=outputs,
            kept=kept,
            d=d,
            length=length,
            PARTS=shared,
        )
    if parts > 1:
        call.launch("reduce_join", items=outputs, outputs=outputs, kept=kept, d=d, parts=parts, PARTS=0)
