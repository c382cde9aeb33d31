"""Launches of logsumexp on a processor."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import launch_float_reduction


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    launch_float_reduction(call, "logsumexp", 3 * call.tensors().x.dtype.compute.itemsize, strided=True)
