"""The source files of a checkout, found without git: what proofs depend on, and what wheels are built from.

This module stands alone, so that tools without Isokern can load it from its file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

CORE = "core/src/isokern/"  # core's package in a checkout
# Names of what builds, tools and editors leave behind, as .gitignore has them; a test compares the two
LEFT_BEHIND = (
    *("__pycache__", "*.egg-info", "generated", "build", "dist", "*.so", "*.so.lines", ".*_cache", "editable.json"),
    *(".git", ".tox", ".venv", ".hypothesis", ".coverage", "share", "LICENSE", "isokern.h*", "site"),
)
KEPT = ("LICENSE", "core/src/isokern/cabi/include/isokern.hpp")  # sources of such a name


class SourceTree:
    """The files below the folder `root`, as they are now; paths are relative to it and have slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digests: dict[str, str] = {}

    @cached_property
    def files(self) -> frozenset[str]:
        """Every source file."""
        return frozenset(self._walk(""))

    def _walk(self, folder: str) -> Iterator[str]:
        for entry in os.scandir(self.root / folder):
            path = folder + entry.name
            if any(fnmatchcase(entry.name, name) for name in LEFT_BEHIND) and path not in KEPT:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(f"{path}/")
            elif entry.is_file():
                yield path

    def below(self, folder: str, matches: Callable[[str], bool] = lambda path: True) -> list[str]:
        """Return the files of a folder (`""` or `a/b/`) that match."""
        return sorted(p for p in self.files if p.startswith(folder) and matches(p))

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def digest(self, path: str) -> str:
        """Return a digest of a file's path and content."""
        if path not in self._digests:
            content = hashlib.sha256(path.encode() + b"\0" + (self.root / path).read_bytes())
            self._digests[path] = content.hexdigest()
        return self._digests[path]
