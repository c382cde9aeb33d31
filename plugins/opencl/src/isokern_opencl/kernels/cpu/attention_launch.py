"""Launches of attention."""

from typing import Any

from isokern.dtypes import F64
from isokern.simt.launch import Call, ceil_div
from isokern.simt.launch_shared import describe_attention, launch_ends


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = describe_attention(call)
    if t.q.dtype is F64:
        call.refuse("F64")
    keys = t.k.shape[1] * (1 if t.block_table is None else t.block_table.shape[1])
    d, e = t.q.shape[3], t.v.shape[3]
    share = t.q.shape[2] // max(1, t.k.shape[2])
    rows = t.q.shape[1] * share
    if not t.y.strides[3] == t.q.strides[3] == t.k.strides[3] == t.v.strides[3] == 1:
        call.refuse("heads do not lie along memory")
    if d % 16 != 0 or e % 16 != 0:
        call.refuse("heads that are no whole vectors of 16")
    near = 4 if rows <= 4 else 1
    max_rows = 4 if rows <= 4 else min(64, 16 * ceil_div(rows, 16))
    tasks = t.q.shape[0] * t.k.shape[2] * ceil_div(rows, max_rows)
    splits = max(1, min(4 * call.device.units // max(1, tasks), ceil_div(keys, 256))) if t.starts is None else 1
    scratches = min(4 * call.device.units, tasks * splits)
    scratch = max_rows * (d + e + 2 * near) + 64 * (d + e + 16)  # floats, as the head of attention.c lists them
    macros: dict[str, Any] = {"NEAR": near, "BLOCKS": int(t.k.dtype.block > 1)}
    values: dict[str, Any] = {"share": share, "maximum": max_rows, "splits": splits, "tasks": tasks, "scratch": scratch}
    ends = launch_ends(call, t, macros, values)
    call.workspace(ends + 4 * scratches * scratch)
    call.launch("attention", groups=scratches, local=1, **macros, **values, scratches=scratches)
    if splits > 1:
        call.launch("attention_join", groups=tasks, local=1, **macros, **values)
