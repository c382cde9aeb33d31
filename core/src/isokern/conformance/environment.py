"""The calling thread's floating-point environment and NumPy's error handling, which a call must leave as they were."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ..oracle.verdicts import Failure, Verdict

ROOM = 256  # bytes; the `fenv_t` of no C library is larger
# Values that no compiler folds. To nearest, adding half a unit in the last place to one changes nothing
one, half_ulp, quarter_ulp, subnormal = 1.0, 2.0**-53, 2.0**-54, 5e-324


@cache
def load_c_library() -> Any:
    """Return the C library of the process; None if the system does not provide it."""
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None


def trim_heap() -> None:
    """Return freed memory that the C library keeps to the system, if possible."""
    trim = getattr(load_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def find_changes() -> str:
    """Describe how the thread's floating-point environment differs from the default; empty if it does not."""
    if one + half_ulp != one or -one - half_ulp != -one or one - quarter_ulp != one:
        return "the caller's rounding mode is no longer to nearest"
    if subnormal * one == 0 or half_ulp * 2.0**-1000 == 0:
        return "subnormal numbers of the caller are flushed to zero"
    return ""


@contextmanager
def guard_environment(what: str) -> Iterator[None]:
    """Raise `Failure` where what happens inside leaves the thread another environment; the thread gets its own back."""
    handling = np.geterr()
    kept = ctypes.create_string_buffer(ROOM)
    save, restore = (getattr(load_c_library(), name, None) for name in ("fegetenv", "fesetenv"))
    if save is not None:  # else the environment is judged, and not restored
        save(kept)
    changes = ""
    try:
        yield
        changes = find_changes()
        if np.geterr() != handling:
            changes = changes or f"NumPy's error handling was {handling} and became {np.geterr()}"
    finally:
        if save is not None and restore is not None:
            restore(kept)
        np.seterr(**handling)
    if changes:
        raise Failure(Verdict.FAIL_RUNTIME, f"after {what}, {changes}")
