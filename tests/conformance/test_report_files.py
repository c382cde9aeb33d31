"""Test the files that `isokern check --report` writes."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from isokern.conformance.derive import operator_cases
from isokern.conformance.expected_failures import ExpectedFailures
from isokern.conformance.report_files import check_suffix, group_failures, write_report
from isokern.conformance.suite import Report
from isokern.ops import find
from isokern.oracle.verdicts import Outcome, Verdict
from isokern.status import InvalidArgument


@pytest.fixture
def report() -> Report:
    """Return a report with a pass, a refusal and two failures, of which one has a traceback."""
    found = Report("mine:0")
    cases = [c for c in operator_cases(find("add")) if c.calls][:4]
    verdicts = [Verdict.PASS, Verdict.UNSUPPORTED, Verdict.FAIL_VALUE, Verdict.FAIL_VALUE]
    details = ["", "dense only", "1 of 3 < wrong & more", "KeyError: 'BF16'"]
    for case, verdict, detail in zip(cases, verdicts, details, strict=True):
        trace = "Traceback of the vendor" if detail.startswith("Key") else ""
        found.add(case, Outcome(case.id, "mine:0", verdict, detail, share=0.3, trace=trace))
    return found


def written(report: Report, folder: Path, suffix: str) -> str:
    path = folder / f"report{suffix}"
    write_report(str(path), [report])
    return path.read_text(encoding="utf-8")


def test_json_lines_have_every_outcome(report: Report, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in written(report, tmp_path, ".jsonl").splitlines()]
    assert [line["verdict"] for line in lines] == ["pass", "unsupported", "fail-value", "fail-value"]
    assert lines[3]["trace"] == "Traceback of the vendor"


def test_junit_counts_and_names(report: Report, tmp_path: Path) -> None:
    (suite,) = ElementTree.fromstring(written(report, tmp_path, ".xml"))
    assert {k: suite.get(k) for k in ("tests", "failures", "skipped")} == {
        "tests": "4",
        "failures": "2",
        "skipped": "1",
    }
    failure = suite.find("testcase/failure")
    assert failure is not None and failure.text is not None
    assert "isokern check --device mine:0 --case" in failure.text


def test_markdown_groups_failures(report: Report, tmp_path: Path) -> None:
    assert "- **add**, 2 times fail-value" in written(report, tmp_path, ".md")


def test_failures_are_grouped_by_cause_and_the_smallest_comes_first() -> None:
    found = Report("mine:0")
    for id_, verdict, detail in (
        ("add/F32/a=9x1025,b=9x1025/offset/drawn", Verdict.FAIL_VALUE, "y: 3 of 9225 wrong"),
        ("add/F32/a=3x5,b=3x5/permuted_out/drawn", Verdict.FAIL_VALUE, "y: 1 of 15 wrong"),
        ("add/BF16/a=3x5,b=3x5/bare/drawn", Verdict.FAIL_ERROR, "KeyError: 'BF16'"),
        ("concat/F32/x=601x513+601x514,axis=1/bare/drawn", Verdict.FAIL_ERROR, "ValueError: 513 bytes"),
        ("concat/F32/x=4+7,axis=0/bare/drawn", Verdict.FAIL_ERROR, "ValueError: 7 bytes"),
        ("runtime/memory/reads_copies", Verdict.FAIL_RUNTIME, "it does not"),
    ):
        found.failures.append(Outcome(id_, "mine:0", verdict, detail))
    assert [(key, [o.id.split("/")[2] for o in own]) for key, own in group_failures(found)] == [
        (("add", "fail-value"), ["a=3x5,b=3x5", "a=9x1025,b=9x1025"]),
        (("concat", "fail-error (ValueError: # bytes)"), ["x=4+7,axis=0", "x=601x513+601x514,axis=1"]),
        (("add", "fail-error (KeyError: 'BF16')"), ["a=3x5,b=3x5"]),
        (("runtime/memory", "fail-runtime"), ["reads_copies"]),
    ]


def test_files_agree_on_expected_failures_and_survive_any_text(report: Report, tmp_path: Path) -> None:
    case = next(c for c in operator_cases(find("sub")) if c.calls)
    report.expected = ExpectedFailures({"sub/*": "the compiler rounds twice"})
    detail = "\x1b[31mred\x00 \ud800"
    report.add(case, Outcome(case.id, "mine:0", Verdict.FAIL_VALUE, detail, 1.0, float("inf")))
    (suite,) = ElementTree.fromstring(written(report, tmp_path, ".xml"))
    assert (suite.get("failures"), suite.get("skipped")) == ("2", "2")
    *_, last = [json.loads(line) for line in written(report, tmp_path, ".jsonl").splitlines()]
    assert (last["verdict"], last["expected"], last["share"]) == ("fail-value", "the compiler rounds twice", "inf")
    assert "2 fail-value, 1 failed as expected" in written(report, tmp_path, ".md")
    assert "1 failed as expected" in written(report, tmp_path, ".html")


def test_the_page_needs_nothing_else(report: Report, tmp_path: Path) -> None:
    page = written(report, tmp_path, ".html")
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    assert {"table", "details", "style", "meter"} <= set(found)
    assert not {"script", "link", "img"} & set(found) and "://" not in page
    assert "1 of 3 &lt; wrong &amp; more" in page and "dense only" in page and "✗ 2" in page


def test_another_suffix_is_refused() -> None:
    with pytest.raises(
        InvalidArgument, match=r"--report: r\.txt; allowed: a file that ends in \.jsonl, \.xml, \.md, \.html"
    ):
        check_suffix("r.txt")
