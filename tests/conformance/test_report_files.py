"""Test the files that `isokern check --report` writes."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from isokern.conformance.derive import operator_cases
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
    ((key, outcomes),) = group_failures(report)
    assert key == ("add", "fail-value")
    assert len(outcomes[0].id) <= len(outcomes[1].id)


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
