"""Test docs/status.md: what tools/status.py says is proved, is stale, was never proved, or cannot be told."""

from __future__ import annotations

from pathlib import Path

import prove
import pytest
import status
from conformance import Proof

from isokern.backend import Device
from isokern.conformance.ledger import Entry, Ledger

ROOT = Path(__file__).resolve().parents[2]
INI = """
[testenv]
reads =
    src
    tests/b: docs
[testenv:unit{,-full}]
labels =
    full: full
commands = python tools/prove.py {env_name} -- pytest {posargs:tests}
[testenv:style]
labels = full
commands =
    python tools/prove.py {env_name} -- ruff check
    ruff format
"""
FILES = {
    "tox.ini": INI,
    "src/a.py": "",
    "docs/page.md": "",
    "tests/a/test_a.py": "",
    "tests/a/test_more.py": "",
    "tests/b/test_b.py": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def enter(root: Path, *names: str, day: str = "2026-11-28") -> None:
    """Write entries of the fixture's environments as they would be for the tree as it is."""
    tree = prove.Tree(root)
    commands = [c for e in tree.environments if "full" in e.labels for c in prove.list_commands(e)]
    for subject in (s for c in commands for s in tree.list_subjects(c) if s.name in names):
        entry = prove.ledger_module.Entry(subject.name, 3, day, "Python 3.11", "x86_64")
        prove.ledger_module.Ledger(root / prove.LEDGER).update([entry.seal(tree.state(subject)(()))])


def test_each_test_file_is_proved_stale_or_neither(project: Path) -> None:
    enter(project, "unit-full/tests/a/test_a.py", "unit-full/tests/b/test_b.py", "style/ruff check")
    unit, style = status.judge_environments(project)
    assert (unit.name, unit.proved, unit.stale) == ("unit-full", ["tests/a/test_a.py", "tests/b/test_b.py"], {})
    assert (unit.never, unit.tools, unit.machines) == (["tests/a/test_more.py"], {"Python 3.11"}, {"x86_64"})
    assert (style.name, style.proved, style.count) == ("style", ["ruff check"], 1)
    (project / "docs/page.md").write_text("edited")
    unit, style = status.judge_environments(project)
    assert unit.proved == ["tests/a/test_a.py"]
    assert unit.stale == {"2026-11-28": ["tests/b/test_b.py"]}
    assert style.count == 1
    (project / "docs/status.md").write_text("")
    assert status.judge_environments(project)[0].proved == unit.proved, "the page is not a part of what it judges"
    (project / "src/a.py").write_text("edited")
    assert [row.proved for row in status.judge_environments(project)] == [[], []]


def test_the_operators_of_a_proof(cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`isokern check` and the page agree on what an entry proves."""
    proof = Proof("cpu", "conformance-cpu", quick=True, operators=("iota", "var"), built={"ISOKERN_CPU_LEVELS": "all"})
    monkeypatch.setattr(status, "PROOFS", {"cpu-few": proof, "nosuch": Proof("nosuch", "x")})
    monkeypatch.setattr(prove, "LEDGER", str(tmp_path / "ledger.tsv"))
    row = status.judge_proof("cpu-few", ROOT)
    assert (row.proved, sorted(row.never), row.reason) == ([], ["iota", "var"], "")

    from typer import Typer
    from typer.testing import CliRunner

    from isokern.cli.check import check

    monkeypatch.chdir(ROOT)
    app = Typer()
    app.command()(check)
    words = ["--device", "cpu", "--no-isolation", *proof.options, "--ledger", prove.LEDGER, "--proof", "cpu-few"]
    conditions = [word for text in proof.conditions for word in ("--condition", text)]
    assert CliRunner().invoke(app, [*words, *conditions]).exit_code == 0
    row = status.judge_proof("cpu-few", ROOT)
    assert (sorted(row.proved), row.never) == (["iota", "var"], [])
    known = Ledger(tmp_path / "ledger.tsv")
    known.update([Entry("cpu-few/var", 1, "2026-01-02").seal("of another tree")], ["cpu-few/var"])
    row = status.judge_proof("cpu-few", ROOT)
    assert (row.proved, row.stale) == (["iota"], {"2026-01-02": ["var"]})
    assert "nosuch" in status.judge_proof("nosuch", ROOT).reason


def row(name: str, proved: int, stale: int = 0, never: int = 0) -> status.Row:
    found = status.Row(name, [f"p{i}" for i in range(proved)], never=[f"never{i}" for i in range(never)])
    found.stale = {"2026-11-27": [f"stale{i:03}" for i in range(stale)]} if stale else {}
    return found


def test_the_first_line_is_the_share() -> None:
    text = status.page([row("cpu", 446), row("opencl", 440, 5, 1), status.Row("cuda", reason="no GPU")])
    assert text.splitlines()[2] == (
        "**99.3 %** of 892 subjects are proved for this tree; nothing can be told here of cuda."
    )
    assert "cannot be told here: no GPU" in text
    assert "- **opencl**, stale, last proved on 2026-11-27: `stale000`, `stale001`" in text
    assert "- **opencl**, never proved: `never0`" in text
    assert status.faults(text) == []
    every = status.page([row("cpu", 2000)])
    assert every.splitlines()[2] == "**100.0 %** of 2,000 subjects are proved for this tree."
    assert "What is not proved" not in every
    assert status.page([row("cpu", 1999, 1)]).startswith("# Status\n\n**99.9 %**"), "100 only if all are"
    assert status.page([]).splitlines()[2].startswith("**0.0 %** of 0")


def test_a_long_list_is_cut() -> None:
    (line,) = row("cpu", 0, 400).list_open()
    assert len(line) < status.LONGEST + 200
    assert line.endswith(" more")
    shown = line.count("`") // 2
    assert f"and {400 - shown} more" in line


def test_a_page_that_contradicts_itself_is_found() -> None:
    text = status.page([row("cpu", 446), row("opencl", 440, 5, 1)])
    for broken in (
        text.replace("**99.3 %**", "**100.0 %**"),
        text.replace("of 892", "of 891"),
        text.replace("| 440 ", "| 445 "),
        text.replace("# Status", "Status"),
        text.replace("| proof or environment", "| proof"),
        "# Status\n",
    ):
        assert broken != text
        assert status.faults(broken), broken


def test_the_page_is_compared(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("cpu", 3, 1)]
    monkeypatch.setattr(status, "judge", lambda root: rows)
    assert status.main(["--check"], project) == 1
    assert status.main([], project) == 0
    text = (project / "docs/status.md").read_text()
    assert status.main(["--check"], project) == 0
    assert "75.0 % of 4 subjects are proved for this tree." in capsys.readouterr().out
    rows[:] = [row("cpu", 4)]
    assert status.main(["--check"], project) == 1
    assert (project / "docs/status.md").read_text() == text, "and nothing is written"
    assert "docs/status.md differs" in capsys.readouterr().out


def test_every_proof_is_asked_for_in_a_process_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def run(command: list[str], **options: object) -> object:
        name = command[command.index("--proof") + 1]
        asked[name] = options["env"]
        return type("Done", (), {"returncode": 1, "stderr": f"broken {name}", "stdout": ""})

    monkeypatch.setattr(status.subprocess, "run", run)
    monkeypatch.setattr(status, "unpack_wheel", lambda proof, to: "")
    monkeypatch.setenv("ISOKERN_XPU_SEED", "9")
    found = [status.ask_for_proof(name, ROOT) for name in status.PROOFS]
    assert [r.reason for r in found] == [f"broken {name}" for name in status.PROOFS]
    assert asked["kunlun_sim-checked-2"]["ISOKERN_XPU_SEED"] == "2"
    assert "ISOKERN_XPU_SEED" not in asked["cpu"]
    assert "ISOKERN_CUDA_SIM_SANITIZE" not in asked["cuda_sim-sanitize"], "it cannot be opened without the sanitizer"


def test_the_committed_page_is_whole() -> None:
    assert status.faults((ROOT / "docs" / "status.md").read_text(encoding="utf-8")) == []
