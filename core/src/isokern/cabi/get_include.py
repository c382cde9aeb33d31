"""The headers for C and C++, generated on request, so that they always match this installation."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..disk_cache import user_cache
from ..status import InvalidArgument
from .header import header

CPP = Path(__file__).parent / "include" / "isokern.hpp"


def get_include() -> str:
    """Return a folder that holds `isokern.h`, and `isokern.hpp` for C++: pass it to a compiler as `-I`.

    The folder is in ISOKERN_CACHE or the user's cache folder, and is named after the headers' content. Where no such
    folder can be written to, it is in the temporary folder. Raises InvalidArgument where others could write to it.
    """
    texts = {"isokern.h": header().encode(), "isokern.hpp": CPP.read_bytes()}
    disk_cache = user_cache(f"include/{hashlib.sha256(b''.join(texts.values())).hexdigest()[:16]}")
    problem = disk_cache.refusal
    if problem is None:
        for name, text in texts.items():
            if disk_cache.get(name) != text:
                disk_cache.put(name, text)
        if all(disk_cache.path(name) is not None for name in texts):
            return str(disk_cache.folder)
        problem = f"{disk_cache.folder} cannot be written to"
    raise InvalidArgument("get_include", problem, allowed="a folder that only you can write to: set ISOKERN_CACHE")
