"""Launches of argmax."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = t.x.shape[-1]
    outputs = t.x.numel // max(1, t.x.shape[-1])
    adjacent = abs(t.x.strides[-2]) < abs(t.x.strides[-1]) and outputs >= 32
    alone = d <= 32 or adjacent
    wanted = ceil_div((2048 if alone else 8) * call.device.units, max(1, outputs))
    parts = max(1, min(wanted, d // (64 if alone else 4096)))
    length = ceil_div(d, parts)
    tasks = outputs * parts
    if parts > 1:
        call.workspace(16 * tasks)
    if alone and parts == 1:
        call.launch("argmax", items=tasks, ALONE=1, outputs=outputs, length=length)
    if alone and parts > 1:
        call.launch("argmax", items=tasks, ALONE=1, PARTS=1, outputs=outputs, length=length)
    if not alone and parts == 1:
        call.launch("argmax", groups=tasks, local=256, outputs=outputs, length=length)
    if not alone and parts > 1:
        call.launch("argmax", groups=tasks, local=256, PARTS=1, outputs=outputs, length=length)
    if parts > 1:
        call.launch("argmax_join", groups=outputs, local=64, outputs=outputs, parts=parts)
