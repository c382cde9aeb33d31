"""Launches of cast."""

from isokern.simt.launch import Call, ceil_div, whole_pack
from isokern.simt.launch_shared import cast_by_bits


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y, t.x = cast_by_bits(t.y, t.x)
    takes = whole_pack([t.y, t.x])
    if t.y.numel == 0 or t.x.strides[-1] != 1 or not takes:
        call.refuse("a tensor does not lie along memory by packs")
    call.launch("cast", items=ceil_div(t.y.numel, takes), EACH=takes, numel=t.y.numel)
