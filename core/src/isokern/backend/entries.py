"""The entry points of installed distributions, read from the folders that installers write.

`importlib.metadata` finds the same, but takes with it parsers of mail and of archives, which take a tenth of the time
to import what computes. It is asked wherever something may be installed in another way than as files in a folder.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Protocol

FOLDER, OLD = ".dist-info", ".egg-info"
OTHERS = (".egg", ".egg-link")  # of older installers


class Distribution(Protocol):
    """What an entry point tells of the distribution that brings it."""

    @property
    def version(self) -> str:
        """The version."""


class Entry(Protocol):
    """An entry point: one of these, or of `importlib.metadata`."""

    @property
    def name(self) -> str:
        """The name that the distribution gives it."""

    @property
    def dist(self) -> Distribution | None:
        """The distribution, where it is known."""

    def load(self) -> Any:
        """Import the object that it names."""


@dataclass(frozen=True)
class InfoFolder:
    """A folder of a distribution: NAME-VERSION.dist-info, or NAME.egg-info beside sources."""

    path: str

    @property
    def key(self) -> str:
        """The distribution's name, in which separators and case do not count."""
        return re.sub(r"[-_.]+", "-", self._stem.partition("-")[0]).lower()

    @property
    def version(self) -> str:
        """The version, as the folder's name has it."""
        return self._stem.partition("-")[2]

    @property
    def _stem(self) -> str:
        return os.path.splitext(os.path.basename(self.path))[0]

    def read(self, group: str) -> list[FoundEntry]:
        """Return the entry points of a group."""
        try:
            with open(os.path.join(self.path, "entry_points.txt"), encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except OSError:
            return []
        found, section = [], ""
        for line in lines:
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
            elif section == group and line and not line.startswith("#"):
                name, _, value = line.partition("=")
                found.append(FoundEntry(name.strip(), value.strip(), self))
        return found


@dataclass(frozen=True)
class FoundEntry:
    """An entry point; `value` is `module`, or `module:attribute` with dots, and perhaps extras in brackets."""

    name: str
    value: str
    dist: InfoFolder

    def load(self) -> Any:
        """Import the object that it names."""
        module, _, attributes = self.value.partition("[")[0].strip().partition(":")
        found: Any = import_module(module.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            found = getattr(found, attribute)
        return found


def find_entries(group: str) -> list[Entry]:
    """Return the entry points of a group, of each distribution those that come first on the path."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return _ask_importlib(group)
    found: dict[str, list[FoundEntry]] = {}
    for folder in _folders():
        if folder is None:
            return _ask_importlib(group)
        if folder.key not in found:
            found[folder.key] = folder.read(group)
            if found[folder.key] and folder.path.endswith(OLD):  # whose version is in another file
                return _ask_importlib(group)
    return [entry for entries in found.values() for entry in entries]


def _ask_importlib(group: str) -> list[Entry]:
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


def _folders() -> Iterator[InfoFolder | None]:
    """Yield the folders of distributions along the path; None where there is something else, such as an archive."""
    for place in sys.path:
        try:
            names = os.listdir(place or ".")
        except NotADirectoryError:
            yield None
        except OSError:
            continue
        else:
            for name in names:
                if name.endswith((FOLDER, OLD)):
                    yield InfoFolder(os.path.join(place, name))
                elif name.endswith(OTHERS) or place.endswith(OTHERS):
                    yield None
