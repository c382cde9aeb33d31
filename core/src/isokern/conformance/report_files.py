"""The outcomes of a check as a file: JSON lines, JUnit's XML, Markdown, or one HTML page; the suffix chooses."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from ..oracle.verdicts import Outcome, Verdict
from ..status import InvalidArgument
from .suite import Report

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 75rem; margin: 0 auto; padding: 1rem }
div.wide { overflow-x: auto }
table { border-collapse: collapse }
td, th { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap }
td:first-child, th:first-child { text-align: left; position: sticky; left: 0; background: Canvas }
.failed { color: #c62828; font-weight: 600 } .passed { color: #2e7d32 } .refused { color: #9a6700 }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
summary { cursor: pointer }
"""
UNPRINTABLE = re.compile("[^\\t\\n\\r -\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
NUMBER = re.compile(r"-?\b(0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?)\b")
SHAPE = re.compile(r"=(\d+(?:[x+]\d+)*)(?=[,/]|->)")  # of an operand in the id of a case: x=3x5, or x=3x5+3x6
CAUSE = 90  # characters of an error's text that tell it from another one
BINS = (0.0, 0.01, 0.1, 0.25, 0.5, 1.0)  # shares of the bound


def check_suffix(path: str) -> None:
    """Raise InvalidArgument for a file of an unknown kind."""
    if Path(path).suffix not in WRITERS:
        raise InvalidArgument("--report", path, allowed=f"a file that ends in {', '.join(WRITERS)}")


def write_report(path: str, reports: Sequence[Report]) -> None:
    """Write the outcomes to a file of the kind that its suffix names."""
    Path(path).write_text(WRITERS[Path(path).suffix](reports), encoding="utf-8", errors="replace")


def to_json_lines(reports: Sequence[Report]) -> str:
    """Return one line of JSON for each outcome; `expected` is the reason of a failure that was expected."""
    documents = (
        {**dataclasses.asdict(o), **_say_plainly(o), "expected": r.expected.find_reason(o)}
        for r in reports
        for o in r.outcomes
    )
    return "".join(json.dumps(d, ensure_ascii=False, allow_nan=False) + "\n" for d in documents)


def _say_plainly(outcome: Outcome) -> dict[str, float | str]:
    """Return what JSON has no other form for: the verdict, and numbers, of which infinity is text, as for `--json`."""
    numbers = {"error": outcome.error, "share": outcome.share}
    return {"verdict": outcome.verdict.value, **{k: n if math.isfinite(n) else str(n) for k, n in numbers.items()}}


def to_junit(reports: Sequence[Report]) -> str:
    """Return JUnit's XML: a suite for each device, a test for each case; a failure that was expected is skipped."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", name=report.device)
        counts = {"tests": len(report.outcomes), "failures": 0, "skipped": 0}
        for outcome in report.outcomes:
            operator, _, rest = outcome.id.partition("/")
            names = {"classname": f"{report.device}.{operator}", "name": _printable(rest)}
            test = ElementTree.SubElement(suite, "testcase", names)
            expected = report.expected.find_reason(outcome)
            if outcome.verdict is Verdict.UNSUPPORTED or expected:
                counts["skipped"] += 1
                why = f"expected to fail: {expected}: {outcome.detail}" if expected else outcome.detail
                ElementTree.SubElement(test, "skipped", message=_printable(why))
            elif outcome.verdict.failed:
                counts["failures"] += 1
                facts = {"type": outcome.verdict.value, "message": _printable(outcome.detail)}
                failure = ElementTree.SubElement(test, "failure", facts)
                failure.text = _printable(f"{outcome.repro}\n{outcome.trace}")
        for name, count in counts.items():
            suite.set(name, str(count))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _printable(text: str) -> str:
    """Return text of third-party code without the characters that XML cannot hold, such as those of colours."""
    printable: str = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return printable


def to_markdown(reports: Sequence[Report]) -> str:
    """Return a section for each device: counts, and failures by operator and cause."""
    lines = []
    for report in reports:
        lines += [f"## {report.device}", "", _say_counts(report), ""]
        for (operator, cause), outcomes in group_failures(report):
            smallest = " ".join(outcomes[0].detail.split())
            lines += [f"- **{operator}**, {len(outcomes)} times {cause}: {smallest}", ""]
            lines += [f"      {outcomes[0].repro}", ""]
    return "\n".join(lines)


def group_failures(report: Report) -> list[tuple[tuple[str, str], list[Outcome]]]:
    """Return the failures by operator (or part of the runtime) and cause, most frequent first.

    The cause is the verdict, and for an error its text without the numbers. The first of each group is the one with the
    fewest elements.
    """
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in report.failures:
        operator = "/".join(outcome.id.split("/")[: 2 if outcome.id.startswith("runtime/") else 1])
        groups.setdefault((operator, _find_cause(outcome)), []).append(outcome)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [(key, sorted(outcomes, key=_size)) for key, outcomes in ranked]


def _find_cause(outcome: Outcome) -> str:
    if outcome.verdict is not Verdict.FAIL_ERROR:
        return f"{outcome.verdict.value}"
    return f"{outcome.verdict.value} ({' '.join(NUMBER.sub('#', outcome.detail).split())[:CAUSE]})"


def _size(outcome: Outcome) -> tuple[int, int, str]:
    """Return what failures are ordered by: the elements that the shapes in the id have, then its length."""
    shapes = (shape.split("x") for operand in SHAPE.findall(outcome.id) for shape in operand.split("+"))
    return sum(math.prod(map(int, shape)) for shape in shapes), len(outcome.id), outcome.id


def to_html(reports: Sequence[Report]) -> str:
    """Return one page that needs nothing else: a table of operators and dtypes, failures, refusals and accuracy."""
    root = ElementTree.Element("html", lang="en")
    head, body = ElementTree.SubElement(root, "head"), ElementTree.SubElement(root, "body")
    ElementTree.SubElement(head, "meta", charset="utf-8")
    ElementTree.SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    ElementTree.SubElement(head, "title").text = "Conformance of " + ", ".join(r.device for r in reports)
    ElementTree.SubElement(head, "style").text = STYLE
    for report in reports:
        ElementTree.SubElement(body, "h1").text = report.device
        ElementTree.SubElement(body, "p").text = _say_counts(report)
        _add_failures(body, report)
        _add_matrix(body, report)
        _add_accuracy(body, report)
        _add_refusals(body, report)
    return "<!doctype html>\n" + ElementTree.tostring(root, encoding="unicode", method="html")


def _say_counts(report: Report) -> str:
    counts = [f"{n} {v.value}" for v, n in report.count.items()]
    if expected := report.expected.failed.total():
        counts.append(f"{expected} failed as expected")
    return ", ".join(counts) or "no case"


def _add_details(body: ElementTree.Element, title: str) -> ElementTree.Element:
    details = ElementTree.SubElement(body, "details")
    ElementTree.SubElement(details, "summary").text = title
    return details


def _add_failures(body: ElementTree.Element, report: Report) -> None:
    for (operator, cause), outcomes in group_failures(report):
        details = _add_details(body, f"{operator}: {len(outcomes)} times {cause}")
        details.set("class", "failed")
        text = "\n".join(f"{o.detail}\n    {o.repro}\n{o.trace}" for o in outcomes[:20])
        ElementTree.SubElement(details, "pre").text = _printable(text)


def _add_matrix(body: ElementTree.Element, report: Report) -> None:
    columns, rows = report.tabulate()
    if not rows:
        return
    ElementTree.SubElement(body, "h2").text = "Cases passed, by operator and first dtype"
    table = ElementTree.SubElement(ElementTree.SubElement(body, "div", {"class": "wide"}), "table")
    line = ElementTree.SubElement(table, "tr")
    for name in ("operator", *columns):
        ElementTree.SubElement(line, "th").text = name
    for operator, cells in rows:
        line = ElementTree.SubElement(table, "tr")
        ElementTree.SubElement(line, "td").text = operator
        for text, kind in cells:
            ElementTree.SubElement(line, "td", {"class": kind}).text = text


def _add_accuracy(body: ElementTree.Element, report: Report) -> None:
    """Add how many results used which share of their bound, and the worst of each dtype."""
    shares = [o.share for o in report.outcomes if o.verdict is Verdict.PASS and o.share]
    if not shares:
        return
    details = _add_details(body, "Accuracy: the share of the allowed error that the worst element of a case used")
    table = ElementTree.SubElement(details, "table")
    for low, high in pairwise(BINS):
        line = ElementTree.SubElement(table, "tr")
        found = sum(low < share <= high for share in shares)
        ElementTree.SubElement(line, "td").text = f"{low:g} to {high:g}"
        ElementTree.SubElement(line, "td").text = str(found)
        bar = ElementTree.SubElement(
            ElementTree.SubElement(line, "td"), "meter", min="0", max=str(len(shares)), value=str(found)
        )
        bar.text = ""
    for dtype, worst in sorted(report.worst.items()):
        ElementTree.SubElement(details, "p").text = f"worst {dtype}: {worst.share:.2f} of the bound, {worst.id}"


def _add_refusals(body: ElementTree.Element, report: Report) -> None:
    if not report.refusals:
        return
    details = _add_details(body, f"Refused: {len(report.refusals)} operators and dtypes")
    lines = (f"{operator} {dtype}: {why}" for (operator, dtype), why in sorted(report.refusals.items()))
    ElementTree.SubElement(details, "pre").text = "\n".join(lines)


WRITERS: dict[str, Callable[[Sequence[Report]], str]] = {
    ".jsonl": to_json_lines,
    ".xml": to_junit,
    ".md": to_markdown,
    ".html": to_html,
}
