"""Launches of add_rms_norm."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "total", "x", "residual", "w")
    d = t.y.shape[-1]
    rows = t.y.numel // max(1, t.y.shape[-1])
    parts = max(1, min(ceil_div(8 * call.device.units, max(1, rows)), d // 4096))
    group = 64 if d <= 512 else 256
    tasks = rows * parts
    length = ceil_div(d, parts)
    if parts > 1:
        call.workspace(8 * tasks)
    if d <= 32:
        call.launch("add_rms_norm", items=rows, ALONE=1, PHASE=0, parts=1, length=d)
    if d > 32 and parts == 1:
        call.launch("add_rms_norm", groups=rows, local=group, PHASE=0, parts=1, length=d)
    if parts > 1:
        call.launch("add_rms_norm", groups=tasks, local=group, PHASE=1, parts=parts, length=length)
        call.launch("add_rms_norm", groups=tasks, local=group, PHASE=2, parts=parts, length=length)
