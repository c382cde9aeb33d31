"""Launches of weighted_gather."""

from isokern.simt.launch import Call, ceil_div, pieces
from isokern.simt.launch_shared import launch_gather_check


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    y, x, rows = t.y, t.x, t.x.shape[1]
    alone = call.device.group == 1  # so it is on processors, where gather and a loop nest pick single elements faster
    few = 64 if alone else min(64, call.device.group)  # elements of a line from which on a group is worth it
    if alone and 0 < y.shape[2] * 2 < few:
        call.refuse("lines are too short for a group of one item")
    if alone and y.numel > 0:
        lines, taken = y.shape[0] * y.shape[1], max(1, 8192 // (y.shape[2] * max(1, t.indices.shape[1])))
        groups = ceil_div(lines, taken)
        call.launch("weighted_gather_lines", groups=groups, local=1, rows=rows, lines=lines, taken=taken)
    elif y.shape[2] * 2 >= few and y.numel > 0:
        call.launch("weighted_gather_rows", groups=pieces(y), local=256, rows=rows)
    elif y.shape[1] * 2 >= few and y.numel > 0:
        y, x = y.permute((0, 2, 1)), x.permute((0, 2, 1))
        call.launch("weighted_gather_columns", groups=pieces(y), local=256, rows=rows, y=y, x=x)
    elif y.numel > 0:
        call.launch("weighted_gather_elements", items=y.numel, rows=rows)
    launch_gather_check(call, t.indices, rows, weights=None)
