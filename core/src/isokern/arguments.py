"""Checks of plain arguments, and of the files that they name, that several functions share."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from .status import InvalidArgument, IsokernError, quote

MAX_TEXT = 1 << 28  # bytes of a text that is read whole


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


def writable_file(where: str, path: str) -> None:
    """Raise InvalidArgument if no file can be written at `path`: a command checks this before it works for long."""
    regular_file(where, path, exists=False)
    folder = Path(path).parent
    if not folder.is_dir():
        problem = f"{quote(path)}: there is no folder {quote(str(folder))}"
    elif not os.access(path if os.path.exists(path) else folder, os.W_OK):
        problem = f"{quote(path)} may not be written"
    else:
        return
    raise InvalidArgument(where, problem, allowed="a file in a folder that can be written to")


def write_text(where: str, path: str, text: str) -> None:
    """Write a file in UTF-8; raise InvalidArgument if the system does not allow it."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"{quote(path)}: {error.strerror or error}"
        raise InvalidArgument(where, problem, allowed="a file in a folder that can be written to") from None


def read_text(where: str, path: str | os.PathLike[str], *, allowed: str, most: int = MAX_TEXT) -> str:
    """Return what a regular file in UTF-8 has, without a byte order mark.

    Raises InvalidArgument if it cannot be read, or has more than `most` bytes: pipes and devices have no end.
    """
    regular_file(where, path := os.fspath(path), exists=True)
    try:
        with open(path, "rb", opener=open_at_once) as file:
            content = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        if len(content) > most:
            raise InvalidArgument(where, f"{quote(path)} is longer than {most} bytes", allowed=allowed)
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgument(where, f"{quote(path)}: {problem}", allowed=allowed) from None


def open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe: the `opener` of `open`."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
