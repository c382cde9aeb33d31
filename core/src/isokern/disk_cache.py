"""A disk cache: files that are made once, found again by key, and verified when they are read.

A file is written completely or not at all, even with several writers. Most files are code that a later process runs, so
the cache neither writes to nor reads from a folder in which another user could put a file, and a file that another user
could have written is made again.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path

from . import settings

SEAL = len(b"/* sha256  */\n") + 64  # bytes appended to a file: a comment to C, ignored by the loader of libraries
_told: set[str] = set()


class DiskCache:
    """A folder of files by key, which is the file's name; `damaged` counts the files that failed verification.

    A file fails if its content is not what was written, or if another user owns or may write it. Only this user
    and root may be able to write to the folder, to the folders between it and `root`, and to those above `root`; among
    the last, a folder may be writable for all if it is sticky, as /tmp is. A folder that others can write to is
    refused with a warning, and nothing is stored.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self.damaged = 0
        self._depth = 0 if root is None else len(folder.parts) - len(root.parts)

    @property
    def refusal(self) -> str | None:
        """The way in which another user could change the folder's content; None if there is none."""
        folder = Path(os.path.realpath(self.folder))
        for level, path in enumerate((folder, *folder.parents)):
            try:
                status = path.stat()
            except OSError:  # it does not exist yet, or is unreachable
                continue
            if not _is_own(status):
                return f"{path} belongs to another user ({status.st_uid})"
            if _is_shared(status) and (level <= self._depth or not status.st_mode & stat.S_ISVTX):
                return f"others can write to {path} (mode {stat.S_IMODE(status.st_mode):04o})"
        return None

    @property
    def usable(self) -> bool:
        """Whether this user, and no other user, can write to the folder or create it."""
        return self.refusal is None and _is_writable(self.folder)

    def make(self) -> bool:
        """Create the folder; return whether this user, and no other user, can write to it."""
        if self._is_refused():
            return False
        try:
            _make(self.folder)
        except OSError:
            return False
        return self.usable

    def get(self, key: str) -> bytes | None:
        """Return the content stored under the key, or None.

        None if nothing is stored, or if the file is damaged, belongs to another key, or may be another user's.
        """
        if self._is_refused():
            return None
        try:
            kept = _read(self.folder / key)
        except FileNotFoundError:
            return None
        except OSError:
            kept = b""
        content = kept[:-SEAL]
        if kept[-SEAL:] == _seal(key, content):
            return content
        self.damaged += 1
        return None

    def path(self, key: str) -> Path | None:
        """Return the path of the file whose content `get` returns, or None; the seal follows the content."""
        return None if self.get(key) is None else self.folder / key

    def put(self, key: str, content: bytes) -> None:
        """Write the content, replacing any file under the key.

        A folder that cannot be written to is not an error: it only costs time later.
        """
        if not self.make():
            return
        name = None
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                name = file.name
                file.write(content + _seal(key, content))
            os.replace(name, self.folder / key)
        except OSError:
            if name is not None:
                Path(name).unlink(missing_ok=True)

    def place(self, files: Mapping[str, bytes]) -> Path:
        """Return a folder that holds these files: this one or, if it cannot store them, `scratch`."""
        for key, content in files.items():
            if self.get(key) != content:
                self.put(key, content)
        if all(self.get(key) == content for key, content in files.items()):
            return self.folder
        for key, content in files.items():
            (self.scratch / key).write_bytes(content)
        return self.scratch

    @cached_property
    def scratch(self) -> Path:
        """A private temporary folder, removed when the process ends."""
        made = Path(tempfile.mkdtemp(prefix="isokern-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return made

    def _is_refused(self) -> bool:
        refusal = self.refusal
        if refusal is not None and refusal not in _told:
            _told.add(refusal)
            warnings.warn(
                f"nothing is kept in {self.folder}: {refusal}; set ISOKERN_CACHE to a folder that only you can write"
                " to",
                RuntimeWarning,
                stacklevel=3,
            )
        return refusal is not None


def user_cache(name: str) -> DiskCache:
    """Return this user's disk cache of that name."""
    root = user_root()
    return DiskCache(root / "isokern" / name, root)


def user_root() -> Path:
    """Return the folder that holds this user's disk caches.

    It is ISOKERN_CACHE, else the user's cache folder, else, if that cannot be written to, a private folder in the
    temporary folder.
    """
    asked = settings.get("ISOKERN_CACHE")
    if asked:
        return Path(asked)
    home = user_cache_folder()
    if home is not None and (_is_writable(home) or _is_prepared(home)):
        return home
    try:
        return Path(tempfile.gettempdir(), f"isokern-{os.geteuid() if hasattr(os, 'geteuid') else 'cache'}")
    except FileNotFoundError:  # there is no temporary folder either
        return home or Path(os.devnull)


def user_cache_folder() -> Path | None:
    """Return XDG_CACHE_HOME, else ~/.cache; None if the user's home is unknown."""
    asked = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(asked) if asked else Path.home() / ".cache"
    except RuntimeError:
        return None


def _is_prepared(home: Path) -> bool:
    """Return whether a cache folder that cannot be written to was filled for this user beforehand."""
    folder = home / "isokern"
    return os.path.isdir(folder) and DiskCache(folder, home).refusal is None


def _is_writable(folder: Path) -> bool:
    """Return whether the user may write to the folder or, if it does not exist, create it."""
    there = next((path for path in (folder, *folder.absolute().parents) if os.path.exists(path)), folder)
    return os.access(there, os.W_OK | os.X_OK)


def _make(folder: Path) -> None:
    """Create the folder and its missing parents for this user alone, whatever the umask is."""
    if not os.path.isdir(folder):
        _make(folder.parent)
        with suppress(FileExistsError):  # another process was faster, or it is a file
            os.mkdir(folder, 0o700)


def _read(path: Path) -> bytes:
    """Return a file's bytes; nothing if it is not a regular file or another user could have written it."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, given: os.open(name, given | flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not _is_own(status) or _is_shared(status):
            return b""
        return file.read()


def _is_own(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to the user or to root."""
    return not hasattr(os, "geteuid") or status.st_uid in (os.geteuid(), 0)


def _is_shared(status: os.stat_result) -> bool:
    """Return whether other users may write to a file or folder."""
    if not hasattr(os, "geteuid"):  # modes say nothing there
        return False
    mode = status.st_mode
    return bool(mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private(status.st_gid, os.geteuid())))


@cache
def _is_private(group: int, user: int) -> bool:
    """Return whether a group is the private one of a user: it has the user's name and no other members."""
    import grp
    import pwd

    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    return user != 0 and found.gr_name == name and set(found.gr_mem) <= {name}


def _seal(key: str, content: bytes) -> bytes:
    return f"/* sha256 {hashlib.sha256(key.encode() + content).hexdigest()} */\n".encode()
