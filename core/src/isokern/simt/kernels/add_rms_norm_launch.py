"""Launches of add_rms_norm."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_rows


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    launch_rows(call, "add_rms_norm", call.tensors("y", "total", "x", "residual", "w").y, 2)
