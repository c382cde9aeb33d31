"""Launches of scatter: a copy unless y is x, the updates, and the check of the indices."""

import math

from isokern.ops.scatter import REDUCTIONS
from isokern.simt.launch import Call, bits, ceil_div, coalesce, count_parts, pieces
from isokern.simt.launch_shared import launch_gather_check


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
    columns = math.prod(t.x.shape[:axis]) * inner
    if t.updates.numel > 0 and rows > 0:
        # Each part reads all indices: a processor has no items to spare for that
        alone = call.device.group == 1 and columns < 64
        length = ceil_div(rows, count_parts((1 if alone else 64) * call.device.units, columns, rows))
        tasks = columns * ceil_div(rows, length)
        how: dict[str, int] = {"groups": tasks, "local": 1} if alone else {"items": tasks}
        call.launch(
            "scatter_rows",
            **how,
            tasks=tasks,
            REDUCTION=REDUCTIONS.index(reduction),
            axis=axis,
            columns=columns,
            inner=inner,
            rows=rows,
            length=length,
            count=t.indices.numel,
        )
    launch_gather_check(call, t.indices, rows, updates=None)
