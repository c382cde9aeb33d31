"""Test the runtime's checks on devices whose runtime is broken on purpose, and on one that is not."""

from __future__ import annotations

import numpy as np
import pytest
import runtime_saboteurs

from isokern.backend import Device
from isokern.conformance.runtime.check import RuntimeCheck, judge_runtime, runtime_checks

SHARE = 0.97
# These are about processes, which find a device by its name: `isokern check` judges them on installed devices
CHECKS = [c for c in runtime_checks() if c.quick and "/processes/" not in c.id]


def find_failure(name: str, checks: list[RuntimeCheck]) -> str:
    """Return the first failure of a saboteur's device; empty where there is none."""
    runtime_saboteurs.KEPT.clear()
    device = runtime_saboteurs.SABOTEURS[name](f"{name}:0")
    with np.errstate():
        failed = (o for c in checks if (o := judge_runtime(device, c)).verdict.failed)
        return next((f"{o.id}: {o.detail}" for o in failed), "")


def test_a_sound_device_passes(cpu: Device) -> None:
    assert find_failure("sound", CHECKS) == ""


# A check that finds the saboteur, where it is not the first that does; the quick run asks that one alone
@pytest.mark.full
def test_saboteurs_are_caught(cpu: Device, capsys: pytest.CaptureFixture[str]) -> None:
    names = [n for n in runtime_saboteurs.SABOTEURS if n != "sound"]
    caught = {n: find_failure(n, CHECKS) for n in names}
    with capsys.disabled():
        print(f"\n{sum(map(bool, caught.values()))} of {len(caught)} runtime saboteurs caught")
        for name, how in caught.items():
            print(f"  {name}: {how[:150] or 'NOT CAUGHT'}")
    assert len(caught) >= 60
    assert sum(map(bool, caught.values())) >= SHARE * len(caught)
