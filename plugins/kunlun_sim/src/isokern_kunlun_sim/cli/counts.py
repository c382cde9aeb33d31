"""What launches did on the emulator: the counts that checked kernels append to a file, and the findings."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..settings import FIX_MFENCE, PROFILE, REPORT

COUNTERS = (
    *("fences", "barriers", "gm_loads", "gm_stores", "vector_loads", "vector_stores"),
    *("scalar_loads", "scalar_stores", "atomics"),
)
DIRECTIONS = ("GM2LM", "LM2GM", "GM2SM", "SM2GM", "GM2GSM", "GSM2GM")


@dataclass
class LaunchProfile:
    """One launch: the kernel, its grid, and the counters of every core (missing: 0).

    `available` is the device's number of clusters.
    """

    kernel: str
    clusters: int
    cores: int
    available: int
    sm: int
    per_core: list[dict[str, Any]]

    def copies(self, direction: str) -> tuple[int, int, int]:
        """Return copies, bytes, and the 64-byte lines of device memory that the copies touched."""
        found = [core.get(direction, {}) for core in self.per_core]
        copies, nbytes, lines = (sum(f.get(name, 0) for f in found) for name in ("copies", "bytes", "lines"))
        return copies, nbytes, lines

    def total(self, counter: str) -> int:
        """Return a counter's sum over the cores."""
        return sum(core.get(counter, 0) for core in self.per_core)

    def bytes_moved(self) -> tuple[int, int]:
        """Return the bytes that copies brought from device memory, and to it."""
        read, written = (sum(self.copies(d)[1] for d in DIRECTIONS[i::2]) for i in (0, 1))
        return read, written

    def working(self) -> int:
        """Return how many cores used device memory or did anything atomically."""
        uses = (*DIRECTIONS, "gm_loads", "gm_stores", "atomics")
        return sum(any(use in core for use in uses) for core in self.per_core)

    def sentence(self) -> str:
        """Return what the launch did in a sentence."""
        copies = sum(self.copies(d)[0] for d in DIRECTIONS)
        read, written = self.bytes_moved()
        loads, stores = self.total("gm_loads"), self.total("gm_stores")
        said = [f"{self.working():,} of {self.clusters * self.cores:,} cores worked"]
        if copies:
            said.append(f"{copies:,} copies read {read:,} bytes and wrote {written:,}")
        if loads + stores:
            said.append(f"{loads:,} loads and {stores:,} stores of single values in device memory")
        return f"{self.kernel}<<<{self.clusters}, {self.cores}>>>: {'; '.join(said)}"

    def loads(self) -> np.ndarray[Any, Any]:
        """Return the bytes that each core moved: [cluster, core]."""
        moved = np.zeros((self.clusters, self.cores), np.int64)
        for core in self.per_core:
            moved[core["cluster"], core["core"]] = sum(core.get(d, {}).get("bytes", 0) for d in DIRECTIONS)
        return moved

    def document(self) -> dict[str, Any]:
        """Return the counters as `--json` prints them."""
        loads = self.loads()
        mean = float(loads.mean())
        directions = {d: self.copies(d) for d in DIRECTIONS}
        idle = int((loads == 0).sum())
        return {
            "kernel": self.kernel,
            "clusters": self.clusters,
            "cores": self.cores,
            "busy_cores": loads.size - idle,
            "device_cores": self.available * self.cores,
            "copies": {
                d: {
                    "copies": n,
                    "bytes": nbytes,
                    "mean_burst": nbytes / n,
                    "bytes_per_line": nbytes / lines if lines else None,
                }
                for d, (n, nbytes, lines) in directions.items()
                if n
            },
            **{name: self.total(name) for name in COUNTERS},
            "lm_high_water": max((core.get("lm", 0) for core in self.per_core), default=0),
            "sm_high_water": self.sm,
            "idle_cores": idle,
            "busiest_over_mean": float(loads.max()) / mean if mean else None,
        }


def describe_launches(launches: Sequence[LaunchProfile]) -> str:
    """Say what launches did, a line for all that did the same."""
    same = Counter(launch.sentence() for launch in launches)
    return "\n".join(f"{sentence}{f' ({n:,} times)' if n > 1 else ''}" for sentence, n in same.items())


def describe_findings(found: Counter[str], schedules: range) -> str:
    """Say how many findings there were in the schedules of some seeds."""
    counts = ", ".join(f"{n} {severity}{'s' if n > 1 else ''}" for severity, n in sorted(found.items())) or "none"
    last = f" to {schedules[-1]}" if len(schedules) > 1 else ""
    fences = ", with the fences of -fix-mfence=all" if os.environ.get(FIX_MFENCE) == "all" else ""
    return f"findings: {counts}, with {'seeds' if last else 'seed'} {schedules[0]}{last}{fences}"


class Record:
    """What the emulator wrote since the last look: launches, and findings."""

    def __init__(self, launches: Path, findings: Path) -> None:
        self._read = {path: path.stat().st_size if path.exists() else 0 for path in (launches, findings)}
        self._launches, self._findings = launches, findings

    def launches(self, available: int) -> list[LaunchProfile]:
        """Return the launches; the device has `available` clusters."""
        found = self._lines(self._launches)
        return [LaunchProfile(f["kernel"], f["clusters"], f["cores"], available, f["sm"], f["per_core"]) for f in found]

    def findings(self) -> Counter[str]:
        """Return how many findings there are of each severity."""
        return Counter(finding["severity"] for finding in self._lines(self._findings))

    def _lines(self, path: Path) -> list[Any]:
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read[path])
            new = file.read()
        self._read[path] += len(new)
        return [json.loads(line) for line in new.splitlines()]


@contextmanager
def record() -> Iterator[Record]:
    """Let the emulator write launches and findings to files: those that the environment names, or temporary ones."""
    with tempfile.TemporaryDirectory() as folder:
        before = {name: os.environ.get(name) for name in (PROFILE, REPORT)}
        for name, value in before.items():
            os.environ[name] = value or str(Path(folder, name))
        try:
            yield Record(Path(os.environ[PROFILE]), Path(os.environ[REPORT]))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
