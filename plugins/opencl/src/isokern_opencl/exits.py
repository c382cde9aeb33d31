"""What threads may do with a driver while the interpreter exits.

A call of pyopencl that waits releases Python's lock. If the interpreter is finalized meanwhile, Python before 3.14 ends
the thread of a daemon as soon as it asks for the lock again: within C++ of pyopencl that must not be unwound, which
aborts the process. So the exit first waits for the calls in progress, and a thread that begins another one stops there.
"""

from __future__ import annotations

import atexit
import threading
import time

from isokern.backend import renew_in_child

SECONDS = 10  # that an exit waits for calls in progress: a kernel may be without end


class _Waiting:
    """The calls in progress; `with waiting:` is around each one that releases Python's lock."""

    def __init__(self) -> None:
        self.depths: dict[int, int] = {}  # by thread; each changes its own alone
        self.closer: int | None = None  # the thread that exits

    def __enter__(self) -> None:
        me = threading.get_ident()
        self.depths[me] = self.depths.get(me, 0) + 1
        if self.closer is not None and self.closer != me:
            self.depths.pop(me)
            threading.Event().wait()  # until the process is gone

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        depth = self.depths.pop(me) - 1
        if depth:
            self.depths[me] = depth

    def close(self) -> None:
        """Let no other thread begin a call, and wait for those in progress."""
        self.closer, end = threading.get_ident(), time.monotonic() + SECONDS
        while self.depths.keys() - {self.closer} and time.monotonic() < end:
            time.sleep(0.001)


waiting = _Waiting()
atexit.register(waiting.close)


@renew_in_child
def _forget() -> None:
    """Forget the threads that a forked child does not have."""
    waiting.depths.clear()
