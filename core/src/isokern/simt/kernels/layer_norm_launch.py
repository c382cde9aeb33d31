"""Launches of layer_norm."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = t.y.shape[-1]
    rows = t.y.numel // max(1, t.y.shape[-1])
    wide = 8 if t.y.dtype.name == "F64" else 4
    wanted = max(1, min(ceil_div(8 * call.device.units, max(1, rows)), d // 4096))
    length = max(1, ceil_div(d, wanted))
    parts = max(1, ceil_div(d, length))
    group = 64 if d <= 512 else 256
    tasks = rows * parts
    if parts > 1:
        call.workspace(4 * wide * tasks)
    if d <= 32:
        call.launch("layer_norm", items=rows, ALONE=1, PHASE=0, parts=1, length=d)
    if d > 32 and parts == 1:
        call.launch("layer_norm", groups=rows, local=group, PHASE=0, parts=1, length=d)
    if parts > 1:
        call.launch("layer_norm", groups=tasks, local=group, PHASE=1, parts=parts, length=length)
        call.launch("layer_norm", groups=tasks, local=group, PHASE=2, parts=parts, length=length)
