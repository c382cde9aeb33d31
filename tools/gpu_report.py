"""Check and time everything on one GPU: `python tools/gpu_report.py [--device cuda:0] [--quick] [--to FOLDER]`.

Runs conformance, the demo, `isokern bench --size huge` and `isokern bench --calls`, each in processes of its own, and
writes a page, `<device>-<date>.md`, to docs/benchmarks. A failure is noted and the rest goes on: the exit status is 1
where a part failed or PyTorch, CuPy or cuBLAS was not timed, else 0. Whether a bar was met is in the page, not in the
status.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import distributions
from itertools import groupby
from pathlib import Path
from typing import Any

from isokern.bench import lists
from isokern.ops import all_operators

ROOT = Path(__file__).resolve().parents[1]
ISOKERN = [sys.executable, "-m", "isokern"]
PEERS = ("torch", "cupy", "cublas")
LIBRARIES = re.compile(r"isokern|numpy$|cupy|torch$|nvidia-|ml.dtypes$")
PRODUCTS = ("gemm", "matmul", "linear")
QUICK = ("gemm", "relu", "softmax")
HOUR = 3600.0
NOT_AVAILABLE = 3  # exit status of isokern
CLOCKS = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,power.limit", "--format=csv"]
Rows = list[dict[str, Any]]


@dataclass
class Part:
    """One command that was run, how long it took, and why it failed, or what it says that it left out."""

    name: str
    command: str
    seconds: float = 0.0
    failed: str = ""
    said: str = ""


@dataclass(frozen=True)
class Bar:
    """A value that figures are wanted to reach, or with `most` not to exceed, and the figures by case."""

    name: str
    wanted: float
    figures: Mapping[str, float | None]
    most: bool = False

    def summary(self) -> list[Any]:
        """Return the bar, and how many figures meet it, do not, and are missing, and the worst one."""
        measured = {case: figure for case, figure in self.figures.items() if figure is not None}
        met = sum(f <= self.wanted if self.most else f >= self.wanted for f in measured.values())
        worst = (max if self.most else min)(measured, key=lambda case: measured[case], default=None)
        counts = (met, len(measured) - met, len(self.figures) - len(measured))
        shown = "-" if worst is None else f"{measured[worst]:.3g}: {worst}"
        return [self.name, f"{'at most' if self.most else 'at least'} {self.wanted:g}", *counts, shown]


class Report:
    """The results so far."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.parts: list[Part] = []
        self.gone = False  # the device is not available: nothing is tried again
        self.rows: Rows = []

    def run(self, name: str, command: Sequence[str], limit: float = HOUR) -> Any:
        """Run a command and return the JSON that it prints; None where it prints none or fails, which is noted."""
        part = Part(name, " ".join(["python", *command[1:]]).replace(f"{ROOT}/", ""))
        begin = time.monotonic()
        print(f"{name}: {part.command}", flush=True)
        found = None
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            part.failed = f"not done after {limit:.0f} s"
        else:
            self.gone |= done.returncode == NOT_AVAILABLE
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
                part.failed = f"exit status {done.returncode}: {lines[-1]}"
            else:
                part.said = " ".join(line for line in done.stderr.splitlines() if "left out" in line)
                found = _parse(done.stdout)
        part.seconds = time.monotonic() - begin
        self.parts.append(part)
        if part.failed:
            print(f"    {part.failed}", flush=True)
        return found

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

    def missing(self) -> list[str]:
        """Return the libraries that were timed nowhere."""
        return [name for name in PEERS if not any(name in row["peers"] for row in self.rows)]

    def page(self, quick: bool) -> str:
        """Return the page: bars, figures, what was run, and on what."""
        known = versions(self.device)
        lines = [f"# {known.get('device', self.device)}", ""]
        lines.append(f"By `tools/gpu_report.py`, {datetime.now(timezone.utc):%Y-%m-%d %H:%M UTC}.")
        if known.get("emulated"):
            lines.append("An emulated GPU: its times say nothing about any other.")
        if quick:
            lines.append("A quick run of small cases, which shows that it runs: its figures say nothing.")
        columns = ["bar", "wanted", "met", "not met", "not measured", "worst"]
        lines += ["", *table("Bars", columns, (bar.summary() for bar in bars(self.rows)))]
        columns = ["operator", "dtype", "case", "µs", "rate", "unit", "of limit", "speed beside"]
        lines += table("Measurements", columns, map(_figures, self.rows))
        out = [[m["op"], m["dtype"], m["case"], *pair] for m in self.rows for pair in m["left_out"].items()]
        out += [["-", "-", "-", name, "it was timed nowhere"] for name in self.missing()]
        lines += table("Libraries that were left out", ["operator", "dtype", "case", "library", "why"], out)
        parts = ([p.name, p.command, f"{p.seconds:.0f}", p.failed or p.said or "done"] for p in self.parts)
        lines += table("What was run", ["part", "command", "s", ""], parts)
        return "\n".join([*lines, *table("On", ["", ""], known.items())])


