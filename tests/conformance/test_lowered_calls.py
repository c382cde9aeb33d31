"""Test how the suite judges calls that a device has no kernel for, and that it finds faults of their parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from isokern.backend import Device, Workspace
from isokern.cli.check import document
from isokern.conformance.derive import operator_cases
from isokern.conformance.report_files import write_report
from isokern.conformance.run import Runner
from isokern.conformance.suite import Report, required_pairs
from isokern.ops import find
from isokern.oracle.cases import Case
from isokern.oracle.verdicts import Outcome, Verdict
from isokern.runtime.lowered import LoweredKernel
from isokern.status import InvalidArgument

REASON = "it is refused"


@pytest.fixture
def lacking(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Return the CPU without its kernels for softmax."""
    plain = type(cpu).variants

    def variants(self: Device, stem: str) -> list[Any]:
        found = plain(self, stem)
        return [replace(v, supported=lambda plan: REASON) for v in found] if stem == "softmax" else list(found)

    monkeypatch.setattr(type(cpu), "variants", variants)
    return cpu


def cases() -> Iterator[Case]:
    """Yield the quick cases of softmax, but for those at edges, which a device may refuse."""
    every = (c for c in operator_cases(find("softmax")) if c.quick and "F64" not in c.id)
    return (c for c in every if c.sample.size != "edge")


def judge(device: Device, **options: Any) -> list[tuple[Case, Outcome]]:
    runner = Runner(device, **options)
    return [(case, runner.run(case)) for case in cases()]


def test_calls_run_and_say_what_they_are_made_of(lacking: Device) -> None:
    found = judge(lacking)
    for case, outcome in found:
        wanted = Verdict.PASS if case.values == "error" else Verdict.LOWERED
        assert outcome.verdict is wanted, f"{case.id}: {outcome.detail}"
        assert outcome.detail.startswith("made of ") == (wanted is Verdict.LOWERED)
    assert {"claim", "special"} <= {case.values for case, _ in found} and any(case.alias for case, _ in found)


