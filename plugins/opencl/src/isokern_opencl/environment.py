"""The floating-point environment in which drivers are opened: the default one, which the threads that they start then have for good.

PoCL sets rounding and the treatment of subnormal numbers for each kernel that it runs, and leaves traps as they are: what divides by zero would end
the process if a caller that traps this had started its threads.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ROOM = 512  # bytes: more than an fenv_t has on any machine
DEFAULT = ctypes.c_void_p(-1)  # glibc's and musl's FE_DFL_ENV


@contextmanager
def default_environment() -> Iterator[None]:
    """Inside it this thread rounds to nearest, keeps subnormal numbers and traps nothing; afterwards it has its own environment again."""
    library, before = ctypes.CDLL(None), ctypes.create_string_buffer(ROOM)
    if sys.platform != "linux" or not hasattr(library, "fesetenv"):
        yield
        return
    library.fegetenv(before)
    library.fesetenv(DEFAULT)
    try:
        yield
    finally:
        library.fesetenv(before)
