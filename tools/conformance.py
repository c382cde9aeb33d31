"""Run the conformance suite on backends: `python tools/conformance.py cpu [backend …] [options of isokern check]`.

With one backend the exit status is that of `isokern check`: 3 where no device is available. With several, a line
reports each that is not available, and the others decide. With `--keep` the report is saved as JSON for the support
matrix.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".tox" / "reports"
NO_DEVICE = 3  # exit status of `isokern check`
VERDICTS = {0: "passed", 1: "failed", NO_DEVICE: "not run", 4: "no case ran"}


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


def judge(backend: str, options: list[str]) -> tuple[int, dict[str, Any]]:
    """Check one backend and print the outcome; return an exit status and the report.

    The status is that of `isokern check`, 1 if the plug-in is broken.
    """
    begin = time.monotonic()
    status, check = isokern("check", "--device", backend, *options)
    report: dict[str, Any] = {"backend": backend, "options": options, "reason": "", "check": check}
    report["when"] = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if status == NO_DEVICE:
        report["reason"] = reason(backend)
        status = 1 if "broken: " in report["reason"] else status
    report["status"] = VERDICTS.get(status, f"exit status {status}")
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
    kept = "--keep" in options
    options = [o for o in options if o != "--keep"]
    found = [judge(backend, options) for backend in backends]
    if kept:
        for _, report in found:
            keep(report)
    statuses = {status for status, _ in found}
    return max(statuses - {NO_DEVICE} or {NO_DEVICE})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
