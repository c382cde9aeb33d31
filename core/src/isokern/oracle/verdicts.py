"""The verdicts on a case, and the record of one that was run."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Verdict(str, enum.Enum):
    """The nine verdicts; the values are what `isokern check --json` prints.

    A case that passes, made of other operators where the device has no kernel for it, is lowered.
    """

    PASS = "pass"
    LOWERED = "lowered"
    FAIL_VALUE = "fail-value"
    FAIL_MEMORY = "fail-memory"
    FAIL_ERROR = "fail-error"
    FAIL_CRASH = "fail-crash"
    FAIL_CLAIM = "fail-claim"
    FAIL_RUNTIME = "fail-runtime"
    UNSUPPORTED = "unsupported"

    @property
    def passed(self) -> bool:
        """Whether results are right, by the device's own kernel or made of other operators."""
        return self in (Verdict.PASS, Verdict.LOWERED)

    @property
    def failed(self) -> bool:
        """Whether the device is at fault."""
        return self.value.startswith("fail")


@dataclass(frozen=True)
class Outcome:
    """The result of one case on one device.

    `detail` says in one line what was found (the backend's reason where the verdict is unsupported, what the call is
    made of where it is lowered). `error` is the largest difference from the reference, `share` the largest share of its
    bound that an element used (1 is the bound itself), and `ulps` the largest difference in units of the last place of
    the output's dtype, of cases that pass. `trace` is the traceback of an error that the backend's own Python raised.
    `made_of` are the operators that a lowered call was made of.
    """

    id: str
    device: str
    verdict: Verdict
    detail: str = ""
    error: float = 0.0
    share: float = 0.0
    trace: str = ""
    ulps: float = 0.0
    made_of: Sequence[str] = ()

    @property
    def repro(self) -> str:
        """The command that runs just this case again."""
        return f"isokern check --device {self.device} --case '{self.id}'"


class Failure(Exception):
    """Raised while a case runs, with the verdict and what was found."""

    def __init__(self, verdict: Verdict, detail: str, error: float = 0.0, share: float = 0.0) -> None:
        super().__init__(detail)
        self.verdict, self.detail, self.error, self.share = verdict, detail, error, share
