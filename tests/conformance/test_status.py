"""Test what tools/status.py says of a run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import status


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout in which two environments have run."""
    monkeypatch.setattr(status, "ROOT", tmp_path)
    monkeypatch.setattr(status, "STATUS", tmp_path / "docs" / "status.md")
    for folder in ("docs", ".tox/times", ".tox/reports"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".gitignore").write_text(".tox/\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path)
    ran(tmp_path, "lint", 0)
    ran(tmp_path, "conformance-cpu", 0)
    verdicts = {"pass": 7, "unsupported": 2, "fail-value": 0}
    report = {"backend": "cpu", "status": "passed", "check": {"summary": {"cpu:0": verdicts}}}
    (tmp_path / ".tox/reports/cpu.json").write_text(json.dumps(report))
    return tmp_path


def commit(where: Path) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "add", "-A"], cwd=where, check=True)
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "One"], cwd=where, check=True)


def ran(project: Path, environment: str, exit_status: int) -> None:
    row = {
        "environment": environment,
        "exit": exit_status,
        "wall": {"create": 1.5, "install": 2, "run": 30.25},
        "processor": {"create": 1, "install": 9.5, "run": 30.5},
        "commands": [["true", 30.25]],
    }
    (project / f".tox/times/{environment}.json").write_text(json.dumps(row))


def test_a_green_run_is_kept_for_since(project: Path) -> None:
    assert status.main(["lint", "conformance-cpu"]) == 0
    text = status.STATUS.read_text()
    assert status.faults(text) == []
    assert status.last_green(text) == status.git("rev-parse", "HEAD")
    assert "| conformance-cpu | passed  | 33.8 |      41.0 |" in text
    assert "| all             |         | 67.5 |      82.0 |" in text
    assert "| cpu:0  |            7 |       0 |       2 |      0 |" in text


def test_the_last_green_commit_stays_where_one_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status.main(["lint", "conformance-cpu"])
    green = status.git("rev-parse", "HEAD")
    commit(project)
    for environment, exit_status in (("lint", 1), ("conformance-cpu", 3)):
        ran(project, environment, exit_status)
    os.utime(project / ".tox/times/lint.json")
    assert status.main(["lint", "conformance-cpu", "docs"]) == 1
    text = status.STATUS.read_text()
    assert status.faults(text) == []
    assert status.last_green(text) == green != status.git("rev-parse", "HEAD")
    assert all(word in text for word in ("failed (1)", "skipped: no device", "| docs            | not run"))
    assert "not green: lint: failed (1)" in capsys.readouterr().out


def test_what_is_older_than_the_commit_has_not_run(project: Path) -> None:
    os.utime(project / ".tox/times/lint.json", (1e9, 1e9))
    assert status.main(["lint", "conformance-cpu"]) == 1
    assert status.last_green(status.STATUS.read_text()) is None
    assert status.faults(status.STATUS.read_text()) == []


def test_an_edit_is_not_green(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "new.py").write_text("")
    assert status.main(["lint"]) == 1
    assert "not green: 1 files differ from the commit: new.py" in capsys.readouterr().out


def test_the_page_itself_is_no_edit(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status.main(["lint"])
    commit(project)
    status.STATUS.write_text(status.STATUS.read_text() + "\n")
    status.main(["lint"])
    assert "differ from the commit" not in capsys.readouterr().out


def test_a_page_that_contradicts_itself_is_found(project: Path) -> None:
    status.main(["lint"])
    text = status.STATUS.read_text()
    commit = status.last_green(text)
    for broken in (
        text.replace(f"green: {commit}", f"green: {'0' * 40}"),
        text.replace(f"<!-- green: {commit} -->\n", ""),
        text.replace(f"`{commit}`, on 2", f"`{commit[:8]}`, on 2"),
        text.replace("# Status", "Status"),
        text.replace("| lint        | passed  | 33.8", "| lint        | passed  | soon"),
    ):
        assert broken != text
        assert status.faults(broken), broken
