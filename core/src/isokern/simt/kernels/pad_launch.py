"""Launches of pad."""

from isokern.simt.launch import Call, pieces
from isokern.simt.launch_shared import order_pad


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t, value, low = order_pad(call)
    n = t.y.shape[-1] if t.y.ndim else 0
    if n * 2 < min(64, call.device.group):
        call.launch("pad_elements", items=t.y.numel, value=value, low=low)
    elif t.y.numel > 0:
        call.launch("pad_lines", groups=pieces(t.y), local=256, value=value, low=low)
