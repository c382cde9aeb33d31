"""Test tools/prove.py in a small project: what runs, what a proof depends on, and which reads are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import environments
import prove
import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n',
    "tox.ini": """
[testenv]
commands_pre = python tools/install.py core
deps = pytest
reads =
    core/src plugins
    tests/docs: docs

[testenv:unit]
set_env = ISOKERN_ON_MISSING = error
commands =
    python tools/prove.py unit -- pytest {posargs:tests}
    python tools/prove.py unit -- python tools/count.py
""",
    "core/src/isokern/library.txt": "library",
    "core/src/isokern/ops/softmax.py": 'declare("softmax")\n',
    "plugins/cpu/pyproject.toml": "",
    "plugins/cpu/src/isokern_cpu/__init__.py": 'register.backend("cpu", open)\n',
    "plugins/cpu/src/isokern_cpu/kernels/softmax.c": "softmax",
    "plugins/cpu/src/isokern_cpu/kernels/rope.c": "rope",
    "plugins/cpu/src/isokern_cpu/pool.c": "pool",
    "docs/page.md": "page",
    "docs/status.md": "status",
    "tools/count.py": "print('3 passed')\n",
    "tests/conftest.py": "",
    "tests/helped/helper.txt": "helper",
    "tests/helped/test_a.py": "def test_a():\n    pass\n\n\ndef test_b():\n    pass\n",
    "tests/helped/test_c.py": "def test_c():\n    pass\n",
    "tests/docs/test_page.py": "def test_page():\n    assert open('docs/page.md').read()\n",
}
KERNEL = """
import numpy as np
import isokern

def test_softmax():
    isokern.softmax(np.ones((2, 3), np.float32), device="cpu")
