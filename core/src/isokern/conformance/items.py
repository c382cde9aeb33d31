"""The items that the suite judges: cases of operators, and requirements on the runtime."""

from __future__ import annotations

from typing import TypeVar

from ..oracle.cases import Case
from ..oracle.verdicts import Outcome
from .run import Runner
from .runtime.check import RuntimeCheck, judge_runtime

Item = Case | RuntimeCheck
AnyItem = TypeVar("AnyItem", Case, RuntimeCheck, Case | RuntimeCheck)


def judge_item(runner: Runner, item: Item) -> Outcome:
    """Return the outcome of a case or of a requirement."""
    return judge_runtime(runner.device, item) if isinstance(item, RuntimeCheck) else runner.run(item)
