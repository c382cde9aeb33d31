"""Launches of cast."""

from isokern.simt.launch import Call, pieces
from isokern.simt.launch_shared import cast_by_bits


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y, t.x = cast_by_bits(t.y, t.x)
    if t.y.shape[-1] * 2 < min(64, call.device.group):
        call.launch("cast_elements", items=t.y.numel)
    elif t.y.numel > 0:
        call.launch("cast_lines", groups=pieces(t.y), local=256)
