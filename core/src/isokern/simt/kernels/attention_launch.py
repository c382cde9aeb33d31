"""Launches of attention."""

import math
from typing import Any

from isokern.dtypes import F64
from isokern.simt.launch import Call, ceil_div, count_parts
from isokern.simt.launch_shared import describe_attention, launch_ends


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = describe_attention(call)
    if t.q.dtype is F64:
        call.refuse("F64")
    queries, e = math.prod(t.q.shape[:3]), t.v.shape[3]
    keys = t.k.shape[1] * (1 if t.block_table is None else t.block_table.shape[1])
    share = t.q.shape[2] // max(1, t.k.shape[2])
    group = min(128 if e > 64 else 64, call.device.group)
    each = 256 if group == 1 else 1 if e <= group else 2 if e <= 2 * group else 4
    chunks = max(1, ceil_div(e, each * group))
    splits = count_parts(4 * call.device.units, queries * chunks, 16) if keys >= 256 else 1
    macros: dict[str, Any] = {
        "EACH": each,
        "BLOCKS": int(t.k.dtype.block > 1),
        "UNIT": int(t.q.strides[3] == t.k.strides[3] == t.v.strides[3] == 1),
        "SPLIT": int(splits > 1),
    }
    values: dict[str, Any] = {"chunks": chunks, "splits": splits, "share": share}
    ends = launch_ends(call, t, macros, values)
    call.workspace(ends + (4 * (2 + e) * queries * splits if splits > 1 else 0))
    call.launch("attention", groups=queries * chunks * splits, local=group, **macros, **values)
    if splits > 1:
        unread = ("block_table", "lengths", "mask", "seen", "starts", "key_starts")
        rest: dict[str, Any] = {name: None for name in unread if getattr(t, name) is not None}
        call.launch("attention_join", groups=queries, local=64, q=None, v=None, **rest, splits=splits, e=e, ends=ends)
    if t.lengths is not None and t.lengths.numel > 0:
        call.launch("attention_check", groups=1, local=64, y=None, q=None, v=None)
