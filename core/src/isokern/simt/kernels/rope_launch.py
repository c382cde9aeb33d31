"""Launches of rope."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    d = t.y.shape[-1]
    dims = call.attrs.dims or t.y.shape[-1]
    heads = t.y.shape[-2]
    steps = t.y.shape[-3]
    places = t.y.numel // max(1, t.y.shape[-1] * t.y.shape[-2])
    pairs = dims // 2
    wide = pairs + d - dims
    taken = max(1, min(heads, places * wide * heads // (2048 * call.device.units)))
    shares = ceil_div(heads, taken)
    if t.y.numel > 0:
        call.launch(
            "rope", items=places * shares * wide, pairs=pairs, wide=wide, shares=shares, taken=taken, steps=steps
        )
