"""Failures that a backend's author knows of: a file of case ids or patterns, each with the reason."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Mapping

from ..arguments import read_text
from ..oracle.verdicts import Outcome
from ..status import InvalidArgument


class ExpectedFailures:
    """Patterns of case ids that are expected to fail, each with a sentence that says why.

    A case that fails as expected does not count as a failure. A pattern of which no case failed though some ran is
    stale, and an error: the sentence is no longer true.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        self.failed: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()

    @classmethod
    def read(cls, path: str) -> ExpectedFailures:
        """Read a file with a line for each pattern: `softmax/F16/*  # why it fails`."""
        lines = read_text("--expected-failures", path, allowed="a text file").splitlines()
        reasons: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            pattern, _, reason = (part.strip() for part in line.partition("#"))
            if not pattern:
                continue
            if not reason or pattern in reasons:
                wrong = "is there twice" if pattern in reasons else "has no reason"
                raise InvalidArgument(
                    "--expected-failures",
                    f"{path}:{number}: {pattern!r} {wrong}",
                    allowed="PATTERN # why it fails, each pattern once",
                )
            reasons[pattern] = reason
        return cls(reasons)

    def find_reason(self, outcome: Outcome) -> str:
        """Return why an outcome that is a failure was expected to be one; empty if it was not."""
        found = self._find(outcome.id) if outcome.verdict.failed else None
        return "" if found is None else self.reasons[found]

    def _find(self, id_: str) -> str | None:
        return next((p for p in self.reasons if p == id_ or fnmatch.fnmatchcase(id_, p)), None)

    def takes(self, id_: str, failed: bool) -> bool:
        """Note the outcome of a case; return whether it is a failure that was expected."""
        found = self._find(id_)
        if found is not None:
            (self.failed if failed else self.passed)[found] += 1
        return failed and found is not None

    @property
    def stale(self) -> dict[str, str]:
        """Patterns whose cases ran and none failed, with their reasons."""
        return {p: why for p, why in self.reasons.items() if self.passed[p] and not self.failed[p]}
