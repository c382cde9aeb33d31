"""Files that are made once and found again by key: whole or not there, whoever else writes them, and checked before they are believed.

What is kept is mostly code that a later process runs. So nothing is kept in a folder, and nothing is read from one, in which another user could
put a file, and a file that another user could have written is made again.
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

SEAL = len(b"/* sha256  */\n") + 64  # bytes at the end of a file: to C a comment, to a loader of libraries nothing
_told: set[str] = set()


class DiskCache:
    """A folder of files by key, which is the file's name. `damaged` counts those that were not what was written, or not by this user.

    Nobody but the user and root may be able to write to the folder, to those above it up to `root`, and to what is above that; there alone a folder
    may be open to all where it is sticky, as /tmp is. A folder that others can write to is refused with a warning, and nothing is kept.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self.damaged = 0
        self._depth = 0 if root is None else len(folder.parts) - len(root.parts)

    @property
    def refusal(self) -> str | None:
        """How another user could change what lies in the folder; None where nobody can."""
        folder = Path(os.path.realpath(self.folder))
        for level, path in enumerate((folder, *folder.parents)):
            try:
                status = path.stat()
            except OSError:  # it is not there yet, or there is no way to it
                continue
            if not _is_own(status):
                return f"{path} belongs to another user ({status.st_uid})"
            if _is_shared(status) and (level <= self._depth or not status.st_mode & stat.S_ISVTX):
                return f"others can write to {path} (mode {stat.S_IMODE(status.st_mode):04o})"
        return None

    @property
    def usable(self) -> bool:
        """Whether this user can write to the folder, or make it, and nobody else."""
        return self.refusal is None and _is_writable(self.folder)

    def make(self) -> bool:
        """Make the folder; whether this user can write to it, and nobody else."""
        if self._is_refused():
            return False
        try:
            _make(self.folder)
        except OSError:
            return False
        return self.usable

    def get(self, key: str) -> bytes | None:
        """What was put there; None where nothing was, or where it is damaged, of another key, or perhaps another user's."""
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
        """The file of what `get` gives, for whoever takes no bytes: what was put there, with a line behind it."""
        return None if self.get(key) is None else self.folder / key

    def put(self, key: str, content: bytes) -> None:
        """Write it, over whatever is there; a folder that cannot be written to costs time later, nothing else."""
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
        """A folder in which these files lie: this one or, where it keeps nothing, one that goes when the process ends."""
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
        """A folder of the user's own that goes when the process ends."""
        made = Path(tempfile.mkdtemp(prefix="isokern-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return made

    def _is_refused(self) -> bool:
        refusal = self.refusal
        if refusal is not None and refusal not in _told:
            _told.add(refusal)
            warnings.warn(
                f"nothing is kept in {self.folder}: {refusal}; set ISOKERN_CACHE to a folder that only you can write to",
                RuntimeWarning,
                stacklevel=3,
            )
        return refusal is not None


def user_cache(name: str) -> DiskCache:
    """The disk cache of that name among those of this user."""
    root = user_root()
    return DiskCache(root / "isokern" / name, root)


def user_root() -> Path:
    """Where the stores of this user are: in ISOKERN_CACHE, else in the user's cache folder; where there is none that can be written to, in a folder
    of the user's own in the temporary one.
    """
    asked = settings.get("ISOKERN_CACHE")
    if asked:
        return Path(asked)
    home = user_cache_folder()
    if home is not None and (_is_writable(home) or _is_prepared(home)):
        return home
    try:
        return Path(tempfile.gettempdir(), f"isokern-{os.geteuid() if hasattr(os, 'geteuid') else 'cache'}")
    except FileNotFoundError:  # there is not even that
        return home or Path(os.devnull)


def user_cache_folder() -> Path | None:
    """XDG_CACHE_HOME, else ~/.cache; None where nobody knows the user's home."""
    asked = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(asked) if asked else Path.home() / ".cache"
    except RuntimeError:
        return None


def _is_prepared(home: Path) -> bool:
    """Whether a cache folder that cannot be written to has what somebody filled for this user."""
    folder = home / "isokern"
    return os.path.isdir(folder) and DiskCache(folder, home).refusal is None


def _is_writable(folder: Path) -> bool:
    """Whether the user may write to the folder or, where it is not there, make it."""
    there = next((path for path in (folder, *folder.absolute().parents) if os.path.exists(path)), folder)
    return os.access(there, os.W_OK | os.X_OK)


def _make(folder: Path) -> None:
    """With what is missing above it, for this user alone, whatever the process would allow others."""
    if not os.path.isdir(folder):
        _make(folder.parent)
        with suppress(FileExistsError):  # another process was faster, or it is a file
            os.mkdir(folder, 0o700)


def _read(path: Path) -> bytes:
    """A file's bytes; none where it is no file, or where another user could have written it."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, given: os.open(name, given | flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not _is_own(status) or _is_shared(status):
            return b""
        return file.read()


def _is_own(status: os.stat_result) -> bool:
    """Whether a file or folder is the user's, or root's."""
    return not hasattr(os, "geteuid") or status.st_uid in (os.geteuid(), 0)


def _is_shared(status: os.stat_result) -> bool:
    """Whether other users may write to a file or folder."""
    if not hasattr(os, "geteuid"):  # its modes do not tell
        return False
    mode = status.st_mode
    return bool(mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private(status.st_gid, os.geteuid())))


@cache
def _is_private(group: int, user: int) -> bool:
    """Whether a group is the one that many systems give each user: of the user's name, and without other members."""
    import grp
    import pwd

    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    return user != 0 and found.gr_name == name and set(found.gr_mem) <= {name}


def _seal(key: str, content: bytes) -> bytes:
    return f"/* sha256 {hashlib.sha256(key.encode() + content).hexdigest()} */\n".encode()
