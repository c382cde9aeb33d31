"""Launches of elementwise."""

from isokern.simt.launch import Call, ceil_div, pack


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "c")
    given = [desc for desc in (t.y, t.a, t.b, t.c) if desc is not None]
    steps = [0 if desc is None else desc.strides[-1] for desc in (t.y, t.a, t.b, t.c)]
    takes = 16 // max([desc.dtype.itemsize for desc in given])
    if t.y.numel == 0 or steps[0] != 1 or pack(given, 16) != takes:
        call.refuse("a tensor does not lie along memory by packs")
    call.launch(
        "elementwise",
        items=ceil_div(t.y.numel, takes),
        numel=t.y.numel,
        EACH=takes,
        STEP_A=steps[1],
        STEP_B=steps[2],
        STEP_C=steps[3],
    )
