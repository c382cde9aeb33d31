"""What memory and streams know of the OpenCL device that they belong to."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyopencl as cl

from isokern.simt import DeferredRelease, SimtDevice, Streams


class ClPlace(SimtDevice):
    """A device by its context and queue.

    `deferred` keeps host memory that work in flight may use. In a forked child `context` is None.
    """

    context: cl.Context
    cl_device: cl.Device
    transfers: cl.CommandQueue
    deferred: DeferredRelease
    streams: Streams
    command_buffers: dict[str, Any] | None

    @abstractmethod
    def drain(self) -> None:
        """Wait for work where too much memory is retired."""
