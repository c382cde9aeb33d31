"""Recordings kept in Python, for backends whose calls are objects."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from ..status import InvalidArgument
from .memory import Place
from .streams import Recording, Stream, check_stream, current_stream

Call = TypeVar("Call")


class RecordedCalls(Recording, Generic[Call]):
    """The calls that the capturing thread made; `close` ends the capture."""

    def __init__(self, device: Place) -> None:
        super().__init__()
        self.device, self.open = device, True
        self.calls: list[Call] = []

    def __len__(self) -> int:
        return len(self.calls)

    def add(self, call: Call) -> None:
        """Append a call."""
        self.calls.append(call)

    def close(self) -> None:
        """End the capture."""
        self.open = False

    def replay(self, stream: Stream | None = None) -> None:
        """Make the calls on `stream`, by default the thread's current one.

        If that stream is being captured, the calls are added to its list.
        """
        if self.open:
            raise InvalidArgument("replay", "the list is still being captured", hint="replay it after the `with` block")
        target = current_stream(self.device) if stream is None else stream
        check_stream("replay", target, self.device)
        outer = target.recording
        if outer is None:
            self.run(target)
            return
        assert isinstance(outer, RecordedCalls)
        outer.owned.append(self)
        outer.calls += self.calls

    @abstractmethod
    def run(self, stream: Stream) -> None:
        """Make the calls on a stream that is not being captured."""