def test_the_policy_leaves_them_unsupported(lacking: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    for case, outcome in judge(lacking):
        if case.values != "error":
            assert (outcome.verdict, REASON in outcome.detail) == (Verdict.UNSUPPORTED, True)


def test_a_refusal_needs_a_reason_also_where_the_call_is_made_of_others(
    lacking: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.REASON", "")
    case = next(c for c in cases() if c.calls)
    outcome = Runner(lacking).run(case)
    assert outcome.verdict is Verdict.FAIL_CLAIM and "refused without a reason" in outcome.detail


def test_what_is_claimed_by_name_needs_a_kernel(lacking: Device, tmp_path: Path) -> None:
    listed = tmp_path / "claims.txt"
    listed.write_text("softmax F32\n")
    report = Report(lacking.name, required_pairs(str(listed), lacking))
    counted = {case.id: report.add(case, outcome).verdict for case, outcome in judge(lacking) if case.calls}
    assert {v for id_, v in counted.items() if "/F32/" in id_} == {Verdict.FAIL_CLAIM}
    assert {v for id_, v in counted.items() if "/F32/" not in id_} == {Verdict.LOWERED}
    assert all(o.detail.startswith("required, and no kernel: made of ") for o in report.failures)


def test_what_is_claimed_for_some_calls_may_be_made_of_others_and_not_be_refused(
    lacking: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "claims.txt"
    listed.write_text("* *\n~ softmax F32  # some layouts\n")
    needed = required_pairs(str(listed), lacking)
    assert ("softmax", "F32") in needed.run - needed.kernels and ("softmax", "F16") in needed.kernels
    report = Report(lacking.name, needed)
    counted = {case.id: report.add(case, outcome).verdict for case, outcome in judge(lacking) if case.calls}
    assert {v for id_, v in counted.items() if "/F32/" in id_} == {Verdict.LOWERED}
    assert {v for id_, v in counted.items() if "/F32/" not in id_} == {Verdict.FAIL_CLAIM}
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    refused = {report.add(c, o).verdict for c, o in judge(lacking) if c.calls and "/F32/" in c.id}
    assert refused == {Verdict.FAIL_CLAIM}
    listed.write_text("~ softmax\n")
    with pytest.raises(InvalidArgument, match="~ for some calls"):
        required_pairs(str(listed), lacking)


def test_what_all_claims_may_be_made_of_others_where_the_device_has_no_kernel(
    lacking: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ("softmax", "F32") in required_pairs("all", lacking).kernels
    variants = type(lacking).variants
    monkeypatch.setattr(type(lacking), "variants", lambda d, stem: [] if stem == "softmax" else variants(d, stem))
    needed = required_pairs("all", lacking)
    assert ("softmax", "F32") in needed.run - needed.kernels and ("add", "F32") in needed.kernels
    report = Report(lacking.name, needed)
    for case, outcome in judge(lacking):
        report.add(case, outcome)
    assert report.count[Verdict.LOWERED] > 50 and not report.failures
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    refused = {report.add(c, o).verdict for c, o in judge(lacking) if c.values != "error"}
    assert refused == {Verdict.FAIL_CLAIM}


def test_reports_count_them_apart(lacking: Device, tmp_path: Path) -> None:
    report = Report(lacking.name)
    for case, outcome in judge(lacking):
        report.add(case, outcome)
    lowered = report.count[Verdict.LOWERED]
    assert lowered > 50 and report.ran and not report.failures and not report.partial
    found = document([report])
    assert found["summary"][lacking.name]["lowered"] == lowered
    assert [row["operator"] for row in found["lowered"][lacking.name]] == ["softmax"] * 3
    assert dict(report.tabulate()[1])["softmax"][0] == (
        f"~{report.cells['softmax', 'F32'][Verdict.LOWERED]}",
        "lowered",
    )

    text = {}
    for suffix in (".jsonl", ".xml", ".md", ".html"):
        write_report(str(tmp_path / f"report{suffix}"), [report])
        text[suffix] = (tmp_path / f"report{suffix}").read_text(encoding="utf-8")
    assert sum(json.loads(line)["verdict"] == "lowered" for line in text[".jsonl"].splitlines()) == lowered
    (suite,) = ElementTree.fromstring(text[".xml"])
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "0")
    assert sum((e.text or "").startswith("made of ") for e in suite.iter("system-out")) == lowered
    assert f"{lowered} lowered" in text[".md"] and "Decomposed: softmax." in text[".md"]
    assert "Decomposed" in text[".html"] and f'<td class="lowered">{lowered}</td>' in text[".html"]


def _skips_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LoweredKernel._calls

    def calls(self: Any, *given: Any) -> list[Any]:
        return list(plain(self, *given))[:-1]

    monkeypatch.setattr(LoweredKernel, "_calls", calls)


def _books_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LoweredKernel.__init__

    def init(self: Any, *given: Any) -> None:
        plain(self, *given)
        self.workspace = Workspace(self.workspace.size - 256, 256)  # fences of as many bytes have room for the rest

    monkeypatch.setattr(LoweredKernel, "__init__", init)


def _reads_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LoweredKernel.__init__

    def init(self: Any, *given: Any) -> None:
        plain(self, *given)
        self._handles = [[0 if p == 1 else p for p in places] for places in self._handles]

    monkeypatch.setattr(LoweredKernel, "__init__", init)


@pytest.mark.parametrize(
    ("plant", "verdict"),
    [
        (_skips_a_part, Verdict.FAIL_VALUE),
        (_books_too_little, Verdict.FAIL_MEMORY),
        (_reads_the_output, Verdict.FAIL_VALUE),
    ],
)
def test_a_fault_of_the_parts_is_caught(
    lacking: Device, monkeypatch: pytest.MonkeyPatch, plant: Any, verdict: Verdict
) -> None:
    plant(monkeypatch)
    runner = Runner(lacking)
    case = next(c for c in cases() if "/F32/x=3x5" in c.id and c.values == "drawn" and not c.alias)
    outcome = runner.run(case)
    assert outcome.verdict is verdict, outcome.detail
    assert outcome.detail.startswith("made of fill ×2, generic ×4")
