"""Test `isokern check --since`: which operators a change touches, and that it finds a fault in a rare path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from isokern.backend import Device, KernelVariant
from isokern.conformance.changed import find_touched
from isokern.conformance.checkout import Checkout
from isokern.conformance.definitions import Definitions
from isokern.conformance.derive import device_cases
from isokern.declare.samples import describe
from isokern.ops import all_operators, find
from isokern.status import InvalidArgument

ROOT = Path(__file__).resolve().parents[2]
CPU = "plugins/cpu/src/isokern_cpu/"
OPS = "core/src/isokern/ops/"
EVERY = {o.name for o in all_operators()}
Edit = Callable[..., dict[str, str]]


def git(where: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=where, check=True, capture_output=True, text=True)
    return done.stdout


def copied(to: Path) -> Path:
    """Copy the working tree to a checkout of its own with one commit."""
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine")
    try:
        files = Checkout("HEAD", ROOT).files
    except InvalidArgument as error:
        pytest.skip(f"the tests are not run in a git checkout: {error}")
    for path in files:
        target = to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    git(to, "init", "-q")
    git(to, "add", "-A")
    git(to, "commit", "-q", "-m", "All of it")
    return to


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("checkout"))


class Named:
    """Stands for a device of a plug-in in the checkout: the location of its package, and what it has no kernel for."""

    def __init__(self, package: str, lacks: str = "") -> None:
        self.name, self.lacks = "nosuch:0", lacks
        self.__class__ = type("Device", (Named,), {"__module__": package})

    def variants(self, stem: str) -> list[KernelVariant]:
        """Return one that takes every plan."""
        return [] if stem == self.lacks else [KernelVariant(stem, "any", 0, lambda plan: None, _never)]

    supports = Device.supports


def _never(plan: Any) -> Any:
    raise NotImplementedError


@pytest.fixture
def edit(checkout: Path, request: pytest.FixtureRequest) -> Edit:
    """Return a function that makes an edit, returns what it touches on a device of `package`, and undoes it."""

    def try_it(path: str, old: str, new: str, package: str = "isokern_cpu", lacks: str = "") -> dict[str, str]:
        file = checkout / path
        before = file.read_text() if file.exists() else None
        assert before is None or old in before, f"{path} has no {old!r}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(new if before is None else before.replace(old, new, 1))
        try:
            return find_touched(Named(package, lacks), Checkout("HEAD", checkout))
        finally:
            file.unlink() if before is None else file.write_text(before)

    return try_it


def test_nothing_is_touched_where_nothing_differs(checkout: Path) -> None:
    for package in ("isokern_cpu", "isokern_opencl", "isokern_cuda", "isokern_kunlun_sim", "elsewhere"):
        assert find_touched(Named(package), Checkout("HEAD", checkout)) == {}


def test_a_kernel_touches_the_operators_of_its_stem_on_its_device(edit: Edit) -> None:
    path = f"{CPU}kernels/softmax.c"
    assert edit(path, "\n", "\n\n") == dict.fromkeys(["log_softmax", "softmax"], path)
    assert edit(path, "\n", "\n\n", "isokern_opencl") == {}
    portable = "core/src/isokern/simt/kernels/softmax.c"
    assert set(edit(portable, "\n", "\n\n", "isokern_opencl")) == {"log_softmax", "softmax"}
    assert set(edit(portable, "\n", "\n\n", "isokern_cuda")) == {"log_softmax", "softmax"}
    launches = portable.replace(".c", "_launch.py")
    assert set(edit(launches, "\n", "\n\n", "isokern_opencl")) == {"log_softmax", "softmax"}
    for path in (portable, launches):
        assert edit(path, "\n", "\n\n") == {}, "the CPU backend runs no portable kernels"
    assert set(
        edit("plugins/kunlun_sim/src/isokern_kunlun_sim/kernels/rope.xpu", "\n", "\n\n", "isokern_kunlun_sim")
    ) == {"rope"}


def test_a_file_that_git_does_not_track_yet_counts(edit: Edit) -> None:
    assert set(edit(f"{CPU}kernels/x86_v4/rope.c", "", "/* faster */\n")) == {"rope"}


def test_a_header_touches_what_includes_it(edit: Edit) -> None:
    assert set(edit(f"{CPU}kernels/select.h", "\n", "\n\n")) == {"random_sample", "topk"}
    assert set(edit(f"{CPU}kernels/convert.h", "\n", "\n\n")) == EVERY
    assert set(edit("core/src/isokern/cabi/include/isokern_sample.h", "\n", "\n\n")) == {"random_sample"}
    assert edit("core/src/isokern/emulation/fiber.h", "\n", "\n\n") == {}
    assert set(edit("core/src/isokern/emulation/fiber.h", "\n", "\n\n", "isokern_kunlun_sim")) == EVERY


def test_a_row_touches_itself_and_the_c_that_is_made_of_rows(edit: Edit) -> None:
    path, row = f"{OPS}elementwise.py", ('"x * x"', '"x * x + 0"')
    assert set(edit(path, *row, "isokern_opencl")) == {"square"}
    on_cpu = edit(path, *row)
    assert on_cpu["square"] == path
    assert {"exp", "gemm"} <= set(on_cpu), "elementwise_rows.h has the row"
    assert "rope" not in on_cpu
    new = 'unary("sin3", "SIN3", "sin(3 * x)", lambda x: np.sin(3 * x), doc="sin 3x.")\n'
    assert set(edit(path, 'unary("sin",', f'{new}unary("sin",')) == set(), (
        "a row that is not installed touches no other"
    )


def test_what_a_declaration_is_made_of_touches_it(edit: Edit) -> None:
    assert set(
        edit(f"{OPS}elementwise.py", "def _silu(x: Any)", "def _silu(x: Any, y: int = 1)", "isokern_opencl")
    ) == {
        "silu",
        "silu_mul",
    }
    assert set(edit(f"{OPS}softmax.py", "1", "2")) == {"log_softmax", "softmax"}
    assert "matmul_transposed" in edit(f"{OPS}gemm.py", "(7", "(8"), "it takes samples from there"
    assert edit(f"{OPS}softmax.py", "\n", "\n# a comment\n") == {}
    assert set(edit("core/src/isokern/declare/operator.py", '"small"', '"tiny"')) == EVERY


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("core/src/isokern/expr/tree.py", "isokern_cpu"),
        ("core/src/isokern/cabi/header.py", "isokern_cpu"),
        ("core/src/isokern/oracle/values.py", "isokern_cpu"),
        ("core/src/isokern/backend/native.py", "isokern_cpu"),
        ("core/src/isokern/simt/launch.py", "isokern_opencl"),
        (f"{CPU}native/pool.c", "isokern_cpu"),
        ("plugins/cpu/setup.py", "isokern_cpu"),
        ("plugins/cuda/src/isokern_cuda/prelude.h", "isokern_cuda"),
        ("core/src/isokern/oracle/values.py", "elsewhere"),
    ],
)
def test_machinery_touches_everything(edit: Edit, path: str, package: str) -> None:
    assert edit(path, "\n", "\n\n", package) == dict.fromkeys(EVERY, path)


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "plugins/cpu/README.md",
        "core/src/isokern/cli/check.py",
        "core/src/isokern/conformance/suite.py",
        "core/src/isokern/graph/ir.py",
        "core/src/isokern/simt/launch.py",
        "plugins/opencl/src/isokern_opencl/streams.py",
        "tests/conftest.py",
    ],
)
def test_what_the_cases_do_not_run_through_touches_nothing(edit: Edit, path: str) -> None:
    assert edit(path, "\n", "\n\n") == {}


@pytest.mark.parametrize("path", ["runtime/lowered.py", "runtime/memory_plan.py", "graph/ir.py", "passes/dead_code.py"])
def test_what_makes_calls_of_other_operators_touches_those_without_a_kernel(edit: Edit, path: str) -> None:
    path = f"core/src/isokern/{path}"
    assert edit(path, "\n", "\n\n", "isokern_cpu", "softmax") == dict.fromkeys(["log_softmax", "softmax"], path)
    assert edit(path, "\n", "\n\n", "isokern_cpu", "topk") == {}


def test_every_operator_is_found_in_its_declaration() -> None:
    folder = ROOT / OPS
    sources = {f"isokern.ops.{p.stem}".removesuffix(".__init__"): p.read_text() for p in folder.glob("*.py")}
    definitions = Definitions("isokern.ops", sources)
    assert [o for o in sorted(EVERY) if definitions.of_operator(o) is None] == []


def check(*arguments: str) -> Exception:
    import typer

    import isokern.cli.check

    app = typer.Typer()
    app.command()(isokern.cli.check.check)
    error = CliRunner().invoke(app, ["--device", "cpu", "--list", *arguments]).exception
    assert isinstance(error, InvalidArgument), error
    return error


def test_bad_input_is_a_typed_error(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    monkeypatch.chdir(checkout)
    for ref in ("nosuch", "HEAD~1", "--help", "", "HEAD:core"):
        assert "git knows no commit" in str(check("--since", ref)), ref
    monkeypatch.chdir(tmp_path)
    assert "not in a git checkout of Isokern" in str(check("--since", "HEAD"))
    git(tmp_path, "init", "-q")
    assert "not in a git checkout of Isokern" in str(check("--since", "HEAD"))
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no git on this machine" in str(check("--since", "HEAD"))
    for part in ("0/8", "9/8", "1", "1/0", "a/b", "-1/8", "1/8/2", ""):
        assert "allowed: N/M" in str(check("--slice", part)), part
        assert "allowed: N/M" in str(check("--quick", "--turn", part)), part
    assert "--quick" in str(check("--turn", "1/8"))


def judge(monkeypatch: pytest.MonkeyPatch, where: Path, *arguments: str) -> Result:
    """Return the result of `isokern check` of two operators in a checkout."""
    import typer

    import isokern.cli.check

    monkeypatch.chdir(where)
    app = typer.Typer()
    app.command()(isokern.cli.check.check)
    chosen = ["--device", "cpu", "--no-isolation", "--part", "kernels", "--op", "iota", "--op", "causal_softmax"]
    return CliRunner().invoke(app, [*chosen, "--quick", "--since", "HEAD", *arguments])


def test_the_reports_have_every_case_of_what_a_change_touched(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    kernel = checkout / CPU / "kernels" / "iota.c"
    before = kernel.read_text()
    # The last two lie in the checkout: files that a check writes are no change that the next one is about
    inside = ["report.md", "docs/report.html"]
    files = [str(tmp_path / "report.jsonl"), str(tmp_path / "report.xml"), *inside]
    options = [word for file in files for word in ("--report", file)]
    try:
        kernel.write_text(f"{before}\n")
        first = judge(monkeypatch, checkout, *options)
        again = judge(monkeypatch, checkout, "--list")
        lines = [json.loads(line) for line in Path(files[0]).read_text().splitlines()]
        suite = ElementTree.parse(files[1]).getroot().find("testsuite")
        markdown, page = (Path(file).read_text() for file in inside)
    finally:
        kernel.write_text(before)
        for file in inside:
            (checkout / file).unlink(missing_ok=True)
    assert first.exit_code == again.exit_code == 0, first.output
    said = f"all cases of what differs from HEAD: iota ({CPU}kernels/iota.c)\n"
    assert said in first.stderr
    assert said in again.stderr
    every = device_cases(cpu, [find("iota"), find("causal_softmax")])
    wanted = {c.id for c in every if c.quick or c.operator.name == "iota"}
    assert any(not c.quick for c in every if c.operator.name == "iota")
    assert {line["id"] for line in lines} == wanted
    assert len(lines) == len(wanted)
    assert {line["device"] for line in lines} == {cpu.name}
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == (str(len(wanted)), "0")
    assert f"{sum(line['verdict'] == 'pass' for line in lines)} pass" in markdown
    assert "iota" in page
    assert "causal_softmax" in page


def test_a_report_that_cannot_be_written_is_told_before_anything_runs(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    monkeypatch.setattr("isokern.conformance.suite.run", lambda *_, **__: pytest.fail("the cases were run"))
    (tmp_path / "folder.md").mkdir()
    for file in (tmp_path / "missing" / "report.md", tmp_path / "folder.md"):
        error = judge(monkeypatch, checkout, "--report", str(file)).exception
        assert isinstance(error, InvalidArgument), error
        assert str(file) in str(error)


@pytest.mark.full
def test_a_fault_in_a_rare_path_is_found(tmp_path: Path, cpu: Device) -> None:
    """--since finds a kernel that computes one dtype wrongly at one size, which no quick case covers."""
    checkout = copied(tmp_path / "checkout")
    kernels = checkout / CPU / "kernels"
    for other in kernels.rglob("*.c"):  # build only this kernel, which takes seconds
        if other != kernels / "concat.c":
            other.unlink()
    git(checkout, "commit", "-q", "-a", "-m", "Leave one kernel")
    cases = [c for c in device_cases(cpu, [find("concat")]) if c.calls and not c.variant]

    def seen(case: object) -> tuple[str, int]:
        return case.types[0].name, describe(case.operator, case.sample, case.bound_types)[1][0].numel

    quick = {seen(c) for c in cases if c.quick}
    dtype, elements = next(seen(c) for c in cases if seen(c) not in quick and seen(c)[1])
    fault = f"if (plan->tensors[0].dtype == IK_{dtype} && ik_numel(&plan->tensors[0]) == {elements}) return IK_SUCCESS;"
    source = (kernels / "concat.c").read_text()
    planted = source.replace(
        "IK_KERNEL(concat)\n{\n    IK_UNUSED;\n", f"IK_KERNEL(concat)\n{{\n    IK_UNUSED;\n    {fault}\n"
    )
    assert planted != source
    (kernels / "concat.c").write_text(planted)
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, "./core", "./plugins/cpu"],
        cwd=checkout,
        check=True,
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def run(*options: str) -> tuple[int, list[str], str]:
        command = [sys.executable, "-m", "isokern", "check", "--device", "cpu", "--op", "concat", "--json", *options]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, [f["id"] for f in json.loads(done.stdout)["failures"]], done.stderr

    assert run("--quick") == (0, [], "")
    status, failures, said = run("--quick", "--since", "HEAD")
    assert status == 1
    assert {f.split("/")[1] for f in failures} == {dtype}
    assert f"concat ({CPU}kernels/concat.c)" in said
