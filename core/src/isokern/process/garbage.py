"""Python's collector of cyclic garbage, held while many objects are made that stay.

Each collection visits the objects that there are. Where nearly all of the new ones stay, it finds nothing: of the time
to import the operators and to compile a language model it takes a fifth. The first collection behind such a block
visits them all once more, unless they count as old.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .forks import own_lock, renew_in_child

_lock = own_lock(sys.modules[__name__], "_lock", threading.Lock)
_held = 0  # blocks that threads are in
_collecting = True  # whether there were collections before the first of them
_CAN_AGE = all(hasattr(gc, name) for name in ("freeze", "unfreeze", "get_freeze_count"))  # not in every Python


@contextmanager
def hold_collections(*, staying: bool = False) -> Iterator[None]:
    """Collect no cyclic garbage in a block, or in a function that this decorates; afterwards it is as before.

    Where all that is made is `staying`, as modules are, only full collections visit it: all objects that there are
    count as old at the end, if no other block holds collections still.
    """
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
            if _held == 0 and staying:
                _age()
            if _held == 0 and _collecting:
                gc.enable()


def _age() -> None:
    """Let all objects count as old, without a visit; not where somebody keeps some from all collections."""
    if _CAN_AGE and gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()  # to the oldest generation


@renew_in_child
def _renew() -> None:
    """End all blocks in a child process, which has only the thread that forked it."""
    global _held
    if _held and _collecting:
        gc.enable()
    _held = 0
