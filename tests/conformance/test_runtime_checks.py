"""Test the requirements on a runtime on devices whose runtime is broken on purpose, and on one that is not."""

from __future__ import annotations

import numpy as np
import pytest
import runtime_saboteurs
from threaded_device import ThreadedDevice

from isokern.backend import Device
from isokern.conformance.runtime.check import RuntimeCheck, judge_runtime
from isokern.conformance.runtime.every import runtime_checks

# Those about processes find a device by its name: `isokern check` judges them on installed devices
CHECKS = {c.id: c for c in runtime_checks() if c.quick and "/processes/" not in c.id}


def find_failures(device: Device, checks: list[RuntimeCheck]) -> list[str]:
    """Return what the checks find wrong with a device."""
    runtime_saboteurs.KEPT.clear()
    with np.errstate():
        outcomes = [judge_runtime(device, c) for c in checks]
    return [f"{o.verdict.value} {o.id}: {o.detail}" for o in outcomes if o.verdict.failed]


def test_a_sound_device_passes(cpu: Device) -> None:
    assert find_failures(ThreadedDevice("sound:0"), [*CHECKS.values()]) == []


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", runtime_saboteurs.SABOTEURS)
def test_a_saboteur_is_found_by_its_requirement(cpu: Device, name: str) -> None:
    cls, by = runtime_saboteurs.SABOTEURS[name]
    (failure,) = find_failures(cls(f"{name}:0"), [CHECKS[by]])
    assert by in failure


def test_there_are_many_saboteurs() -> None:
    assert len(runtime_saboteurs.SABOTEURS) >= 70
    idle = set(CHECKS) - {by for _, by in runtime_saboteurs.SABOTEURS.values()}
    assert idle == NO_SABOTEUR.keys()


# Requirements that no saboteur is made for, and why
NO_SABOTEUR: dict[str, str] = {}
