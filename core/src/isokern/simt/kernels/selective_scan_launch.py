"""Launches of selective_scan."""

from isokern.simt.launch import Call

MAX_STATE = 64  # numbers of a state that an item holds in registers


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    state = t.last.shape[2]
    if state > MAX_STATE:
        call.refuse(f"a state of more than {MAX_STATE} numbers")
    along = [x for x in (t.y, t.u, t.delta, t.b, t.c, t.z) if x is not None]
    call.launch(
        "selective_scan",
        items=t.u.shape[0] * t.u.shape[1],
        HELD=max(1, state),
        STATE=state,
        TILE=64 if call.device.group == 1 else 8,
        UNIT=int(all(x.strides[2] == 1 for x in along)),
    )
