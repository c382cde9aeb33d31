"""Where the C header is: made from the declarations when asked for, so it is always that of this installation."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from . import settings
from .abi.header import header
from .status import InvalidArgument


def get_include() -> str:
    """A folder that holds `isokern.h`, and `isokern.hpp` for C++: pass it to a compiler as `-I`.

    The folder is below ISOKERN_CACHE, else XDG_CACHE_HOME, else ~/.cache, and is named after the header's content.
    """
    texts = {"isokern.h": header(), "isokern.hpp": (Path(__file__).parent / "abi/include/isokern.hpp").read_text()}
    root = settings.get("ISOKERN_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(root) / "isokern" / "include" / hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
    try:
        for target, text in ((folder / name, text) for name, text in texts.items()):
            if not target.exists() or target.read_text() != text:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                    file.write(text)
                os.replace(file.name, target)  # whole or not at all, also with several processes
    except OSError as error:
        raise InvalidArgument(
            "get_include", f"{folder}: {error.strerror}", allowed="a folder that can be written: set ISOKERN_CACHE"
        ) from None
    return str(folder)
