"""The errors of results in units in the last place that docs/accuracy.tsv has, as tables."""

from __future__ import annotations

from pathlib import Path

from tables import Row, read_rows, table

TABLE = Path(__file__).with_name("accuracy.tsv")
SOURCES = {"cases": "the cases", "numbers": "numbers"}


def tabulate_operator(name: str) -> str:
    """Return a table of an operator's errors, by dtype, cases and device; empty if there are none."""
    rows = [row for row in read_rows(TABLE) if row["operator"] == name]
    if not rows:
        return ""
    devices = sorted({row["device"] for row in rows})
    keys = list(dict.fromkeys((row["dtype"], row["source"].split()[0]) for row in rows))
    cells = {(row["dtype"], row["source"].split()[0], row["device"]): _say(row) for row in rows}
    lines = [[dtype, SOURCES[source], *(cells.get((dtype, source, d), "-") for d in devices)] for dtype, source in keys]
    return table(["dtype", "over", *devices], lines)


def tabulate_all() -> str:
    """Return a table of each operator's largest error in F32, by device."""
    rows = [row for row in read_rows(TABLE) if row["dtype"] == "F32"]
    devices = sorted({row["device"] for row in rows})
    worst: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row["operator"], row["device"])
        worst[key] = max(worst.get(key, 0.0), float(row["largest"]))
    names = sorted({operator for operator, _ in worst})
    shown = [
        [f"[{n}](operators/{n}.md)", *(_say_error(worst[n, d]) if (n, d) in worst else "-" for d in devices)]
        for n in names
    ]
    return table(["operator", *devices], shown)


def _say(row: Row) -> str:
    return f"{_say_error(float(row['largest']))} ({float(row['mean']):.2g})"


def _say_error(ulps: float) -> str:
    return f"{ulps:.2f}" if ulps < 100 else f"{ulps:,.0f}" if ulps < 1e6 else f"{ulps:.1e}"
