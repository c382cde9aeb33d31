"""The table of all ISOKERN_* environment variables; an unknown one is an error, so that a misspelling is noticed."""

from __future__ import annotations

import difflib
import os

from .status import InvalidArgument

_TABLE: dict[str, str] = {
    "ISOKERN_PLUGINS": "plug-ins to load, by entry-point name, separated by commas; empty for none",
    "ISOKERN_DEVICE": "the device used if none is named; else the first that is available and not emulated",
    "ISOKERN_DEBUG": (
        "0 quiet; 1 plug-ins and devices; 2 each call with shapes and time; 3 also why each variant was chosen;"
        " 4 also graphs around passes and kernel sources"
    ),
    "ISOKERN_ON_MISSING": (
        "what to do with an operator that a device has no kernel for: lower decomposes it into other operators;"
        " error refuses it; else lower"
    ),
    "ISOKERN_CACHE": (
        "folder for files made once, such as compiled kernels and isokern.h, that only you can write to; else the"
        " user's cache folder"
    ),
    "ISOKERN_KEEP_PREPACKED": (
        "1 keeps packed constants, such as weights, in the cache folder, by content, and maps them from there"
    ),
    "ISOKERN_SIMT_SELFTEST": (
        "0 uses SIMT kernels without trying them on this driver first (one small call per operator and dtypes)"
    ),
}


def declare(name: str, doc: str) -> None:
    """Add a plug-in's own variable to the table."""
    if not name.startswith("ISOKERN_"):
        raise ValueError(f"setting {name!r} does not begin with ISOKERN_")
    _TABLE.setdefault(name, doc)


def table() -> dict[str, str]:
    """Return name → meaning of every declared variable."""
    return dict(sorted(_TABLE.items()))


def get(name: str) -> str | None:
    """Return the value of a declared variable, or None if it is not set."""
    if name not in _TABLE:
        raise KeyError(f"{name} is not in the table of settings")
    return os.environ.get(name)


def debug_level() -> int:
    """Return the level of ISOKERN_DEBUG; 0 if it is not a number, which `check` refuses."""
    given = get("ISOKERN_DEBUG") or ""
    return int(given) if given.isdecimal() else 0


def check() -> None:
    """Raise InvalidArgument for an ISOKERN_* variable that is not declared, and for a level that is not a number."""
    level = get("ISOKERN_DEBUG") or "0"
    if not level.isdecimal():
        raise InvalidArgument("environment", f"ISOKERN_DEBUG={level}", allowed="a level from 0 to 4")
    for name in os.environ:
        if name.startswith("ISOKERN_") and name not in _TABLE:
            near = ", ".join(difflib.get_close_matches(name, _TABLE, 2, 0.7)) or ", ".join(_TABLE)
            raise InvalidArgument("environment", f"{name} is set, and no such setting exists", allowed=near)
