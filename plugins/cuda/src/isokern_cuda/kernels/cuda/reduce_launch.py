"""Launches of reduce."""

import math

from isokern.simt.launch import Call, ceil_div, pack


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    kept = sum([s != 0 for s in t.y.strides])
    outputs = math.prod(t.x.shape[:kept])
    d = math.prod(t.x.shape[kept:])
    takes = 16 // t.x.dtype.itemsize
    adjacent = t.x.shape[kept - 1]
    transposed = t.x.permute([i for i in range(t.x.ndim) if i != kept - 1] + [kept - 1]) if kept else t.x
    rows = kept < t.x.ndim and t.x.strides[-1] == 1 and (pack([t.x], 16) == takes)
    columns = (
        not rows
        and kept > 0
        and (d >= 16)
        and (adjacent >= 16 * takes)
        and (transposed.strides[-1] == 1)
        and (pack([transposed], 16) == takes)
    )
    if t.x.numel == 0 or not (rows or columns):
        call.refuse("x does not lie along memory by packs")
    packs = ceil_div(d, takes)
    group = min(256, call.device.group)
    lanes = group if packs > 512 else min(32, 1 << max(1, packs // 2).bit_length() - 1)
    tasks = ceil_div(outputs * lanes, group) if rows else outputs // adjacent * ceil_div(adjacent, 32 * takes)
    wanted = ceil_div(8 * call.device.units, tasks)
    parts = max(1, min(wanted, d // (4096 if rows else 128))) if columns or lanes == group else 1
    length = ceil_div(ceil_div(d, parts), takes) * takes if rows else ceil_div(d, parts)
    parts = ceil_div(d, length)
    straight = int(kept + 1 >= t.x.ndim)
    if parts > 1:
        call.workspace(4 * t.x.dtype.compute.itemsize * outputs * parts)
    if rows:
        call.launch(
            "reduce_rows",
            groups=tasks * parts,
            local=256,
            EACH=takes,
            LANES=lanes,
            STRAIGHT=straight,
            PARTS=int(parts > 1),
            outputs=outputs,
            kept=kept,
            d=d,
            length=length,
        )
    if columns:
        call.launch(
            "reduce_columns",
            groups=tasks * parts,
            local=256,
            EACH=takes,
            STRAIGHT=straight,
            PARTS=int(parts > 1),
            tiles=tasks,
            outputs=outputs,
            kept=kept,
            d=d,
            length=length,
        )
    if parts > 1:
        call.launch("reduce_join", groups=outputs, local=64, EACH=1, outputs=outputs, kept=kept, d=d, parts=parts)
