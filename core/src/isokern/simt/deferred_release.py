"""What work in flight still uses, on devices where memory must not be let go of before that work is done."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

RETIRED = 1 << 28  # bytes that wait for work in flight before an allocation waits with them
OVERHEAD = 4096  # bytes that are counted for something retired beside its own
BATCHES = 8  # of what is retired, each for other streams; where there are more, two are waited for together


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


class _Batch:
    """What was retired between two waits. `waiting` has the keys that were pending then and have not been waited for since."""

    __slots__ = ("nbytes", "owned", "waiting")

    def __init__(self) -> None:
        self.owned: list[Any] = []
        self.nbytes = 0
        self.waiting: set[object] = set()


class DeferredRelease:
    """`pending` has a key for each stream with work that nobody has waited for. What is dropped meanwhile is retired, and let go of when the work that
    was pending then has been waited for, whatever was enqueued since: threads that never leave the device idle hold nobody's memory.
    """

    def __init__(self) -> None:
        self.pending: set[object] = set()
        self.lock = threading.RLock()
        self._open = _Batch()
        self._closed: list[_Batch] = []  # oldest first

    def renew(self) -> None:
        """For a forked process, where the parent's work is not: a thread that is not in it may hold the lock."""
        self.lock = threading.RLock()
        self.pending.clear()

    @property
    def retired(self) -> list[Any]:
        """All that was retired and is kept."""
        batches = [*self._closed, self._open]
        return [each for batch in batches for o in batch.owned for each in (o.owned if type(o) is _Batch else [o])]

    def retire(self, owned: Any, nbytes: int) -> None:
        """Let go of something that work in flight may still use, when it no longer does. Called amid garbage collections: it waits for nothing."""
        if self.pending:
            # One that is closed at this very moment takes it as well: it waits for all that has been pending until now
            batch = self._open
            batch.owned.append(owned)
            batch.nbytes += nbytes + OVERHEAD

    def wait_for(self, key: object, wait: Callable[[], None]) -> None:
        """Wait for the work of one stream; then let go of what no other work uses."""
        waiting = object()  # stands for the work until now; what comes during the wait is pending again
        with self.lock:
            self._close()
            for batch in self._closed:
                if key in batch.waiting:
                    batch.waiting.remove(key)
                    batch.waiting.add(waiting)
            self.pending.add(waiting)
            self.pending.discard(key)
        try:
            wait()
        finally:
            self.pending.discard(waiting)
            self.release()

    def _close(self) -> None:
        """Begin a new batch; the one before waits for what is pending."""
        batch = self._open
        if not batch.owned:
            return
        self._open = _Batch()
        batch.waiting = set(
            self.pending
        )  # after it was replaced: what is retired into it from now on was pending before
        self._closed.append(batch)
        if len(self._closed) > BATCHES:
            first, second = self._closed[0], self._closed.pop(1)
            first.owned.append(second)  # itself, and not what it has: a thread may be about to retire something into it
            first.nbytes += second.nbytes
            first.waiting |= second.waiting

    def release(self) -> None:
        """Let go of what no pending work uses."""
        if not (self._closed or self._open.owned):
            return
        gone: list[_Batch] = []
        with self.lock:
            self._close()
            kept: list[_Batch] = []
            for batch in self._closed:
                batch.waiting &= self.pending
                (kept if batch.waiting else gone).append(batch)
            self._closed = kept
        del gone[:]  # outside of the lock: what goes may wait for a driver

    @property
    def full(self) -> bool:
        """Whether so much waits that an allocation should wait too."""
        return sum(batch.nbytes for batch in (*self._closed, self._open)) > RETIRED
