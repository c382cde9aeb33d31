"""Test `isokern run`, and the graph commands on ONNX files."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

import onnx
from rich.console import Console
from small_models import classifier

from isokern.cli import main
from isokern.cli._output import progress
from isokern.onnx import load


@pytest.fixture
def path(tmp_path):
    """Return the path of a small model."""
    onnx.save(classifier(), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


@pytest.fixture
def run(capsys):
    """Return a function that runs a command and gives its exit code and output."""

    def call(*words):
        with pytest.raises(SystemExit) as end:
            main([str(w) for w in words])
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return call


def test_run_writes_what_the_model_gives(path, tmp_path, run, cpu):
    x = np.random.default_rng(3).standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    words = ["--input", f"x={tmp_path / 'x.npy'}", "--repeat", 1, "--device", cpu.name, "-o", tmp_path / "y.npz"]
    code, out, err = run("run", path, *words)
    assert code == 0
    assert "[2, 5]" in out
    assert "the median of 1 runs" in err
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], load(path, cpu).run(x))


def test_run_on_random_numbers(path, run, cpu):
    code, out, _ = run("run", path, "--input", "x=random", "--dim", "batch=3", "--json", "--device", cpu.name)
    document = json.loads(out)
    assert code == 0
    assert document["outputs"][0]["shape"] == [3, 5]
    assert document["run_s"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "z=random"], "allowed: x: FLOAT[batch, 3, 8, 8]"),
        (["--input", "x"], "allowed: NAME=FILE"),
        (["--input", "x=missing.npy"], "does not exist"),
        (["--dim", "batch"], "allowed: NAME=N"),
        (["--dim", "width=2"], "allowed: batch"),
        (["-o", "missing/y.npz"], "there is no folder"),
    ],
)
def test_run_says_what_is_wrong(path, run, words, message):
    code, _, err = run("run", path, *words)
    assert code == 2
    assert message in err


def test_an_input_that_is_no_array(path, tmp_path, run):
    (tmp_path / "x.npy").write_bytes(b"text")
    code, _, err = run("run", path, "--input", f"x={tmp_path / 'x.npy'}")
    assert code == 2
    assert "allowed: an .npy file" in err


def test_graph_commands_take_models(path, run, cpu):
    code, out, err = run("graph", "dump", path)
    assert code == 0
    assert 'input "x": F32[1, 3, 8, 8]' in out
    assert "batch: 1 each" in err
    code, out, _ = run("graph", "summary", path, "--dim", "batch=4")
    assert "F32[4, 5]" in out
    code, out, err = run("graph", "explain", path, "--dim", "batch=2", "--check", "--device", cpu.name)
    assert code == 0
    assert "agree with their references" in err


def test_dims_are_of_onnx_files_alone(run):
    code, _, err = run("graph", "dump", "digits", "--dim", "batch=2")
    assert code == 2
    assert "allowed: an ONNX file" in err


def test_a_bar_shows_how_far_a_run_is():
    """On a terminal; elsewhere there is none."""
    text = io.StringIO()
    with progress(3, Console(file=text, force_terminal=True, width=80)) as begin:
        for name in ("reading", "compiling", "running"):
            begin(name)
    assert "running" in text.getvalue() and "\x1b[" in text.getvalue()
    text = io.StringIO()
    with progress(1, Console(file=text)) as begin:
        begin("reading")
    assert not text.getvalue()


def test_run_takes_another_leading_dim(tmp_path, run, cpu):
    onnx.save(classifier(1), tmp_path / "one.onnx")
    np.save(tmp_path / "x.npy", np.zeros((4, 3, 8, 8), np.float32))
    words = ["run", tmp_path / "one.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--device", cpu.name, "--json"]
    code, _, err = run(*words)
    assert code and "FLOAT[1, 3, 8, 8]" in err
    code, out, _ = run(*words, "--dynamic", "--repeat", 1, "--no-prepack")
    assert not code and json.loads(out)["outputs"][0]["shape"] == [4, 5]
