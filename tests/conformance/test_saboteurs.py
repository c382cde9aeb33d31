"""Test the suite on devices that are broken on purpose: at least 95 of 100 are caught, and a correct one passes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
import saboteurs

from isokern.backend import Device
from isokern.backend.discovery import discover
from isokern.conformance.derive import device_cases
from isokern.conformance.run import Runner
from isokern.conformance.suite import Choice, Report, required_pairs
from isokern.ops import find
from isokern.oracle.verdicts import Outcome, Verdict

SHARE, SHARE_OF_ALL = 0.95, 1.0
SHARE_AT_EDGES = 0.65  # by the quick cases: at some lengths there are none
QUICK = Choice(quick=True)


@pytest.fixture(scope="module")
def devices(cpu: Device) -> dict[str, Device]:
    """Return the plug-in's devices, found as those of every plug-in are."""
    registry = discover([EntryPoint("saboteurs", "saboteurs", "isokern")])
    found = {b.name: b.devices[0] for b in registry.backends if b.status == "available"}
    assert len(found) == len(saboteurs.SABOTEURS) + len(saboteurs.APART) + 1, [
        b.trace for b in registry.backends if b.status != "available"
    ]
    return found


def _outcomes(device: Device, operators: tuple[str, ...], choice: Choice = QUICK) -> Iterator[Outcome]:
    report, runner = Report(device.name, required_pairs("all", device)), Runner(device)
    for case in choice.of(device_cases(device, [find(o) for o in operators])):
        yield report.add(case, runner.run(case))


@pytest.fixture(scope="module")
def caught(devices: dict[str, Device]) -> dict[str, str]:
    """Return how each saboteur shows in the quick cases; the text is empty where one is not caught."""
    return {name: _first_failure(devices[name], name, QUICK) for name in saboteurs.SABOTEURS}


def _first_failure(device: Device, name: str, choice: Choice) -> str:
    failed = (o for o in _outcomes(device, saboteurs.SABOTEURS[name].operators, choice) if o.verdict.failed)
    first = next(failed, None)
    return "" if first is None else f"{first.verdict.value} at {first.id}: {first.detail}"


def _tell(caught: dict[str, str], by: str) -> float:
    """Print what was caught, and return the share of saboteurs caught."""
    share = sum(map(bool, caught.values())) / len(caught)
    print(f"\n{sum(map(bool, caught.values()))} of {len(caught)} saboteurs caught ({share:.1%}) by {by}")
    for name, how in caught.items():
        print(f"  {name}: {how[:150] or 'NOT CAUGHT'}")
    return share


@pytest.mark.quick("add", "gather", "matmul_transposed", "softmax")
@pytest.mark.parametrize("name", sorted({o for cls in saboteurs.SABOTEURS.values() for o in cls.operators}))
def test_a_device_without_a_defect_passes(devices: dict[str, Device], name: str) -> None:
    failed = [f"{o.verdict.value} {o.id}: {o.detail}" for o in _outcomes(devices["null"], (name,)) if o.verdict.failed]
    assert not failed, "\n".join(failed)


def test_quick_cases_catch_saboteurs(caught: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        share = _tell(caught, "quick cases")
    assert len(caught) >= 20
    assert not [how for how in caught.values() if "has no kernel" in how], "a saboteur without a kernel proves nothing"
    at_edges = [bool(caught[name]) for name in saboteurs.AT_EDGES]
    others = [bool(how) for name, how in caught.items() if name not in saboteurs.AT_EDGES]
    assert sum(others) / len(others) >= SHARE, share
    assert sum(at_edges) / len(at_edges) >= SHARE_AT_EDGES, share


@pytest.mark.full
def test_all_cases_catch_what_quick_ones_miss(
    caught: dict[str, str], devices: dict[str, Device], capsys: pytest.CaptureFixture[str]
) -> None:
    """All cases include the quick ones, so only saboteurs that those miss are judged again."""
    every = {name: how or _first_failure(devices[name], name, Choice()) for name, how in caught.items()}
    with capsys.disabled():
        share = _tell(every, "all cases")
    assert share >= SHARE_OF_ALL


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
        ("loseszerosignoffunctions", Verdict.FAIL_VALUE),
        ("leavesrounding", Verdict.FAIL_RUNTIME),
        ("claimstoomuch", Verdict.FAIL_CLAIM),
        ("refusesdtype", Verdict.FAIL_CLAIM),
        ("refusessilently", Verdict.FAIL_CLAIM),
        ("failsunaligned", Verdict.FAIL_ERROR),
        ("swallowserror", Verdict.FAIL_ERROR),
        ("packspasttheend", Verdict.FAIL_MEMORY),
        ("packingspoilsthesource", Verdict.FAIL_MEMORY),
        ("readstheunpackedconstant", Verdict.FAIL_VALUE),
    ],
)
def test_the_verdict_names_the_kind_of_defect(
    devices: dict[str, Device], caught: dict[str, str], name: str, verdict: Verdict
) -> None:
    choice = QUICK if caught[name] else Choice()
    outcomes = _outcomes(devices[name], saboteurs.SABOTEURS[name].operators, choice)
    failed = (o.verdict for o in outcomes if o.verdict.failed)
    found = Counter(itertools.islice(failed, 20))
    assert found.most_common(1)[0][0] is verdict, found


def test_a_dtype_that_works_and_counts_as_refused_is_a_false_claim(devices: dict[str, Device]) -> None:
    device = devices["refusesfirst"]
    claims = [c for c in device_cases(device, [find("add")]) if c.values == "claim"]
    outcomes = [Runner(device).run(c) for c in claims]
    assert {o.verdict for o in outcomes} == {Verdict.FAIL_CLAIM}
    assert "one element is not worth it" in outcomes[0].detail
    assert {Runner(devices["null"]).run(c).verdict for c in claims} == {Verdict.PASS}
