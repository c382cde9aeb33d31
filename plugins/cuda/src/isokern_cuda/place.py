"""What memory, streams and products know of the GPU that they belong to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from isokern.simt import QueuedDevice

from .driver import Driver

T = TypeVar("T")


class CudaPlace(QueuedDevice):
    """A GPU behind a `Driver`."""

    driver: Driver
    graphs_of_others: list[Any]  # buffers apart from the tensors that graphs captured by other libraries write to

    @abstractmethod
    def ask(self, where: str, question: Callable[..., T], *arguments: Any) -> T:
        """Return the driver's answer, or raise a typed error.

        After an error that leaves the process without CUDA the driver is not asked again.
        """
