"""Test the files that `isokern check --report` writes."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from isokern.conformance.derive import operator_cases
from isokern.conformance.expected_failures import ExpectedFailures
from isokern.conformance.report_files import check_target, group_failures, read_measurements, write_report
from isokern.conformance.suite import Report
from isokern.ops import find
from isokern.oracle.verdicts import Outcome, Verdict
from isokern.status import InvalidArgument

PEER = (
    '[{"op": "add", "device": "mine:0", "dtype": "F32", "case": "", "time_us": 1, "rate": 1, "rate_unit": "GB/s",'
    ' "share_of_limit": null, "peers": {"numpy": "fast"}}]'
)
INPUT = '<input type="checkbox" id="only">'  # not closed in HTML


@pytest.fixture
def report() -> Report:
    """Return a report with a pass, a refusal and two failures, of which one has a traceback."""
    found = Report("mine:0")
    cases = [c for c in operator_cases(find("add")) if c.calls][:4]
    verdicts = [Verdict.PASS, Verdict.UNSUPPORTED, Verdict.FAIL_VALUE, Verdict.FAIL_VALUE]
    details = ["", "dense only", "1 of 3 < wrong & more", "KeyError: 'BF16'"]
    for case, verdict, detail in zip(cases, verdicts, details, strict=True):
        trace = "Traceback of the vendor" if detail.startswith("Key") else ""
        found.add(case, Outcome(case.id, "mine:0", verdict, detail, share=0.3, trace=trace, ulps=1.5))
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
    page = written(report, tmp_path, ".html")
    assert "1 failed as expected" in page and f"{case.id}: the compiler rounds twice" in page
    rows = {text_of(line[0]): text_of(line[1]) for line in parse(page).findall(".//details/summary[@class='row']")}
    assert rows == {"add": "✗ 2", "sub": ""}


def parse(page: str) -> ElementTree.Element:
    """Return the body of a page as a tree."""
    return ElementTree.fromstring("<body>" + page.partition("<body>")[2].removesuffix("</html>").replace(INPUT, ""))


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_the_page_needs_nothing_else(report: Report, tmp_path: Path) -> None:
    page = written(report, tmp_path, ".html")
    found: list[tuple[str, dict[str, str | None]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, dict(attrs)))  # type: ignore[method-assign]
    parser.feed(page)
    tags = {tag for tag, _ in found}
    assert {"table", "details", "style", "summary"} <= tags
    assert not {"script", "img", "iframe"} & tags and "://" not in page and "url(" not in page
    assert [attrs["href"] for _, attrs in found if attrs.get("href")] == ["data:,"]
    assert [attrs for _, attrs in found if "src" in attrs] == []
    assert "1 of 3 &lt; wrong &amp; more" in page and "dense only" in page and "✗ 2" in page


def test_a_row_opens_to_what_failed_where_and_how_far(report: Report, tmp_path: Path) -> None:
    (row,) = parse(written(report, tmp_path, ".html")).findall(".//details[@class='notable']")
    line, panel = row
    assert [text_of(cell) for cell in line] == ["add", "✗ 2"]
    shown = [text_of(summary) for summary in panel.iter("summary")]
    assert [line.split(": ")[0] for line in shown] == ["fail-value", "fail-value"]
    assert len(shown[0]) <= len(shown[1])
    layouts = {outcome.id.split("/")[3] for outcome in report.outcomes}
    assert {cell.text for cell in panel.iter("th")} == {"dtypes", *layouts}
    assert "Traceback of the vendor" in text_of(panel) and "F32: dense only (1 case)" in text_of(panel)
    bars = {text_of(bar[0]): text_of(bar[1]) for bar in panel.findall("./div[@class='bar']")}
    assert bars == {**dict.fromkeys(bars, "0"), "to 2": "1"}


def test_times_are_a_column_only_where_they_are_given(report: Report, tmp_path: Path) -> None:
    measured = {"op": "add", "device": "mine:0", "dtype": "F32", "case": "a=512x512,b=512x512", "time_us": 10.0}
    measured |= {"rate": 31.46, "rate_unit": "GB/s", "share_of_limit": 0.5, "peers": {"numpy": 20.0}, "left_out": {}}
    elsewhere = {**measured, "device": "other:0", "rate": 99.0}
    times = tmp_path / "times.json"
    times.write_text(json.dumps([measured, elsewhere]), encoding="utf-8")
    path = tmp_path / "report.html"
    write_report(str(path), [report], read_measurements(str(times)))
    page = path.read_text(encoding="utf-8")
    assert "31.5 GB/s, 50%" in page and "numpy 20" in page and "99" not in page.partition("<body>")[2]
    assert "speed" not in written(report, tmp_path, ".html").partition("<body>")[2]


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"op": "add"}]', '{"op": 1}', "null", PEER])
def test_times_of_another_form_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument, match=r"--times: .*; allowed: a file with what `isokern bench --json` printed"):
        read_measurements(str(path))
    with pytest.raises(InvalidArgument, match=r"--times: .* does not exist"):
        read_measurements(str(tmp_path / "none.json"))


@pytest.mark.parametrize("suffix", [".jsonl", ".xml", ".md", ".html"])
def test_whatever_a_backend_says_can_be_written_and_read(suffix: str, tmp_path: Path) -> None:
    report = Report("mine:0")
    (case, *_) = (c for c in operator_cases(find("add")) if c.calls)
    said = "\x00\x1b[31m <b>&amp; ]]> \udcff \ufffe \N{SNOWMAN}\n" + "w" * 10_000
    report.add(case, Outcome(case.id, "mine:0", Verdict.FAIL_ERROR, said, trace=said))
    page = written(report, tmp_path, suffix)
    assert "\N{SNOWMAN}" in page and "\x00" not in page
    if suffix == ".xml":
        assert ElementTree.fromstring(page).find("testsuite/testcase/failure") is not None
    if suffix == ".jsonl":
        assert json.loads(page)["verdict"] == "fail-error"


@pytest.mark.parametrize("suffix", [".jsonl", ".xml", ".md", ".html"])
def test_a_report_of_nothing_can_be_written(suffix: str, tmp_path: Path) -> None:
    assert "</html>" in written(Report("mine:0"), tmp_path, suffix) or suffix != ".html"
    write_report(str(tmp_path / f"none{suffix}"), [])


def test_another_suffix_is_refused() -> None:
    with pytest.raises(
        InvalidArgument, match=r"--report: 'r\.txt'; allowed: a file that ends in \.jsonl, \.xml, \.md, \.html"
    ):
        check_target("r.txt")


def test_a_file_that_cannot_be_written_is_refused_before_the_cases_run(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    for path in ("absent/r.html", "folder.html"):
        with pytest.raises(InvalidArgument, match="--report"):
            check_target(str(tmp_path / path))
    check_target(str(tmp_path / "new.html"))
    assert not (tmp_path / "new.html").exists()
