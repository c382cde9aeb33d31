"""The outcomes of a check as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.

Each device has a matrix of operators and dtypes. A row opens to the operator's dtypes by layout, its failing cases, its
accuracy in ULPs, what the device refuses and why, and, where times are given, its speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from ..dtypes import ALL
from ..oracle.verdicts import Outcome, Verdict
from .suite import Report, say_count

ULPS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, float("inf"))  # ends of the histogram's bins
SHOWN = 20  # failing cases that an operator's row lists
STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif;
  --bad: light-dark(#b3261e, #ff8a80); --good: light-dark(#1b6e2c, #81c995); --hole: light-dark(#7a5200, #fdd663);
  --line: light-dark(#ddd, #444); --panel: light-dark(#f6f6f6, #1e1e1e) }
body { max-width: 75rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
.wide { overflow-x: auto; max-width: 100% }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
td:first-child, th:first-child { text-align: left }
.failed { color: var(--bad); font-weight: 600 } .passed, .lowered { color: var(--good) }
.refused { color: var(--hole) } .lowered { font-style: italic }
.matrix { --name: 12rem; --cell: 3.3rem; --speed: 0rem }
.matrix.timed { --speed: 9rem }
.matrix > * { min-width: calc(var(--name) + var(--columns) * var(--cell) + var(--speed)) }
.row { display: grid; grid-template-columns: var(--name) repeat(var(--columns), var(--cell)) var(--speed);
  align-items: baseline; font-variant-numeric: tabular-nums }
.row > * { white-space: nowrap; overflow: hidden; text-overflow: ellipsis }
.row > :first-child { position: sticky; left: 0; background: Canvas }
.row > :not(:first-child) { text-align: right }
@media (max-width: 40rem) { .matrix { --name: 9.5rem; font-size: .9rem } }
.matrix summary.row { border-top: 1px solid var(--line); list-style: none; cursor: pointer }
.matrix summary > :first-child::before { content: "▸ "; color: GrayText }
.matrix details[open] > summary > :first-child::before { content: "▾ " }
.panel { position: sticky; left: 0; width: min(100%, calc(100vw - 2rem)); box-sizing: border-box;
  padding: .5rem 1rem 1rem; background: var(--panel) }
.bar { display: grid; grid-template-columns: 7rem 4rem 1fr; max-width: 34rem; gap: .5rem; align-items: center }
.bar > :nth-child(2) { text-align: right } .bar i { display: block; height: .8rem; background: #5c6bc0; min-width: 1px }
pre { white-space: pre-wrap; margin: .3rem 0 } summary { cursor: pointer }
body:has(#only:checked) .matrix > details:not(.notable) { display: none }
"""


