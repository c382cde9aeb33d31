"""Tables: those that are kept as tab-separated values, and those of pages in Markdown."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path

Row = dict[str, str]


@cache
def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file of tab-separated values, by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    body = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *body])
