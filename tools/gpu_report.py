"""Measure everything about one GPU: `python tools/gpu_report.py [--device cuda:0] [--quick] [--to FOLDER]`.

Runs conformance, the demo, `isokern bench --size huge` and `isokern bench --calls`, each in processes of its own, and
writes `<device>-<date>.json` and `.md` to docs/benchmarks. A failure is noted and the rest goes on: the exit status is
1 where a part failed or a library that should have been timed was not, else 0. Whether a bar was met is in the report,
not in the status.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import distributions
from itertools import groupby
from pathlib import Path
from typing import Any

from gpu_report_page import page

from isokern.bench import lists
from isokern.ops import all_operators

ROOT = Path(__file__).resolve().parents[1]
ISOKERN = [sys.executable, "-m", "isokern"]
LIBRARIES = re.compile(r"isokern|numpy$|cupy|torch$|nvidia-|ml.dtypes$")
PRODUCTS = ("gemm", "matmul", "linear")
QUICK = ("gemm", "relu", "softmax")
HOUR = 3600.0
NOT_AVAILABLE = 3  # exit status of isokern
Rows = list[dict[str, Any]]


@dataclass
class Part:
    """One command: `failed` is why it failed, empty where it did not.

    `said` is its output about cases that it left out.
    """

    name: str
    command: str
    seconds: float = 0.0
    failed: str = ""
    said: str = ""


@dataclass(frozen=True)
class Bar:
    """One figure and the value wanted for it.

    `met` is None where there is no figure, for the reason in `note`.
    """

    bar: str
    case: str
    wanted: str
    figure: float | None
    met: bool | None
    note: str = ""


class Report:
    """The results so far."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.parts: list[Part] = []
        self.gone = False  # the device is not available: nothing is tried again
        self.rows: Rows = []

    def run(self, name: str, command: Sequence[str], limit: float = HOUR) -> Any:
        """Run a command and return the JSON that it prints.

        None where it prints none or fails; the failure is noted.
        """
        part = Part(name, " ".join(["python", *command[1:]]).replace(f"{ROOT}/", ""))
        begin = time.monotonic()
        print(f"{name}: {part.command}", flush=True)
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            part.failed, found = f"not done after {limit:.0f} s", None
        else:
            self.gone |= done.returncode == NOT_AVAILABLE
            if done.returncode:
                part.failed = f"exit status {done.returncode}: {_last(done.stderr or done.stdout)}"
            else:
                part.said = " ".join(line for line in done.stderr.splitlines() if "left out" in line)
            found = _parse(done.stdout)
        part.seconds = time.monotonic() - begin
        self.parts.append(part)
        if part.failed:
            print(f"    {part.failed}", flush=True)
        return None if part.failed else found

    def bench(self, operators: Sequence[str], *options: str) -> None:
        """Measure operators in one process; if that fails, each in its own, so that a failure costs one operator."""
        chosen = [argument for name in operators for argument in ("--op", name)]
        found = self.run(
            f"bench {operators[0]}" + (f" to {operators[-1]}" if len(operators) > 1 else ""),
            [*ISOKERN, "bench", "--device", self.device, *chosen, *options, "--json"],
        )
        self.rows += found or []
        if self.parts[-1].failed and len(operators) > 1 and not self.gone:
            self.parts[-1].failed += "; each was run again by itself"
            for name in operators:
                self.bench([name], *options)


def versions(device: str) -> dict[str, Any]:
    """Return what the figures depend on: the commit, the device as its driver describes it, and the libraries."""
    shown = subprocess.run([*ISOKERN, "devices", "--json"], capture_output=True, text=True, check=False)
    found = next((row for row in _parse(shown.stdout) or [] if row["device"] == device), {})
    return {
        "commit": _output(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]),
        "device": found.get("properties", {}),
        "nvidia-smi": _output(
            ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,power.limit", "--format=csv"]
        ),
        "python": sys.version.split()[0],
        "libraries": {
            d.metadata["Name"]: d.version
            for d in sorted(distributions(), key=lambda d: str(d.metadata["Name"]))
            if LIBRARIES.match(str(d.metadata["Name"]))
        },
    }


