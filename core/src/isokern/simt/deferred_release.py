"""Deferred release: keeping memory that work in flight uses until that work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..process.forks import own_lock

RETIRED = 1 << 28  # bytes that may wait for work in flight before an allocation waits for them too
OVERHEAD = 4096  # bytes counted for each retired object on top of its own
BATCHES = 8  # batches of retired objects; where there are more, two are merged


class _Batch:
    """The objects retired between two waits.

    `waiting` has the keys of streams that were pending then and have not been waited for since.
    """

    __slots__ = ("nbytes", "owned", "waiting")

    def __init__(self) -> None:
        self.owned: list[Any] = []
        self.nbytes = 0
        self.waiting: set[object] = set()


class DeferredRelease:
    """Objects that were dropped while work in flight may still use them.

    `pending` has a key for each stream with work that nobody has waited for. What is dropped meanwhile is retired, and
    released when the work that was pending then has been waited for, whatever was enqueued since: threads that never
    leave the device idle hold nobody's memory.
    """

    def __init__(self) -> None:
        self.pending: set[object] = set()
        self.lock = own_lock(self, "lock")
        self._open = _Batch()
        self._closed: list[_Batch] = []  # oldest first

    def renew(self) -> None:
        """Start afresh in a forked process.

        The parent's work is not there.
        """
        self.pending.clear()

    @property
    def retired(self) -> list[Any]:
        """All objects that were retired and not released yet."""
        batches = [*self._closed, self._open]
        return [each for batch in batches for o in batch.owned for each in (o.owned if type(o) is _Batch else [o])]

    def retire(self, owned: Any, nbytes: int) -> None:
        """Release something once no work in flight can use it.

        May be called during garbage collection, so it never waits.
        """
        if self.pending:
            # A batch that is closed at this very moment may take it as well: it waits for all that has been pending
            # until now
            batch = self._open
            batch.owned.append(owned)
            batch.nbytes += nbytes + OVERHEAD

    def wait_for(self, key: object, wait: Callable[[], None]) -> None:
        """Wait for the work of one stream; then release what no other work uses."""
        waiting = object()  # stands for the work until now; what is enqueued during the wait is pending again
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
        """Begin a new batch; the previous one waits for the streams that are pending."""
        batch = self._open
        if not batch.owned:
            return
        self._open = _Batch()
        batch.waiting = set(
            self.pending
        )  # after the replacement: what is retired into the batch from now on was pending before
        self._closed.append(batch)
        if len(self._closed) > BATCHES:
            first, second = self._closed[0], self._closed.pop(1)
            # The batch and not its contents: a thread may be about to retire something into it
            first.owned.append(second)
            first.nbytes += second.nbytes
            first.waiting |= second.waiting

    def release(self) -> None:
        """Release what no pending work uses."""
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
        del gone[:]  # outside the lock: a release may wait for a driver

    @property
    def full(self) -> bool:
        """Whether so many bytes are retired that an allocation should wait for them."""
        return sum(batch.nbytes for batch in (*self._closed, self._open)) > RETIRED
