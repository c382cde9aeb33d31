"""Test tools/gpu_report.py on the emulated GPU with small cases, and what it says of figures, failures and gaps."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_report import Part, Report, bars, main, measure

from isokern.bench import lists
from isokern.ops import all_operators

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def row(op="relu", unit="GB/s", share=None, dtype="F32", peers=None, left_out=None, case="x=9", time_us=10.0):
    named = {"op": op, "device": "cuda:0", "dtype": dtype, "case": case, "time_us": time_us, "rate": 1.0}
    return {**named, "rate_unit": unit, "share_of_limit": share, "peers": peers or {}, "left_out": left_out or {}}


def summaries(*rows):
    return {name: tuple(rest) for name, _, *rest in (bar.summary() for bar in bars(rows))}


@pytest.mark.full
def test_the_whole_on_the_emulated_gpu(tmp_path):
    command = [sys.executable, ROOT / "tools" / "gpu_report.py", "--device", "cuda_sim:0", "--quick", "--to", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # no other library is timed on an emulated GPU
    (page,) = [p.read_text() for p in tmp_path.glob("cuda_sim-0-*.md")]
    for said in (
        "An emulated GPU",
        "A quick run",
        "| share of copy bandwidth | at least 0.9 |",
        *(f"\n| {op} | " for op in ("gemm", "relu", "softmax", "add", "list")),
        "| torch | it was timed nowhere",
        "| calls | python -m isokern bench --calls",
        "\n| emulated | True |",
        "\n| numpy | ",
    ):
        assert said in page
    assert "exit status" not in page


def test_a_device_that_is_not_there(tmp_path, capsys):
    assert main(["--device", "cuda_sim:9", "--quick", "--to", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("exit status 3") == 4
    (page,) = [p.read_text() for p in tmp_path.glob("*.md")]
    assert page.count("| exit status 3") == 4
    assert "## Measurements" not in page


def test_a_failure_among_operators_costs_one(monkeypatch):
    ran = []

    def run(self, name, command, limit=0):
        ops = [command[i + 1] for i, a in enumerate(command) if a == "--op"]
        ran.append(ops)
        report.parts.append(Part(name, "", 0.0, "exit status 1: lost" if "exp" in ops else ""))
        return None if "exp" in ops else [row(op, peers={"cupy": 1.0}) for op in ops]

    monkeypatch.setattr(Report, "run", run)
    report = Report("cuda:0")
    report.bench(["abs", "exp", "neg"], "--size", "huge")
    assert ran == [["abs", "exp", "neg"], ["abs"], ["exp"], ["neg"]]
    assert [r["op"] for r in report.rows] == ["abs", "neg"]
    assert [bool(p.failed) for p in report.parts] == [True, False, True, False]
    assert report.missing() == ["torch", "cublas"]


def test_a_whole_run_measures_every_operator_once(monkeypatch):
    commands = []

    def run(self, name, command, limit=0):
        self.parts.append(Part(name, ""))
        commands.append(command)

    monkeypatch.setattr(Report, "run", run)
    measure("cuda:0", False)
    assert commands[0][1:-2] == [str(ROOT / "tools" / "conformance.py"), "cuda", "--keep", "--claimed"]
    assert commands[1][3:5] == ["demo", "--device"]
    assert commands[-1][3:6] == ["bench", "--calls", "--device"]
    named = [c[i + 1] for c in commands for i, a in enumerate(c) if a == "--op"]
    assert sorted(named) == [op.name for op in all_operators()]
    assert all(c[c.index("--size") + 1] == "huge" and "cuda:0" in c for c in commands[2:-1])


def test_a_part_that_hangs_or_says_nothing():
    report = Report("cuda:0")
    assert report.run("slow", [sys.executable, "-c", "import time; time.sleep(60)"], limit=0.2) is None
    assert report.run("wrong", [sys.executable, "-c", "import sys; sys.exit('it is broken')"]) is None
    right = "import sys; print('[1]'); print('bench: 3 cases are left out', file=sys.stderr)"
    assert report.run("right", [sys.executable, "-c", right]) == [1]
    assert report.parts[-1].said == "bench: 3 cases are left out"
    assert [p.failed for p in report.parts] == ["not done after 0 s", "exit status 1: it is broken", ""]


def test_bars_of_bandwidth_and_products():
    name = "share of copy bandwidth"
    found = summaries(row(share=0.95), row("exp", share=0.85), row("neg"), row("conv2d", "GFLOP/s", share=0.2))
    assert found[name] == (1, 1, 1, "0.85: exp F32 x=9")
    assert summaries()[name] == (0, 0, 0, "-")
    found = summaries(
        row("gemm", "GFLOP/s", peers={"cublas": 9.9, "torch": 1.0}),
        row("gemm", "GFLOP/s", dtype="BF16", peers={"cublas": 9.7}),
        row("gemm", "GFLOP/s", dtype="F16", peers={"cublas": 9.7}),
        row("gemm", "GFLOP/s", case="y", left_out={"cublas": "ImportError: no libcublas"}),
    )
    assert found["gemm, share of cuBLAS's speed"] == (1, 1, 1, "0.97: gemm BF16 x=9")


@pytest.mark.parametrize(("kernels", "replay", "met"), [(90.0, 100.0, 4), (70.0, 200.0, 0)])
def test_bars_of_lists(kernels, replay, met):
    times = {"CALCULATE": 900.0, "BOUND": 510.0, "REPLAY": replay, "REPLAY_DEVICE": 0.95 * replay, "KERNELS": kernels}
    rows = [row("list", "Mcall/s", case=getattr(lists, name), time_us=value) for name, value in times.items()]
    found = [counts[:3] for counts in summaries(*rows).values()][2:]
    assert sum(counts[0] for counts in found) == met
    assert sum(counts[1] for counts in found) == 4 - met
    assert [counts[2] for counts in [*summaries().values()][2:]] == [1] * 4