def bars(rows: Rows, quick: bool) -> list[Bar]:
    """Return every figure that a bar is set for; a quick run meets or fails none."""
    found: list[Bar] = []
    for row in rows:
        case = f"{row['op']} {row['dtype']} {row['case']}"
        if row["rate_unit"] == "GB/s":
            found.append(_bar("share of copy bandwidth", case, row["share_of_limit"], 0.9, "no copy was measured"))
        if row["op"] == "gemm" and row["dtype"] in ("F32", "BF16"):
            figure = row["peers"]["cublas"] / row["time_us"] if "cublas" in row["peers"] else None
            note = row["left_out"].get("cublas", "cuBLAS was not timed")
            found.append(_bar("gemm, share of cuBLAS's speed", case, figure, 0.98, note))
    times = {row["case"]: row["time_us"] for row in rows if row["op"] == "list"}
    for name, of, by, wanted, most in (
        ("captured list, times as fast as bound()", lists.BOUND, lists.REPLAY, 5.0, False),
        ("captured list, times as fast as calculate", lists.CALCULATE, lists.REPLAY, 5.0, False),
        ("captured list, times its kernels' time", lists.REPLAY, lists.KERNELS, 1.2, True),
        ("the same by the device's clock", lists.REPLAY_DEVICE, lists.KERNELS, 1.2, True),
    ):
        figure = times[of] / times[by] if of in times and by in times else None
        found.append(_bar(name, "100 operators", figure, wanted, "the list was not timed", most))
    for name in ("share of copy bandwidth", "gemm, share of cuBLAS's speed"):
        if not any(b.bar == name for b in found):
            found.append(Bar(name, "-", "-", None, None, "nothing was measured"))
    if quick:
        found = [replace(b, met=None, note=b.note or "of a quick run") for b in found]
    return sorted(found, key=lambda b: b.bar)


def _bar(name: str, case: str, figure: float | None, wanted: float, note: str, most: bool = False) -> Bar:
    text = f"{'at most' if most else 'at least'} {wanted:g}"
    if figure is None:
        return Bar(name, case, text, None, None, note)
    return Bar(name, case, text, figure, figure <= wanted if most else figure >= wanted)


def missing(peers: Iterable[str], rows: Rows) -> dict[str, str]:
    """Return the libraries that were timed nowhere, each with the reason that a bench gave."""
    timed = {name for row in rows for name in row["peers"]}
    reasons = {name: why for row in rows for name, why in row["left_out"].items()}
    return {
        name: reasons.get(name, "it is not installed, or has no call for what was run")
        for name in peers
        if name not in timed
    }


def measure(device: str, quick: bool) -> Report:
    """Run every part and return the report."""
    report, backend = Report(device), device.split(":")[0]
    if quick:  # tools/conformance.py keeps its report for the support matrix, which this one must not replace
        report.run("conformance", [*ISOKERN, "check", "--device", device, "--quick", "--op", "relu", "--json"])
    else:
        report.run(
            "conformance",
            [sys.executable, str(ROOT / "tools" / "conformance.py"), backend, "--keep", "--claimed"],
            3 * HOUR,
        )
    report.run("demo", [*ISOKERN, "demo", "--device", device, "--json"])
    if quick:
        report.bench(QUICK, "--size", "small", "--seconds", "0.001")
    else:
        report.bench(PRODUCTS, "--size", "huge", "--dtype", "F32,BF16,F16")
        others = sorted((op.family, op.name) for op in all_operators() if op.name not in PRODUCTS)
        for _, family in groupby(others, lambda pair: pair[0]):
            report.bench([name for _, name in family], "--size", "huge")
    calls = [*ISOKERN, "bench", "--calls", "--device", device, *(["--seconds", "0.001"] if quick else []), "--json"]
    report.rows += report.run("calls", calls) or []
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write both files, and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--quick", action="store_true", help="a few small cases: whether it runs, not how fast")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument(
        "--peers", default="torch,cupy,cublas", help="libraries that are to be timed, separated by commas"
    )
    given = parser.parse_args(arguments)
    known = versions(given.device)
    report = measure(given.device, given.quick)
    when = datetime.now(timezone.utc)
    document = {
        "device": given.device,
        "quick": given.quick,
        "when": when.strftime("%Y-%m-%d %H:%M UTC"),
        "versions": known,
        "parts": [asdict(part) for part in report.parts],
        "missing": missing(filter(None, given.peers.split(",")), report.rows),
        "bars": [asdict(bar) for bar in bars(report.rows, given.quick)],
        "measurements": report.rows,
    }
    name = re.sub(r"\W+", "-", str(known["device"].get("device", given.device))).strip("-").lower()
    target = given.to / f"{name}-{when:%Y-%m-%d}"
    given.to.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".json", json.dumps(document, indent=1) + "\n"), (".md", page(document))):
        Path(f"{target}{suffix}").write_text(text)
        print(f"{target}{suffix}")
    return int(bool(document["missing"]) or any(part.failed for part in report.parts))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _output(command: Sequence[str]) -> str:
    """Return a program's output, or why it has none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"none: {error}"
    return done.stdout.strip() or f"none: {_last(done.stderr)}"


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it says nothing"


if __name__ == "__main__":
    sys.exit(main())
