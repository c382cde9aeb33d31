"""Show where the time of a tox run went: `python tools/times.py` prints Markdown tables.

They are of environments, test files and the slowest tests. toxfile.py writes the times of each environment to
`.tox/times`, and tests/conftest.py those of each test to the same folder; both are of the last run of that environment.
Compare processor seconds: wall seconds depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / ".tox" / "times"


@dataclass(frozen=True)
class Test:
    """One test that ran in an environment."""

    environment: str
    name: str
    wall: float
    processor: float

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.name.partition("::")[0]


def environments(folder: Path) -> list[dict[str, Any]]:
    """Return what toxfile.py wrote about each environment, the most expensive first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda row: -sum(row["processor"].values()))


def tests(folder: Path) -> list[Test]:
    """Return every test of every environment; a line that is still being written is left out."""
    found = []
    for path in sorted(folder.glob("*.tests")):
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                found.append(Test(path.stem, *json.loads(line)))
    return found


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table that also reads well as text: numbers are right-aligned, with one decimal for floats."""
    numbers = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(columns))]
    cells = [[f"{c:.1f}" if isinstance(c, float) else str(c).replace("|", "\\|") for c in row] for row in rows]
    wide = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    rule = ["-" * (w - 1) + ":" if number else "-" * w for w, number in zip(wide, numbers, strict=True)]
    text = [
        [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, wide, numbers, strict=True)]
        for row in (columns, *cells)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [text[0], rule, *text[1:]])


def of_environments(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table with a row for each environment, and their sum."""
    shown = []
    for row in rows:
        wall, processor = row["wall"], row["processor"]
        seconds = [float(wall[k]) for k in ("create", "install", "run")]
        shown.append([row["environment"], row["exit"], *seconds, sum(seconds), float(sum(processor.values()))])
    shown.append(
        ["all", max((r[1] for r in shown), default=0), *(float(sum(r[i] for r in shown)) for i in range(2, 7))]
    )
    return table(["environment", "exit", "create", "install", "run", "wall", "processor"], shown)


def of_files(found: Sequence[Test]) -> str:
    """Return a table with a row for each test file, over all environments that ran it."""
    files: dict[str, list[Test]] = defaultdict(list)
    for test in found:
        files[test.file].append(test)
    rows = [
        [
            file,
            len({t.name for t in own}),
            ", ".join(sorted({t.environment for t in own})),
            sum(t.wall for t in own),
            sum(t.processor for t in own),
        ]
        for file, own in files.items()
    ]
    return table(["file", "tests", "environments", "wall", "processor"], sorted(rows, key=lambda row: -row[-1]))


def of_tests(found: Sequence[Test], count: int) -> str:
    """Return a table of the `count` slowest tests of any environment."""
    slowest = sorted(found, key=lambda t: -max(t.processor, t.wall))[:count]
    return table(
        ["test", "environment", "wall", "processor"], [[t.name, t.environment, t.wall, t.processor] for t in slowest]
    )


def page(folder: Path, count: int) -> str:
    """Return all tables."""
    ran, found = environments(folder), tests(folder)
    return "\n\n".join(
        [
            "Seconds of wall time, and processor seconds of all processes. tox's environments:",
            of_environments(ran),
            "Test files, over all environments:",
            of_files(found),
            f"The slowest {min(count, len(found))} of {len(found)} tests:",
            of_tests(found, count),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or write them to a file; return 1 where nothing has been recorded."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the times are; .tox/times")
    parser.add_argument("--slowest", type=int, default=100, metavar="N", help="how many tests are listed; 100")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write there and print nothing")
    options = parser.parse_args(arguments)
    if not any(options.folder.glob("*")):
        print(f"{options.folder} has no times yet: run tox first", file=sys.stderr)
        return 1
    text = page(options.folder, options.slowest) + "\n"
    if options.markdown is None:
        print(text, end="")
    else:
        options.markdown.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
