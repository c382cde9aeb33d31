"""Launches of attention."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    queries = math.prod(t.q.shape[:3])
    e = t.v.shape[3]
    keys = t.k.shape[1]
    share = t.q.shape[2] // max(1, t.k.shape[2])
    group = min(128 if t.v.shape[3] > 64 else 64, call.device.group)
    unit = int(t.q.strides[3] == t.k.strides[3] == t.v.strides[3] == 1)
    each = 256 if group == 1 else 1 if e <= group else 2 if e <= 2 * group else 4
    chunks = max(1, ceil_div(e, each * group))
    max_splits = max(1, min(16, ceil_div(4 * call.device.units, max(1, queries * chunks))))
    splits = max_splits if keys >= 256 else 1
    blocks = int(t.k.dtype.block > 1)
    if splits > 1:
        call.workspace(4 * (2 + e) * queries * splits)
    call.launch(
        "attention",
        groups=queries * chunks * splits,
        local=group,
        EACH=each,
        BLOCKS=blocks,
        UNIT=unit,
        SPLIT=int(splits > 1),
        chunks=chunks,
        splits=splits,
        share=share,
    )
    if splits > 1:
        call.launch("attention_join", groups=queries, local=64, q=None, v=None, splits=splits, e=e)
    if t.lengths is not None and t.lengths.numel > 0:
        call.launch("attention_check", groups=1, local=64, y=None, q=None, v=None)
