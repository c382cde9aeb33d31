"""Launches of concat."""

from isokern.simt.launch import Call, ceil_div, pack
from isokern.simt.launch_shared import pair_parts


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    pairs = list(pair_parts(call))
    takes = [pack(pair, 16) if all(desc.strides[-1] == 1 for desc in pair) else 1 for pair in pairs]
    if min(takes) < 2:
        call.refuse("an input does not lie along memory by packs")
    for index, ((y, x), taken) in enumerate(zip(pairs, takes, strict=True)):
        if x.numel > 0:
            items = ceil_div(x.numel, taken)
            call.launch("rearrange_packs", each=("x", index), y=y, x=x, items=items, EACH=taken, numel=x.numel)
