"""Launches of layer_norm."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = t.y.shape[-1]
    takes = 16 // t.y.dtype.itemsize
    rows = t.y.numel // max(1, t.y.shape[-1])
    given = [desc for desc in (t.y, t.x, t.w, t.bias) if desc is not None]
    if t.y.numel == 0 or any(desc.strides[-1] != 1 for desc in given):
        call.refuse("rows do not lie along memory")
    if d % takes != 0 or any(n % takes != 0 for desc in given for n in (desc.offset, *desc.strides[:-1])):
        call.refuse("a row does not begin and end at 16 bytes")
    lanes = min(256, call.device.group, 1 << (d // takes - 1).bit_length())
    packs = ceil_div(d // takes, lanes)
    if packs * takes > 64 or packs > 16:
        call.refuse("a block cannot hold a row")
    threads = lanes if lanes > 32 else min(256, call.device.group)
    call.launch(
        "layer_norm",
        groups=ceil_div(rows * lanes, threads),
        local=threads,
        rows=rows,
        d=d,
        LANES=lanes,
        EACH=takes,
        PER=1 << (packs - 1).bit_length(),
    )
