"""Host memory between pages that may not be touched: a read or write far outside of it ends the process at once."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from ..oracle.layouts import Array
from .environment import load_c_library

FENCE = 1 << 20  # bytes on either side
NONE = 0  # <sys/mman.h>: PROT_NONE


def alloc_fenced(nbytes: int) -> Array | None:
    """Return bytes that end where a fence begins; None if the system cannot protect pages.

    They are aligned to what divides `nbytes`.
    """
    page = mmap.PAGESIZE
    inner = max(1, -(-nbytes // page)) * page
    protect = getattr(load_c_library(), "mprotect", None)
    if protect is None:
        return None
    try:
        pages = mmap.mmap(-1, inner + 2 * FENCE)
    except OSError:  # the process has as many mappings as it may
        return None
    whole = np.frombuffer(pages, np.uint8)  # keeps the pages
    start = whole.ctypes.data
    for at in (start, start + FENCE + inner):
        if protect(ctypes.c_void_p(at), ctypes.c_size_t(FENCE), NONE):
            return None
    end = FENCE + inner
    return whole[end - nbytes : end]
