"""Test `isokern run`, and the graph commands on ONNX files."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

import onnx
from small_models import classifier

from isokern.cli import main
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
