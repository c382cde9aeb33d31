"""Launches of scatter: a copy unless y is x, the updates, and the check of the indices."""

import math
from typing import Any

from isokern.ops.scatter import REDUCTIONS
from isokern.simt.launch import Call, bits, ceil_div, coalesce, count_parts, pieces
from isokern.simt.launch_shared import launch_gather_check


def _is_counted(t: Any, reduction: str, rows: int) -> bool:
    """Return whether updates are sums of integers that lists of few rows may collect in any order."""
    return reduction == "add" and t.y.dtype.kind in "iu" and 0 < 4 * rows <= t.indices.numel and rows <= 1 << 15


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    axis, reduction = call.attrs.axis % t.x.ndim, call.attrs.reduction
    rows, inner = t.x.shape[axis], math.prod(t.x.shape[axis + 1 :])
    y, x = coalesce([bits(t.y), bits(t.x)])
    if y.numel > 0:
        call.launch("scatter_copy", groups=pieces(y), local=256, y=y, x=x, updates=None, rows=rows)
    if reduction == "none":
        t.y, t.x, t.updates = bits(t.y), bits(t.x), bits(t.updates)
    columns, units, count = math.prod(t.x.shape[:axis]) * inner, call.device.units, t.indices.numel
    known: dict[str, Any] = {"REDUCTION": REDUCTIONS.index(reduction), "axis": axis, "rows": rows, "count": count}
    alone = call.device.group == 1 and columns < 64  # each part reads all indices: a processor spares no items for that
    if t.updates.numel > 0 and alone and columns == 1 and _is_counted(t, reduction, rows):
        parts = min(units, ceil_div(count, 4 * rows))
        call.workspace(8 * rows * parts)
        call.launch("scatter_count", groups=parts, local=1, x=None, length=ceil_div(count, parts), **known)
        call.launch("scatter_lists", items=rows, x=None, updates=None, parts=parts, **known)
    elif t.updates.numel > 0 and rows > 0:
        length = ceil_div(rows, count_parts((1 if alone else 64) * units, columns, rows))
        tasks = columns * ceil_div(rows, length)
        how: dict[str, Any] = {"groups": tasks, "local": 1} if alone else {"items": tasks}
        call.launch("scatter_rows", **how, tasks=tasks, columns=columns, inner=inner, length=length, **known)
    launch_gather_check(call, t.indices, rows, updates=None)
