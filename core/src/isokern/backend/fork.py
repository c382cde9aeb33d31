"""What a forked child has to renew: a thread that is not there may hold a lock."""

from __future__ import annotations

import os
from collections.abc import Callable


def renew_in_child(renew: Callable[[], None]) -> Callable[[], None]:
    """Have `renew` called in every child that this process forks; usable as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return renew
