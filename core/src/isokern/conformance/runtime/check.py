"""A requirement on a device's runtime, as a function whose docstring states it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ...backend import Device
from ...oracle.verdicts import Failure, Outcome, Verdict
from ..run import blame, judge_failure

PREFIX = "runtime"
checks: dict[str, RuntimeCheck] = {}  # by id, in the order of their modules


@dataclass(frozen=True)
class RuntimeCheck:
    """One requirement: `run` returns if the device fulfills it, and raises `Failure` if it does not.

    `id` is `runtime/<module>/<function>`, and `summary` the requirement in a sentence. `quick` says whether `--quick`
    runs it.
    """

    id: str
    summary: str
    run: Callable[[Device], None]
    quick: bool = True


def runtime_check(*, quick: bool = True) -> Callable[[Callable[[Device], None]], Callable[[Device], None]]:
    """Register a function as a requirement, under the names of its module and its own."""

    def register(function: Callable[[Device], None]) -> Callable[[Device], None]:
        module = function.__module__.rpartition(".")[2]
        id_ = f"{PREFIX}/{module}/{function.__name__}"
        assert function.__doc__ is not None, f"{id_} does not say what it requires"
        checks[id_] = RuntimeCheck(id_, function.__doc__.split("\n\n")[0], function, quick)
        return function

    return register


def fail(detail: str, verdict: Verdict = Verdict.FAIL_RUNTIME) -> NoReturn:
    """Say that the device does not fulfil the requirement, and what was found."""
    raise Failure(verdict, detail)


def lacks(reason: str) -> NoReturn:
    """Say that the requirement does not apply to the device."""
    raise Failure(Verdict.UNSUPPORTED, reason)


def judge_runtime(device: Device, check: RuntimeCheck) -> Outcome:
    """Return the outcome of one requirement; nothing that a backend does raises."""
    try:
        check.run(device)
    except Failure as failure:
        detail = failure.detail if not failure.verdict.failed else f"{check.summary.rstrip('.')}: {failure.detail}"
        return judge_failure(check.id, device.name, failure, detail)
    except (Exception, SystemExit) as error:  # whatever a backend's code raises is its failure, not the suite's
        return blame(check.id, device.name, error)
    return Outcome(check.id, device.name, Verdict.PASS)
