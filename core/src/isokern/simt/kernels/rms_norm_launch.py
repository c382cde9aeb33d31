"""Launches of rms_norm."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_rows


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    launch_rows(call, "rms_norm", call.tensors().y, 2)
