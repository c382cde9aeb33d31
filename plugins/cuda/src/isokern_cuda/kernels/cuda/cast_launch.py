"""Launches of cast."""

from isokern.simt.launch import Call, bits, ceil_div, pack


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    kept = t.x.dtype == t.y.dtype or (t.x.dtype.kind in "iub" and t.y.dtype.kind in "iu")
    t.x = (
        bits(t.x)
        if t.x.dtype == t.y.dtype
        or (t.x.dtype.kind in "iu" and (t.y.dtype.kind == "b" or (kept and t.x.dtype.itemsize >= t.y.dtype.itemsize)))
        else t.x
    )
    t.y = bits(t.y) if kept else t.y
    takes = 16 // max(t.x.dtype.itemsize, t.y.dtype.itemsize)
    if t.y.numel == 0 or t.x.strides[-1] != 1 or pack([t.y, t.x], 16) != takes:
        call.refuse("a tensor does not lie along memory by packs")
    call.launch("cast", items=ceil_div(t.y.numel, takes), EACH=takes, numel=t.y.numel)
