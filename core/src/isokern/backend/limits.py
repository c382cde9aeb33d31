"""The device's part of `isokern bench`: its own limits, its clock, and libraries that compute in its memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..declare.operator import Operator
from .streams import Stream


@dataclass(frozen=True)
class Limit:
    """One way to reach a limit of the machine.

    Each `run()` moves `work` bytes (kind "copy") or does `work` operations ("fma"). `isokern bench` times it together
    with the kernels; of several ways of one kind the fastest counts. A run returns when its work is done; on a device
    with a timer, when it is enqueued on the device's default stream.
    """

    kind: str
    work: float
    run: Callable[[], None]


class Timer(ABC):
    """A device's own clock along one stream.

    The host enqueues `start`, calls and `stop`, and waits only when it asks for `seconds`.
    """

    @abstractmethod
    def start(self) -> None:
        """Start after all that is enqueued so far."""

    @abstractmethod
    def stop(self) -> None:
        """Stop after all that is enqueued so far."""

    @abstractmethod
    def seconds(self) -> float:
        """Wait for the work up to `stop`, and return the time from `start` to `stop`."""


class Peer(ABC):
    """A library with which `isokern bench` compares an operator, on the same device's tensors and without a copy.

    `name` is the key of its times. An error that a method raises leaves the peer out of the case, with its text as the
    reason.
    """

    name: str

    @abstractmethod
    def make(
        self, op: Operator, inputs: Sequence[Any], output: Any, attrs: Mapping[str, Any]
    ) -> tuple[Callable[[], object], np.ndarray[Any, Any]] | None:
        """Return the library's call for the work of `op`, and a copy on the host of what it computed when called once.

        `inputs` are the tensors that are given, in the signature's order, `attrs` all attributes. The call may leave
        its result in `output` or in memory of its own. None if the library has no corresponding call, or not for these
        arguments.
        """

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Return a context in which the library's calls enqueue on `stream`, if it enqueues at all."""
        return nullcontext()
