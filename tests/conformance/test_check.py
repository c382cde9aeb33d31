"""Test `isokern check` and the pytest plug-in.

Covered are exit codes, the one JSON document, the lines that reproduce a failure, and that a crash costs only one case.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import isokern.cli.check
import isokern.conformance.derive
from isokern.backend import Device, KernelVariant, Register
from isokern.backend.discovery import backends
from isokern.cli.check import document
from isokern.conformance.derive import device_cases
from isokern.conformance.expected_failures import ExpectedFailures
from isokern.conformance.suite import Report, Required, required_pairs
from isokern.conformance.test_conformance import test_case as judge_by_pytest
from isokern.ops import find
from isokern.oracle.verdicts import Outcome, Verdict
from isokern.status import DeviceNotAvailable, InvalidArgument

HERE = Path(__file__).parent


def check(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(isokern.cli.check.check)
    return CliRunner().invoke(app, ["--device", "cpu", "--no-isolation", *arguments])


@pytest.fixture(scope="module")
def plug_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which the saboteurs are an installed plug-in."""
    site = tmp_path_factory.mktemp("site")
    info = site / "saboteurs-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: saboteurs\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[isokern]\nsaboteurs = saboteurs\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(HERE), *(p for p in sys.path if p)])}


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "isokern", "check", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


def test_a_right_device_exits_0_and_prints_one_document(cpu: Device) -> None:
    result = check("--op", "softmax", "--quick", "--json")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert set(printed) == {"summary", "failures", "worst", "partial", "lowered"}
    assert printed["summary"][cpu.name]["pass"] > 20
    assert printed["failures"] == []
    assert 0 < printed["worst"][cpu.name]["F32"]["share"] <= 1


def test_the_matrix_names_operators_and_dtypes(cpu: Device) -> None:
    shown = check("--op", "argmax", "--op", "exp", "--quick").stdout
    assert all(word in shown for word in ("argmax", "exp", "BF16", "U64", "of its bound", f"{cpu.name}: ", "pass"))


def test_nothing_to_run_exits_4(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(cpu), "variants", lambda self, stem: [])
    result = check("--op", "add", "--quick")
    assert result.exit_code == 4
    assert f"no case ran: every one is unsupported: {cpu.name} has no kernel for elementwise" in result.output


