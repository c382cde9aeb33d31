"""Launches of gather."""

from isokern.simt.launch import Call, pieces
from isokern.simt.launch_shared import launch_gather_check, merge_gather


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t, rows, step, given = merge_gather(call)
    if t.y.shape[-1] * 2 < min(64, call.device.group):
        call.launch("gather_elements", items=t.y.numel, rows=rows, step=step)
    elif t.y.numel > 0:
        call.launch("gather_lines", groups=pieces(t.y), local=256, rows=rows, step=step)
    launch_gather_check(call, given, rows)
