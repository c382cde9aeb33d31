"""Test a check that a signal ends: what ran is told, the reports are there, and nobody sees a worker's traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "isokern", "check", "--device", "cpu:0", "--op", "add", "--op", "cast", "-j", "2"]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found by /proc")


def list_workers(parent: int) -> list[int]:
    """Return the processes of workers that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, words = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if int(state.rpartition(")")[2].split()[1]) == parent and b"isokern.conformance.worker" in words:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("whole", [True, False], ids=["group", "process"])
def test_an_ended_check_tells_what_ran(number: signal.Signals, whole: bool, tmp_path: Path) -> None:
    """A terminal sends a signal to all processes of the group; `kill` to one."""
    report, given = tmp_path / "report.jsonl", {n: v for n, v in os.environ.items() if not n.startswith("ISOKERN_")}
    process = subprocess.Popen(
        [*COMMAND, "--report", str(report)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**given, "ISOKERN_PLUGINS": "cpu"},
    )
    limit = time.monotonic() + 60
    while not (workers := list_workers(process.pid)) and time.monotonic() < limit:
        time.sleep(0.01)
    assert workers, "no worker has begun"
    time.sleep(1)
    (os.killpg if whole else os.kill)(process.pid, number)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"ended by {number.name}" in printed and re.search(r"\d+ of \d+ cases were not run", printed)
    assert "Traceback" not in printed and "fail-" not in printed
    assert report.exists()
    assert not any(Path(f"/proc/{w}").exists() for w in workers), "no worker goes on"