def versions(device: str) -> dict[str, Any]:
    """Return what the figures depend on: the commit, the device as its driver describes it, and the libraries."""
    rows = _parse(_output([*ISOKERN, "devices", "--json"])) or []
    return {
        "commit": _output(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]),
        "nvidia-smi": _output(CLOCKS),
        "python": sys.version.split()[0],
        **next((row.get("properties", {}) for row in rows if row["device"] == device), {}),
        **{n: d.version for d in distributions() if LIBRARIES.match(n := str(d.metadata["Name"]))},
    }


def bars(rows: Rows) -> list[Bar]:
    """Return the bars with the figures that rows of benches have for them."""
    cases = [(f"{row['op']} {row['dtype']} {row['case']}", row) for row in rows]
    copies = {case: row["share_of_limit"] for case, row in cases if row["rate_unit"] == "GB/s"}
    products = {
        case: row["peers"]["cublas"] / row["time_us"] if "cublas" in row["peers"] else None
        for case, row in cases
        if row["op"] == "gemm" and row["dtype"] in ("F32", "BF16")
    }
    times = {row["case"]: row["time_us"] for row in rows if row["op"] == "list"}

    def divide(of: str, by: str) -> dict[str, float | None]:
        return {"100 operators": times[of] / times[by] if of in times and by in times else None}

    return [
        Bar("share of copy bandwidth", 0.9, copies),
        Bar("gemm, share of cuBLAS's speed", 0.98, products),
        Bar("captured list, times as fast as bound()", 5, divide(lists.BOUND, lists.REPLAY)),
        Bar("captured list, times as fast as calculate", 5, divide(lists.CALCULATE, lists.REPLAY)),
        Bar("captured list, times its kernels' time", 1.2, divide(lists.REPLAY, lists.KERNELS), most=True),
        Bar("the same by the device's clock", 1.2, divide(lists.REPLAY_DEVICE, lists.KERNELS), most=True),
    ]


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield a heading and a table, or nothing where there is no row."""
    shown = ["| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in row) + " |" for row in rows]
    if shown:
        yield from (f"## {title}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *shown, "")


def measure(device: str, quick: bool) -> Report:
    """Run every part and return the report."""
    report, backend = Report(device), device.split(":")[0]
    if quick:  # tools/conformance.py keeps its report for the support matrix, which this one must not replace
        report.run("conformance", [*ISOKERN, "check", "--device", device, "--quick", "--op", "relu", "--json"])
    else:
        jobs = str(os.cpu_count() or 1)  # 16 processors take four minutes for all cases beside an H200
        whole = [sys.executable, str(ROOT / "tools" / "conformance.py"), backend, "--keep", "--claimed", "-j", jobs]
        report.run("conformance", whole, 3 * HOUR)
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
    """Measure, write the page, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--quick", action="store_true", help="a few small cases: whether it runs, not how fast")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "benchmarks")
    given = parser.parse_args(arguments)
    report = measure(given.device, given.quick)
    page = report.page(given.quick)
    name = re.sub(r"\W+", "-", page.splitlines()[0]).strip("-").lower()
    given.to.mkdir(parents=True, exist_ok=True)
    target = given.to / f"{name}-{datetime.now(timezone.utc):%Y-%m-%d}.md"
    target.write_text(page)
    print(target)
    return int(bool(report.missing()) or any(part.failed for part in report.parts))


def _figures(m: dict[str, Any]) -> list[Any]:
    share = "-" if m["share_of_limit"] is None else f"{m['share_of_limit']:.2f}"
    beside = ", ".join(f"{t / m['time_us']:.2f} of {name}" for name, t in m["peers"].items()) or "-"
    return [m["op"], m["dtype"], m["case"], f"{m['time_us']:.4g}", f"{m['rate']:.4g}", m["rate_unit"], share, beside]


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
    return done.stdout.strip() or f"none: {done.stderr.strip()}"


if __name__ == "__main__":
    sys.exit(main())
