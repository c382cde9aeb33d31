"""Launches of logsumexp."""

from isokern.simt.launch import Call
from isokern.simt.launch_shared import describe_reduction, launch_any_reduction


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t, kept, outputs, d = describe_reduction(call)
    launch_any_reduction(call, "logsumexp", t, 3 * t.x.dtype.compute.itemsize, kept=kept, outputs=outputs, d=d)
