"""Test models: dims, constants, external files, versions, functions and control flow."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from small_models import BOOL, FLOAT, INT64, classifier, model, node, tensor, value

import isokern.onnx
from isokern import BadTensorDtype, BadTensorShape, InvalidArgument
from isokern.onnx import UnsupportedModel, load
from isokern.runtime import Program


def images(n, width=8):
    return np.random.default_rng(1).standard_normal((n, 3, width, width)).astype(np.float32)


def test_a_model_says_what_the_reference_says(cpu):
    made = classifier()
    x = images(3)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    loaded = load(made, cpu)
    np.testing.assert_allclose(loaded.run(x), wanted, 1e-4, 1e-4)
    np.testing.assert_allclose(loaded.run({"x": x}), wanted, 1e-4, 1e-4)


def test_names_of_dims_are_bound_by_load_or_by_runs(cpu):
    free = load(classifier(), cpu)
    assert free.inputs[0].shape == ("batch", 3, 8, 8)
    with pytest.raises(InvalidArgument, match="dims batch are not known"):
        assert free.graph
    for n in (1, 4):
        assert free.run(images(n)).shape == (n, 5)
    bound = load(classifier(), cpu, dims={"batch": 2})
    assert bound.graph.inputs[0].spec.shape == (2, 3, 8, 8)
    with pytest.raises(BadTensorShape, match=r"shape \[3, 3, 8, 8\]; allowed: x: FLOAT\[2, 3, 8, 8\]"):
        bound.run(images(3))
    with pytest.raises(InvalidArgument, match="dims width; allowed: batch"):
        load(classifier(), cpu, dims={"width": 2})


def test_a_program_that_is_dropped_while_another_thread_has_it_runs(cpu, monkeypatch):
    monkeypatch.setattr("isokern.onnx.model.KEPT", 1)
    found, dropped, run = threading.Event(), threading.Event(), Program.run_direct

    def run_late(program, feeds):
        if not found.is_set():
            found.set()
            assert dropped.wait(60)
        return run(program, feeds)

    monkeypatch.setattr(Program, "run_direct", run_late)
    loaded = load(classifier(), cpu)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(loaded.run, images(1))
        assert found.wait(60)
        assert loaded.run(images(2)).shape == (2, 5)
        dropped.set()
        assert first.result().shape == (1, 5)


def test_shapes_that_a_model_computes_are_constants():
    graph = load(classifier(), dims={"batch": 2}).graph
    assert [op.kind for op in graph.ops] == ["conv2d", "relu", "reshape", "matmul"]
    assert {v.name for v in graph.parameters} == {"w", "dense"}
    assert graph.ops[0].name == "conv"


def test_known_numbers_become_attributes():
    nodes = [
        node("Clip", "x zero six", "a"),
        node("Mul", "a half", "b"),
        node("Sub", "one b", "c"),
        node("Pow", "c two", "d"),
        node("Add", "d wide", "y"),
    ]
    numbers = {"zero": 0, "six": 6, "half": 0.5, "one": 1, "two": 2, "wide": [[1]]}
    made = [tensor(name, np.float32(number)) for name, number in numbers.items()]
    ops = load(model(nodes, [value("x", [3])], [value("y", [1, 3])], made)).graph.ops
    assert [op.kind for op in ops] == ["clip", "scale", "rsub_scalar", "square", "add"]
    assert (ops[0].attrs["min"], ops[0].attrs["max"], ops[1].attrs["value"]) == (0, 6, 0.5)


def test_feeds_are_checked(cpu):
    loaded = load(classifier(), cpu)
    with pytest.raises(InvalidArgument, match="feeds z; allowed: x"):
        loaded.run({"z": images(1)})
    with pytest.raises(InvalidArgument, match="2 feeds; allowed: 1: x"):
        loaded.run(images(1), images(1))
    whole = load(model([node("Neg", "x", "y")], [value("x", [2], INT64)], [value("y", [2], INT64)]), cpu)
    with pytest.raises(BadTensorDtype, match="input x: dtype F32; allowed: INT64"):
        whole.run(np.float32([1, 2]))


def test_inputs_that_decide_shapes_are_part_of_a_program(cpu):
    made = model([node("Reshape", "x to", "y")], [value("x", [6]), value("to", [2], INT64)], [value("y", None)])
    loaded = load(made, cpu)
    x = np.arange(6, dtype=np.float32)
    for to in ([2, 3], [3, -1]):
        np.testing.assert_array_equal(loaded.run(x, np.int64(to)), x.reshape(to))
    assert loaded.known_inputs == {"to"}


def test_a_shape_that_follows_from_large_inputs_is_computed_first(cpu):
    nodes = [node("NonZero", "x", "at"), node("Shape", "at", "s"), node("Cast", "s", "y", to=FLOAT)]
    loaded = load(model(nodes, [value("x", [100, 100])], [value("y", [2])]), cpu)
    for count in (3, 0, 77):
        x = np.zeros((100, 100), np.float32)
        x.reshape(-1)[:count] = 1
        np.testing.assert_array_equal(loaded.run(x), [2, count])
    assert loaded.known_inputs == set()


def test_results_of_as_many_elements_as_there_are(cpu):
    loaded = load(model([node("NonZero", "x", "y")], [value("x", [2, 3])], [value("y", None, INT64)]), cpu)
    x = np.float32([[0, 1, 0], [2, 0, 3]])
    np.testing.assert_array_equal(loaded.run(x), np.stack(np.nonzero(x)))
    assert loaded.run(np.zeros((2, 3), np.float32)).shape == (2, 0)


def test_elements_in_a_file_beside_the_model_are_mapped(tmp_path, cpu):
    made = classifier()
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    loaded = load(path, cpu)
    assert {type(a) for n, a in loaded._source.arrays.items() if n in ("w", "dense")} == {np.memmap}
    assert not loaded._source.arrays["w"].flags.writeable
    np.testing.assert_array_equal(loaded.run(images(2)), load(classifier(), cpu).run(images(2)))
    with pytest.raises(InvalidArgument, match="load the model from its path"):
        load(onnx.load(path, load_external_data=False))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "int4", "uint4"])
def test_initialisers_of_every_width(cpu, kind):
    dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    w = np.array([1, 2, 3, 7]).astype(dtype)
    loaded = load(model([node("Cast", "w", "y", to=FLOAT)], [], [value("y", [4])], [tensor("w", w)]), cpu)
    np.testing.assert_array_equal(loaded.run(), w.astype(np.float32))


def test_results_have_the_narrow_types_that_the_model_says(cpu):
    nodes = [node("QuantizeLinear", "x s _", "q", output_dtype=TensorProto.INT4), node("Transpose", "q", "y")]
    made = model(nodes, [value("x", [2, 2])], [value("y", [2, 2], TensorProto.INT4)], [tensor("s", np.float32(0.5))])
    found = load(made, cpu).run(np.float32([[1, 2], [-9, 9]]))
    assert found.dtype == ml_dtypes.int4
    np.testing.assert_array_equal(found.astype(int), [[2, -8], [4, 7]])


@pytest.mark.parametrize("opset", [7, 9, 11, 12])
def test_older_opsets_are_converted(cpu, opset):
    """Softmax of three dims works on a matrix before opset 13."""
    made = model([node("Softmax", "x", "y", axis=1)], [value("x", [2, 3, 4])], [value("y", [2, 3, 4])], opset=opset)
    made.ir_version = 4
    x = images(1)[0, :2, :3, :4].copy()
    flat = np.exp(x.reshape(2, 12))
    np.testing.assert_allclose(load(made, cpu).run(x), (flat / flat.sum(1, keepdims=True)).reshape(x.shape), 1e-5)


def test_functions_of_a_model_are_expanded(cpu):
    body = [node("Mul", "a a", "s"), helper.make_node("Scale", ["s"], ["b"], domain="local")]
    last = [node("Constant", "", "two", value_float=2.0), node("Mul", "a two", "b")]
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function("local", "Scale", ["a"], ["b"], last, versions),
        helper.make_function("local", "SquareTwice", ["a"], ["b"], body, versions),
    ]
    call = helper.make_node("SquareTwice", ["x"], ["y"], domain="local")
    made = model([call], [value("x", [3])], [value("y", [3])], functions=functions, domains=["local"])
    np.testing.assert_allclose(load(made, cpu).run(np.float32([1, 2, 3])), [2, 8, 18])


def branches(condition):
    parts = [
        helper.make_graph([node(kind, "x", f"{kind}_y")], kind, [], [value(f"{kind}_y", [2])])
        for kind in ("Neg", "Abs")
    ]
    return node("If", condition, "y", then_branch=parts[0], else_branch=parts[1])


@pytest.mark.parametrize("known", [True, False])
def test_the_branch_of_a_known_condition_is_taken(cpu, known):
    made = model([branches("c")], [value("x", [2])], [value("y", [2])], [tensor("c", np.array(known))])
    loaded = load(made, cpu)
    assert [op.kind for op in loaded.graph.ops] == ["neg" if known else "abs"]
    np.testing.assert_array_equal(loaded.run(np.float32([-1, 2])), [1, -2] if known else [1, 2])


def loop(inputs, *more):
    body = helper.make_graph(
        [node("Add", "a x", "b"), node("Identity", "b", "each"), *more],
        "body",
        [value("i", [], INT64), value("c", [], BOOL), value("a", [2])],
        [value("c" if not more else "go", [], BOOL), value("b", [2]), value("each", [2])],
    )
    return node("Loop", inputs, "last all", body=body, name="repeat")


def test_a_loop_is_unrolled(cpu):
    made = model(
        [loop("three yes zero")],
        [value("x", [2])],
        [value("last", [2]), value("all", [3, 2])],
        [tensor("three", np.int64(3)), tensor("yes", np.array(True)), tensor("zero", np.zeros(2, np.float32))],
    )
    x = np.float32([1, 2])
    last, every = load(made, cpu).run(x)
    np.testing.assert_array_equal(last, 3 * x)
    np.testing.assert_array_equal(every, [x, 2 * x, 3 * x])


def test_a_loop_that_never_ends_is_refused():
    made = model(
        [loop("many yes x")],
        [value("x", [2])],
        [value("last", [2]), value("all", None)],
        [tensor("many", np.int64(2**62)), tensor("yes", np.array(True))],
    )
    with pytest.raises(InvalidArgument, match=r"repeat.*more than 10000 steps"):
        load(made, "cpu")


def test_unknown_operators_are_listed_at_once():
    nodes = [
        helper.make_node("Mystery", ["x"], ["a"], name="first", domain="com.example"),
        node("StringSplit", "a", "s n", name="second"),
        node("RegexFullMatch", "s", "y", pattern="a"),
    ]
    made = model(nodes, [value("x", [2])], [value("y", [2], BOOL)], domains=["com.example"])
    with pytest.raises(UnsupportedModel) as error:
        load(made)
    assert "3 nodes have no counterpart here" in str(error.value)
    assert "Mystery of com.example 1 at 'first'" in str(error.value)
    assert "StringSplit of ai.onnx 21 at 'second'" in str(error.value)


def test_sequences_inside_a_model_leave_nothing(cpu):
    nodes = [
        node("SplitToSequence", "x", "s", axis=0, keepdims=0),
        node("SequenceAt", "s one", "a"),
        node("SequenceInsert", "s a", "longer"),
        node("SequenceErase", "longer zero", "t"),
        node("ConcatFromSequence", "t", "y", axis=0, new_axis=1),
        node("SequenceLength", "t", "n"),
    ]
    constants = [tensor("one", np.int64(1)), tensor("zero", np.int64(0))]
    outputs = [value("y", [3, 2]), value("n", [], INT64)]
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    y, n = load(model(nodes, [value("x", [3, 2])], outputs, constants), cpu).run(x)
    np.testing.assert_array_equal(y, x[[1, 2, 1]])
    assert n == 3


def test_a_sequence_is_no_result():
    nodes = [node("SequenceConstruct", "x x", "s")]
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    with pytest.raises(UnsupportedModel, match="sequence_type"):
        load(model(nodes, [value("x", [2])], [sequence]))


def test_results_that_are_inputs_or_constants(cpu):
    nodes = [node("Identity", "x", "same"), node("Shape", "x", "s")]
    outputs = [value("same", [2]), value("w", [1]), value("s", [1], INT64)]
    made = model(nodes, [value("x", [2])], outputs, [tensor("w", np.float32([5]))])
    same, w, s = load(made, cpu).run(np.float32([1, 2]))
    assert (same.tolist(), w.tolist(), s.tolist()) == ([1, 2], [5], [2])


def test_a_model_is_a_model_of_ours():
    loaded = load(classifier(), dims={"batch": 1})
    assert "conv2d" in loaded.built.summary()
    assert "batch" in repr(isokern.onnx.load(classifier()))


def test_tables_of_nodes_name_operators_that_onnx_has():
    from isokern.onnx.control import CONTROL
    from isokern.onnx.table import FAMILIES, NODES

    schemas = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
    others = {"SimplifiedLayerNormalization"}  # which ONNX Runtime has in the same domain
    assert (set(NODES) | set(CONTROL)) - schemas == others
    assert sum(len(f.NODES) for f in FAMILIES) == len(NODES)


def test_a_leading_dim_that_is_a_number_can_be_another(cpu):
    """With dynamic=True; the parameters are there once, whatever the dims."""
    made = classifier(1)
    x = np.random.default_rng(0).standard_normal((5, 3, 8, 8)).astype(np.float32)
    with pytest.raises(BadTensorShape, match="FLOAT\\[1, 3, 8, 8\\]"):
        load(made, cpu).run(x)
    loaded = load(made, cpu, dynamic=True)
    assert str(loaded.inputs[0]) == "x: FLOAT[rows, 3, 8, 8]"
    whole = loaded.run(x)
    packed, live = cpu.prepack_cache.packed, cpu.memory.live
    for n in range(5):
        np.testing.assert_allclose(loaded.run(x[n : n + 1]), whole[n : n + 1], 1e-5, 1e-5)
    programs = [c.programs[0] for c in loaded._programs.values()]
    assert len(programs) == 2 and cpu.prepack_cache.packed == packed
    assert cpu.memory.live - live <= programs[1].nbytes
    first, second = (p.parameters for p in programs)
    assert first and first.keys() == second.keys() and all(first[n] is second[n] for n in first)
    assert programs[0].prepacked == programs[1].prepacked
    named = load(classifier("batch"), cpu, dynamic=["x"])
    assert str(named.inputs[0]) == "x: FLOAT[batch, 3, 8, 8]"
    with pytest.raises(InvalidArgument, match="dynamic input 'w'"):
        load(made, cpu, dynamic=["w"])


def test_a_named_second_dim_is_of_each_run(cpu):
    nodes = [node("MatMul", "x w", "y")]
    held = [tensor("w", np.random.default_rng(0).standard_normal((4, 3), np.float32))]
    made = model(nodes, [value("x", ["batch", "sequence", 4])], [value("y", ["batch", "sequence", 3])], held)
    loaded = load(made, cpu, dynamic=True)
    for shape in ((2, 5, 4), (1, 1, 4), (3, 8, 4), (2, 5, 4)):
        x = np.random.default_rng(1).standard_normal(shape, np.float32)
        np.testing.assert_allclose(loaded.run(x), x @ numpy_helper.to_array(held[0]), 1e-5, 1e-5)


def test_a_second_dim_that_is_a_number_says_what_to_do(cpu):
    made = model([node("Relu", "x", "y")], [value("x", [2, 3, 4])], [value("y", [2, 3, 4])])
    words = r"input x: shape \[2, 5, 4\]; allowed: x: FLOAT\[rows, 3, 4\] with rows = 2.*a dim that varies has a name"
    with pytest.raises(BadTensorShape, match=words):
        load(made, cpu, dynamic=True).run(np.zeros((2, 5, 4), np.float32))


def test_a_node_that_needs_the_leading_dim_says_so(cpu):
    nodes = [node("Reshape", "x to", "y", name="flat")]
    made = model(nodes, [value("x", [2, 3, 4])], [value("y", [2, 12])], [tensor("to", np.int64([2, 12]))])
    loaded = load(made, cpu, dynamic=True)
    assert loaded.run(np.zeros((2, 3, 4), np.float32)).shape == (2, 12)
    with pytest.raises(BadTensorShape, match="'flat', Reshape"):
        loaded.run(np.zeros((3, 3, 4), np.float32))
