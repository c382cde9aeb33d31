"""Launches of pad."""

from isokern.simt.launch import Call, ceil_div
from isokern.simt.launch_shared import order_pad


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t, value, low = order_pad(call)
    takes = 16 // t.y.dtype.itemsize
    if t.y.ndim == 0 or t.y.numel == 0 or not t.y.is_contiguous or t.y.offset % takes != 0:
        call.refuse("y is not dense from 16 bytes on")
    call.launch("pad_packs", items=ceil_div(t.y.numel, takes), EACH=takes, numel=t.y.numel, value=value, low=low)
