"""Launches of argmax."""

from typing import Any

from isokern.simt.launch import Call, ceil_div, count_parts, whole_pack
from isokern.simt.launch_shared import count_lanes


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    takes = whole_pack([t.x])
    if t.x.numel == 0 or t.x.strides[-1] != 1 or not takes:
        call.refuse("x does not lie along memory by packs")
    d = t.x.shape[-1]
    outputs, group, lanes = t.x.numel // d, min(256, call.device.group), count_lanes(call.device, d // takes)
    tasks = ceil_div(outputs * lanes, group)
    parts = count_parts(8 * call.device.units, tasks, d // 4096) if lanes == group else 1
    length = ceil_div(ceil_div(d, parts), takes) * takes
    parts = ceil_div(d, length)
    macros: dict[str, Any] = {"EACH": takes, "LANES": lanes, "PARTS": int(parts > 1)}
    call.launch("argmax", groups=tasks * parts, local=256, **macros, outputs=outputs, length=length)
    if parts > 1:
        call.workspace(16 * outputs * parts)
        call.launch("argmax_join", groups=outputs, local=64, EACH=1, outputs=outputs, parts=parts)
