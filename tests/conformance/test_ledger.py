"""Test the ledger of proofs: what it believes, how it is written, and what `isokern check --ledger` runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import isokern.cli.check
from isokern.backend import Device
from isokern.conformance.ledger import COLUMNS, TITLE, Entry, Ledger
from isokern.status import InvalidArgument

ROOT = Path(__file__).resolve().parents[2]


def entry(subject: str = "cpu/softmax", state: str = "state", **fields: object) -> Entry:
    known = {"passed": 396, "day": "2026-11-28", "tools": "gcc 12.2.0", "machine": "x86_64 avx2"}
    return Entry(subject, **{**known, **fields}).seal(state)


def always(state: str) -> object:
    return lambda uses: state


def test_an_entry_proves_one_state_with_its_own_fields() -> None:
    found = entry(uses=("fill", "generic"))
    assert found.proves("state")
    assert not found.proves("other")
    assert Entry.parse(found.line, date.today()) == found
    for name, value in {"passed": 397, "day": "2026-11-29", "tools": "gcc 13", "machine": "arm64", "uses": ()}.items():
        assert not Entry(**{**vars(found), name: value}).proves("state"), f"a changed {name} is noticed"


def test_entries_are_kept_sorted_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.tsv"
    Ledger(path).update([entry("cpu/topk"), entry("cpu/add"), entry("opencl/add", tools="PoCL 3.0")])
    lines = path.read_text().splitlines()
    assert lines[0] == TITLE
    assert [line.split("\t")[0] for line in lines[1:]] == ["cpu/add", "cpu/topk", "opencl/add"]
    known = Ledger(path)
    assert known.complaints == []
    assert known.proof("cpu/add", always("state"), "gcc 12.2.0") is not None
    assert known.proof("cpu/add", always("state")) is not None, "made with any tools"
    assert known.proof("cpu/add", always("state"), "clang 19") is None
    assert known.proof("cpu/add", always("later")) is None
    assert known.proof("cpu/mul", always("state")) is None


def test_a_new_entry_replaces_that_of_the_same_machine_and_failures_remove_all(tmp_path: Path) -> None:
    known = Ledger(tmp_path / "ledger.tsv")
    known.update([entry(machine="x86_64 avx2"), entry(machine="x86_64 avx512f")])
    known.update([entry(machine="x86_64 avx2", passed=400, state="later")])
    assert sorted(e.passed for e in known.entries("cpu/softmax")) == [396, 400]
    assert known.proof("cpu/softmax", always("state")) is not None
    assert known.proof("cpu/softmax", always("later")) is not None
    known.update(failed=["cpu/softmax"])
    assert Ledger(known.path).entries("cpu/softmax") == []


def test_writers_take_turns(tmp_path: Path) -> None:
    """Two machines' or processes' results are merged: nothing of either is lost."""
    path = tmp_path / "ledger.tsv"

    def write(who: int) -> None:
        for n in range(20):
            Ledger(path).update([entry(f"cpu/op{who}_{n}")])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(path.read_text().splitlines()) == 81
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.tsv"], "no partial file is left"


GOOD = entry().line
BAD = {
    "cut": (GOOD[: len(GOOD) // 2], "columns of 7"),
    "cut in its digest": (GOOD.replace(entry().digest, entry().digest[:7]), "is not a digest"),
    "an unfinished merge": ("<<<<<<< HEAD", "a mark of an unfinished merge"),
    "too many columns": (GOOD + "\tmore", f"it has {COLUMNS + 1} columns of {COLUMNS}"),
    "a count that is text": (GOOD.replace("\t396\t", "\tall\t"), "its count is missing"),
    "a huge count": (GOOD.replace("\t396\t", "\t" + "9" * 400 + "\t"), "its count is missing"),
    "no subject": (GOOD.replace("cpu/softmax", ""), "its subject or its count is missing"),
    "no day": (GOOD.replace("2026-11-28", "28 Nov"), "isoformat"),
    "the future": (GOOD.replace("2026-11-28", f"{date.today() + timedelta(days=30)}"), "is yet to come"),
    "empty": ("", "it has 1 columns of 7"),
    "bytes": ("\ufffd\x00\x01", "columns of 7"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_line_that_is_wrong_is_ignored_with_a_sentence(fault: str, tmp_path: Path) -> None:
    line, reason = BAD[fault]
    path = tmp_path / "ledger.tsv"
    path.write_text(f"{TITLE}\n{line}\n{entry('cpu/topk').line}\n")
    known = Ledger(path)
    (complaint,) = known.complaints
    assert complaint.startswith(f"{path}:2 is ignored: ")
    assert reason in complaint
    assert known.entries("cpu/softmax") == []
    assert known.proof("cpu/topk", always("state")) is not None, "the rest is read"
    known.update([entry("cpu/add")])
    assert Ledger(path).complaints == [], "the next writer leaves it out"


def test_a_forged_digest_or_count_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.tsv"
    for forged in (GOOD.replace(entry().digest, "0123456789abcdef0123"), GOOD.replace("\t396\t", "\t999\t")):
        path.write_text(f"{TITLE}\n{forged}\n")
        known = Ledger(path)
        assert known.complaints == [], "it can be read"
        assert known.proof("cpu/softmax", always("state")) is None, "and is out of date"


def test_a_file_of_another_version_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.tsv"
    for text in (f"{TITLE.replace('ledger 1', 'ledger 2')}\n{GOOD}\n", f"{GOOD}\n", "\x89PNG\r\n\x1a\n"):
        path.write_text(text)
        known = Ledger(path)
        assert "none of it is read" in known.complaints[0]
        assert known.entries("cpu/softmax") == []
    path.write_text("")
    assert Ledger(path).complaints == []


# With `isokern check`


def check(monkeypatch: pytest.MonkeyPatch, *arguments: str, where: Path = ROOT) -> Result:
    monkeypatch.chdir(where)
    app = typer.Typer()
    app.command()(isokern.cli.check.check)
    chosen = ["--device", "cpu", "--no-isolation", "--op", "iota", "--op", "causal_softmax", "--op", "std"]
    return CliRunner().invoke(app, [*chosen, *arguments])


def judged(result: Result) -> int:
    """Return how many cases ran."""
    return sum(json.loads(result.stdout)["summary"]["cpu:0"].values())


@pytest.mark.skipif(not (ROOT / "core/src/isokern/ops").exists(), reason="not in a checkout")
def test_what_is_proved_does_not_run_again(cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.tsv"
    options = ["--json", "--quick", "--ledger", str(path)]
    first = check(monkeypatch, *options)
    assert first.exit_code == 0, first.output
    assert "cpu-quick: 0 of 3 subjects are proved for this tree" in first.stderr
    cases = judged(first)
    assert cases > 50
    entries = {line.split("\t")[0]: line.split("\t") for line in path.read_text().splitlines()[1:]}
    assert set(entries) == {"cpu-quick/iota", "cpu-quick/causal_softmax", "cpu-quick/std"}
    assert sum(int(fields[2]) for fields in entries.values()) == cases
    assert "reduce_mean" in entries["cpu-quick/std"][6].split(), "what its calls are lowered to"
    again = check(monkeypatch, *options)
    assert (again.exit_code, judged(again)) == (0, 0), again.output
    assert "3 of 3 subjects are proved" in again.stderr
    other = check(monkeypatch, *options, "--proof", "cpu-sanitize")
    assert judged(other) == cases, "another way to judge has proofs of its own"
    under = [*options, "--condition", "ISOKERN_XPU_CHECK=1"]
    assert judged(check(monkeypatch, *under)) == cases, "so have other conditions"
    assert judged(check(monkeypatch, *under)) == 0
    assert check(monkeypatch, *options).exit_code == 0
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("cpu-quick/iota")) + "\n")
    assert 0 < judged(check(monkeypatch, *options)) < cases, "only what lost its proof"


@pytest.mark.skipif(not (ROOT / "core/src/isokern/ops").exists(), reason="not in a checkout")
def test_a_part_of_what_is_proved_runs_again_and_a_failure_removes_its_line(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.tsv"
    options = ["--json", "--quick", "--ledger", str(path)]
    cases = judged(check(monkeypatch, *options))
    some = check(monkeypatch, *options, "--recheck", "30", "--seed", "7")
    assert 0 < judged(some) < cases
    assert "--recheck 30 --seed 7" in some.stderr
    same = check(monkeypatch, *options, "--recheck", "30", "--seed", "7")
    assert judged(same) == judged(some), "the same seed draws the same cases"
    assert len(path.read_text().splitlines()) == 4, "and what holds stays"
    from isokern.conformance.run import Runner
    from isokern.oracle.cases import Case
    from isokern.oracle.verdicts import Outcome, Verdict

    real = Runner.run

    def break_iota(self: Runner, case: Case) -> Outcome:
        if case.operator.name == "iota":
            return Outcome(case.id, self.device.name, Verdict.FAIL_VALUE, "planted")
        return real(self, case)

    monkeypatch.setattr(Runner, "run", break_iota)
    found = check(monkeypatch, *options, "--recheck", "100")
    assert found.exit_code == 1
    subjects = [line.split("\t")[0] for line in path.read_text().splitlines()[1:]]
    assert subjects == ["cpu-quick/causal_softmax", "cpu-quick/std"]
    assert check(monkeypatch, *options).exit_code == 1, "a failure writes no proof"
    assert len(path.read_text().splitlines()) == 3


def test_nothing_is_proved_once_a_checker_found_something(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isokern.conformance.run import Runner
    from isokern.oracle.cases import Case
    from isokern.oracle.verdicts import Outcome

    path, log = tmp_path / "ledger.tsv", tmp_path / "findings"
    options = ["--quick", "--ledger", str(path), "--findings", str(log)]
    real = Runner.run

    def find(self: Runner, case: Case) -> Outcome:
        if case.operator.name == "iota":
            log.write_text("a race in iota")
        return real(self, case)

    with monkeypatch.context() as planted:
        planted.setattr(Runner, "run", find)
        result = check(monkeypatch, *options)
    assert result.exit_code == 1
    assert "a checker found something" in result.stderr
    proved = path.read_text() if path.exists() else ""
    assert "iota" not in proved
    log.unlink()
    assert check(monkeypatch, *options).exit_code == 0
    assert "iota" in path.read_text()


def test_a_worker_that_does_not_end_is_a_failure_of_the_runtime_in_any_check(cpu: Device, tmp_path: Path) -> None:
    """A check of kernels alone has no subject for the runtime, and hears of such a worker all the same."""
    from isokern.conformance.ledger import Ledger
    from isokern.conformance.proofs import Proofs, find_tree
    from isokern.conformance.runtime.check import checks
    from isokern.conformance.runtime.every import runtime_checks
    from isokern.conformance.runtime.processes import ENDS
    from isokern.oracle.verdicts import Outcome, Verdict

    runtime_checks()
    known = Ledger(tmp_path / "ledger.tsv")
    known.update([entry("cpu/runtime")])
    proofs = Proofs(cpu, known, find_tree(ROOT), "cpu", [])
    proofs.add(checks[ENDS], Outcome(ENDS, cpu.name, Verdict.FAIL_CRASH, "it hangs"))
    proofs.write()
    assert Ledger(known.path).entries("cpu/runtime") == []


def test_shards_share_a_ledger(cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.tsv"
    options = ["--json", "--quick", "--ledger", str(path)]
    counts = [judged(check(monkeypatch, *options, "--shard", f"{n}/5")) for n in range(1, 6)]
    whole = check(monkeypatch, *options)
    assert judged(whole) == 0
    assert "3 of 3" in whole.stderr
    assert sum(n > 0 for n in counts) > 1, "more than one shard had work"


def test_a_run_that_ends_early_keeps_what_it_proved(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.tsv"
    from isokern.conformance.run import Runner

    real, count = Runner.run, iter(range(100_000))

    def interrupt(self: Runner, case: object) -> object:
        if case.operator.name == "std" and next(count) == 3:
            raise KeyboardInterrupt
        return real(self, case)

    monkeypatch.setattr(Runner, "run", interrupt)
    check(monkeypatch, "--quick", "--ledger", str(path))
    subjects = {line.split("\t")[0] for line in path.read_text().splitlines()[1:]}
    assert subjects == {"cpu-quick/iota", "cpu-quick/causal_softmax"}


def refused(monkeypatch: pytest.MonkeyPatch, *arguments: str, where: Path = ROOT) -> str:
    error = check(monkeypatch, *arguments, where=where).exception
    assert isinstance(error, InvalidArgument), error
    return str(error)


def test_bad_input_is_a_typed_error(cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "ledger.tsv")
    assert "--recheck" in refused(monkeypatch, "--recheck", "2")
    assert "--proof" in refused(monkeypatch, "--proof", "cpu")
    assert "--condition" in refused(monkeypatch, "--condition", "A=1")
    assert "--case" in refused(monkeypatch, "--ledger", path, "--case", "iota/*")
    assert "not in a checkout" in refused(monkeypatch, "--ledger", path, where=tmp_path)
    assert "--ledger" in refused(monkeypatch, "--ledger", str(tmp_path / "missing" / "ledger.tsv"))
    for part in ("0/8", "9/8", "1", "1/0", "a/b", "-1/8", "1/8/2", ""):
        assert "allowed: N/M" in refused(monkeypatch, "--shard", part), part


def test_a_result_of_other_code_than_the_checkout_s_is_no_proof(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is compared with the checkout, so that no proof is written of a tree that did not run."""
    from isokern.conformance.source_tree import SourceTree

    for path in SourceTree(ROOT).files:
        if path.startswith(("core/src/isokern/", "plugins/cpu/")):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tmp_path / path)
    ledger = str(tmp_path / "ledger.tsv")
    assert check(monkeypatch, "--quick", "--ledger", ledger, where=tmp_path).exit_code == 0
    edited = tmp_path / "core/src/isokern/oracle/expected.py"
    edited.write_text(f"{edited.read_text()}\n")
    assert "oracle/expected.py differs from what is installed" in refused(
        monkeypatch, "--quick", "--ledger", ledger, where=tmp_path
    )
    (tmp_path / "core/src/isokern/oracle/more.py").write_text("")
    edited.unlink()
    assert "oracle/more.py is not installed" in refused(monkeypatch, "--quick", "--ledger", ledger, where=tmp_path)


