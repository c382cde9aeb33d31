"""Launches of gather."""

from isokern.simt.launch import Call, pack
from isokern.simt.launch_shared import launch_gather_check, merge_gather


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t, rows, step, given = merge_gather(call)
    whole = pack([t.y, t.x], 16)
    takes = max(k for k in (1, 2, 4, 8, 16) if k <= whole and step % k == 0)
    along = t.y.strides[-1] == 1 and t.x.strides[-1] == 1 and t.indices.strides[-1] == 0
    if t.y.numel == 0 or not along or t.y.shape[-1] % takes != 0 or takes < 2:
        call.refuse("lines do not lie along memory by packs")
    call.launch("gather_packs", items=t.y.numel // takes, EACH=takes, rows=rows, step=step)
    launch_gather_check(call, given, rows, EACH=1)
