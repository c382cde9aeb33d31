"""Launches of cast."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_runs


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a")
    step = t.a.strides[-1]
    if any(desc.dtype.name not in ("F32", "F16", "BF16") for desc in (t.y, t.a)):
        call.refuse("only F32, F16 and BF16 go by tiles")
    if t.y.dtype == t.a.dtype:
        call.refuse("nothing to convert")
    if t.y.shape[-1] < 16:
        call.refuse("the last dim is shorter than 16")
    if t.y.strides[-1] != 1 or step not in (0, 1):
        call.refuse("a stride of the last dim is not 0 or 1")
    launch_runs(call, "cast", t.y, STEP_A=step)
