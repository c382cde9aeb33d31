"""Run the conformance suite on backends: `python tools/conformance.py cpu [backend …] [options of isokern check]`.

`--moving` adds cases that depend on the commit: all of the operators that differ from the commit at which everything
was last green (docs/status.md), and one part of all others, another one at each commit, so that `PARTS` commits in a
row cover everything. `--turning` runs fewer quick cases (`isokern check --turn`), which change in the same way. Where
git cannot tell the commit, one line reports what is left out and the rest runs.

With one backend the exit status is that of `isokern check`: 3 where no device is available. With several, a line
reports each that is not available, and the others decide. With `--keep` the report is saved as JSON for the support
matrix.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".tox" / "reports"
STATUS = ROOT / "docs" / "status.md"
NO_DEVICE, NO_CASE = 3, 4  # exit statuses of `isokern check`
VERDICTS = {0: "passed", 1: "failed", NO_DEVICE: "not run", NO_CASE: "no case ran"}
PARTS = 200  # parts of all cases: after so many commits each case has run
MOST = 6000  # changed cases that are run for one commit: minutes where a compiler is slow
TURNS = 12  # parts of the quick cases
GREEN = re.compile(r"^<!-- green: ([0-9a-f]{40}) -->$", re.M)  # how tools/status.py writes the commit


def isokern(*arguments: str) -> tuple[int, Any]:
    """Run `isokern … --json` and return its exit status and the parsed JSON, or None."""
    done = subprocess.run(
        [sys.executable, "-m", "isokern", *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None


def reason(backend: str) -> str:
    """Return why no device of `backend` can be used here."""
    rows = [row for row in isokern("devices")[1] or [] if row["backend"] == backend]
    return (
        "; ".join(f"{row['status']}: {row['reason']}" for row in rows)
        or f"no plug-in brings a backend called {backend}"
    )


def git(*arguments: str) -> str:
    """Return the output of a git command on this checkout; raise LookupError with the reason where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LookupError("there is no git on this machine") from None
    if done.returncode:
        raise LookupError((done.stderr.strip().splitlines() or [f"git {arguments[0]} fails"])[-1])
    return done.stdout.strip()


def count_commits() -> int:
    """Return how many commits lead to this one; raise LookupError with the reason where git cannot tell."""
    if git("rev-parse", "--is-shallow-repository") == "true":
        raise LookupError("this clone is shallow, so its commits cannot be counted")
    return int(git("rev-list", "--count", "HEAD"))


def last_green(page: str) -> str | None:
    """Return the commit that docs/status.md names as the last at which everything passed, None if there is none."""
    found = GREEN.search(page)
    return found[1] if found else None


def moving(wanted: Sequence[str]) -> list[str]:
    """Return the options of `isokern check` for the wanted ones of `--moving` and `--turning` at this commit."""
    try:
        count = count_commits()
    except LookupError as error:
        said = {"--moving": "the cases that move with the commit are left out", "--turning": "all quick cases run"}
        print(f"{' and '.join(said[w] for w in wanted)}: {error}", flush=True)
        return []
    options = ["--turn", f"{count % TURNS + 1}/{TURNS}"] if "--turning" in wanted else []
    if "--moving" not in wanted:
        return options
    options += ["--slice", f"{count % PARTS + 1}/{PARTS}"]
    green = last_green(STATUS.read_text(encoding="utf-8")) if STATUS.exists() else None
    try:
        if green is None:
            raise LookupError(f"{STATUS.relative_to(ROOT)} names no commit at which everything passed")
        git("cat-file", "-e", f"{green}^{{commit}}")
    except LookupError as error:
        print(f"the cases of what has changed are left out: {error}", flush=True)
        return options
    return [*options, "--since", green]


def limit(backend: str, options: list[str]) -> list[str]:
    """Return the options without --since where it selects more than `MOST` cases.

    That is so where code that all operators share has changed. Then all cases are divided into a fifth as many parts as
    usual, and one of these runs instead; `tox -m full` runs the rest.
    """
    if "--since" not in options:
        return options
    at = options.index("--since")
    listed = isokern("check", "--device", backend, *options[at : at + 2], "--list")[1] or {}
    count = sum(map(len, listed.values()))
    if count <= MOST:
        return options
    part = options.index("--slice") + 1
    number, _, parts = options[part].partition("/")
    fewer = int(parts) // 5
    print(f"{backend}: {count} cases differ since {options[at + 1][:7]}, more than {MOST}: one of {fewer} parts runs")
    kept = [*options[:at], *options[at + 2 :]]
    kept[kept.index("--slice") + 1] = f"{(int(number) - 1) % fewer + 1}/{fewer}"
    return kept


def judge(backend: str, options: list[str]) -> tuple[int, dict[str, Any]]:
    """Check one backend and print the outcome; return an exit status and the report.

    The status is that of `isokern check`, 1 where the plug-in is broken.
    """
    begin = time.monotonic()
    options = limit(backend, options)
    status, check = isokern("check", "--device", backend, *options)
    report: dict[str, Any] = {"backend": backend, "options": options, "reason": "", "check": check}
    report["when"] = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if status == NO_DEVICE:
        report["reason"] = reason(backend)
        status = 1 if "broken: " in report["reason"] else status
    report["status"] = VERDICTS.get(status, f"exit status {status}")
    if status == NO_CASE and "--slice" in options:  # the device may support no case of this part
        status = 0
    print(f"{backend}: {report['status']}{report['reason'] and ': ' + report['reason']}")
    for device, counts in ((check or {}).get("summary") or {}).items():
        counted = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
        print(f"{device}: {counted} in {time.monotonic() - begin:.0f} s")
    for failure in (check or {}).get("failures", []):
        print(f"{failure['verdict']}  {failure['id']}: {failure['detail']}\n    {failure['repro']}")
    sys.stdout.flush()
    return status, report


def keep(report: dict[str, Any]) -> None:
    """Save a report for the support matrix, with the commit that was judged."""
    try:
        report["commit"] = git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "--", ":!docs/status.md"))
    except LookupError:
        report["commit"] = "unknown"
    if report["status"] != VERDICTS[NO_DEVICE]:
        report["claims"] = isokern("ops")[1]
    KEPT.mkdir(parents=True, exist_ok=True)
    partial = KEPT / f"{report['backend']}.part"
    partial.write_text(json.dumps(report))
    os.replace(partial, KEPT / f"{report['backend']}.json")


def main(arguments: list[str]) -> int:
    """Check each backend that is named before the first option."""
    backends = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
    options = arguments[len(backends) :]
    wanted = [o for o in ("--moving", "--turning") if o in options]
    kept = "--keep" in options
    options = [o for o in options if o not in (*wanted, "--keep")] + (moving(wanted) if wanted else [])
    found = [judge(backend, options) for backend in backends]
    if kept:
        for _, report in found:
            keep(report)
    statuses = {status for status, _ in found}
    return max(statuses - {NO_DEVICE} or {NO_DEVICE})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
