"""Test commands whose standard streams are closed or full, and variables of the environment that are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "ops": ["ops", "add"],
    "check": ["check", "--device", "cpu:0", "--op", "abs", "--quick", "--no-isolation"],
    "version": ["--version"],
    "json": ["ops", "--json"],
}
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")


def run(words: list[str], redirect: str, **settings: str) -> tuple[int, str, str]:
    """Run a command in a shell with a redirection; return its status and what is left of both outputs."""
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "isokern", *words]
    # Without settings of plug-ins that are not asked for
    given = {n: v for n, v in os.environ.items() if not n.startswith("ISOKERN_")}
    given |= {"ISOKERN_PLUGINS": "cpu", **settings}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given, timeout=100)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.quick("check", "version")
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_full_output_is_one_line_and_a_status(words: list[str]) -> None:
    status, _, errors = run(words, ">/dev/full")
    assert status == 1
    assert errors.splitlines()[-1].endswith(": No space left on device")
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


@pytest.mark.quick(">&--check", "<&- >&--ops")
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("redirect", [">&-", ">&- 2>&-", "<&- >&-"])
def test_a_closed_output_is_no_error(words: list[str], redirect: str) -> None:
    """As a daemon's: what was asked for is done, and what is printed goes nowhere."""
    status, _, errors = run(words, redirect)
    assert (status, "Traceback" in errors) == (0, False), errors


def test_a_closed_error_stream_leaves_the_output() -> None:
    assert "1 of" in (out := run(COMMANDS["check"], "2>&-")[1]) or "abs" in out


def test_a_closed_stream_does_not_become_a_file(tmp_path: Path) -> None:
    """Had nothing taken the closed descriptors, the report would have one, and get what is printed."""
    path = tmp_path / "report.jsonl"
    status, _, _ = run([*COMMANDS["check"], "--report", str(path)], "<&- >&- 2>&-")
    assert status == 0
    assert all(line.startswith('{"') for line in path.read_text().splitlines())


@pytest.mark.quick("x")
@pytest.mark.parametrize("columns", ["x", "", "-3", "0", "99999999999"])
def test_columns_that_are_no_number(columns: str) -> None:
    status, out, errors = run(["why", "abs", "--device", "cpu:0"], "", COLUMNS=columns)
    assert (status, "Traceback" in errors) == (0, False), errors
    assert "abs" in out
