"""The outcomes of a check as a file: JSON lines, JUnit's XML, Markdown, or one HTML page; the suffix chooses."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..arguments import read_text, writable_file, write_text
from ..oracle.verdicts import Outcome, Verdict
from ..status import InvalidArgument, quote
from .html_report import to_html
from .suite import Report

UNPRINTABLE = re.compile("[^\\t\\n\\r -\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
NUMBER = re.compile(r"-?\b(0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?)\b")
SHAPE = re.compile(r"=(\d+(?:[x+]\d+)*)(?=[,/]|->)")  # the shape of an operand in the id of a case: x=3x5, or x=3x5+3x6
CAUSE = 90  # characters by which errors are distinguished
# The fields of a measurement of `isokern bench` that are read
MEASURED: dict[str, type | tuple[type, ...]] = {
    "op": str,
    "device": str,
    "dtype": str,
    "case": str,
    "time_us": (int, float),
    "rate": (int, float),
    "rate_unit": str,
    "share_of_limit": (int, float, type(None)),
    "peers": dict,
}


def check_target(path: str) -> None:
    """Raise InvalidArgument for a file of an unknown kind, or one that cannot be written."""
    if Path(path).suffix not in WRITERS:
        raise InvalidArgument("--report", quote(path), allowed=f"a file that ends in {', '.join(WRITERS)}")
    writable_file("--report", path)


def read_measurements(path: str) -> list[dict[str, Any]]:
    """Return the measurements that `isokern bench --json` wrote; raise InvalidArgument for any other file."""
    allowed = "a file with what `isokern bench --json` printed"
    text = read_text("--times", path, allowed=allowed)
    try:
        found = json.loads(text)
        for row in found:
            for name, kinds in MEASURED.items():
                if not isinstance(row[name], kinds):
                    raise TypeError(f"{name} is a {type(row[name]).__name__}")
            if not all(isinstance(time, (int, float)) for time in row["peers"].values()):
                raise TypeError("the time of a peer is not a number")
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        problem = f"{path}: {type(error).__name__}: {error}"
        raise InvalidArgument("--times", problem, allowed=allowed) from None
    return list(found)


def write_report(path: str, reports: Sequence[Report], measurements: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write the outcomes to a file of the kind that its suffix names; a page of HTML also has the measurements."""
    suffix = Path(path).suffix
    text = to_html(reports, measurements) if suffix == ".html" else WRITERS[suffix](reports)
    # A backend's messages may have characters that XML or UTF-8 cannot hold, such as those of colors
    write_text("--report", path, UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text))


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
    """Return JUnit's XML: a suite for each device, a test for each case; a failure that was expected is skipped.

    A passing test of a lowered case prints the operators that ran.
    """
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", name=report.device)
        counts = {"tests": len(report.outcomes), "failures": 0, "skipped": 0}
        for outcome in report.outcomes:
            operator, _, rest = outcome.id.partition("/")
            names = {"classname": f"{report.device}.{operator}", "name": rest}
            test = ElementTree.SubElement(suite, "testcase", names)
            expected = report.expected.find_reason(outcome)
            if outcome.verdict is Verdict.UNSUPPORTED or expected:
                counts["skipped"] += 1
                why = f"expected to fail: {expected}: {outcome.detail}" if expected else outcome.detail
                ElementTree.SubElement(test, "skipped", message=why)
            elif outcome.verdict.failed:
                counts["failures"] += 1
                facts = {"type": outcome.verdict.value, "message": outcome.detail}
                failure = ElementTree.SubElement(test, "failure", facts)
                failure.text = f"{outcome.repro}\n{outcome.trace}"
            elif outcome.verdict is Verdict.LOWERED:
                ElementTree.SubElement(test, "system-out").text = outcome.detail
        for name, count in counts.items():
            suite.set(name, str(count))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def to_markdown(reports: Sequence[Report]) -> str:
    """Return a section for each device: counts, decomposed operators, and failures by operator and cause."""
    lines = []
    for report in reports:
        lines += [f"## {report.device}", "", _say_counts(report), ""]
        if report.lowered:
            lines += [report.say_lowered(), ""]
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


def _say_counts(report: Report) -> str:
    counts = [f"{n} {v.value}" for v, n in report.count.items()]
    if expected := report.expected.failed.total():
        counts.append(f"{expected} failed as expected")
    return ", ".join(counts) or "no case"


WRITERS: dict[str, Callable[[Sequence[Report]], str]] = {
    ".jsonl": to_json_lines,
    ".xml": to_junit,
    ".md": to_markdown,
    ".html": to_html,
}
