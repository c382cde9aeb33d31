"""Test which cases are chosen.

All slices add up to all cases, and all turns to all quick ones. Choices combine, and tools/conformance.py derives its
choice from the commit.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from types import ModuleType

import conformance
import pytest

from isokern.backend import Device
from isokern.conformance.derive import device_cases
from isokern.conformance.suite import Choice, Part, quick, take_slice, take_turn
from isokern.ops import find
from isokern.oracle.cases import Case

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = ("abs", "add", "cast", "eye", "iota", "rms_norm", "softmax")


@pytest.fixture(scope="module")
def cases(cpu: Device) -> list[Case]:
    return device_cases(cpu, [find(name) for name in OPERATORS])


def ids(cases: list[Case]) -> list[str]:
    return [c.id for c in cases]


def test_the_parts_together_are_all_cases_once(cases: list[Case]) -> None:
    found = Counter(i for n in range(1, 8) for i in ids(take_slice(cases, Part(n, 7))))
    assert found == Counter(ids(cases))
    owners = [{(c.operator.name, c.dtype) for c in take_slice(cases, Part(n, 7))} for n in range(1, 8)]
    assert sum(map(len, owners)) == len(set().union(*owners)), "what shares a program is in one part"


def test_every_turn_has_every_kernel_in_f32_and_all_turns_have_everything(cases: list[Case]) -> None:
    chosen = quick(cases)
    turns = [take_turn(chosen, Part(n, 8)) for n in range(1, 9)]
    every = {i for turn in turns for i in ids(turn)}
    assert every == set(ids(chosen))
    for turn in turns:
        judged = {c.operator.name for c in turn if c.calls}
        assert judged >= set(OPERATORS) - {"add", "eye"}, "a row, and what is made of others, take turns"
        for name in ("iota", "softmax"):
            types = {c.types[0].name for c in turn if c.operator.name == name and c.types}
            assert "F32" in types
            assert len(types) <= 3
    assert max(map(len, turns)) < 0.6 * len(chosen)
    others = [{c.dtype for c in turn if c.operator.name == "cast"} for turn in turns]
    assert max(map(len, others)) - min(map(len, others)) <= 1, "as evenly as can be"


def test_choices_add_up(cases: list[Case]) -> None:
    assert Choice().of(cases) == cases
    assert Choice(quick=True).of(cases) == quick(cases)
    assert Choice(operators=frozenset()).of(cases) == []
    softmax = Choice(operators=frozenset({"softmax"})).of(cases)
    assert ids(softmax) == [c.id for c in cases if c.operator.name == "softmax"]
    part = Part(3, 9)
    both = Choice(quick=True, turn=Part(1, 8), slice=part, operators=frozenset({"softmax"})).of(cases)
    wanted = {*ids(take_turn(quick(cases), Part(1, 8))), *ids(take_slice(cases, part)), *ids(softmax)}
    assert ids(both) == [i for i in ids(cases) if i in wanted]
    assert len(both) > len(softmax) > len(quick(softmax))
    small = Choice(quick=True, small=True).of(cases)
    large = {c.id for c in cases if c.sample.size in ("wide", "long")}
    assert large
    assert ids(small) == [i for i in ids(quick(cases)) if i not in large]
    assert {c.operator for c in small} == {c.operator for c in cases}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return tools/conformance.py for a checkout in `tmp_path`."""
    monkeypatch.setattr(conformance, "ROOT", tmp_path)
    monkeypatch.setattr(conformance, "STATUS", tmp_path / "status.md")
    return conformance


def commit(where: Path) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "One"], cwd=where, check=True)
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=where, check=True, capture_output=True, text=True).stdout


def test_the_moving_part_goes_on_with_every_commit(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tool.moving(["--moving", "--turning"]) == []
    assert "left out and all quick cases run: fatal: not a git repository" in capsys.readouterr().out
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    green = commit(tmp_path).strip()
    assert tool.moving(["--moving"]) == ["--slice", f"2/{tool.PARTS}"]
    assert "names no commit" in capsys.readouterr().out
    (tmp_path / "status.md").write_text(f"# Status\n\n<!-- green: {green} -->\n")
    commit(tmp_path)
    assert tool.moving(["--moving"]) == ["--slice", f"3/{tool.PARTS}", "--since", green]
    assert tool.moving(["--turning"]) == ["--turn", f"3/{tool.TURNS}"]
    (tmp_path / "status.md").write_text(f"# Status\n\n<!-- green: {'0' * 40} -->\n")
    assert tool.moving(["--moving"]) == ["--slice", f"3/{tool.PARTS}"]
    said = capsys.readouterr().out
    assert said.startswith("the cases of what has changed are left out: ")
    assert said.count("\n") == 1
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", tmp_path.as_uri(), shallow], check=True)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tool, "ROOT", shallow)
        assert tool.moving(["--moving"]) == []
    assert "this clone is shallow" in capsys.readouterr().out
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tool.moving(["--moving"]) == []
    assert (
        capsys.readouterr().out == "the cases that move with the commit are left out: there is no git on this machine\n"
    )


def test_each_backend_is_checked_with_the_options_and_a_report_is_kept_on_request(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(tool, "KEPT", tmp_path / "reports")
    monkeypatch.setattr(tool, "isokern", lambda *arguments: (asked.append(arguments), (0, {}))[1])
    assert tool.main(["cpu", "kunlun_sim", "--claimed", "--quick"]) == 0
    assert asked == [
        ("check", "--device", "cpu", "--claimed", "--quick"),
        ("check", "--device", "kunlun_sim", "--claimed", "--quick"),
    ]
    assert not (tmp_path / "reports").exists()
    tool.main(["cpu", "--keep", "--claimed"])
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["cpu.json"]
