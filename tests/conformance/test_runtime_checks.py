"""Test the requirements on a runtime on devices whose runtime is broken on purpose, and on one that is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import installed_saboteurs
import numpy as np
import pytest
import runtime_saboteurs
from threaded_device import ThreadedDevice

from isokern.backend import Device
from isokern.conformance.runtime.check import RuntimeCheck, judge_runtime
from isokern.conformance.runtime.every import runtime_checks
from isokern.oracle.verdicts import Verdict

CHECKS = {c.id: c for c in runtime_checks()}
# Those that find a device by its name are judged by `isokern check`, in an environment where it is installed
ALONE = ("/has_distinct_devices", "/refuses_memory_of_others")
BY_NAME = {i for i in CHECKS if "/processes/" in i or i.endswith(ALONE)}
# The saboteurs of README's command: two or three of each kind of requirement
FEW = (
    *("runsatcapture", "replaysonce", "answerswithtrue", "buildsnokernel", "notzeroed", "forgetscloses"),
    *("sharesblocks", "doesnotwaittoread", "packsatonce", "readstheunpacked", "queryistrue", "waitdoesnothing"),
    *("outoforder", "swallowserrors", "keepsfiles", "leaksatcreate", "leavesarounding", "overclaims"),
    *("trustsitsworkspace", "allocatesinalaunch", "givesbackearly"),
)
FEW_CHECKS = {runtime_saboteurs.SABOTEURS[name][1] for name in FEW}
EXTENT = [pytest.param(FEW_CHECKS, id="few"), pytest.param(set(CHECKS), id="all", marks=pytest.mark.full)]

Check = Callable[..., tuple[int, dict[str, Any]]]


def find_failures(device: Device, checks: list[RuntimeCheck]) -> list[str]:
    """Return what the checks find wrong with a device."""
    with np.errstate():
        outcomes = [judge_runtime(device, c) for c in checks]
    runtime_saboteurs.KEPT.clear()
    return [f"{o.verdict.value} {o.id}: {o.detail}" for o in outcomes if o.verdict.failed]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Return a function that runs `isokern check` where the plug-in is installed: (exit code, JSON document)."""
    info = tmp_path / "runtime_saboteurs-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: runtime-saboteurs\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[isokern]\nruntime_saboteurs = installed_saboteurs\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent), *filter(None, sys.path)])

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "isokern", "check", "--part", "runtime", "--json", *arguments]
        environment = {**os.environ, "PYTHONPATH": path, "SABOTEURS_LOCK": str(tmp_path / "lock")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.mark.parametrize("ids", EXTENT)
def test_a_sound_device_passes(cpu: Device, ids: set[str]) -> None:
    quick = [c for c in CHECKS.values() if c.quick and c.id in ids - BY_NAME]
    assert find_failures(ThreadedDevice("sound:0"), quick) == []


@pytest.mark.parametrize("ids", EXTENT)
def test_a_sound_device_that_packs_and_adopts_passes(cpu: Device, ids: set[str]) -> None:
    class Able(ThreadedDevice):
        kernel = runtime_saboteurs.PackingKernel
        memory_type = runtime_saboteurs.AdoptingMemory

    adopts = "runtime/memory/adopts_memory_in_place"
    able = [c for i, c in CHECKS.items() if i in ids and (i == adopts or "/prepacking/" in i)]
    outcomes = [judge_runtime(Able("able:0"), check) for check in able]
    assert [(o.verdict, o.detail) for o in outcomes] == [(Verdict.PASS, "")] * len(able)


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", runtime_saboteurs.SABOTEURS)
def test_a_saboteur_is_found_by_its_requirement(cpu: Device, name: str) -> None:
    cls, by = runtime_saboteurs.SABOTEURS[name]
    (failure,) = find_failures(cls(f"{name}:0"), [CHECKS[by]])
    assert by in failure


@pytest.mark.full
def test_a_leak_is_found_in_a_process_with_much_freed_memory(cpu: Device) -> None:
    every = [bytes(5000) for _ in range(60_000)]
    kept = every[::50]  # so that what is freed stays with the process
    del every
    cls, by = runtime_saboteurs.SABOTEURS["leaksalittleatcreate"]
    assert len(find_failures(cls("leaks:0"), [CHECKS[by]])) == 1
    del kept


@pytest.mark.full
def test_an_installed_device_without_a_fault_passes(cpu: Device, check: Check) -> None:
    code, found = check("--device", "sound:0", *(word for id_ in BY_NAME for word in ("--case", id_)))
    assert (code, found["failures"]) == (0, [])


@pytest.mark.quick("twins_of_one_name")
@pytest.mark.parametrize("name", installed_saboteurs.INSTALLED)
def test_an_installed_saboteur_is_found_by_its_requirement(cpu: Device, check: Check, name: str) -> None:
    _, by = installed_saboteurs.INSTALLED[name]
    code, found = check("--device", f"{name}:0", "--case", by)
    assert code == 1
    assert {f["id"] for f in found["failures"]} == {by}  # twice where the suite's own worker does not end either


def test_every_requirement_has_a_saboteur() -> None:
    assert len(runtime_saboteurs.SABOTEURS) + len(installed_saboteurs.INSTALLED) >= 90
    found = {by for _, by in (*runtime_saboteurs.SABOTEURS.values(), *installed_saboteurs.INSTALLED.values())}
    assert set(CHECKS) == found
