"""Imports and forks: a child waits without end for a module that another thread of its parent was importing.

Python does not renew the locks of modules in a child. So a fork waits for the imports of other threads to end.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from functools import cache

LONGEST = 5.0  # seconds that a fork waits; an import may itself wait for the thread that forks


def is_importing() -> bool:
    """Return whether another thread imports a module."""
    own = threading.get_ident()
    locks = [find() for find in list(getattr(importlib._bootstrap, "_module_locks", {}).values())]
    return any(getattr(lock, "owner", None) not in (None, own) for lock in locks)


def _wait() -> None:
    end = time.monotonic() + LONGEST
    while is_importing() and time.monotonic() < end:
        time.sleep(0.001)


@cache
def wait_before_forks() -> None:
    """Have every fork of this process wait; for modules whose threads import others when they first work."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_wait)
