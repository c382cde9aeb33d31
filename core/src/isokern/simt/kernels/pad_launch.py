"""Launches of pad."""

from isokern.simt.launch import Call, bits, convert_bits, pieces


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    order = [d for _, d in sorted([(-abs(s), d) for d, s in enumerate(t.y.strides)])]
    value = convert_bits(call.attrs.value, t.y.dtype)
    t.y = bits(t.y.permute(order))
    t.x = bits(t.x.permute(order))
    low = [call.attrs.low[d] for d in order]
    n = t.y.shape[-1] if t.y.ndim else 0
    lines = n * 2 >= min(64, call.device.group)
    if lines and t.y.numel > 0:
        call.launch("pad_lines", groups=pieces(t.y), local=256, value=value, low=low)
    if not lines:
        call.launch("pad_elements", items=t.y.numel, value=value, low=low)
