"""Launches of grid_sample."""

import math

from isokern.simt.launch import Call, ceil_div

MODES, PADDINGS = ("nearest", "linear", "cubic"), ("zeros", "border", "reflection")
BUSY = 1 << 16  # items from which on one may have several channels, for which elements and weights are found once


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    images, channels, *shape = t.y.shape
    if t.y.numel == 0:
        return
    if call.device.group == 1 and t.y.numel > BUSY:  # so it is on processors, where the parts take half of the time
        call.refuse("so many places are read faster by vectors along channels")
    places, mode = math.prod(shape), MODES.index(call.attrs.mode)
    taken = max(1, min(8, t.y.numel // BUSY))
    parts = ceil_div(channels, taken)
    call.launch(
        "grid_sample",
        items=images * parts * places,
        DIMS=len(shape),
        MODE=mode,
        TAPS=(1, 2, 4)[mode],
        PADDING=PADDINGS.index(call.attrs.padding),
        places=places,
        parts=parts,
        taken=taken,
    )
