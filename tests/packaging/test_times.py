"""Test what tools/times.py says of a tox run and its budgets, and that toxfile.py measures each environment alone."""

from __future__ import annotations

import configparser
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import calibration
import pytest
import times

ROOT = Path(__file__).resolve().parents[2]


class Run:
    """A folder that tox has left, and a file of budgets."""

    def __init__(self, root: Path) -> None:
        self.folder, self.budgets = root / "times", root / "budgets.tsv"
        self.folder.mkdir()
        self.allow()

    def allow(self, **budgets: int) -> None:
        rows = "".join(f"{name}\t{seconds}\n" for name, seconds in budgets.items())
        self.budgets.write_text(f"{times.COLUMNS}\n{rows}")

    def spend(self, environment: str, run: float, **changes: Any) -> None:
        row = {
            "environment": environment,
            "proves": True,
            "arguments": [],
            "exit": 0,
            "wall": {"create": 1.5, "install": 2, "run": 30.25},
            "processor": {"create": 1, "install": 400.0, "run": run},
            "calibration": [1.0, 1.0],
            "commands": [["pytest", 30.25, run]],
            **changes,
        }
        (self.folder / f"{environment}.json").write_text(json.dumps(row))

    def test(self, environment: str, *rows: tuple[str, float, float], rest: str = "") -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / f"{environment}.tests").write_text(text + rest)

    def report(self, *more: str) -> int:
        return times.main(["--folder", str(self.folder), "--budgets", str(self.budgets), *more])


@pytest.fixture
def tox_run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_times_are_printed(tox_run, capsys):
    for name in ("lint", "docs"):
        tox_run.spend(name, 40)
    tox_run.test(
        "lint",
        ("tests/a.py::one[x|y]", 0.5, 0.25),
        ("tests/a.py::two", 2, 1.5),
        ("tests/b.py::three", 9, 0.1),
        rest='["tests/b.py::fo',
    )
    tox_run.test("docs", ("tests/a.py::two", 2, 1.5))
    assert tox_run.report("--slowest", "2") == 0
    shown = capsys.readouterr().out
    assert "| all         |    0 |    3.0 |     4.0 | 60.5 | 67.5 |     882.0 |" in shown
    assert "| tests/a.py |     2 | docs, lint   |  4.5 |       3.2 |" in shown
    slow = [line for line in shown.splitlines() if "::" in line]
    assert [line.split()[1] for line in slow] == ["tests/b.py::three", "tests/a.py::two"]
    tox_run.report()
    assert "one[x\\|y]" in capsys.readouterr().out
    assert times.main(["--folder", str(tox_run.folder.parent / "none")]) == 1
    assert "run tox first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("budget", "run", "calibrated", "good"),
    [
        (100, 109.9, [1.0], True),
        (100, 110.1, [1.0], False),
        (100, 20.0, [1.0], True),
        # Twice as slow, by what was measured on average
        (100, 219.0, [1.5, 2.0, 2.5], True),
        (100, 221.0, [1.5, 2.0, 2.5], False),
        # Twice as fast
        (100, 54.0, [0.5], True),
        (100, 56.0, [0.5], False),
        # A few seconds
        (2, 4.9, [1.0], True),
        (2, 5.1, [1.0], False),
    ],
)
def test_a_budget_is_judged_at_the_speed_of_the_machine(tox_run, capsys, budget, run, calibrated, good):
    tox_run.allow(lint=budget)
    tox_run.spend("lint", run, calibration=calibrated)
    assert tox_run.report("--check") == (not good)
    assert ("lint took" in capsys.readouterr().out) is not good
    assert tox_run.report() == 0


def test_an_excess_names_the_files_that_took_most(tox_run, capsys):
    tox_run.allow(core=100, devices=100, docs=100)
    tox_run.spend("core", 300, calibration=[2.0])
    files = {"a": 1.0, "b": 90.0, "c": 50.0, "d": 60.0}
    tox_run.test("core", *((f"tests/{name}.py::{i}", 1, s / 2) for name, s in files.items() for i in (1, 2)))
    tox_run.spend("devices", 180, commands=[["check cpu", 9, 30.0], ["check opencl", 9, 150.0]])
    tox_run.test("docs", ("tests/elsewhere.py::one", 1, 500.0))
    tox_run.spend("docs", 100)
    assert tox_run.report("--check") == 1
    tables, core, devices, rule = capsys.readouterr().out.rstrip().rsplit("\n\n", 3)
    assert core.splitlines() == [
        "core took 150.0 calibrated processor seconds (300.0 at slowness 2.00), 50% over its budget of 100.",
        "It took most in tests/b.py (90.0), tests/d.py (60.0), tests/c.py (50.0).",
    ]
    assert devices.endswith("It took most in check opencl (150.0), check cpu (30.0).")
    assert rule.startswith("Take as much time away, or raise the figure")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables.splitlines()[-3:]]
    assert rows == [
        ["core", "300", "2.00", "150.0", "100", "150%", "EXCESS"],
        ["devices", "180", "1.00", "180.0", "100", "180%", "EXCESS"],
        ["docs", "100", "1.00", "100.0", "100", "100%", ""],
    ]


def test_what_runs_everywhere_needs_a_budget(tox_run, capsys):
    tox_run.spend("lint", 1)
    assert tox_run.report("--check") == 1
    assert "lint has no budget" in capsys.readouterr().out
    tox_run.spend("lint", 1, proves=False)
    assert tox_run.report("--check") == 0
    assert "not judged: it is for one purpose" in capsys.readouterr().out