"""
Prove = Callable[..., list[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Prove:
    """Return a function that runs the command and returns the subjects that ran; `status` is what it has to return."""
    monkeypatch.setattr(prove, "check_installed", lambda tree: None)  # no package is that of the project
    for name in [n for n in os.environ if n.startswith(("ISOKERN_", "PROVE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than the tests

    def run(*words: str, options: tuple[str, ...] = (), status: int = 0, environment: str = "unit") -> list[str]:
        given = [environment, *options, "--", *(words or ("pytest", "tests"))]
        assert prove.main(given, project) == status
        run.shown = shown = "".join(capsys.readouterr())
        return [line.split()[-1] for line in shown.splitlines() if line.startswith("$ ")]

    return run


def subjects(project: Path) -> dict[str, list[str]]:
    lines = (project / "docs/ledger.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[0]: line.split("\t") for line in lines}


ALL = ["tests/docs/test_page.py", "tests/helped/test_a.py", "tests/helped/test_c.py"]
HELPED = ALL[1:]


def test_what_is_proved_does_not_run_again(project: Path, run: Prove, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run() == ALL
    found = subjects(project)
    assert [*found] == [f"unit/{path}" for path in ALL]
    assert [fields[2] for fields in found.values()] == ["1", "2", "1"], "the tests that passed"
    assert run() == []
    assert "3 of 3 subjects need no run" in run.shown
    monkeypatch.setenv("PROVE", "all")
    assert run() == ALL


@pytest.mark.parametrize(
    ("path", "runs"),
    [
        ("tests/helped/test_a.py", ["tests/helped/test_a.py"]),
        ("tests/helped/helper.txt", HELPED),
        ("tests/docs/more.py", ["tests/docs/test_page.py"]),
        ("docs/page.md", ["tests/docs/test_page.py"]),
        ("tests/conftest.py", ALL),
        ("pyproject.toml", ALL),
        ("core/src/isokern/library.txt", ALL),
        ("plugins/cpu/src/isokern_cpu/pool.c", ALL),
        ("plugins/cpu/src/isokern_cpu/kernels/softmax.c", []),
        ("core/src/isokern/ops/softmax.py", []),
        ("docs/status.md", []),
        ("tools/count.py", []),
    ],
)
def test_an_edit_makes_what_depends_on_it_stale(project: Path, run: Prove, path: str, runs: list[str]) -> None:
    """No process runs here: a digest of each subject is compared."""

    def states() -> dict[str, str]:
        tree = prove.Tree(project)
        command, _ = prove.Command.parse(["unit", "--", "pytest", "tests"])
        return {s.test: tree.state(s)(()) for s in tree.list_subjects(command)}

    before = states()
    (project / path).write_text(f"{FILES.get(path, '')}\n# edited\n")
    now = states()
    assert [test for test in ALL if now[test] != before[test]] == runs


def test_only_the_kernels_that_were_used_count(project: Path, run: Prove, cpu: object) -> None:
    (project / "tests/helped/test_a.py").write_text(KERNEL)
    run("pytest", "tests/helped")
    used = subjects(project)["unit/tests/helped/test_a.py"][6].split()
    assert [use for use in used if ":" in use] == ["cpu:softmax"]
    assert "rope" not in used
    kernels = project / "plugins/cpu/src/isokern_cpu/kernels"
    (kernels / "rope.c").write_text("rope 2")
    (kernels / "topk.c").write_text("topk")
    assert run("pytest", "tests/helped") == []
    (kernels / "softmax.c").write_text("softmax 2")
    assert run("pytest", "tests/helped") == ["tests/helped/test_a.py"]
    (project / "core/src/isokern/ops/softmax.py").write_text('declare("softmax", 2)\n')
    assert run("pytest", "tests/helped") == ["tests/helped/test_a.py"]


def test_a_device_that_no_plug_in_registers_counts_for_all(project: Path, run: Prove, cpu: object) -> None:
    (project / "plugins/cpu/src/isokern_cpu/__init__.py").write_text("")
    (project / "tests/helped/test_a.py").write_text(KERNEL)
    run("pytest", "tests/helped/test_a.py")
    assert "*:softmax" in subjects(project)["unit/tests/helped/test_a.py"][6].split()


def test_a_kernel_file_that_a_test_opens_counts(project: Path, run: Prove) -> None:
    path = "plugins/cpu/src/isokern_cpu/kernels/rope.c"
    (project / "tests/helped/test_a.py").write_text(f"def test():\n    assert open({path!r}).read()\n")
    run("pytest", "tests/helped")
    assert subjects(project)["unit/tests/helped/test_a.py"][6] == path
    (project / path).write_text("rope 2")
    assert run("pytest", "tests/helped") == ["tests/helped/test_a.py"]


UNKNOWN = {
    "Python without the tracer": "subprocess.run([sys.executable, '-Ic', 'import os'], check=True)",
    "an emptied environment": "subprocess.run([sys.executable, '-c', 'import os'], env={}, check=True)",
    "a program": "subprocess.run([shutil.copy('/bin/true', tmp_path)], check=True)",
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_all_kernels_count_if_it_is_unknown_what_ran(project: Path, run: Prove, kind: str) -> None:
    code = f"import shutil, subprocess, sys\n\ndef test(tmp_path):\n    {UNKNOWN[kind]}\n"
    (project / "tests/helped/test_a.py").write_text(code)
    run("pytest", "tests/helped")
    assert subjects(project)["unit/tests/helped/test_a.py"][6].split() == ["*", "*:*"]
    assert subjects(project)["unit/tests/helped/test_c.py"][6] == ""


READS = {
    "open": "open('docs/page.md').read()",
    "another process": "subprocess.run([sys.executable, '-c', 'open(\"docs/page.md\")'], check=True)",
    "a command": "subprocess.run(['cat', 'docs/page.md'], check=True)",
    "os.open": "os.close(os.open(os.path.abspath('docs/page.md'), os.O_RDONLY))",
    "a thread": "thread = threading.Thread(target=lambda: open('docs/page.md').close()); thread.start(); thread.join()",
    "an import": "sys.path.insert(0, 'tools'); import count",
}


@pytest.mark.parametrize("how", READS)
def test_a_read_that_is_not_declared_fails(project: Path, run: Prove, how: str) -> None:
    code = f"import os, subprocess, sys, threading\n\ndef test():\n    {READS[how]}\n"
    (project / "tests/helped/test_a.py").write_text(code)
    run("pytest", "tests/helped", status=1)
    path = "tools/count.py" if how == "an import" else "docs/page.md"
    assert f"it reads {path}; declare that in tox.ini: reads = … tests/helped: {path}" in run.shown
    assert [*subjects(project)] == ["unit/tests/helped/test_c.py"]
    options = ("--reads", "core/src", "plugins", path.partition("/")[0])
    assert run("pytest", "tests/helped", options=options) == HELPED, "other reads, other digests"


def test_what_a_test_writes_and_what_is_left_behind_is_no_read(project: Path, run: Prove) -> None:
    (project / ".tox").mkdir()
    (project / ".tox/cache.txt").write_text("")
    lines = ["open('docs/new.md', 'w').close()", "open('docs/new.md').close()", "open('.tox/cache.txt').close()"]
    code = f"def test():\n    {'; '.join(lines)}\n"
    (project / "tests/helped/test_a.py").write_text(code)
    run("pytest", "tests/helped")


def test_a_failure_removes_the_proof(project: Path, run: Prove) -> None:
    run()
    (project / "tests/helped/test_c.py").write_text("def test_c():\n    assert False\n")
    assert run(status=1) == ["tests/helped/test_c.py"]
    assert "unit/tests/helped/test_c.py" in run.shown.rpartition("1 of 1 failed")[2]
    assert [*subjects(project)] == [f"unit/{path}" for path in ALL[:2]]
    assert run(status=1) == ["tests/helped/test_c.py"], "and it runs again"


def test_all_files_run_whatever_fails(project: Path, run: Prove) -> None:
    (project / "tests/docs/test_page.py").write_text("raise SystemExit\n")
    assert run(status=1) == ALL
    assert [*subjects(project)] == [f"unit/{path}" for path in HELPED]


def test_shards_share_the_files(project: Path, run: Prove, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [run(options=("--shard", f"{n}/2")) for n in (1, 2)]
    assert sorted(parts[0] + parts[1]) == ALL
    monkeypatch.setenv("PROVE_SHARD", "1/2")
    assert run() == []
    for wrong in ("0/2", "3/2", "1", "a/b"):
        run(options=("--shard", wrong), status=2)
        assert "write N/M" in run.shown


def test_a_forged_or_cut_line_proves_nothing(project: Path, run: Prove) -> None:
    run()
    ledger = project / "docs/ledger.tsv"
    text = ledger.read_text()
    ledger.write_text(text.replace("\t2\t", "\t9\t"))
    assert run() == ["tests/helped/test_a.py"]
    assert ledger.read_text() == text
    ledger.write_text(text[: -len(text) // 6])
    assert run() == ["tests/helped/test_c.py"]
    assert "ledger.tsv:4 is ignored" in run.shown


def test_other_settings_and_versions_have_other_proofs(
    project: Path, run: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("pytest", "tests/helped/test_c.py")
    run(*words)
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")  # as tox.ini says
    assert run(*words) == []
    monkeypatch.setenv("ISOKERN_ON_MISSING", "lower")
    assert run(*words) == [words[1]]
    monkeypatch.delenv("ISOKERN_ON_MISSING")
    assert run(*words) == [words[1]]
    ini = project / "tox.ini"
    ini.write_text(ini.read_text().replace("deps = pytest", "deps = pytest>=8"))
    assert run(*words) == [words[1]]
    monkeypatch.setattr(prove, "list_tools", lambda: "Python 4.0")
    assert run(*words) == [words[1]]
    assert len((project / "docs/ledger.tsv").read_text().splitlines()) == 3, "both versions prove this tree"


def test_other_options_than_those_of_tox_prove_nothing(project: Path, run: Prove) -> None:
    assert run("pytest", "tests/helped", "-k", "test_b") == []
    assert run("pytest", "tests/helped/test_a.py::test_b") == []
    assert "nothing is proved" in run.shown
    assert not (project / "docs/ledger.tsv").exists()


def test_another_command_is_one_subject(project: Path, run: Prove) -> None:
    words = ("python", "tools/count.py")
    run(*words, status=1)
    assert "it reads tools/count.py; declare that in tox.ini: reads = … tools/count.py" in run.shown
    (project / "tox.ini").write_text(FILES["tox.ini"].replace("core/src plugins", "core/src plugins tools"))
    assert run(*words) == ["tools/count.py"]
    assert subjects(project)["unit/python tools/count.py"][2] == "3"
    assert run(*words) == []
    (project / "tools/count.py").write_text("raise SystemExit(4)\n")
    run(*words, status=1)
    assert "it ends with 4" in run.shown
    assert subjects(project) == {}


def test_a_run_that_is_stopped_keeps_what_passed(project: Path) -> None:
    (project / "tests/helped/test_a.py").write_text("import time\n\ndef test_a():\n    time.sleep(600)\n")
    code = (
        "import pathlib, signal, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import prove\n"
        "prove.check_installed = lambda tree: None\n"
        "signal.signal(signal.SIGTERM, prove._stop)\n"
        "prove.main(['unit', '--', 'pytest', 'tests'], pathlib.Path(sys.argv[2]))\n"
    )
    command = [sys.executable, "-c", code, str(ROOT / "tools"), str(project)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("$ pytest tests/helped/test_a.py"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)  # a shell's background jobs ignore SIGINT, and so do their children
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert [*subjects(project)] == ["unit/tests/docs/test_page.py"]


def test_a_command_without_tests_is_refused(project: Path, run: Prove) -> None:
    run("pytest", "-q", status=2, environment="elsewhere")
    assert "names no tests" in run.shown
    run("pytest", "tests/missing", status=2)
    assert "tests/missing has no test file" in run.shown


# tox.ini, read without tox


def test_environments_are_those_that_tox_reads() -> None:
    """Commands and dependencies of each, as tox itself resolves them."""
    pytest.importorskip("tox", reason="tox is not installed: pip install tox")
    names = [e.name for e in environments.Environments(ROOT)]
    command = [sys.executable, "-m", "tox", "config", "-q", "-k", "deps", "commands", "reads", "-e", ",".join(names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    tox: dict[str, dict[str, str]] = {}
    known: dict[str, str] = {}
    key = ""
    for line in done.stdout.splitlines():
        if line.startswith("[testenv:"):
            tox[line[9:-1]] = known = {}
        elif line[:1].isspace():
            known[key] += f" {line}"
        elif " = " in line or line.endswith(" ="):
            key, _, value = line.partition(" =")
            known[key] = value
    assert {*names} <= {*tox}
    for name in names:
        own = environments.Environments(ROOT).get(name)
        for key, lines in (("deps", own.deps), ("commands", own.commands)):
            words = " ".join(lines).replace('"', "").replace("'", "").split()
            expected = tox[name][key].replace('"', "").replace("'", "").split()
            assert [w for w in words if "{" not in w and "\\" not in w] == [
                w for w, own_word in zip(expected, words, strict=True) if "{" not in own_word and "\\" not in own_word
            ], f"{key} of {name}"
