"""Launches of batch_norm."""

import math

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_runs


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.y.shape[-1] < 16:
        call.refuse("the last dim is shorter than 16")
    if t.y.strides[-1] != 1 or t.x.strides[-1] != 1:
        call.refuse("the last dim does not lie along memory")
    launch_runs(call, "batch_norm", t.y, outer=math.prod(t.y.shape[1:-1]))
