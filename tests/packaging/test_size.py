"""Test that no room of core and no plug-in has more lines than the table of docs/architecture.md allows.

`python tests/packaging/test_size.py` sets the table to what there is now and 3 % more.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
SOURCES = {".py", ".c", ".h", ".hpp", ".cpp", ".xpu"}
MADE = {"generated", "build", "dist", "__pycache__"}
ROW = re.compile(r"^\| `((?:core|plugins)/[\w/.]+)` \| ([\d,]+) \|\n", re.M)


def count_lines(root: Path) -> Counter[str]:
    """Return the lines of Python and C below each folder of core's package and in each plug-in."""
    found: Counter[str] = Counter()
    for path in (*root.glob("core/src/isokern/**/*"), *root.glob("plugins/**/*")):
        parts = path.relative_to(root).parts
        made = MADE & {*parts} or (parts[0] == "plugins" and path.stem == "isokern")  # the C interface's headers
        if path.suffix in SOURCES and not made:
            core = f"core/{parts[3]}" if len(parts) > 4 else "core/."
            room = core if parts[0] == "core" else "/".join(parts[:2])
            found[room] += len(path.read_text(encoding="utf-8").splitlines())
    return found


def read_budget(page: str) -> dict[str, int]:
    """Return the lines that the table of a page allows."""
    return {room: int(lines.replace(",", "")) for room, lines in ROW.findall(page)}


def find_excess(lines: Counter[str], budget: dict[str, int]) -> list[str]:
    """Return what is said of each room that has more lines than its budget."""
    return [
        f"{room} has {n:,} lines; allowed: {budget.get(room, 0):,}; take something away, or raise the figure in"
        " docs/architecture.md (python tests/packaging/test_size.py) and say in the commit what the lines are for"
        for room, n in sorted(lines.items())
        if n > budget.get(room, 0)
    ]


def test_no_room_has_more_lines_than_its_budget():
    lines, budget = count_lines(ROOT), read_budget(PAGE.read_text(encoding="utf-8"))
    assert find_excess(lines, budget) == []
    assert set(budget) == set(lines)


def test_an_excess_is_seen(tmp_path):
    for name in ("core/src/isokern/a.py", "core/src/isokern/ops/b.c", "plugins/x/src/y/c.py", "plugins/x/build/d.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n2\n")
    lines = count_lines(tmp_path)
    assert lines == {"core/.": 2, "core/ops": 2, "plugins/x": 2}
    (only,) = find_excess(lines, read_budget("| `core/.` | 2 |\n| `core/ops` | 1 |\n| `plugins/x` | 1,000 |\n"))
    assert only.startswith("core/ops has 2 lines; allowed: 1; take something away")


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    first = ROW.search(page)
    assert first is not None, f"{PAGE} has no row of the table"
    rows = "".join(f"| `{room}` | {-(-n * 103 // 5000) * 50:,} |\n" for room, n in sorted(count_lines(ROOT).items()))
    PAGE.write_text(page[: first.start()] + rows + ROW.sub("", page[first.start() :]), encoding="utf-8")
