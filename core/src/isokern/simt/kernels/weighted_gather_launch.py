"""Launches of weighted_gather."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_gather_check


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.y.numel > 0:
        call.launch("weighted_gather", items=t.y.numel, rows=t.x.shape[1])
    launch_gather_check(call, t.indices, t.x.shape[1], weights=None)
