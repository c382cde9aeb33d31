"""Run ONNX's own backend suite: on the CPU, and in the full run on every device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

import onnx
from onnx import helper
from suite import count, is_node, judge, lacking, list_tests, read_list, verdict

import isokern
from isokern.onnx import backend


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Let the suite write what it computes where nobody minds."""
    monkeypatch.setenv("ONNX_HOME", str(tmp_path))


def run(device, names):
    return [why for outcome, why in (verdict(device, name) for name in names) if outcome == "wrong"]


def find_first_of_each(names):
    """Return the first test of each operator, whose name follows `test_`, in the order of the alphabet."""
    return {re.match(r"test_([a-z]*)", name)[1]: name for name in sorted(names, reverse=True)}


def test_the_first_test_of_each_operator_passes_on_the_cpu(cpu):
    first = find_first_of_each(list_tests(cpu.name))
    assert (len(first) > 170, first["softmax"]) == (True, "test_softmax_axis_0")
    assert run(cpu.name, first.values()) == []


@pytest.mark.full
def test_the_suite_passes_on_the_cpu_but_for_the_list(cpu):
    assert len(list_tests(cpu.name)) > 2000
    assert run(cpu.name, list_tests(cpu.name)) == []


@pytest.mark.full
def test_the_page_says_how_the_suite_ends_on_the_cpu(cpu):
    """That of the documentation, where it was made with this version of ONNX."""
    kept = json.loads((Path(__file__).parents[2] / "docs" / "onnx_suite.json").read_text(encoding="utf-8"))[cpu.name]
    if kept["onnx"] == onnx.__version__:
        assert count(cpu.name) == kept, f"python docs/generate.py onnx_suite {cpu.name}"
    assert not kept["wrong"]


def test_nearly_all_node_tests_of_tensor_operators_pass(cpu):
    """Of the tests that are about tensors, and about no random numbers, at least 97 in 100 pass."""
    no_tensors = ("Sequences", "Text", "Image files", "Graphs are for", "Dropout", "The domain", "Random")
    nodes = [n for n in list_tests(cpu.name) if is_node(list_tests(cpu.name)[n])]
    entries = [e for e in read_list() if e.kind != "tolerance"]
    counted = [n for n in nodes if not any(e.matches(n) and e.sentence.startswith(no_tensors) for e in entries)]
    passed = [n for n in counted if not any(e.matches(n) for e in entries)]
    assert len(counted) > 1700
    assert len(passed) / len(counted) >= 0.97


def test_every_line_of_the_list_is_of_some_test(cpu):
    names = list(list_tests(cpu.name))
    assert [e for e in read_list() if not any(e.matches(n) for n in names)] == []


def refuse(problem):
    """Return a test of a backend that refuses everything with this."""

    def test(_):
        raise isokern.NotImplementedOnDevice("graph", problem)

    return test


def test_only_a_dtype_that_a_device_lacks_excuses_it():
    lack = "1 operators can neither stay nor be decomposed: cast of y: a: F64: the cores have no unit for double"
    assert judge("test_some", refuse(lack), {"F64"})[0] == "lacking"
    assert judge("test_some", refuse(lack), set())[0] == "wrong"
    assert judge("test_some", refuse(f"{lack}; iota of z: a: 9 axes, at most 8"), {"F64"})[0] == "wrong"
    assert judge("test_some", refuse("iota of z: the device has no kernel for iota"), {"F64"})[0] == "wrong"


def test_the_cpu_lacks_no_dtype(cpu):
    assert lacking(cpu.name) == set()


@pytest.mark.full
def test_the_suite_passes_on_every_device(devices):
    """But for what a device lacks a dtype for, which it says."""
    for device in devices:
        assert run(device.name, list_tests(device.name)) == [], device.name


def test_one_node():
    node = helper.make_node("Add", ["a", "b"], ["c"])
    (found,) = backend.run_node(node, [np.float32([1, 2]), np.float32([3, 4])])
    np.testing.assert_array_equal(found, [4, 6])


def test_devices():
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:77")
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
        )
    )
    (found,) = backend.run_model(model, [np.float32([-1, 1])], "CPU")
    np.testing.assert_array_equal(found, [0, 1])
