"""The ledger of proofs: a text file that says what passed, tied to a digest of all that the result depends on.

A line is a subject (`cpu/softmax`, `core-full/tests/core/test_expr.py`), a digest, how many cases or tests passed, the
day, the compilers and drivers, the machine's features, and further dependencies that the proof recorded. A line
proves its subject as long as the digest is that of the tree at hand. Lines that cannot be read are ignored, each with a
sentence, and a line whose digest differs is out of date: nothing in the file is believed without it.

This module stands alone, so that tools without Isokern can load it from its file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

TITLE = "# isokern ledger 1: subject, digest, passed, day, tools, machine, uses"
COLUMNS = 7
# Flags of /proc/cpuinfo that decide which kernels run
FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")
_HEXADECIMAL = re.compile("[0-9a-f]{20}")
_MARKS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")  # left by a merge that was not completed
State = Callable[[Sequence[str]], str]  # what an entry uses → a digest of the tree as far as the subject depends on it


@dataclass(frozen=True)
class Entry:
    """One proof. `tools` are part of its digest; `machine` ran it, and `uses` are its recorded dependencies."""

    subject: str
    passed: int
    day: str
    tools: str = ""
    machine: str = ""
    uses: tuple[str, ...] = ()
    digest: str = ""

    def seal(self, state: str) -> Entry:
        """Return the entry with the digest of a state of the tree, and of its own fields."""
        fields = (state, self.subject, str(self.passed), self.day, self.tools, self.machine, *self.uses)
        return replace(self, digest=hashlib.sha256("\0".join(fields).encode()).hexdigest()[:20])

    def proves(self, state: str) -> bool:
        """Return whether the entry was sealed with this state, and no field has been changed since."""
        return self.digest == self.seal(state).digest

    @property
    def line(self) -> str:
        """The line of the file."""
        fields = (self.subject, self.digest, str(self.passed), self.day, self.tools, self.machine, " ".join(self.uses))
        return "\t".join(re.sub(r"[\t\r\n]+", " ", field) for field in fields)

    @classmethod
    def parse(cls, line: str, today: date) -> Entry:
        """Return the entry of a line; raise ValueError with what is wrong with it."""
        fields = line.split("\t")
        if line.startswith(_MARKS):
            raise ValueError("it is a mark of an unfinished merge")
        if len(fields) != COLUMNS:
            raise ValueError(f"it has {len(fields)} columns of {COLUMNS}")
        subject, digest, passed, day, tools, machine, uses = fields
        if not _HEXADECIMAL.fullmatch(digest):
            raise ValueError(f"{digest[:40]!r} is not a digest")
        if not (passed.isascii() and passed.isdecimal() and len(passed) < 12 and subject):
            raise ValueError("its subject or its count is missing")
        if date.fromisoformat(day) > today + timedelta(days=1):
            raise ValueError(f"its day, {day}, is yet to come")
        return cls(subject, int(passed), day, tools, machine, tuple(uses.split()), digest)


class Ledger:
    """The entries of a file. `complaints` says which lines were ignored, and why."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complaints: list[str] = []
        self._entries = self._read(self.complaints.append)

    def _read(self, complain: Callable[[str], object]) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return found
        if lines and lines[0] != TITLE:
            complain(f"{self.path}: none of it is read: its first line is not {TITLE!r}")
            return found
        for number, line in enumerate(lines[1:], 2):
            try:
                entry = Entry.parse(line, date.today())
            except ValueError as error:
                complain(f"{self.path}:{number} is ignored: {error}")
            else:
                found.setdefault(entry.subject, []).append(entry)
        return found

    def entries(self, subject: str) -> list[Entry]:
        """Return the entries of a subject: one for each combination of tools and machine."""
        return self._entries.get(subject, [])

    def proof(self, subject: str, state: State, tools: str | None = None) -> Entry | None:
        """Return an entry that proves the subject for this state of the tree, made with these tools or with any."""
        return next(
            (e for e in self.entries(subject) if tools in (None, e.tools) and e.proves(state(e.uses))),
            None,
        )

    def latest(self, subject: str) -> Entry | None:
        """Return the newest entry of a subject, whether or not it still proves anything."""
        return max(self.entries(subject), key=lambda e: e.day, default=None)

    def update(self, made: Iterable[Entry] = (), failed: Iterable[str] = ()) -> None:
        """Add entries, and remove those of failed subjects, in the file as it is now: others may have written too.

        An entry replaces those of its subject with the same tools and machine.
        """
        added, gone = list(made), set(failed)
        if not (added or gone):
            return
        with _lock(self.path.parent):
            entries = self._read(lambda complaint: None)
            for subject in gone:
                entries.pop(subject, None)
            for new in added:
                kept = [e for e in entries.get(new.subject, []) if (e.tools, e.machine) != (new.tools, new.machine)]
                entries[new.subject] = [*kept, new]
            lines = sorted({entry.line for own in entries.values() for entry in own})
            _write(self.path, "".join(f"{line}\n" for line in (TITLE, *lines)))
        self._entries = entries

    def prune(self, subjects: Iterable[str]) -> None:
        """Remove the entries of all subjects but these."""
        self.update(failed=set(self._entries) - set(subjects))


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that two writers exclude each other."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that no reader sees a part of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def today() -> str:
    """Return the day as entries have it."""
    return date.today().isoformat()


def machine() -> str:
    """Return the architecture of this machine, and those of its features that kernels are chosen by."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        flags = set()
    return " ".join([platform.machine(), *(f for f in FEATURES if f in flags)])