def test_merging_two_ledgers_has_no_conflict(tmp_path: Path) -> None:
    """.gitattributes has git keep the lines of both sides, and the reader takes them in any order."""
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine")

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    def change(branch: Sequence[str], *made: Entry) -> None:
        git("checkout", "-q", *branch)
        Ledger(tmp_path / "docs" / "ledger.tsv").update(made)
        git("add", "-A")
        git("commit", "-q", "-m", "Prove")

    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / ".gitattributes", tmp_path / ".gitattributes")
    git("init", "-q", "-b", "main")
    change(["-b", "one"], entry("cpu/add"), entry("cpu/mul"))
    change(["-b", "two"], entry("cpu/add", passed=1, state="two"), entry("cpu/softmax"))
    change(["one"], entry("cpu/add", passed=2, state="one"), entry("cpu/topk"))
    git("merge", "-q", "--no-edit", "two")
    known = Ledger(tmp_path / "docs" / "ledger.tsv")
    assert known.complaints == []
    for state in ("one", "two"):
        assert known.proof("cpu/add", always(state)) is not None
    for subject in ("cpu/mul", "cpu/softmax", "cpu/topk"):
        assert known.proof(subject, always("state")) is not None
    known.update([entry("cpu/add", passed=3)])
    assert len(known.entries("cpu/add")) == 1


def test_the_ledger_module_is_loaded_without_isokern(tmp_path: Path) -> None:
    """Tools that run where Isokern is not installed read the file by the module itself."""
    code = (
        "import importlib.util, sys\n"
        "for name in ('ledger', 'source_tree'):\n"
        "    spec = importlib.util.spec_from_file_location(name, sys.argv[1] + name + '.py')\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    sys.modules[name] = module\n"
        "    spec.loader.exec_module(module)\n"
        "assert not [m for m in sys.modules if m.startswith(('isokern', 'numpy'))]\n"
    )
    folder = f"{ROOT / 'core/src/isokern/conformance'}{os.sep}"
    subprocess.run([sys.executable, "-I", "-c", code, folder], check=True, cwd=tmp_path)
