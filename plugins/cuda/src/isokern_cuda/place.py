"""What memory, streams and products know of the GPU that they belong to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from isokern.simt import DeferredRelease, SimtDevice, Streams

from .driver import Driver

T = TypeVar("T")


class CudaPlace(SimtDevice):
    """A GPU behind a `Driver`; `deferred` keeps memory that work in flight may use."""

    driver: Driver
    deferred: DeferredRelease
    streams: Streams
    graphs_of_others: list[Any]  # buffers apart from the tensors that graphs captured by other libraries write to

    @abstractmethod
    def ask(self, where: str, question: Callable[..., T], *arguments: Any) -> T:
        """Return the driver's answer, or raise a typed error.

        After an error that leaves the process without CUDA the driver is not asked again.
        """

    @abstractmethod
    def drain(self) -> None:
        """Wait for work where too much memory is retired."""
