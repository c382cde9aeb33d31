"""The suite against devices that are broken on purpose: at least 95 of 100 are caught, and one that is right passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
import saboteurs

from isokern.backend import Device
from isokern.conformance.derive import device_cases
from isokern.conformance.run import Runner
from isokern.conformance.suite import Report, quick, required_pairs
from isokern.conformance.verdicts import Outcome, Verdict
from isokern.ops import find
from isokern.plugins import discover

SHARE = 0.95


@pytest.fixture(scope="module")
def devices(cpu: Device) -> dict[str, Device]:
    """The plug-in's devices, found the way every plug-in's are."""
    registry = discover([EntryPoint("saboteurs", "saboteurs", "isokern")])
    found = {b.name: b.devices[0] for b in registry.backends if b.status == "available"}
    assert len(found) == len(saboteurs.SABOTEURS) + len(saboteurs.APART) + 1, [
        b.trace for b in registry.backends if b.status != "available"
    ]
    return found


def _outcomes(device: Device, operators: tuple[str, ...]) -> Iterator[Outcome]:
    report, runner = Report(device.name, required_pairs("all")), Runner(device)
    for case in quick(device_cases(device, [find(o) for o in operators])):
        yield report.add(case, runner.run(case))


def test_a_device_without_a_defect_passes(devices: dict[str, Device]) -> None:
    operators = tuple(dict.fromkeys(o for cls in saboteurs.SABOTEURS.values() for o in cls.operators))
    failed = [
        f"{o.verdict.value} {o.id}: {o.detail}" for o in _outcomes(devices["null"], operators) if o.verdict.failed
    ]
    assert not failed, "\n".join(failed)


def test_the_suite_catches_saboteurs(devices: dict[str, Device], capsys: pytest.CaptureFixture[str]) -> None:
    caught: dict[str, str] = {}
    for name, cls in saboteurs.SABOTEURS.items():
        first = next((o for o in _outcomes(devices[name], cls.operators) if o.verdict.failed), None)
        caught[name] = "" if first is None else f"{first.verdict.value} at {first.id}: {first.detail}"
    share = sum(map(bool, caught.values())) / len(caught)
    with capsys.disabled():
        print(f"\n{sum(map(bool, caught.values()))} of {len(caught)} saboteurs caught ({share:.0%})")
        for name, how in caught.items():
            print(f"  {name}: {how[:150] or 'NOT CAUGHT'}")
    assert len(caught) >= 20
    assert not [how for how in caught.values() if "has no kernel" in how], "a saboteur without a kernel proves nothing"
    assert share >= SHARE


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("onepasttheend", Verdict.FAIL_MEMORY),
        ("onebeforethestart", Verdict.FAIL_MEMORY),
        ("writesgaps", Verdict.FAIL_MEMORY),
        ("modifiesinput", Verdict.FAIL_MEMORY),
        ("workspaceshort", Verdict.FAIL_MEMORY),
        ("dropsnan", Verdict.FAIL_VALUE),
        ("noise", Verdict.FAIL_VALUE),
        ("claimstoomuch", Verdict.FAIL_CLAIM),
        ("refusesdtype", Verdict.FAIL_CLAIM),
        ("refusessilently", Verdict.FAIL_CLAIM),
        ("failsunaligned", Verdict.FAIL_ERROR),
        ("swallowserror", Verdict.FAIL_ERROR),
        ("packspasttheend", Verdict.FAIL_MEMORY),
        ("packingspoilsthesource", Verdict.FAIL_MEMORY),
        ("readswhatwasprepared", Verdict.FAIL_VALUE),
    ],
)
def test_the_verdict_names_the_kind_of_defect(devices: dict[str, Device], name: str, verdict: Verdict) -> None:
    found = Counter(
        o.verdict for o in _outcomes(devices[name], saboteurs.SABOTEURS[name].operators) if o.verdict.failed
    )
    assert found.most_common(1)[0][0] is verdict, found


def test_a_dtype_that_works_and_counts_as_refused_is_a_false_claim(devices: dict[str, Device]) -> None:
    device = devices["refusesfirst"]
    claims = [c for c in device_cases(device, [find("add")]) if c.values == "claim"]
    outcomes = [Runner(device).run(c) for c in claims]
    assert {o.verdict for o in outcomes} == {Verdict.FAIL_CLAIM}
    assert "one element is not worth it" in outcomes[0].detail
    assert {Runner(devices["null"]).run(c).verdict for c in claims} == {Verdict.PASS}
