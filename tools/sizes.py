"""Count the lines of Python and C in each folder of core and in each plug-in, and compare them with their budgets.

The budgets are in tests/packaging/size_budget.tsv. A budget is a decision: `python tools/regenerate.py sizes` sets all
of them to the lines that there are and 8 % more, and the commit says what the lines are for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

SOURCES = {".py", ".c", ".h", ".hpp", ".cpp", ".xpu"}
MADE = {"generated", "build", "dist", "__pycache__"}
HEADER = "folder\tlines"
SLACK = 8  # percent


def count_lines(root: Path) -> Counter[str]:
    """Return the lines of Python and C below each folder of core's package (`core/.` has its own files) and plug-in."""
    found: Counter[str] = Counter()
    for path in (*root.glob("core/src/isokern/**/*"), *root.glob("plugins/**/*")):
        parts = path.relative_to(root).parts
        made = MADE & {*parts} or (parts[0] == "plugins" and path.stem == "isokern")  # the C interface's headers
        if path.suffix in SOURCES and not made:
            core = f"core/{parts[3]}" if len(parts) > 4 else "core/."
            folder = core if parts[0] == "core" else "/".join(parts[:2])
            found[folder] += len(path.read_text(encoding="utf-8").splitlines())
    return found


def write_budget(lines: Mapping[str, int]) -> str:
    """Return the text of the file of budgets: what there is and the slack, rounded up to a multiple of 50."""
    rows = [f"{folder}\t{-(-n * (100 + SLACK) // 5000) * 50}" for folder, n in sorted(lines.items())]
    return "\n".join([HEADER, *rows]) + "\n"


def read_budget(text: str) -> dict[str, int]:
    """Return the lines that a file of budgets allows each folder."""
    header, *rows = text.splitlines()
    if header != HEADER:
        raise ValueError(f"its first line is {header!r}; allowed: {HEADER!r}")
    return {folder: int(lines) for folder, lines in (row.split("\t") for row in rows)}


def find_excess(lines: Mapping[str, int], budget: Mapping[str, int]) -> list[str]:
    """Return a sentence for each folder that has more lines than its budget, and for each budget without a folder."""
    found = [
        f"{folder} has {n:,} lines; allowed: {budget.get(folder, 0):,}; take something away, or raise the budget and"
        " say in the commit what the lines are for"
        for folder, n in sorted(lines.items())
        if n > budget.get(folder, 0)
    ]
    return found + [f"{folder} has a budget and no lines" for folder in sorted(budget.keys() - lines.keys())]
