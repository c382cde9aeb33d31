"""The page of a report of tools/gpu_report.py, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

MET = {True: "met", False: "not met", None: "not measured"}


def page(document: dict[str, Any]) -> str:
    """Return the whole page: bars, figures, what was run, and on what."""
    versions = document["versions"]
    device = versions["device"]
    lines = [f"# {device.get('device', document['device'])}", "", f"By `tools/gpu_report.py`, {document['when']}."]
    if device.get("emulated"):
        lines.append("An emulated GPU: its times say nothing about any other.")
    if document["quick"]:
        lines.append("A quick run of small cases: its figures are none.")
    summary = [_summary(name, list(of)) for name, of in groupby(document["bars"], lambda b: b["bar"])]
    columns = ["operator", "dtype", "case", "µs", "rate", "unit", "of limit", "speed beside"]
    lines += ["", *table("Bars", ["bar", "wanted", "met", "not met", "not measured", "worst"], summary)]
    lines += table(
        "Figures of the bars", ["bar", "case", "wanted", "figure", "", "why not"], map(_bar, document["bars"])
    )
    lines += table("Measurements", columns, map(_row, document["measurements"]))
    out = [[m["op"], m["dtype"], m["case"], n, w] for m in document["measurements"] for n, w in m["left_out"].items()]
    lines += table("Calls of other libraries that were left out", ["operator", "dtype", "case", "library", "why"], out)
    lines += table("Libraries that were not timed at all", ["library", "why"], document["missing"].items())
    parts = [
        [p["name"], p["command"], f"{p['seconds']:.0f}", p["failed"] or p["said"] or "done"] for p in document["parts"]
    ]
    lines += table("What was run", ["part", "command", "s", ""], parts)
    known = {**{k: v for k, v in versions.items() if isinstance(v, str)}, **device, **versions["libraries"]}
    lines += table("On", ["", ""], known.items())
    return "\n".join(lines)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return a heading and a table, or nothing where there is no row."""
    shown = ["| " + " | ".join(_cell(c) for c in row) + " |" for row in rows]
    head = [f"## {title}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*head, *shown, ""] if shown else []


def _summary(name: str, of: Sequence[dict[str, Any]]) -> list[Any]:
    counts = [sum(b["met"] is m for b in of) for m in (True, False, None)]
    measured = [b for b in of if b["figure"] is not None]
    most = of[0]["wanted"].startswith("at most")
    worst = (max if most else min)(measured, key=lambda b: b["figure"], default=None)
    return [name, of[0]["wanted"], *counts, "-" if worst is None else f"{worst['figure']:.3g}: {worst['case']}"]


def _bar(bar: dict[str, Any]) -> list[Any]:
    figure = "-" if bar["figure"] is None else f"{bar['figure']:.3f}"
    return [bar["bar"], bar["case"], bar["wanted"], figure, MET[bar["met"]], bar["note"]]


def _row(m: dict[str, Any]) -> list[Any]:
    share = "-" if m["share_of_limit"] is None else f"{m['share_of_limit']:.2f}"
    beside = ", ".join(f"{t / m['time_us']:.2f} of {name}" for name, t in m["peers"].items()) or "-"
    return [m["op"], m["dtype"], m["case"], f"{m['time_us']:.4g}", f"{m['rate']:.4g}", m["rate_unit"], share, beside]


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