def test_what_is_required_may_not_be_refused(cpu: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(type(cpu), "variants", lambda self, stem: [])
    listed = tmp_path / "required.txt"
    listed.write_text("# the only one\nexp F32\n")
    result = check("--op", "add", "--op", "exp", "--quick", "--json", "--require", str(listed))
    assert result.exit_code == 1
    failures = json.loads(result.stdout)["failures"]
    assert {tuple(f["id"].split("/")[:2]) for f in failures} == {("exp", "F32")}
    assert {f["verdict"] for f in failures} == {"fail-claim"}


def test_nothing_that_a_backend_claims_may_be_refused(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without `--claimed`, a kernel that refuses every call passes as unsupported."""
    (backend,) = (b for b in backends() if b.name == "cpu")
    listed = tmp_path / "claims.txt"
    listed.write_text("exp F32\n")
    monkeypatch.setattr(type(cpu), "variants", lambda self, stem: [])
    for claims, refused in ((listed, {"exp"}), (None, {"add", "exp"})):
        monkeypatch.setattr(backend, "claims", claims)
        result = check("--op", "add", "--op", "exp", "--quick", "--json", "--claimed")
        assert result.exit_code == 1
        failures = json.loads(result.stdout)["failures"]
        assert {f["id"].split("/")[0] for f in failures} == refused
        assert {f["verdict"] for f in failures} == {"fail-claim"}
    monkeypatch.setattr(backend, "claims", tmp_path / "absent.txt")
    assert "absent.txt" in str(check("--op", "add", "--claimed").exception)


def test_claims_are_the_path_of_a_file() -> None:
    with pytest.raises(TypeError, match=r"'acme': claims is a str, not the pathlib\.Path of a file"):
        Register("acme", "1").backend("acme", list, hook_version=1, claims="claims.txt")  # type: ignore[arg-type]


def test_the_whole_table_can_be_required(cpu: Device, tmp_path: Path) -> None:
    every = required_pairs("all", cpu).run
    assert ("cast", "F32-F16") in every
    listed = tmp_path / "required.txt"
    listed.write_text("\n".join(f"{o} *" for o in sorted({o for o, _ in every})))
    assert required_pairs(str(listed), cpu) == Required(every, every)
    listed.write_text("* *\n! * F64  # no unit for it\n")
    assert required_pairs(str(listed), cpu).run == {p for p in every if "F64" not in p[1].split("-")}
    listed.write_text("* F32\n! add *\n")
    assert required_pairs(str(listed), cpu).run == {p for p in every if p[1].split("-")[0] == "F32" and p[0] != "add"}
    listed.write_text("add F99\n")
    with pytest.raises(InvalidArgument, match="add F99"):
        required_pairs(str(listed), cpu)


def test_unknown_names_are_errors_with_near_ones() -> None:
    assert isinstance(check("--op", "softmaxx").exception, InvalidArgument)
    assert "softmax" in str(check("--op", "softmaxx").exception)
    assert "add/F32" in str(check("--case", "add/F32/a=1025,b=1025/dense/drawn").exception)
    assert isinstance(check("--device", "nosuch").exception, DeviceNotAvailable)


def test_a_case_runs_alone_by_the_line_that_reproduces_it(cpu: Device) -> None:
    case = next(c for c in device_cases(cpu, [find("add")]) if c.values == "special")
    line = Outcome(case.id, cpu.name, Verdict.FAIL_VALUE).repro
    assert line == f"isokern check --device {cpu.name} --case '{case.id}'"
    result = check("--case", case.id, "--json")
    assert result.exit_code == 0
    assert sum(json.loads(result.stdout)["summary"][cpu.name].values()) == 1


def test_failures_carry_what_the_document_promises(cpu: Device) -> None:
    report = Report(cpu.name)
    case = next(c for c in device_cases(cpu, [find("add")]) if c.calls)
    report.add(case, Outcome(case.id, cpu.name, Verdict.FAIL_MEMORY, "two bytes"))
    (failure,) = document([report])["failures"]
    assert (failure["id"], failure["verdict"], failure["detail"]) == (case.id, "fail-memory", "two bytes")
    assert failure["repro"].startswith("isokern check --device ")


def test_a_pair_taken_in_part_is_reported(cpu: Device) -> None:
    report = Report(cpu.name)
    first, second = (c for c in device_cases(cpu, [find("add")])[:2])
    report.add(first, Outcome(first.id, cpu.name, Verdict.PASS))
    assert report.partial == {}
    report.add(second, Outcome(second.id, cpu.name, Verdict.UNSUPPORTED, "dense only"))
    assert report.partial == {("add", "F32"): "dense only"}


def test_expected_failures_are_no_failures_while_they_fail(cpu: Device, tmp_path: Path) -> None:
    listed = tmp_path / "known.txt"
    listed.write_text("add/F32/*  # rounds toward zero\n\nexp/*  # not written yet\n")
    report = Report(cpu.name, expected=ExpectedFailures.read(str(listed)))
    first, second = (c for c in device_cases(cpu, [find("add")])[:2])
    report.add(first, Outcome(first.id, cpu.name, Verdict.PASS))
    assert report.expected.stale == {"add/F32/*": "rounds toward zero"}
    report.add(second, Outcome(second.id, cpu.name, Verdict.FAIL_VALUE, "1 of 1 wrong"))
    assert (report.failures, report.expected.stale, report.ran) == ([], {}, 2)


@pytest.mark.parametrize("line", ["add/F32/*", "add/F32/* #  ", "a # once\na # twice"])
def test_an_expected_failure_needs_one_reason(tmp_path: Path, line: str) -> None:
    (tmp_path / "known.txt").write_text(line)
    with pytest.raises(InvalidArgument, match=r"known\.txt:[12]: .*; allowed: PATTERN # why it fails"):
        ExpectedFailures.read(str(tmp_path / "known.txt"))


def test_an_expected_failure_may_come_from_an_editor_of_another_system(tmp_path: Path) -> None:
    (tmp_path / "known.txt").write_bytes(b"\xef\xbb\xbfadd/*  # once\r\n\r\nexp/* # twice\r\n")
    assert ExpectedFailures.read(str(tmp_path / "known.txt")).reasons == {"add/*": "once", "exp/*": "twice"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shard", "0/0"], "--shard: '0/0'"),
        (["--shard", "1/" + "9" * 5000], "allowed: N/M"),
        (["--report", "absent/r.html"], "there is no folder 'absent'"),
        (["--times", os.devnull], "--report FILE.html"),
        (["--expected-failures", "/dev/zero"], "is not a regular file"),
        (["--require", "absent"], "--require: 'absent' does not exist"),
    ],
)
def test_an_option_that_cannot_be_is_an_error_before_any_case_runs(cpu: Device, options: list[str], said: str) -> None:
    result = check("--op", "neg", "--quick", *options)
    assert isinstance(result.exception, InvalidArgument)
    assert said in str(result.exception)


def test_a_stale_expected_failure_fails_the_check(cpu: Device, tmp_path: Path) -> None:
    (tmp_path / "known.txt").write_text("neg/F32/* # the sign is a matter of taste")
    result = check("--op", "neg", "--quick", "--expected-failures", str(tmp_path / "known.txt"))
    assert result.exit_code == 1
    assert "expected to fail, and passes: neg/F32/*: the sign is a matter of taste" in result.stdout


@pytest.fixture
def few_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the suite know four operators, since it takes seconds to derive the cases of all."""
    few = [find(name) for name in ("add", "log_softmax", "neg", "softmax")]
    monkeypatch.setattr(isokern.conformance.derive, "all_operators", lambda: few)


@pytest.mark.usefixtures("few_operators")
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ([], {"runtime", "neg"}),
        (["--op", "neg"], {"neg"}),
        (["--op", "neg", "--part", "all"], {"runtime", "neg"}),
        (["--op", "neg", "--part", "kernels"], {"neg"}),
        (["--op", "neg", "--part", "runtime"], {"runtime"}),
    ],
)
def test_the_runtime_is_judged_where_it_is_asked_for(cpu: Device, options: list[str], parts: set[str]) -> None:
    listed = {i.split("/")[0] for i in check("--quick", "--list", *options).stdout.split()}
    assert listed & {"runtime", "neg"} == parts


