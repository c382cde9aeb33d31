"""Show where the time of a tox run went, and judge it: `python tools/times.py` prints Markdown tables.

They are of test files, the slowest tests, and environments with their budgets. toxfile.py writes the times of each
environment to `.tox/times`, and tests/conftest.py those of each test to the same folder; both are of the last run of
that environment. Compare processor seconds: wall seconds depend on what else the machine does. Processor seconds that
are divided by the slowness of the machine (tools/calibration.py) can be compared between machines; budgets are such
seconds, for the commands of an environment without its installation.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".tox" / "times"
BUDGETS = ROOT / "tools" / "time_budgets.tsv"
COLUMNS = "environment\tprocessor seconds at slowness 1"
SLACK = 0.1  # of a budget
LEAST_SLACK = 3.0  # seconds: starting a few processes varies by more than a tenth


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


@dataclass(frozen=True)
class Spent:
    """What the commands of an environment spent, and what they may."""

    environment: str
    processor: float
    slowness: float | None
    budget: float | None
    unjudged: str  # why this run says nothing of the budget

    @property
    def calibrated(self) -> float | None:
        """Processor seconds on a machine of slowness 1."""
        return None if self.slowness is None else self.processor / self.slowness

    @property
    def over(self) -> bool:
        """Whether it exceeds its budget by more than the slack."""
        if self.unjudged or self.calibrated is None or self.budget is None:
            return False
        return self.calibrated > max(self.budget * (1 + SLACK), self.budget + LEAST_SLACK)

    @property
    def fault(self) -> str:
        """What `--check` fails for; empty if nothing."""
        if self.unjudged:
            return ""
        if self.calibrated is None:
            return "was not calibrated, so it cannot be compared with its budget; run it again"
        if self.budget is None:
            return "has no budget; set one by `python tools/times.py --set`"
        if not self.over:
            return ""
        return (
            f"took {self.calibrated:.1f} calibrated processor seconds ({self.processor:.1f} at slowness"
            f" {self.slowness:.2f}), {self.calibrated / self.budget - 1:.0%} over its budget of {self.budget:.0f}"
        )


def environments(folder: Path) -> list[dict[str, Any]]:
    """Return what toxfile.py wrote about each environment, the most expensive first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda row: -sum(row["processor"].values()))


def read_budgets(path: Path) -> dict[str, float]:
    """Return the budget of each environment, in processor seconds at slowness 1."""
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    if first != COLUMNS:
        raise SystemExit(f"{path}: the first line is {first!r} instead of {COLUMNS!r}")
    found: dict[str, float] = {}
    for number, line in enumerate(lines, 2):
        environment, _, seconds = line.partition("\t")
        if not seconds.isdecimal() or int(seconds) == 0 or not environment or environment in found:
            raise SystemExit(f"{path}:{number}: {line!r} is not a new environment, a tab and whole seconds from 1 on")
        found[environment] = float(seconds)
    return found


def judge(rows: Sequence[dict[str, Any]], budgets: dict[str, float]) -> list[Spent]:
    """Return what each environment spent; a run that failed, or of some tests only, says nothing of a budget."""
    found = []
    for row in rows:
        unjudged = ""
        if row["exit"]:
            unjudged = f"it exited with {row['exit']}"
        elif row.get("arguments"):
            unjudged = "it ran with arguments"
        elif row["environment"] not in budgets and not row.get("proves", True):
            unjudged = "it is for one purpose"
        found.append(
            Spent(
                row["environment"],
                row["processor"].get("run", 0.0),
                fmean(row["calibration"]) if row.get("calibration") else None,
                budgets.get(row["environment"]),
                unjudged,
            )
        )
    return found


def set_budgets(path: Path, spent: Sequence[Spent]) -> None:
    """Rewrite the file with what the environments spent that can be judged; the rest of it stays."""
    budgets = read_budgets(path)
    for own in spent:
        if not own.unjudged and own.calibrated is not None:
            budgets[own.environment] = max(1, math.ceil(own.calibrated))
    rows = [f"{environment}\t{seconds:.0f}\n" for environment, seconds in sorted(budgets.items())]
    path.write_text(f"{COLUMNS}\n{''.join(rows)}", encoding="utf-8")


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


def of_budgets(spent: Sequence[Spent]) -> str:
    """Return a table of what each environment spent of its budget."""
    shown = []
    for own in spent:
        slowness = "" if own.slowness is None else f"{own.slowness:.2f}"
        calibrated = "" if own.calibrated is None else f"{own.calibrated:.1f}"
        share = f"{own.calibrated / own.budget:.0%}" if own.calibrated is not None and own.budget else ""
        budget = "none" if own.budget is None else f"{own.budget:.0f}"
        note = f"not judged: {own.unjudged}" if own.unjudged else "EXCESS" if own.over else ""
        shown.append([own.environment, own.processor, slowness, calibrated, budget, share, note])
    return table(["environment", "processor", "slowness", "calibrated", "budget", "share", ""], shown)


def find_most(row: dict[str, Any], found: Sequence[Test], count: int = 3) -> str:
    """Return the test files that took most in an environment, or its commands if it has no tests."""
    took: dict[str, float] = defaultdict(float)
    for test in found:
        if test.environment == row["environment"]:
            took[test.file] += test.processor
    if not took:
        took |= {command: processor for command, _, processor in row["commands"]}
    most = sorted(took.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name} ({seconds:.1f})" for name, seconds in most)


def page(folder: Path, count: int, spent: Sequence[Spent]) -> str:
    """Return all tables; the budgets last, where a long output keeps its end."""
    ran, found = environments(folder), tests(folder)
    return "\n\n".join(
        [
            "Seconds of wall time, and processor seconds of all processes. Test files, over all environments:",
            of_files(found),
            f"The slowest {min(count, len(found))} of {len(found)} tests:",
            of_tests(found, count),
            "tox's environments:",
            of_environments(ran),
            f"Their commands, compared with {BUDGETS.relative_to(ROOT)}, which they may exceed by {SLACK:.0%}:",
            of_budgets(spent),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if nothing has been recorded or, with `--check`, if a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the times are; .tox/times")
    parser.add_argument("--budgets", type=Path, default=BUDGETS, help="where the budgets are; tools/time_budgets.tsv")
    parser.add_argument("--slowest", type=int, default=100, metavar="N", help="how many tests are listed; 100")
    parser.add_argument("--check", action="store_true", help="fail if an environment exceeds its budget by a tenth")
    parser.add_argument("--set", action="store_true", help="set the budgets to what the last run took")
    options = parser.parse_args(arguments)
    if not any(options.folder.glob("*")):
        print(f"{options.folder} has no times yet: run tox first", file=sys.stderr)
        return 1
    rows = environments(options.folder)
    if options.set:
        set_budgets(options.budgets, judge(rows, read_budgets(options.budgets)))
    spent = judge(rows, read_budgets(options.budgets))
    print(page(options.folder, options.slowest, spent))
    faults = [(row, own) for row, own in zip(rows, spent, strict=True) if own.fault] if options.check else []
    for row, own in faults:
        print(f"\n{own.environment} {own.fault}.")
        if own.over:
            print(f"It took most in {find_most(row, tests(options.folder))}.")
    if any(own.over for _, own in faults):
        print("\nTake as much time away, or raise the figure in the file and say in the commit why.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
