"""The results of the last full run of conformance, docs/support.json: written from the reports, read by the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / ".tox" / "reports"
KEPT = ROOT / "docs" / "support.json"


def collect(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is kept of the reports of tools/conformance.py: each run, and each operator's dtypes by device."""
    from isokern.cli.ops import claims_text

    runs = []
    operators: dict[str, dict[str, str]] = {}
    for report in reports:
        counts = ((report["check"] or {}).get("summary") or {}).items()
        cases = "; ".join(f"{d}: " + ", ".join(f"{n} {v}" for v, n in count.items() if n) for d, count in counts)
        run = {name: report.get(name, "unknown") for name in ("backend", "status", "when", "commit")}
        runs.append({**run, "cases": cases or report["reason"], "quick": "--quick" in report["options"]})
        for row in report.get("claims") or ():
            for device in row["devices"]:
                if device.split(":")[0] == report["backend"]:
                    operators.setdefault(row["name"], {})[device] = claims_text(row, device)
    return {"runs": runs, "operators": dict(sorted(operators.items()))}


def write(backends: Sequence[str]) -> None:
    """Write docs/support.json from the reports of these backends, all of which must be there."""
    paths = [REPORTS / f"{name}.json" for name in backends]
    missing = [path.stem for path in paths if not path.exists()]
    if missing or not paths:
        environments = ", ".join(f"tox -e conformance-{name}" for name in missing) or "name the backends"
        raise SystemExit(f"docs/support.json is not written: no report of {missing or 'any backend'}; {environments}")
    kept = collect([json.loads(path.read_text(encoding="utf-8")) for path in paths])
    KEPT.write_text(dump(kept), encoding="utf-8")


def dump(kept: Mapping[str, Any]) -> str:
    """Return the text of docs/support.json: one run or operator a line, so that a change is a line of a diff."""
    runs = ",\n".join(json.dumps(run) for run in kept["runs"])
    operators = ",\n".join(f"{json.dumps(name)}: {json.dumps(claims)}" for name, claims in kept["operators"].items())
    return f'{{"runs": [\n{runs}\n],\n"operators": {{\n{operators}\n}}}}\n'


def read() -> dict[str, Any]:
    """Return what docs/support.json has."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def devices(kept: Mapping[str, Any]) -> list[str]:
    """Return the devices that were judged."""
    return list(dict.fromkeys(device for claims in kept["operators"].values() for device in claims))


def say_part(run: Mapping[str, Any]) -> str:
    """Return which cases a run went through."""
    return "the quick ones" if run["quick"] else "all"