def to_html(reports: Sequence[Report], measurements: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the page; `measurements` are what `isokern bench --json` printed."""
    root = ElementTree.Element("html", lang="en")
    head, body = _add(root, "head"), _add(root, "body")
    _add(head, "meta", charset="utf-8")
    _add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    _add(head, "link", rel="icon", href="data:,")  # else a browser asks the server for one
    _add(head, "title", "Conformance of " + ", ".join(r.device for r in reports))
    _add(head, "style", STYLE)
    _add(body, "h1", "Conformance")
    _add_overview(body, reports)
    for report in reports:
        _add_device(body, report, [m for m in measurements if m["device"] == report.device])
    return "<!doctype html>\n" + ElementTree.tostring(root, encoding="unicode", method="html")


@dataclass
class _Row:
    """The outcomes of one operator on one device."""

    cells: dict[tuple[str, str], Counter[Verdict]] = field(default_factory=dict)  # by dtypes and layout
    failures: list[Outcome] = field(default_factory=list)
    expected: list[tuple[Outcome, str]] = field(default_factory=list)  # failures, each with why it was expected
    refusals: Counter[str] = field(default_factory=Counter)
    lowered: Counter[str] = field(default_factory=Counter)
    ulps: list[float] = field(default_factory=list)


def _divide(report: Report) -> tuple[dict[str, _Row], list[Outcome]]:
    """Return the operators' rows by name, and the outcomes of the requirements on the runtime."""
    rows: dict[str, _Row] = {}
    runtime: list[Outcome] = []
    for outcome in report.outcomes:
        operator, dtypes, layout = _place(outcome.id)
        if operator == "runtime":
            runtime.append(outcome)
            continue
        row = rows.setdefault(operator, _Row())
        if reason := report.expected.find_reason(outcome):
            row.expected.append((outcome, reason))
            continue
        row.cells.setdefault((dtypes, layout), Counter())[outcome.verdict] += 1
        if outcome.verdict.failed:
            row.failures.append(outcome)
        elif outcome.verdict is Verdict.UNSUPPORTED:
            row.refusals[f"{dtypes}: {outcome.detail}"] += 1
        elif outcome.verdict is Verdict.LOWERED:
            row.lowered[f"{dtypes}: {outcome.detail}"] += 1
        if outcome.verdict.passed and layout not in ("claim", "error"):
            row.ulps.append(outcome.ulps)
    return dict(sorted(rows.items())), runtime


def _place(id_: str) -> tuple[str, str, str]:
    """Return operator, dtypes and layout of a case's id; a case that makes no call has `claim` or `error` as layout."""
    parts = id_.partition("@")[0].split("/")
    if parts[-1] in ("claim", "error"):
        return parts[0], parts[1], parts[-1]
    return parts[0], parts[1], parts[3] if len(parts) > 3 else ""


def _add(parent: ElementTree.Element, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
    """Add an element and return it; `class_` is the attribute class."""
    made = ElementTree.SubElement(parent, tag, {name.rstrip("_"): value for name, value in attributes.items()})
    made.text = text or None
    return made


def _add_table(parent: ElementTree.Element, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add a table; a cell is text, or text with the class of its verdict."""
    table = _add(_add(parent, "div", class_="wide"), "table")
    for tag, cells in (("th", columns), *(("td", row) for row in rows)):
        line = _add(table, "tr")
        for cell in cells:
            text, kind = cell if isinstance(cell, tuple) else (str(cell), "")
            _add(line, tag, text, **({"class": kind} if kind else {}))


def _add_overview(body: ElementTree.Element, reports: Sequence[Report]) -> None:
    rows = []
    for report in reports:
        failed = sum(n for verdict, n in report.count.items() if verdict.failed)
        rows.append(
            [
                report.device,
                (str(report.count[Verdict.PASS]), "passed"),
                (str(report.count[Verdict.LOWERED]), "lowered"),
                (str(failed), "failed" if failed else ""),
                str(report.count[Verdict.UNSUPPORTED]),
                str(len(report.refusals)),
                str(len(report.required.run)) if report.required.run else "not given",
            ]
        )
    _add_table(body, ["device", "passed", "decomposed", "failed", "refused", "holes", "claimed"], rows)
    _add(
        body,
        "p",
        "A number is cases that passed, ~ those that passed decomposed, since the device has no kernel"
        " for them, ✗ cases that failed, - a refusal. Holes are pairs of operator and dtypes that the device refuses in"
        " some case; claimed are those that it must have kernels for. A row opens.",
    )
    label = _add(body, "label")
    _add(label, "input", type="checkbox", id="only").tail = " only operators with failures or holes"


def _add_device(body: ElementTree.Element, report: Report, measurements: Sequence[Mapping[str, Any]]) -> None:
    rows, runtime = _divide(report)
    _add(body, "h2", report.device, id=report.device)
    for name, why in report.expected.reasons.items():
        _add(body, "p", f"{report.expected.failed[name]} failed as expected: {name}: {why}")
    if rows:
        _add_matrix(body, rows, measurements)
    _add_runtime(body, runtime, report)
    if ulps := [u for row in rows.values() for u in row.ulps]:
        _add(body, "h3", "Accuracy of all operators")
        _add_histogram(body, ulps)
        for dtype, worst in sorted(report.worst.items()):
            _add(body, "p", f"{dtype}: at worst {worst.share:.2f} of the bound, {worst.id}")


def _add_matrix(body: ElementTree.Element, rows: Mapping[str, _Row], measurements: Sequence[Mapping[str, Any]]) -> None:
    firsts = {dtypes.split("-")[0] for row in rows.values() for dtypes, _ in row.cells}
    columns = [d.name for d in ALL if d.name in firsts]
    timed = "matrix timed" if measurements else "matrix"
    matrix = _add(_add(body, "div", class_="wide"), "div", class_=timed, style=f"--columns: {len(columns)}")
    title = _add(matrix, "div", class_="row")
    for text in ("operator", *columns, *(["speed"] if measurements else [])):
        _add(title, "b", text)
    for operator, row in rows.items():
        notable = bool(row.failures or row.refusals or row.expected)
        details = _add(matrix, "details", **({"class": "notable"} if notable else {}))
        line = _add(details, "summary", class_="row")
        _add(line, "span", operator, **({"class": "failed"} if row.failures else {}))
        for column in columns:
            total: Counter[Verdict] = sum(
                (count for (dtypes, _), count in row.cells.items() if dtypes.split("-")[0] == column), Counter()
            )
            text, kind = say_count(total)
            _add(line, "span", text, **({"class": kind} if kind else {}))
        own = [m for m in measurements if m["op"] == operator]
        if measurements:
            _add(line, "span", _say_speed(max(own, key=lambda m: m["rate"])) if own else "")
        _add_operator(_add(details, "div", class_="panel"), row, own)


def _say_speed(measurement: Mapping[str, Any]) -> str:
    share = measurement["share_of_limit"]
    limit = "" if share is None else f", {share:.0%}"
    return f"{measurement['rate']:.3g} {measurement['rate_unit']}{limit}"


def _add_operator(panel: ElementTree.Element, row: _Row, measurements: Sequence[Mapping[str, Any]]) -> None:
    for n, outcome in enumerate(sorted(row.failures, key=lambda o: (len(o.id), o.id))[:SHOWN]):
        details = _add(panel, "details", **({} if n else {"open": "open"}))
        _add(details, "summary", f"{outcome.verdict.value}: {outcome.id}", class_="failed")
        _add(details, "pre", "\n".join(part for part in (outcome.detail, outcome.repro, outcome.trace) if part))
    if len(row.failures) > SHOWN:
        _add(panel, "p", f"and {len(row.failures) - SHOWN} more failing cases")
    layouts = sorted({layout for _, layout in row.cells})
    kinds = sorted({dtypes for dtypes, _ in row.cells}, key=_order_of)
    cells = ([d, *(say_count(row.cells.get((d, layout), Counter())) for layout in layouts)] for d in kinds)
    _add_table(panel, ["dtypes", *layouts], cells)
    if row.expected:
        _add(panel, "h4", "Failed as expected")
        for outcome, reason in row.expected:
            _add(panel, "div", f"{outcome.id}: {reason}", class_="refused")
    for title, counts, kind in (("Refused", row.refusals, "refused"), ("Decomposed", row.lowered, "lowered")):
        if counts:
            _add(panel, "h4", title)
        for reason, count in counts.most_common():
            _add(panel, "div", f"{reason} ({count} {'case' if count == 1 else 'cases'})", class_=kind)
    if row.ulps:
        _add(panel, "h4", "Accuracy")
        _add_histogram(panel, row.ulps)
    if measurements:
        _add(panel, "h4", "Speed")
        columns = ["case", "dtype", "µs", "rate", "peers, µs"]
        lines = (
            [m["case"], m["dtype"], f"{m['time_us']:.4g}", _say_speed(m), _say_peers(m["peers"])] for m in measurements
        )
        _add_table(panel, columns, lines)


def _say_peers(peers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {time:.4g}" for name, time in peers.items()) or "-"


def _order_of(dtypes: str) -> list[int]:
    names = [d.name for d in ALL]
    return [names.index(part) if part in names else len(names) for part in dtypes.split("-")]


def _add_histogram(parent: ElementTree.Element, ulps: Sequence[float]) -> None:
    """Add how many cases were off by how many ULPs in their worst element."""
    bins = [("exact", sum(u == 0 for u in ulps))]
    bins += [
        (f"to {high:g}" if high < float("inf") else f"above {low:g}", sum(low < u <= high for u in ulps))
        for low, high in pairwise(ULPS)
    ]
    most = max(count for _, count in bins)
    _add(parent, "div", "Cases by the error of their worst element, in ULPs of its dtype:")
    for text, count in bins:
        line = _add(parent, "div", class_="bar")
        _add(line, "span", text)
        _add(line, "span", str(count))
        if count:
            _add(_add(line, "span"), "i", style=f"width: {100 * count / most:.1f}%")


def _add_runtime(body: ElementTree.Element, outcomes: Sequence[Outcome], report: Report) -> None:
    """Add the requirements on the runtime, by the module that has them."""
    if not outcomes:
        return
    _add(body, "h3", "The runtime")
    parts: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        parts.setdefault(outcome.id.split("/")[1], []).append(outcome)
    for part, members in parts.items():
        reasons = {o.id: reason for o in members if (reason := report.expected.find_reason(o))}
        text, kind = say_count(Counter(o.verdict for o in members if o.id not in reasons))
        details = _add(body, "details", **({"open": "open"} if kind == "failed" else {}))
        summary = _add(details, "summary", f"{part}: ")
        _add(summary, "span", text, **({"class": kind} if kind else {}))
        for outcome in members:
            said = reasons.get(outcome.id) or outcome.detail
            failed = outcome.verdict.failed and outcome.id not in reasons
            kind = "failed" if failed else "refused" if said else "passed"
            requirement = outcome.id.split("/", 2)[2].replace("_", " ")
            _add(details, "div", f"{requirement}: {said or outcome.verdict.value}", class_=kind)
            if failed:
                _add(details, "pre", f"{outcome.repro}\n{outcome.trace}".strip())
