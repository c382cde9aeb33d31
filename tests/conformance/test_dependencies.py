"""Test what proofs depend on: a change makes the right operators out of date, on the right devices, and no others."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isokern.conformance.definitions import Definitions
from isokern.conformance.dependencies import Dependencies
from isokern.conformance.source_tree import SourceTree
from isokern.ops import all_operators

ROOT = Path(__file__).resolve().parents[2]
CPU = "plugins/cpu/src/isokern_cpu/"
XPU = "plugins/kunlun_sim/src/isokern_kunlun_sim/"
OPS = "core/src/isokern/ops/"
EVERY = {o.name for o in all_operators()}
PACKAGES = ("isokern_cpu", "isokern_opencl", "isokern_cuda", "isokern_kunlun_sim", "elsewhere")
Edit = Callable[..., set[str]]


def digests(package: str, checkout: Path, parts: tuple[str, ...] = ()) -> dict[str, str]:
    found = Dependencies(package, SourceTree(checkout))
    return {name: found.operator(name, parts) for name in EVERY}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources of core and the plug-ins, without git."""
    to = tmp_path_factory.mktemp("checkout")
    for path in SourceTree(ROOT).files:
        if path.startswith(("core/", "plugins/", "tests/conftest", "README")):
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, to / path)
    return to


@pytest.fixture(scope="module")
def before(checkout: Path) -> Callable[[str, tuple[str, ...]], dict[str, str]]:
    """Return a function that returns the digests before any edit."""
    known: dict[Any, dict[str, str]] = {}

    def ask(package: str, parts: tuple[str, ...]) -> dict[str, str]:
        if (package, parts) not in known:
            known[package, parts] = digests(package, checkout, parts)
        return known[package, parts]

    return ask


@pytest.fixture
def edit(checkout: Path, before: Any) -> Edit:
    """Return a function that makes an edit and returns the operators whose digest it changes; all is undone later."""

    def try_it(path: str, old: str, new: str, package: str = "isokern_cpu", parts: tuple[str, ...] = ()) -> set[str]:
        known = before(package, parts)
        file = checkout / path
        was = file.read_text() if file.exists() else None
        assert was is None if not old else was is not None and old in was, f"{path}: {old!r}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(new if was is None else was.replace(old, new, 1))
        try:
            now = digests(package, checkout, parts)
        finally:
            file.unlink() if was is None else file.write_text(was)
        return {name for name in EVERY if now[name] != known[name]}

    return try_it


def test_nothing_is_out_of_date_if_nothing_differs(checkout: Path, before: Any) -> None:
    for package in PACKAGES:
        assert digests(package, checkout) == before(package, ())
    assert len({d for package in PACKAGES for d in before(package, ()).values()}) == len(PACKAGES) * len(EVERY)


def test_a_kernel_counts_for_the_operators_of_its_stem_on_its_device(edit: Edit) -> None:
    path = f"{CPU}kernels/softmax.c"
    assert edit(path, "\n", "\n\n") == {"log_softmax", "softmax"}
    assert edit(path, "\n", "\n\n", "isokern_opencl") == set()
    portable = "core/src/isokern/simt/kernels/softmax.c"
    assert edit(portable, "\n", "\n\n", "isokern_opencl") == {"log_softmax", "softmax"}
    assert edit(portable, "\n", "\n\n", "isokern_cuda") == {"log_softmax", "softmax"}
    launches = "core/src/isokern/simt/kernels/topk_launch.py"
    assert edit(launches, "\n", "\n\n", "isokern_opencl") == {"topk"}
    for path in (portable, launches):
        assert edit(path, "\n", "\n\n") == set(), "the CPU backend runs no portable kernels"
    assert edit(f"{XPU}kernels/rope.xpu", "\n", "\n\n", "isokern_kunlun_sim") == {"rope"}


def test_a_kernel_that_another_includes_counts_for_both(edit: Edit) -> None:
    assert '#include "rearrange.c"' in (ROOT / "core/src/isokern/simt/kernels/concat.c").read_text()
    found = edit("core/src/isokern/simt/kernels/rearrange.c", "\n", "\n\n", "isokern_opencl")
    assert {"concat", "rearrange"} <= found
    assert "softmax" not in found


def test_a_new_kernel_counts(edit: Edit) -> None:
    assert edit(f"{CPU}kernels/x86_v4/rope.c", "", "/* faster */\n") == {"rope"}


def test_a_header_counts_for_what_includes_it_at_any_depth(edit: Edit) -> None:
    assert edit(f"{CPU}kernels/select.h", "\n", "\n\n") == {"random_sample", "topk"}
    assert edit(f"{CPU}kernels/convert.h", "\n", "\n\n") == EVERY
    assert edit("core/src/isokern/cabi/include/isokern_sample.h", "\n", "\n\n") == {"random_sample"}
    assert edit("core/src/isokern/emulation/fiber.h", "\n", "\n\n") == set()
    assert edit("core/src/isokern/emulation/fiber.h", "\n", "\n\n", "isokern_kunlun_sim") == EVERY


def test_a_header_three_includes_deep(edit: Edit) -> None:
    """attention.c includes attention_rows.h through others, that attention_keys.h, and that attention_job.h."""
    for deep in ("attention_keys.h", "attention_job.h"):
        users = {f.name for f in (ROOT / CPU / "kernels").rglob("*") if f.is_file() and f'"{deep}"' in f.read_text()}
        assert users
        assert all(name.endswith(".h") for name in users), "only headers include it"
        found = edit(f"{CPU}kernels/{deep}", "\n", "\n\n")
        assert "attention" in found
        assert not found & {"softmax", "rope", "topk", "exp", "gemm", "conv2d"}