def test_a_run_without_calibration_is_not_trusted(tox_run, capsys):
    tox_run.allow(lint=1000)
    tox_run.spend("lint", 1, calibration=[])
    assert tox_run.report("--check") == 1
    # As an older toxfile.py wrote it
    row = {"environment": "lint", "exit": 0, "commands": [["ruff", 1.0]]}
    row |= {"wall": {"create": 1, "install": 2, "run": 3}, "processor": {"create": 1, "install and run": 5}}
    (tox_run.folder / "lint.json").write_text(json.dumps(row))
    assert tox_run.report("--check") == 1
    assert capsys.readouterr().out.count("lint was not calibrated") == 2


@pytest.mark.parametrize("change", [{"exit": 1}, {"arguments": ["-k", "one"]}])
def test_a_part_of_an_environment_is_not_judged(tox_run, capsys, change):
    tox_run.allow(lint=100)
    tox_run.spend("lint", 1000, **change)
    assert tox_run.report("--check") == 0
    assert "not judged: it " in capsys.readouterr().out
    tox_run.report("--set")
    assert times.read_budgets(tox_run.budgets) == {"lint": 100}


def test_budgets_are_set_from_the_last_run(tox_run):
    tox_run.allow(types=7, lint=100)
    tox_run.spend("lint", 30.2, calibration=[2.0])
    tox_run.spend("docs", 0.0)
    tox_run.spend("bench", 9.0, proves=False)
    assert tox_run.report("--set", "--check") == 0
    assert tox_run.budgets.read_text() == f"{times.COLUMNS}\ndocs\t1\nlint\t16\ntypes\t7\n"


@pytest.mark.parametrize(
    "line", ["lint", "lint 3", "lint\t0", "lint\t-3", "lint\tsoon", "\t3", "docs\t3", "<<<<<<< HEAD"]
)
def test_a_broken_file_of_budgets_is_refused(tox_run, line):
    tox_run.budgets.write_text(f"{times.COLUMNS}\ndocs\t1\n{line}\n")
    tox_run.spend("docs", 1)
    with pytest.raises(SystemExit, match=r"budgets\.tsv:3: "):
        tox_run.report("--check")
    tox_run.budgets.write_text(f"{line}\n")
    with pytest.raises(SystemExit, match="the first line is"):
        tox_run.report("--check")


def expand(name: str) -> list[str]:
    """Return the environments that a name with braces stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def test_the_budgets_are_of_environments_and_complete_for_readme_s_command():
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(ROOT / "tox.ini")
    known = {e for s in ini.sections() if s.startswith("testenv:") for e in expand(s.removeprefix("testenv:"))}
    assert {"packaging", "packaging-full", "py310-core", "lint"} <= known
    budgets = set(times.read_budgets(times.BUDGETS))
    assert budgets <= known
    assert set(ini["tox"]["env_list"].split()) <= budgets


def test_slowness_is_what_the_work_takes(monkeypatch):
    clock = iter([5.0, 5.0 + 2 * calibration.REFERENCE])
    monkeypatch.setattr(calibration.time, "thread_time", lambda: next(clock))
    assert calibration.measure_slowness() == pytest.approx(2)


def test_a_calibration_measures_while_commands_run(monkeypatch):
    monkeypatch.setattr(calibration, "INTERVAL", 0.01)
    measured = iter(range(1, 10**9))
    monkeypatch.setattr(calibration, "measure_slowness", lambda: next(measured))
    short = calibration.Calibration()
    assert short.stop() == []
    own = calibration.Calibration()
    own.start()
    own.start()
    while next(measured) < 10:
        pass
    assert len(own.stop()) >= 2


INI = """
[tox]
env_list = long, short
no_package = true
[testenv]
commands_pre = python burn.py 0.2
[testenv:long]
commands =
    python burn.py 1.2
    python -c "import subprocess, sys; subprocess.run([sys.executable, 'burn.py', '0.4'])"
[testenv:short]
commands = python burn.py 1.0
"""
BURN = """
import sys, time
while time.process_time() < float(sys.argv[1]):
    pass
"""


def test_environments_that_run_at_once_are_measured_apart(tmp_path):
    """Starting Python takes less than 0.8 seconds, and the time of the other environment is more than that."""
    pytest.importorskip("tox")
    (tmp_path / "tox.ini").write_text(INI)
    (tmp_path / "burn.py").write_text(BURN)
    (tmp_path / "toxfile.py").write_bytes((ROOT / "toxfile.py").read_bytes())
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/calibration.py").write_bytes((ROOT / "tools/calibration.py").read_bytes())
    given = {name: value for name, value in os.environ.items() if not name.startswith(("TOX", "VIRTUAL_ENV"))}
    command = [sys.executable, "-m", "tox", "-p", "2", "--", "an argument"]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["environment"]: row for row in times.environments(tmp_path / ".tox/times")}
    for name, run in (("long", 1.6), ("short", 1.0)):
        assert 0.2 <= rows[name]["processor"]["install"] < 1
        assert run <= rows[name]["processor"]["run"] < run + 0.8
        assert len(rows[name]["calibration"]) >= 2
        assert rows[name]["proves"]
        assert rows[name]["arguments"] == ["an argument"]
    _, first, second = (processor for *_, processor in rows["long"]["commands"])
    assert first >= 1.2
    assert second >= 0.4
