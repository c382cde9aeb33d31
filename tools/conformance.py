"""Run the conformance suite on one backend and keep its JSON for the matrix: `python tools/conformance.py cpu [options of isokern check]`.

Exits as `isokern check` does; 3, a device that is not available, is written down as "not run" with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[1] / ".tox" / "reports"
VERDICTS = {0: "passed", 1: "failed", 3: "not run", 4: "no case ran"}


def isokern(*arguments: str) -> tuple[int, Any]:
    """(exit status, parsed JSON or None) of an `isokern … --json`."""
    done = subprocess.run(
        [sys.executable, "-m", "isokern", *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None


def reason(backend: str) -> str:
    """Why no device of `backend` can be used here."""
    rows = [row for row in isokern("devices")[1] or [] if row["backend"] == backend]
    return (
        "; ".join(f"{row['status']}: {row['reason']}" for row in rows)
        or f"no plug-in brings a backend called {backend}"
    )


def main(backend: str, options: list[str]) -> int:
    """Check, print the outcome, keep the report."""
    status, check = isokern("check", "--device", backend, *options)
    report: dict[str, Any] = {
        "backend": backend,
        "status": VERDICTS.get(status, f"exit status {status}"),
        "reason": "",
        "check": check,
    }
    report["when"] = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if status == 3:
        report["reason"] = reason(backend)
    else:
        report["ops"] = isokern("ops")[1]
    KEPT.mkdir(parents=True, exist_ok=True)
    partial = KEPT / f"{backend}.part"
    partial.write_text(json.dumps(report))
    os.replace(partial, KEPT / f"{backend}.json")
    print(f"{backend}: {report['status']}{report['reason'] and ': ' + report['reason']}")
    print(json.dumps((check or {}).get("summary"), indent=2))
    for failure in (check or {}).get("failures", []):
        print(f"{failure['verdict']}  {failure['id']}: {failure['detail']}\n    {failure['repro']}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
