"""Launches of pad."""

from isokern.simt.launch import Call, bits, ceil_div, convert_bits


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    order = [d for _, d in sorted([(-abs(s), d) for d, s in enumerate(t.y.strides)])]
    value = convert_bits(call.attrs.value, t.y.dtype)
    t.y = bits(t.y.permute(order))
    t.x = bits(t.x.permute(order))
    low = [call.attrs.low[d] for d in order]
    takes = 16 // t.y.dtype.itemsize
    if t.y.ndim == 0 or t.y.numel == 0 or (not t.y.is_contiguous) or (t.y.offset % takes != 0):
        call.refuse("y is not dense from 16 bytes on")
    call.launch("pad_packs", items=ceil_div(t.y.numel, takes), EACH=takes, numel=t.y.numel, value=value, low=low)
