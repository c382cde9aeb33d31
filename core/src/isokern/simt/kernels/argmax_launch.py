"""Launches of argmax."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_reduction


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = t.x.shape[-1]
    outputs = t.x.numel // max(1, d)
    alone = d <= 32 or (abs(t.x.strides[-2]) < abs(t.x.strides[-1]) and outputs >= 32)
    parts = launch_reduction(call, "argmax", outputs, d, alone, 16)
    if parts > 1:
        call.launch("argmax_join", groups=outputs, local=64, outputs=outputs, parts=parts)
