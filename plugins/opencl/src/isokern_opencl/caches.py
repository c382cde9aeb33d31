"""The folders in which pyopencl and PoCL cache compiled code, to which no other user must be able to write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isokern.disk_cache import DiskCache, user_cache, user_cache_folder

OF_POCL, NONE_OF_PYOPENCL = "POCL_CACHE_DIR", "PYOPENCL_NO_CACHE"


@contextmanager
def private_caches() -> Iterator[None]:
    """Give pyopencl and PoCL private cache folders while they are loaded and enumerate devices.

    They read the locations of their folders then. A folder that they would choose by themselves, and that cannot be
    created or that others can write to, is replaced: PoCL gets one among this user's disk caches or, where there is
    none, one for this process; pyopencl does without.
    """
    given = {}
    if NONE_OF_PYOPENCL not in os.environ and not _is_usable(user_cache_folder(), "pytools"):
        given[NONE_OF_PYOPENCL] = "1"
    if OF_POCL not in os.environ and not _is_usable(_home_of_pocl(), "pocl/kcache"):
        disk_cache = user_cache("pocl")
        given[OF_POCL] = str(disk_cache.folder if disk_cache.make() else disk_cache.scratch)
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:  # processes that this one starts choose for themselves
            os.environ.pop(name, None)


def _is_usable(home: Path | None, name: str) -> bool:
    return home is not None and DiskCache(home / name, home).usable


def _home_of_pocl() -> Path | None:
    """Return where PoCL creates its folder: unlike others it does not look the user up where HOME is not set."""
    return user_cache_folder() if os.environ.get("XDG_CACHE_HOME") or "HOME" in os.environ else Path("/tmp")