def test_shards_are_all_cases_once(cpu: Device) -> None:
    def listed(*arguments: str) -> list[str]:
        operators = [w for name in ("add", "cast", "iota", "neg") for w in ("--op", name)]
        return check(*operators, "--quick", "--list", *arguments).stdout.split()

    shards = [listed("--shard", f"{n}/3") for n in (1, 2, 3)]
    assert all(shards)
    assert sorted(i for ids in shards for i in ids) == sorted(listed())


def test_a_budget_says_what_was_not_run(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(isokern.cli.check.time, "monotonic", lambda: next(clock))
    result = check("--op", "add", "--quick", "--budget", "5", "--json")
    assert json.loads(result.stdout)["summary"][cpu.name]["pass"] == 6
    assert "cases were not run" in result.stderr


def test_an_end_at_the_second_failure(cpu: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(type(cpu), "variants", lambda self, stem: [])
    result = check("--op", "add", "--quick", "--require", "all", "--max-fail", "2", "--json")
    assert len(json.loads(result.stdout)["failures"]) == 2


def test_an_error_of_the_backend_comes_with_its_traceback(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def variants(self: Device, stem: str) -> list[KernelVariant]:
        return [KernelVariant(stem, "vendor", 0, lambda plan: {"F32": None}[plan.table[0].dtype.name], None)]

    monkeypatch.setattr(type(cpu), "variants", variants)
    result = check("--case", "neg/F64/x=1/*/drawn", "--json")
    (failure, *_) = json.loads(result.stdout)["failures"]
    assert failure["detail"] == "InternalError: neg: variant vendor of cpu:0: supported raised KeyError: 'F64'"
    assert "in <lambda>" in failure["trace"] and __file__ in failure["trace"]
    case = next(c for c in device_cases(cpu, [find("neg")]) if c.id == failure["id"])
    with pytest.raises(pytest.fail.Exception, match="in <lambda>"):
        judge_by_pytest((cpu, case), request)


@pytest.mark.usefixtures("few_operators")
def test_a_pattern_of_cases_may_begin_anywhere() -> None:
    listed = check("--device", "cpu:0", "--case", "*x=100x100/rows/drawn", "--list").output.split()
    assert {case.split("/")[0] for case in listed} == {"log_softmax", "softmax"}


def test_a_crash_costs_one_case(plug_in: dict[str, str]) -> None:
    cases = ("--case", "abs/I16/x=1025/*/drawn", "--case", "abs/I16/x=4x1x33/*/drawn")
    done = command(plug_in, "--device", "crashes", *cases, "--json", "-j", "1")
    assert done.returncode == 1, done.stderr
    printed = json.loads(done.stdout)
    count = printed["summary"]["crashes:0"]
    assert count["fail-crash"] == len(printed["failures"]) > 1
    assert count["pass"] > 2 * count["fail-crash"]
    assert {f["verdict"] for f in printed["failures"]} == {"fail-crash"}
    assert all(f["id"].startswith("abs/I16/x=1025/") and "SIGSEGV" in f["detail"] for f in printed["failures"])


def test_workers_and_this_process_agree(plug_in: dict[str, str]) -> None:
    arguments = ("--device", "dropsnan", "--op", "add", "--quick", "--json")
    here, workers = (
        json.loads(command(plug_in, *arguments, *more).stdout) for more in (["--no-isolation"], ["-j", "2"])
    )
    assert here["summary"] == workers["summary"]
    assert sorted(f["id"] for f in here["failures"]) == sorted(f["id"] for f in workers["failures"]) != []


def test_the_first_failure_can_be_the_last(plug_in: dict[str, str]) -> None:
    arguments = ("--device", "dropsnan", "--device", "noise", "--op", "add", "--quick", "--json", "--first")
    for more in (["--no-isolation"], ["-j", "2"]):
        done = command(plug_in, *arguments, *more)
        assert done.returncode == 1, done.stderr
        printed = json.loads(done.stdout)
        assert len(printed["failures"]) == 1
        assert set(printed["summary"]) == {"dropsnan:0"}
        assert "noise:0: none of" in done.stderr


def test_the_failures_of_all_devices_count(plug_in: dict[str, str]) -> None:
    arguments = ("--device", "dropsnan", "--device", "noise", "--op", "add", "--quick", "--json", "--no-isolation")
    of_first = len(json.loads(command(plug_in, *arguments[:2], *arguments[4:]).stdout)["failures"])
    both = json.loads(command(plug_in, *arguments, "--max-fail", str(of_first + 1)).stdout)["failures"]
    assert [f["device"] for f in both] == ["dropsnan:0"] * of_first + ["noise:0"]


def test_the_pytest_plug_in_runs_the_same_cases(plug_in: dict[str, str]) -> None:
    known = [e for e in entry_points(group="pytest11") if e.value == "isokern.conformance.plugin"]
    load = [] if known else ["-p", "isokern.conformance.plugin"]
    options = ["-q", "-p", "no:cacheprovider", "--isokern-op", "add", "--isokern-quick", "--isokern-require", "all"]

    def tests(device: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                *load,
                "--pyargs",
                "isokern.conformance",
                "--isokern-device",
                device,
                *options,
            ],
            capture_output=True,
            text=True,
            env=plug_in,
            timeout=300,
            cwd=HERE,
        )

    right, wrong, absent = tests("cpu"), tests("dropsnan"), tests("nosuch")
    assert right.returncode == 0, right.stdout
    count = sum(json.loads(check("--op", "add", "--quick", "--json").stdout)["summary"]["cpu:0"].values())
    assert f"{count} passed" in right.stdout
    assert wrong.returncode == 1
    assert "isokern check --device dropsnan:0 --case 'add/F32/" in wrong.stdout
    assert absent.returncode == 3
    assert "nosuch" in absent.stdout + absent.stderr


def test_a_list_that_cannot_be_read(cpu, tmp_path):
    for where in (tmp_path / "absent", tmp_path):
        with pytest.raises(InvalidArgument, match="--require"):
            required_pairs(str(where), cpu)
