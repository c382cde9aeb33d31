"""The environments of tox.ini, read without tox: their commands, settings, and which files of the tree they read.

It knows the part of tox's language that tox.ini uses: names with braces, conditions by factors (`full: …`), references
to other sections, `{posargs:…}`. A test compares it with tox.
"""

from __future__ import annotations

import configparser
import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

_CONDITION = re.compile(r"(!?[\w.]+(?:,!?[\w.]+)*):\s+(.*)")
_REFERENCE = re.compile(r"\{\[([^\]]+)\](\w+)\}")
_POSARGS = re.compile(r"\{posargs(?::((?:[^{}]|\{[^{}]*\})*))?\}")


def expand(name: str) -> list[str]:
    """Return the names that one with braces stands for: `core{,-full}` is `core` and `core-full`."""
    parts = re.split(r"\{([^}]*)\}", name)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(words) for words in itertools.product(*choices)]


@dataclass(frozen=True)
class Environment:
    """One environment; a command is a line, and `reads` has a line for each scope."""

    name: str
    labels: tuple[str, ...]
    deps: tuple[str, ...]
    settings: tuple[str, ...]
    commands_pre: tuple[str, ...]
    commands: tuple[str, ...]
    reads: tuple[str, ...]

    @property
    def has_isokern(self) -> bool:
        """Whether core is installed in it."""
        return any("tools/install.py core" in line for line in self.commands_pre)

    def split_settings(self) -> dict[str, str]:
        """Return the variables that it sets."""
        pairs = (line.partition("=") for line in self.settings)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def split_commands(self) -> list[list[str]]:
        """Return the words of each command, as they are without further arguments."""
        return [shlex.split(line) for line in self.commands]

    def reads_of(self, subject: str) -> list[str]:
        """Return the patterns of what a test file, or another command, reads: those for all, and of its scopes.

        A line `tests/walk: docs *.md` is for the test files below `tests/walk`.
        """
        return list_reads(self.reads, subject)


def list_reads(lines: tuple[str, ...], subject: str) -> list[str]:
    """Return the patterns of the lines that are for a test file, or for another command (a text without a slash)."""
    found: list[str] = []
    for line in lines:
        scope, colon, patterns = line.rpartition(":")
        if not colon or is_below(subject, scope.strip()):
            found += patterns.split()
    return found


def is_below(path: str, pattern: str) -> bool:
    """Return whether a path is in a folder, is that file, or matches a pattern, whose `*` may stand for slashes."""
    if "*" in pattern:
        return fnmatchcase(path, pattern)
    return pattern == "." or path == pattern or path.startswith(f"{pattern.rstrip('/')}/")


class Environments:
    """What the file tox.ini of the folder `root` has; without the file, nothing."""

    def __init__(self, root: Path) -> None:
        self._parser = configparser.RawConfigParser(delimiters=("=",), default_section="")
        self._parser.read(root / "tox.ini", encoding="utf-8")

    @cached_property
    def _sections(self) -> dict[str, str]:
        """Name of an environment → its section."""
        named = ((s, s.removeprefix("testenv:")) for s in self._parser.sections() if s.startswith("testenv:"))
        return {name: section for section, names in named for name in expand(names)}

    def __iter__(self) -> Iterator[Environment]:
        return (self.get(name) for name in self._sections)

    def __contains__(self, name: str) -> bool:
        return name in self._sections

    def get(self, name: str) -> Environment:
        """Return the environment of a name."""
        section = self._sections[name]
        keys = ("labels", "deps", "set_env", "commands_pre", "commands", "reads")
        return Environment(name, *(tuple(self._lines(section, key, name)) for key in keys))

    def _lines(self, section: str, key: str, name: str) -> list[str]:
        """Return the lines of a key that are for the environment of that name, with what they refer to."""
        home = section if self._parser.has_option(section, key) else "testenv"
        found: list[str] = []
        for line in self._parser.get(home, key, fallback="").replace("\\\n", " ").splitlines():
            condition = _CONDITION.fullmatch(line.strip())
            if condition is not None:
                if not all((f.lstrip("!") in name.split("-")) != f.startswith("!") for f in condition[1].split(",")):
                    continue
                line = condition[2]
            line = _REFERENCE.sub(lambda m: "\n".join(self._lines(m[1], m[2], name)), line)
            if key.startswith("commands"):
                line = _POSARGS.sub(lambda m: m[1] or "", line.replace("\n", " "))
            found += [part.replace("{env_name}", name).strip() for part in line.splitlines()]
        return [line for line in found if line]
