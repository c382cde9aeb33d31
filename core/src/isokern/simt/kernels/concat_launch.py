"""Launches of concat: one for each part, by lines where they are long enough for a group, else by elements."""

from isokern.simt.launch import Call, pieces
from isokern.simt.launch_shared import pair_parts


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    for index, (y, x) in enumerate(pair_parts(call)):
        if y.shape[-1] * 2 < min(64, call.device.group):
            call.launch("rearrange_elements", each=("x", index), y=y, x=x, items=y.numel)
        elif x.numel > 0:
            call.launch("rearrange_lines", each=("x", index), y=y, x=x, groups=pieces(y), local=256)
