"""Launches of elementwise."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "c")
    d = max(1, t.y.shape[-1])
    steps = [0 if desc is None else desc.strides[-1] for desc in (t.y, t.a, t.b, t.c)]
    if d < 16:
        call.refuse("the last dim is shorter than 16")
    if steps[0] != 1 or any(s not in (0, 1) for s in steps):
        call.refuse("a stride of the last dim is not 0 or 1")
    rows = t.y.numel // d
    taken = max(1, 8192 // d)
    parts = ceil_div(d, 8192)
    large = t.y.numel * t.y.dtype.itemsize >= 2097152
    call.launch(
        "elementwise",
        groups=ceil_div(rows, taken) * parts,
        local=1,
        rows=rows,
        taken=taken,
        parts=parts,
        stream=large,
        STEP_A=steps[1],
        STEP_B=steps[2],
        STEP_C=steps[3],
    )
