"""Launches of cast."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a")
    d = max(1, t.y.shape[-1])
    step = t.a.strides[-1]
    if any(desc.dtype.compute.name != "F32" for desc in (t.y, t.a)):
        call.refuse("only F32, F16 and BF16 go by tiles")
    if t.y.dtype == t.a.dtype:
        call.refuse("nothing to convert")
    if d < 16:
        call.refuse("the last dim is shorter than 16")
    if t.y.strides[-1] != 1 or step not in (0, 1):
        call.refuse("a stride of the last dim is not 0 or 1")
    rows = t.y.numel // d
    taken = max(1, 8192 // d)
    parts = ceil_div(d, 8192)
    large = t.y.numel * t.y.dtype.itemsize >= 2097152
    call.launch(
        "cast",
        groups=ceil_div(rows, taken) * parts,
        local=1,
        rows=rows,
        taken=taken,
        parts=parts,
        stream=large,
        STEP_A=step,
    )
