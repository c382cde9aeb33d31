"""Write docs/status.md, the last full result: `python tools/status.py` after `tox -m full`.

The page says when everything was run, at which commit, on which machine, and the outcome and time of each environment,
whose names come from tox, and the commit at which everything was last green. A result
counts for the commit when it is newer than the commit and no file differs
from it; an environment without a result of this commit has not run.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from conformance import ROOT
from times import table

NO_DEVICE = 3  # exit status of an environment whose device is missing: it is skipped, as in toxfile.py
STATUS = ROOT / "docs" / "status.md"
TITLE = "# Status"
GREEN = re.compile(r"^<!-- green: ([0-9a-f]{40}) -->$", re.M)
NEVER = "Everything has not been green yet."
SINCE = re.compile(r"^Everything was last green at commit `([0-9a-f]{40})`, on (\d{4}-\d\d-\d\d)\.$", re.M)


@dataclass(frozen=True)
class Result:
    """The outcome of an environment: passed, failed, skipped (no device) or not run; seconds where it ran."""

    environment: str
    outcome: str
    wall: float = 0.0
    processor: float = 0.0


def last_green(page: str) -> str | None:
    """Return the commit that the page names as the last at which everything passed, None if there is none."""
    found = GREEN.search(page)
    return found[1] if found else None


def git(*arguments: str) -> str:
    """Return the output of a git command on the checkout, without line ends; a row may begin with a space."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


def result(folder: Path, environment: str, after: float) -> Result:
    """Return the result of an environment, if it is newer than `after` (seconds since 1970)."""
    path = folder / f"{environment}.json"
    if not path.exists() or path.stat().st_mtime < after:
        return Result(environment, "not run")
    row = json.loads(path.read_text(encoding="utf-8"))
    skipped = row["exit"] == NO_DEVICE and environment.startswith(("conformance-", "opencl-"))
    outcome = "passed" if row["exit"] == 0 else "skipped: no device" if skipped else f"failed ({row['exit']})"
    return Result(environment, outcome, sum(row["wall"].values()), sum(row["processor"].values()))


def machine() -> str:
    """Return a line with the processor, usable cores, memory, system and Python."""
    names = []
    if Path("/proc/cpuinfo").exists():
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{processor}, {cores} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def conformance(reports: Path, after: float) -> str:
    """Return a table of the cases of each backend whose report is newer than `after`."""
    rows = []
    for path in sorted(reports.glob("*.json")) if reports.exists() else ():
        report = json.loads(path.read_text(encoding="utf-8"))
        if path.stat().st_mtime >= after and report.get("check"):
            for device, counts in report["check"]["summary"].items():
                failed = sum(n for verdict, n in counts.items() if verdict.startswith("fail"))
                rows.append([device, counts["pass"], counts.get("lowered", 0), counts["unsupported"], failed])
    return table(["device", "cases passed", "lowered", "refused", "failed"], rows) if rows else ""


def page(results: Sequence[Result], commit: str, when: str, on: str, cases: str, green: tuple[str, str] | None) -> str:
    """Return the page; `green` is the commit at which everything was last green, and the date."""
    rows = [[r.environment, r.outcome, r.wall, r.processor] for r in results]
    rows.append(["all", "", float(sum(r.wall for r in results)), float(sum(r.processor for r in results))])
    parts = [
        TITLE,
        f"<!-- green: {green[0]} -->" if green else "",
        f"Everything was last green at commit `{green[0]}`, on {green[1]}." if green else NEVER,
        "This page is written by `tox -e status` when all environments of `tox -m full` have run; "
        "seconds are those of the machine below.",
    ]
    if results:
        parts += [
            f"The last run was of commit `{commit}`, on {when}, on {on}.",
            table(["environment", "outcome", "wall", "processor"], rows),
        ]
    return "\n\n".join(p for p in [*parts, cases] if p) + "\n"


def faults(text: str) -> list[str]:
    """Return what is wrong with a page.

    It must say the same about the last green commit to readers and to tools.
    """
    found = []
    said, green = SINCE.search(text), last_green(text)
    if not text.startswith(f"{TITLE}\n"):
        found.append(f"it does not begin with {TITLE!r}")
    if (
        text.count("green: ") != (green is not None)
        or (said[1] if said else None) != green
        or (NEVER in text) is (green is not None)
    ):
        found.append(f"{GREEN.pattern!r} and what the text says of the last green commit differ")
    for row in re.findall(r"^\| \w[\w:-]* +\| .*$", text, re.M):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        known = r"[\d.]+|wall|processor|lowered|refused|failed"
        if len(cells) not in (4, 5) or any(not re.fullmatch(known, c) for c in cells[2:]):
            found.append(f"no row of an environment or a device: {row}")
    return found


def full() -> list[str]:
    """Return the environments of a full run, without the one that writes the page."""
    command = [sys.executable, "-m", "tox", "list", "-m", "full", "--no-desc"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split() if name != "status"]


def main(environments: Sequence[str]) -> int:
    """Write the page; return 0 where everything is green."""
    tox = ROOT / ".tox"
    commit, after = git("rev-parse", "HEAD"), float(git("log", "-1", "--format=%ct"))
    edited = [row[3:] for row in git("status", "--porcelain").splitlines() if row[3:] != str(STATUS.relative_to(ROOT))]
    results = [result(tox / "times", name, after) for name in environments]
    today = datetime.now(timezone.utc)
    old = STATUS.read_text(encoding="utf-8") if STATUS.exists() else ""
    known = SINCE.search(old)
    bad = [f"{r.environment}: {r.outcome}" for r in results if not r.outcome.startswith(("passed", "skipped"))]
    bad += [f"{len(edited)} files differ from the commit: {', '.join(edited[:5])}"] if edited else []
    green = (known[1], known[2]) if known else None
    if results and not bad:
        green = (commit, f"{today:%Y-%m-%d}")
    cases = conformance(tox / "reports", after)
    STATUS.write_text(page(results, commit, f"{today:%Y-%m-%d %H:%M} UTC", machine(), cases, green), encoding="utf-8")
    for reason in bad:
        print(f"not green: {reason}")
    print(f"{STATUS.relative_to(ROOT)} is written; commit it")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(full()))
