"""One test per case; the plug-in in this folder makes the cases."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from ..backend import Device
from ..oracle.verdicts import Verdict
from .items import judge_item
from .run import Runner
from .suite import Report, Required, claimed_pairs, required_pairs


@cache
def _runner(device: Device) -> Runner:
    return Runner(device)


@cache
def _report(device: Device, required: str | None, claimed: bool) -> Report:
    needed = required_pairs(required, device) if required else Required()
    return Report(device.name, needed | claimed_pairs(device) if claimed else needed)


def test_case(conformance_case: Any, request: pytest.FixtureRequest) -> None:
    """The device gives the declared result, and touches nothing else."""
    device, case = conformance_case
    option = request.config.getoption
    report = _report(device, option("--isokern-require"), option("--isokern-claimed"))
    outcome = report.add(case, judge_item(_runner(device), case))
    if outcome.verdict is Verdict.UNSUPPORTED:
        pytest.skip(outcome.detail)
    if outcome.verdict.failed:
        told = (f"{outcome.verdict.value}: {outcome.detail}", outcome.repro, outcome.trace)
        pytest.fail("\n".join(filter(None, told)), pytrace=False)
