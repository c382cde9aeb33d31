"""Launches of elementwise."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_runs


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "c")
    inputs = {"STEP_A": t.a, "STEP_B": t.b, "STEP_C": t.c}
    steps = {name: 0 if x is None else x.strides[-1] for name, x in inputs.items()}
    if t.y.shape[-1] < 16:
        call.refuse("the last dim is shorter than 16")
    if t.y.strides[-1] != 1 or not {*steps.values()} <= {0, 1}:
        call.refuse("a stride of the last dim is not 0 or 1")
    launch_runs(call, "elementwise", t.y, **steps)
