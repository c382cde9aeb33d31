"""What memory and streams know of the OpenCL device that they belong to."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from isokern.simt import QueuedDevice


class ClPlace(QueuedDevice):
    """A device by its context and queue. In a forked child `context` is None."""

    context: cl.Context
    cl_device: cl.Device
    transfers: cl.CommandQueue
    command_buffers: dict[str, Any] | None
