"""Launches of softmax."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = t.y.shape[-1]
    rows = t.y.numel // max(1, t.y.shape[-1])
    wide = 8 if t.y.dtype.name == "F64" else 4
    adjacent = abs(t.x.strides[-2]) < abs(t.x.strides[-1]) and rows >= 256 * call.device.units
    parts = max(1, min(ceil_div(8 * call.device.units, max(1, rows)), d // 4096))
    group = 64 if d <= 512 else 256
    tasks = rows * parts
    length = ceil_div(d, parts)
    alone = d <= 32 or adjacent
    if parts > 1:
        call.workspace(3 * wide * tasks)
    if alone:
        call.launch("softmax", items=rows, ALONE=1, PHASE=0, parts=1, length=d)
    if not alone and parts == 1:
        call.launch("softmax", groups=rows, local=group, PHASE=0, parts=1, length=d)
    if parts > 1:
        call.launch("softmax", groups=tasks, local=group, PHASE=1, parts=parts, length=length)
        call.launch("softmax", groups=tasks, local=group, PHASE=2, parts=parts, length=length)
