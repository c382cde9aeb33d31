"""Python's collector of cyclic garbage, held while many objects are made that stay.

Each collection visits the objects that there are. Where nearly all of the new ones stay, it finds nothing: of the time
to import the operators and to compile a language model it takes a fifth.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_held = 0  # blocks that threads are in
_collecting = True  # whether there were collections before the first of them


@contextmanager
def hold_collections() -> Iterator[None]:
    """Collect no cyclic garbage in a block, or in a function that this decorates; afterwards it is as before."""
    global _held, _collecting
    with _lock:
        if _held == 0:
            _collecting = gc.isenabled()
            gc.disable()
        _held += 1
    try:
        yield
    finally:
        with _lock:
            _held = max(0, _held - 1)
            if _held == 0 and _collecting:
                gc.enable()


def _renew() -> None:
    """End all blocks in a child process, which has only the thread that forked it."""
    global _lock, _held
    _lock = threading.Lock()
    if _held and _collecting:
        gc.enable()
    _held = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
