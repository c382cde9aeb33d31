"""The floating-point environment in which drivers are opened.

It is the default one, which the threads that drivers start then keep for good. PoCL sets rounding and the treatment of
subnormal numbers for each kernel that it runs, but leaves traps as they are: a division by zero would end the process
if a caller that traps it had started PoCL's threads.
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
    """Give this thread the default floating-point environment inside a `with` block.

    It rounds to nearest, keeps subnormal numbers and traps nothing; afterwards the thread has its own environment
    again.
    """
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
