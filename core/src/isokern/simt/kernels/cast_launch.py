"""Launches of cast."""

from isokern.simt.launch import Call, bits, pieces


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
    lines = t.y.shape[-1] * 2 >= min(64, call.device.group)
    if lines and t.y.numel > 0:
        call.launch("cast_lines", groups=pieces(t.y), local=256)
    if not lines:
        call.launch("cast_elements", items=t.y.numel)
