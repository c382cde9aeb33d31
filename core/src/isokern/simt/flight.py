"""What work in flight still uses, on devices where memory must not be let go of before that work is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

RETIRED = 1 << 28  # bytes that wait for work in flight before an allocation waits with them
OVERHEAD = 4096  # bytes that are counted for something retired beside its own


class InFlight:
    """`pending` has a key for each stream with work that nobody has waited for; what is dropped meanwhile is retired, and let go of when the
    device is idle."""

    def __init__(self) -> None:
        self.pending: set[object] = set()
        self.retired: list[Any] = []
        self.nbytes = 0
        self.lock = threading.RLock()

    def retire(self, owned: Any, nbytes: int) -> None:
        """Let go of something that work in flight may still use, when it no longer does. Called amid garbage collections: it waits for nothing."""
        if self.pending:
            self.retired.append(owned)
            self.nbytes += nbytes + OVERHEAD

    def waited(self, key: object, wait: Callable[[], None]) -> None:
        """Wait for the work of one stream; then let go of what was retired, where the device is idle."""
        waiting = object()
        self.pending.add(waiting)
        self.pending.discard(key)  # before the wait: what comes during it is pending again
        try:
            wait()
        finally:
            self.pending.discard(waiting)
            self.release()

    def release(self) -> None:
        """Let go of what was retired, where the device is idle."""
        if self.retired:
            # One thread at a time: of two, one might put what it takes back where the other has looked already
            with self.lock:
                held, nbytes = self.retired, self.nbytes
                self.retired, self.nbytes = [], 0
                if self.pending:
                    self.retired += held
                    self.nbytes += nbytes

    @property
    def full(self) -> bool:
        """Whether so much waits that an allocation should wait too."""
        return self.nbytes > RETIRED
