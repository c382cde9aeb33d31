"""Launches of pool2d."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    bins = call.op == "adaptive_avg_pool2d"
    outputs = t.y.numel
    wide = 8 if t.y.dtype.name == "F64" else 4
    taps = ceil_div(t.x.numel, max(1, outputs)) if bins else call.attrs.kernel[0] * call.attrs.kernel[-1]
    alone = taps <= 64
    parts = 1 if taps <= 64 else max(1, min(ceil_div(8 * call.device.units, max(1, outputs)), taps // 4096))
    if parts > 1:
        call.workspace(4 * wide * outputs * parts)
    if alone:
        call.launch("pool2d", items=outputs, ALONE=1)
    if not alone and parts == 1:
        call.launch("pool2d", groups=outputs, local=64)
    if parts > 1:
        call.launch("pool2d", groups=outputs * parts, local=64, PARTS=1, outputs=outputs, parts=parts)
        call.launch("pool2d_join", groups=outputs, local=64, outputs=outputs, parts=parts)
