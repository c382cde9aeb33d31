"""Test tools/gpu_report.py on the emulated GPU with small cases, and what it says of figures, failures and gaps."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from gpu_report import Part, Report, bars, main, measure, missing  # noqa: E402
from gpu_report_page import page  # noqa: E402

from isokern.bench import lists  # noqa: E402
from isokern.ops import all_operators  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def row(op="relu", unit="GB/s", share=None, dtype="F32", peers=None, left_out=None, case="x=9", time_us=10.0):
    return {
        **{
            "op": op,
            "device": "cuda:0",
            "dtype": dtype,
            "case": case,
            "time_us": time_us,
            "rate": 1.0,
            "rate_unit": unit,
        },
        **{"share_of_limit": share, "peers": peers or {}, "left_out": left_out or {}},
    }


def times(**of):
    return [row("list", "Mcall/s", case=getattr(lists, name), time_us=value) for name, value in of.items()]


def verdicts(rows, quick=False):
    return {(b.bar, b.case): (b.figure, b.met) for b in bars(rows, quick)}


def test_the_whole_on_the_emulated_gpu(tmp_path):
    command = [sys.executable, ROOT / "tools" / "gpu_report.py", "--device", "cuda_sim:0", "--quick", "--to", tmp_path]
    done = subprocess.run(
        [*command, "--peers", "numpy,torch"], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 1, done.stdout + done.stderr  # PyTorch is not timed on an emulated GPU
    (document,) = [json.loads(p.read_text()) for p in tmp_path.glob("cuda_sim-0-*.json")]
    assert [(p["name"], p["failed"]) for p in document["parts"]] == [
        (name, "") for name in ("conformance", "demo", "bench gemm to softmax", "calls")
    ]
    assert set(document["missing"]) == {"torch"}
    assert {m["op"] for m in document["measurements"]} == {"gemm", "relu", "softmax", "add", "list"}
    assert len(document["bars"]) == 7
    assert {b["met"] for b in document["bars"]} == {None}
    assert document["versions"]["device"]["emulated"] is True
    assert document["versions"]["libraries"]["numpy"]
    (text,) = [p.read_text() for p in tmp_path.glob("cuda_sim-0-*.md")]
    assert text == page(document)
    for said in (
        "An emulated GPU",
        "A quick run",
        "| torch | it is not installed",
        "| calls | python -m isokern bench --calls",
    ):
        assert said in text


def test_a_device_that_is_not_there(tmp_path, capsys):
    assert main(["--device", "cuda_sim:9", "--quick", "--to", str(tmp_path), "--peers", ""]) == 1
    (document,) = [json.loads(p.read_text()) for p in tmp_path.glob("*.json")]
    assert [p["failed"][:13] for p in document["parts"]] == ["exit status 3"] * 4
    assert document["measurements"] == []
    assert {b["figure"] for b in document["bars"]} == {None}
    assert "exit status 3" in capsys.readouterr().out
    assert "| demo |" in next(tmp_path.glob("*.md")).read_text()


def test_a_failure_among_operators_costs_one(monkeypatch):
    ran = []

    def run(self, name, command, limit=0):
        ops = [command[i + 1] for i, a in enumerate(command) if a == "--op"]
        ran.append(ops)
        report.parts.append(Part(name, "", 0.0, "exit status 1: lost" if "exp" in ops else ""))
        return None if "exp" in ops else [row(op) for op in ops]

    monkeypatch.setattr(Report, "run", run)
    report = Report("cuda:0")
    report.bench(["abs", "exp", "neg"], "--size", "huge")
    assert ran == [["abs", "exp", "neg"], ["abs"], ["exp"], ["neg"]]
    assert [r["op"] for r in report.rows] == ["abs", "neg"]
    assert [bool(p.failed) for p in report.parts] == [True, False, True, False]


def test_a_whole_run_measures_every_operator_once(monkeypatch):
    commands = []
    monkeypatch.setattr(
        Report,
        "run",
        lambda self, name, command, limit=0: self.parts.append(Part(name, "")) or commands.append(command),
    )
    measure("cuda:0", False)
    assert commands[0][1:] == [str(ROOT / "tools" / "conformance.py"), "cuda", "--keep", "--claimed"]
    assert commands[1][3:5] == ["demo", "--device"]
    assert commands[-1][3:6] == ["bench", "--calls", "--device"]
    named = [c[i + 1] for c in commands for i, a in enumerate(c) if a == "--op"]
    assert sorted(named) == [op.name for op in all_operators()]
    assert all(c[c.index("--size") + 1] == "huge" and "cuda:0" in c for c in commands[2:-1])
    (products,) = [c for c in commands if "gemm" in c]
    assert products[products.index("--dtype") + 1] == "F32,BF16,F16"


def test_a_part_that_hangs_or_says_nothing():
    report = Report("cuda:0")
    assert report.run("slow", [sys.executable, "-c", "import time; time.sleep(60)"], limit=0.2) is None
    assert report.run("wrong", [sys.executable, "-c", "import sys; sys.exit('it is broken')"]) is None
    right = "import sys; print('[1]'); print('bench: 3 cases are left out', file=sys.stderr)"
    assert report.run("right", [sys.executable, "-c", right]) == [1]
    assert report.parts[-1].said == "bench: 3 cases are left out"
    assert [p.failed for p in report.parts] == ["not done after 0 s", "exit status 1: it is broken", ""]


def test_bars_of_bandwidth():
    found = verdicts([row(share=0.95), row("exp", share=0.85), row("neg"), row("conv2d", "GFLOP/s", share=0.2)])
    name = "share of copy bandwidth"
    assert {k: v for k, v in found.items() if k[0] == name} == {
        (name, "relu F32 x=9"): (0.95, True),
        (name, "exp F32 x=9"): (0.85, False),
        (name, "neg F32 x=9"): (None, None),
    }


def test_bars_of_products():
    name = "gemm, share of cuBLAS's speed"
    rows = [
        row("gemm", "GFLOP/s", peers={"cublas": 9.9, "torch": 1.0}),
        row("gemm", "GFLOP/s", dtype="BF16", peers={"cublas": 9.7}),
        row("gemm", "GFLOP/s", dtype="F16", peers={"cublas": 9.7}),
        row("gemm", "GFLOP/s", case="y", left_out={"cublas": "ImportError: no libcublas"}),
    ]
    found = verdicts(rows)
    assert {k[1]: v for k, v in found.items() if k[0] == name} == {
        "gemm F32 x=9": (pytest.approx(0.99), True),
        "gemm BF16 x=9": (pytest.approx(0.97), False),
        "gemm F32 y": (None, None),
    }
    assert [b.note for b in bars(rows, False) if b.case == "gemm F32 y"] == ["ImportError: no libcublas"]


def test_bars_of_lists():
    good = verdicts(times(CALCULATE=900.0, BOUND=510.0, REPLAY=100.0, REPLAY_DEVICE=95.0, KERNELS=90.0))
    figures, met = zip(*sorted(v for k, v in good.items() if k[1] == "100 operators"), strict=True)
    assert figures == pytest.approx([95 / 90, 100 / 90, 5.1, 9.0])
    assert met == (True,) * 4
    bad = verdicts(times(CALCULATE=400.0, BOUND=300.0, REPLAY=100.0, REPLAY_DEVICE=95.0, KERNELS=70.0))
    assert {v[1] for k, v in bad.items() if k[1] == "100 operators"} == {False}


def test_bars_without_figures():
    assert set(verdicts([]).values()) == {(None, None)}
    assert len(verdicts([])) == 6
    assert verdicts([row(share=0.95)], quick=True)["share of copy bandwidth", "relu F32 x=9"] == (0.95, None)


def test_missing():
    rows = [row(peers={"cupy": 1.0}, left_out={"torch": "ImportError: libtorch"})]
    assert missing(["torch", "cupy", "cublas"], rows) == {
        "torch": "ImportError: libtorch",
        "cublas": "it is not installed, or has no call for what was run",
    }
