"""Launches of argmax."""

from isokern.simt.launch import Call, ceil_div, pack


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = t.x.shape[-1]
    outputs = t.x.numel // max(1, d)
    takes = 16 // t.x.dtype.itemsize
    if t.x.numel == 0 or t.x.strides[-1] != 1 or pack([t.x], 16) != takes:
        call.refuse("x does not lie along memory by packs")
    packs = d // takes
    group = min(256, call.device.group)
    lanes = group if packs > 512 else min(32, 1 << max(1, packs // 2).bit_length() - 1)
    tasks = ceil_div(outputs * lanes, group)
    parts = max(1, min(ceil_div(8 * call.device.units, tasks), d // 4096)) if lanes == group else 1
    length = ceil_div(ceil_div(d, parts), takes) * takes
    parts = ceil_div(d, length)
    if parts > 1:
        call.workspace(16 * outputs * parts)
    call.launch(
        "argmax",
        groups=tasks * parts,
        local=256,
        EACH=takes,
        LANES=lanes,
        PARTS=int(parts > 1),
        outputs=outputs,
        length=length,
    )
    if parts > 1:
        call.launch("argmax_join", groups=outputs, local=64, EACH=1, outputs=outputs, parts=parts)