def test_a_shared_macro_counts_for_every_portable_kernel(edit: Edit) -> None:
    for package in ("isokern_opencl", "isokern_cuda"):
        found = edit("core/src/isokern/simt/kernels/simt.h", "\n", "\n\n", package)
        portable = {f.stem for f in (ROOT / "core/src/isokern/simt/kernels").glob("*.c")}
        assert found == {o.name for o in all_operators() if o.stem in portable}


def test_a_row_counts_for_itself_and_for_c_that_is_made_of_rows(edit: Edit) -> None:
    path, row = f"{OPS}elementwise.py", ('"x * x"', '"x * x + 0"')
    assert edit(path, *row, "isokern_opencl") == {"square"}
    on_cpu = edit(path, *row)
    assert {"square", "exp", "gemm"} <= on_cpu, "elementwise_rows.h has the row"
    assert "rope" not in on_cpu
    new = 'unary("sin3", "SIN3", "sin(3 * x)", lambda x: np.sin(3 * x), doc="sin 3x.")\n'
    assert edit(path, 'unary("sin",', f'{new}unary("sin",') == set(), "a row that is not installed counts for no other"


def test_the_row_of_a_function_counts_for_expressions_that_call_it(edit: Edit) -> None:
    """A bound that follows from an expression has the errors that its functions are allowed."""
    found = edit(f"{OPS}elementwise.py", '"TANH", "tanh(x)"', '"TANH", "tanh(x) + 0"', "isokern_opencl")
    assert {"tanh", "mish", "softcap"} <= found
    assert not found & {"sin", "abs", "softmax", "gemm"}


def test_what_a_declaration_consists_of_counts_for_it(edit: Edit) -> None:
    silu = edit(f"{OPS}elementwise.py", "def _silu(x: Any)", "def _silu(x: Any, y: int = 1)", "isokern_opencl")
    assert silu == {"silu", "silu_mul"}
    assert edit(f"{OPS}softmax.py", "1", "2") == {"log_softmax", "softmax"}
    assert "matmul_transposed" in edit(f"{OPS}gemm.py", "(7", "(8"), "it takes samples from there"
    assert edit(f"{OPS}softmax.py", "\n", "\n# a comment\n") == set()
    assert edit("core/src/isokern/declare/operator.py", '"small"', '"tiny"') == EVERY


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("core/src/isokern/expr/tree.py", "isokern_cpu"),
        ("core/src/isokern/cabi/header.py", "isokern_cpu"),
        ("core/src/isokern/oracle/values.py", "isokern_cpu"),
        ("core/src/isokern/oracle/expected.py", "isokern_opencl"),  # the bounds
        ("core/src/isokern/declare/error_bound.py", "isokern_kunlun_sim"),
        ("core/src/isokern/conformance/run.py", "isokern_cuda"),
        ("core/src/isokern/conformance/derive.py", "isokern_opencl"),
        ("core/src/isokern/backend/native.py", "isokern_cpu"),
        ("core/src/isokern/simt/launch.py", "isokern_opencl"),
        (f"{CPU}native/pool.c", "isokern_cpu"),
        ("plugins/cpu/setup.py", "isokern_cpu"),
        ("plugins/cpu/kernel_build.py", "isokern_cpu"),  # the compiler's flags
        ("plugins/cuda/src/isokern_cuda/prelude.h", "isokern_cuda"),
        (f"{XPU}include/xpusim/vector.h", "isokern_kunlun_sim"),
        ("core/src/isokern/oracle/values.py", "elsewhere"),
    ],
)
def test_machinery_counts_for_everything(edit: Edit, path: str, package: str) -> None:
    assert edit(path, "\n", "\n\n", package) == EVERY


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
def test_what_the_cases_do_not_run_through_counts_for_nothing(edit: Edit, path: str) -> None:
    assert edit(path, "\n", "\n\n") == set()


@pytest.mark.parametrize("path", ["runtime/lowered.py", "runtime/memory_plan.py", "graph/ir.py", "passes/dead_code.py"])
def test_what_lowers_calls_counts_for_operators_that_were_lowered(edit: Edit, path: str) -> None:
    path = f"core/src/isokern/{path}"
    assert edit(path, "\n", "\n\n", "isokern_cpu", ("generic",)) == EVERY
    assert edit(path, "\n", "\n\n", "isokern_cpu") == set()


def test_the_kernels_of_parts_count_for_operators_that_were_lowered(checkout: Path, edit: Edit) -> None:
    """An operator that was lowered to reduce_sum depends on its kernel."""
    kernel = f"{CPU}kernels/topk.c"
    assert edit(kernel, "\n", "\n\n", "isokern_cpu", ("topk",)) == EVERY
    assert edit(kernel, "\n", "\n\n") == {"topk"}


def test_every_operator_is_found_in_its_declaration() -> None:
    folder = ROOT / OPS
    sources = {f"isokern.ops.{p.stem}".removesuffix(".__init__"): p.read_text() for p in folder.glob("*.py")}
    definitions = Definitions("isokern.ops", sources)
    assert [o for o in sorted(EVERY) if definitions.of_operator(o) is None] == []


def test_the_tree_is_what_git_would_have(tmp_path: Path) -> None:
    """Files that builds leave behind do not count, and no source is missed: git is asked if it is there."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no git on this machine")
    if done.returncode:
        pytest.skip("the tests are not run in a git checkout")
    known = {p for p in done.stdout.split("\0") if p and (ROOT / p).is_file()}
    assert SourceTree(ROOT).files == known
