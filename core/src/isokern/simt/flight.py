"""What work in flight still uses, on devices where memory must not be let go of before that work is done."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

RETIRED = 1 << 28  # bytes that wait for work in flight before an allocation waits with them
OVERHEAD = 4096  # bytes that are counted for something retired beside its own


class Streams:
    """The streams of a device that are there. Each has `synchronize`, and `finish`, which waits whatever the work found in the data."""

    def __init__(self) -> None:
        self._every: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.RLock()

    def renew(self) -> None:
        """For a forked process: a thread that is not in it may hold the lock."""
        self._lock = threading.RLock()

    def add(self, stream: Any) -> None:
        """One more; it is left out when nobody has it any more."""
        with self._lock:
            self._every.add(stream)

    def every(self) -> list[Any]:
        """Those that are there now."""
        with self._lock:
            return list(self._every)

    def synchronize(self) -> None:
        """Wait for all; the first error is raised when all have been waited for."""
        first: Exception | None = None
        for stream in self.every():
            try:
                stream.synchronize()
            except Exception as error:  # the other streams are waited for all the same
                first = first or error
        if first is not None:
            raise first

    def finish(self) -> None:
        """Wait for all, so that what was retired goes."""
        for stream in self.every():
            stream.finish()


class InFlight:
    """`pending` has a key for each stream with work that nobody has waited for; what is dropped meanwhile is retired, and let go of when the
    device is idle."""

    def __init__(self) -> None:
        self.pending: set[object] = set()
        self.retired: list[Any] = []
        self.nbytes = 0
        self.lock = threading.RLock()

    def renew(self) -> None:
        """For a forked process, where the parent's work is not: a thread that is not in it may hold the lock."""
        self.lock = threading.RLock()
        self.pending.clear()

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
