"""Checks of plain arguments that several functions share."""

from __future__ import annotations

import os
import stat
from typing import Any

import numpy as np

from .status import InvalidArgument, IsokernError, quote


def is_integer(value: Any) -> bool:
    """Return whether a value is a Python or NumPy integer; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def integer(
    where: str,
    name: str,
    given: Any,
    low: int | None = None,
    high: int | None = None,
    *,
    error: type[IsokernError] = InvalidArgument,
    hint: str = "",
) -> int:
    """Return `given` as an int from `low` to `high`; raise `error`, which names the argument `name`, otherwise."""
    value: int | None = int(given) if is_integer(given) else None
    if value is None or (low is not None and value < low) or (high is not None and value > high):
        start = "" if low is None else f" from {low}"
        allowed = f"an integer{start}" + ("" if high is None else f" to {high}")
        raise error(where, f"{name}={quote(given)}", allowed=allowed, hint=hint)
    return value


def regular_file(where: str, path: str | os.PathLike[str], *, exists: bool) -> None:
    """Raise InvalidArgument where `path` is not a regular file but a device, a pipe or a folder.

    Where `exists` is true, a path that does not exist is an error too.
    """
    try:
        mode: int | None = os.stat(os.fspath(path)).st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, TypeError, ValueError) as error:  # ValueError: a null byte
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgument(where, f"{quote(path)}: {why}", allowed="the path of a regular file") from None
    if mode is None and exists:
        raise InvalidArgument(where, f"{quote(path)} does not exist", allowed="the path of a regular file")
    if mode is not None and not stat.S_ISREG(mode):
        raise InvalidArgument(where, f"{quote(path)} is not a regular file", allowed="the path of one")
