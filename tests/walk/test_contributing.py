"""Follow CONTRIBUTING step by step in a copy of the tree: add what it says to add, and run its commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page import ROOT, block, run

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NEW_FILES = {
    "core/src/isokern/ops/alternating_sum.py": "python",
    "plugins/cpu/src/isokern_cpu/kernels/alternating_sum.c": "c",
    "core/src/isokern/simt/kernels/alternating_sum.c": "c",
}

pytestmark = pytest.mark.full  # makes an environment, and builds everything in it


def section(title: str) -> str:
    """Return the text below a heading, up to the next one."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M).group(1)


def isokern(tree: Path, arguments: str) -> object:
    """Return the JSON that a command of the copy's own environment prints."""
    return json.loads(run(f".venv/bin/isokern {arguments} --json", tree))


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """Copy the tree to a new git repository, make the page's edits, and install everything as the page says."""
    copy = tmp_path_factory.mktemp("walk") / "isokern"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this tree is not under git: there is no list of its files")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    identity = "-c user.name=walk -c user.email=walk@localhost"
    run(f"git init -q && git add -A && git {identity} commit -qm before", copy)

    elementwise = copy / "core/src/isokern/ops/elementwise.py"
    row = block("python", section("Add an elementwise operator"))
    assert row.count("\n") == 1
    elementwise.write_text(
        elementwise.read_text(encoding="utf-8").replace("\nunary(", f"\n{row}unary(", 1), encoding="utf-8"
    )
    other = section("Add any other operator")
    for name, language in NEW_FILES.items():
        _, named, below = other.partition(f"`{name}`\n\n```{language}\n")
        assert named
        (copy / name).write_text(below.partition("```\n")[0], encoding="utf-8")

    run(f"{sys.executable} -m venv .venv", copy)
    run(block("sh", other).splitlines()[0], copy)
    return copy


def test_exactly_one_line_and_a_file_each_are_added(tree):
    run("git add -A -N", tree)
    changed = {line.split("\t")[2]: line.split("\t")[:2] for line in run("git diff --numstat", tree).splitlines()}
    assert set(changed) == {"core/src/isokern/ops/elementwise.py", *NEW_FILES}
    assert changed["core/src/isokern/ops/elementwise.py"] == ["1", "0"]


@pytest.mark.parametrize("device", ["cpu:0", "opencl:0"])
@pytest.mark.parametrize("operator", ["gaussian", "alternating_sum"])
def test_new_operator_is_listed_and_judged(tree, operator, device):
    (row,) = (r for r in isokern(tree, "ops") if r["name"] == operator)
    taken = [choice["T"] for choice in row["devices"][device]["dtypes"]]
    assert set(taken) == set(row["dtypes"]["T"]) == {"F16", "BF16", "F32", "F64"}
    counts = isokern(tree, f"check --device {device} --op {operator} --require all")["summary"][device]
    assert counts["pass"] >= 4 * 12
    assert counts == {**dict.fromkeys(counts, 0), "pass": counts["pass"]}


def test_a_wrong_kernel_is_caught(tree):
    """The suite derived from the declaration finds a fault in the new kernel."""
    kernel = tree / "plugins/cpu/src/isokern_cpu/kernels/alternating_sum.c"
    right = kernel.read_text(encoding="utf-8")
    kernel.write_text(right.replace("at += IK_TILE", "at += IK_TILE + 1"), encoding="utf-8")
    try:
        run("ISOKERN_CPU_CFLAGS=-O0 .venv/bin/pip install -q --no-deps --force-reinstall ./plugins/cpu", tree)
        command = [".venv/bin/isokern", "check", "--device", "cpu", "--op", "alternating_sum", "--json"]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "fail-value" in {f["verdict"] for f in json.loads(done.stdout)["failures"]}
    finally:
        kernel.write_text(right, encoding="utf-8")


def test_a_new_backend_is_found_and_judged(tree):
    make, install, devices, check = block("sh", section("Add a backend")).splitlines()
    run(make, tree)
    run(install, tree)
    assert "my_chip:0" in run(devices, tree)
    judged = run(check, tree).splitlines()[-1]  # exit status 0: cases ran, and none failed
    assert int(re.search(r"(\d+) pass", judged).group(1)) > 3000
    assert "unsupported" in judged
    assert "fail" not in judged
