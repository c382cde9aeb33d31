"""Models that ask for giant tensors, or name a result twice, end as typed errors with the name of node or input."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from small_models import INT64, model, node, tensor, value

from isokern import InvalidArgument, IsokernError, OutOfMemory
from isokern.onnx import load
from isokern.runtime import assemble

GIANT = 1 << 33
FEW = "allowed: fewer than 8589934592 elements"


@pytest.fixture(autouse=True)
def little_memory():
    """Let no test take more than a part of what it asks for."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def one(kind, inputs, constants=(), given=(2,), **attrs):
    """Return a model of one node, `n`, with constants."""
    held = [tensor(name, array) for name, array in constants]
    return model([node(kind, inputs, "y", name="n", **attrs)], [value("x", given)], [value("y", None)], held)


def sizes(*numbers):
    return [("s", np.int64(numbers))]


WIDE = [
    one("ConstantOfShape", "s", sizes(GIANT)),
    one("ConstantOfShape", "s", sizes(1 << 20, 1 << 20)),
    one("Expand", "x s", sizes(GIANT, 2)),
    one("Tile", "x s", sizes(GIANT)),
    one("Pad", "x s", sizes(0, GIANT)),
    one("Pad", "x s", sizes(GIANT, 0), mode="edge"),
    one("CenterCropPad", "x s", sizes(GIANT)),
    one("RandomNormal", "", shape=[GIANT]),
    one("HannWindow", "s", [("s", np.int64(GIANT))]),
    one("OneHot", "i d v", [("i", np.int64([0, 1])), ("d", np.int64(GIANT)), ("v", np.float32([0, 1]))]),
    one("Mul", "x w", [("w", np.ones((1, 1 << 17), np.float32))], (1 << 17, 1)),
]


@pytest.mark.parametrize("made", WIDE, ids=lambda m: m.graph.node[0].op_type)
def test_a_result_of_giant_dims_names_its_node(made):
    with pytest.raises(IsokernError, match=rf"'n', {made.graph.node[0].op_type}: .*{FEW}"):
        load(made)


@pytest.mark.parametrize(
    "made",
    [
        one("Tile", "x s", sizes(1 << 62)),
        one("Pad", "x s", sizes(1 << 62, 1 << 62)),
        one("ConstantOfShape", "s", sizes(1 << 62, 1 << 62)),
        one("ConstantOfShape", "s", sizes(-1)),
        one("Split", "x", num_outputs=1 << 62),
        one("Col2Im", "x s t", [("s", np.int64([4096])), ("t", np.int64([4096]))], (1, 4096, 1)),
        one("DFT", "x", given=(1, 1 << 20, 2), inverse=1, onesided=1),
    ],
    ids=lambda m: m.graph.node[0].op_type,
)
def test_what_would_take_giant_arrays_names_its_node(made):
    with pytest.raises(IsokernError, match=rf"'n', {made.graph.node[0].op_type}: "):
        load(made)


def test_a_sequence_has_no_giant_number_of_parts():
    nodes = [node("SplitToSequence", "x", "parts", name="n"), node("SequenceLength", "parts", "y")]
    with pytest.raises(InvalidArgument, match=r"'n', SplitToSequence: .*split 1 of 1048576; allowed: .*10000 parts"):
        load(model(nodes, [value("x", [1 << 20])], [value("y", [], INT64)]))


@pytest.mark.parametrize("dims", [[GIANT], [1 << 62, 4], [1 << 20, 1 << 20, "batch"]])
def test_an_input_of_giant_dims_has_its_name(dims):
    with pytest.raises(IsokernError, match=rf"'x': dims \[.*{FEW}"):
        load(one("Relu", "x", given=dims))
    with pytest.raises(IsokernError, match=rf"'x': dims \[.*{FEW}"):
        load(one("Relu", "x", given=["batch", 2]), dims={"batch": GIANT})


def test_what_a_device_has_no_memory_for_names_the_largest_tensor(cpu, monkeypatch):
    def refuse(*_given, **_how):
        raise OutOfMemory("alloc", "8 bytes of host memory")

    monkeypatch.setattr(assemble, "Program", refuse)
    loaded = load(one("Tile", "x s", sizes(1 << 20)), cpu)
    words = r"small.*: alloc: 8 bytes of host memory; the largest tensor is F32\[1, 1048576, 2\] of 'n'"
    with pytest.raises(OutOfMemory, match=words):
        loaded.run(np.zeros(2, np.float32))


@pytest.mark.parametrize("taken", ["y", "x", "w"])
def test_a_name_of_two_results_names_the_node(taken):
    made = one("Add", "x w", [("w", np.float32([1, 2]))])
    made.graph.node.append(node("Abs", "x", taken, name="again"))
    with pytest.raises(InvalidArgument, match=f"'again', Abs: the result's name '{taken}' is taken"):
        load(made)


def test_absent_results_have_no_name_to_take(cpu):
    made = model(
        [node("LSTM", "x w r", "_ h _", hidden_size=1), node("LSTM", "x w r", "_ y _", hidden_size=1)],
        [value("x", [1, 1, 1])],
        [value("h", [1, 1, 1]), value("y", [1, 1, 1])],
        [tensor("w", np.ones((1, 4, 1), np.float32)), tensor("r", np.ones((1, 4, 1), np.float32))],
    )
    h, y = load(made, cpu).run(np.ones((1, 1, 1), np.float32))
    np.testing.assert_array_equal(h, y)
