"""Models that are wrong or hostile end as typed errors, and nothing outside their folder is read."""

from __future__ import annotations

import math
import os
import random
import signal
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

import onnx
from model_mutations import break_bytes, break_message, seeds
from onnx import TensorProto, helper, numpy_helper
from small_models import FLOAT, classifier, model, node, tensor, value

from isokern import BadTensorDtype, BadTensorShape, InvalidArgument, IsokernError
from isokern.onnx import load
from isokern.onnx.elements import OURS


def relu(**changes):
    """Return a model of one node, with changes to its message."""
    made = model([node("Relu", "x", "y", name="only")], [value("x", [2])], [value("y", [2])])
    for name, change in changes.items():
        change(made.graph if name == "graph" else made)
    return made


def outside(tmp_path, location, **more):
    """Return the path of a model whose weights lie at a location; a secret file is in the folder above it."""
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (tmp_path / "secret").write_bytes(bytes(1 << 16))
    (folder / "weights.bin").write_bytes(bytes(1 << 16))
    (folder / "link").unlink(missing_ok=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, said in {"location": location, **more}.items():
        weights.external_data.add(key=key, value=str(said))
    made = model([node("Add", "x w", "y")], [value("x", [2])], [value("y", [2])], [weights])
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link", "", "a\0b", "missing", ".", "..", "../model"])
def test_weights_outside_the_folder_are_not_read(tmp_path, location):
    with pytest.raises(InvalidArgument, match=r"initialiser 'w'"):
        load(outside(tmp_path, location))


@pytest.mark.parametrize(
    "more",
    [{"offset": 1 << 16}, {"offset": -4}, {"length": 4}, {"length": 1 << 40}, {"offset": "x"}, {"offset": "9" * 30}],
)
def test_weights_beyond_the_file_are_refused(tmp_path, more):
    with pytest.raises(InvalidArgument, match=r"initialiser 'w'"):
        load(outside(tmp_path, "weights.bin", **more))


@pytest.mark.parametrize("text", [b"weights.bin", b"4096"])
def test_places_of_weights_that_are_no_text_are_refused(tmp_path, text):
    path = outside(tmp_path, "weights.bin", offset=4096)
    path.write_bytes(path.read_bytes().replace(text, b"\xff" + text[1:]))
    with pytest.raises(InvalidArgument, match=r"initialiser 'w'"):
        load(path)


def test_weights_in_a_file_are_read(tmp_path, cpu):
    x = np.float32([1, 2])
    np.testing.assert_array_equal(load(outside(tmp_path, "weights.bin", offset=8), cpu).run(x), x)


NARROW = ["INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ"]


def narrow(name, path):
    """Write a model whose result is 3 × 5 weights of a narrow type in a file; return the weights."""
    kind = getattr(TensorProto, name)
    numbers = np.arange(15).reshape(3, 5) % 4 - (0 if "UINT" in name else 2)
    weights = numpy_helper.from_array(numbers.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")
    made = model([node("Identity", "w", "y")], [value("x", [2])], [value("y", [3, 5], kind)], [weights], opset=25)
    onnx.save_model(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return numbers


@pytest.mark.parametrize("name", NARROW)
def test_narrow_weights_in_a_file_are_unpacked(tmp_path, cpu, name):
    wanted = narrow(name, tmp_path / "model.onnx")
    assert (tmp_path / "weights.bin").stat().st_size == {"4": 8, "2": 4}.get(name[-1], 8 if "E2M1" in name else 15)
    found = load(tmp_path / "model.onnx", cpu).run(np.zeros(2, np.float32))
    np.testing.assert_array_equal(found.astype(np.float32), wanted)


@pytest.mark.parametrize("name", NARROW)
def test_narrow_weights_beyond_the_file_are_refused(tmp_path, name):
    narrow(name, tmp_path / "model.onnx")
    content = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(content[:-1])
    with pytest.raises(InvalidArgument, match=rf"initialiser 'w': bytes 0 to {len(content)} of 'weights.bin'"):
        load(tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    (tmp_path / "weights.bin").symlink_to("/etc/passwd")
    with pytest.raises(InvalidArgument, match=r"initialiser 'w': elements in the file 'weights.bin', outside"):
        load(tmp_path / "model.onnx")


def test_tensors_of_attributes_in_files_are_refused(tmp_path):
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="../secret")
    made = model([node("Constant", "", "y", value=weights)], [], [value("y", [2])])
    with pytest.raises(InvalidArgument, match="Constant '': a tensor in a file"):
        load(made)


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        (lambda: relu(graph=lambda g: g.node.append(g.node[0])), InvalidArgument, "only.*y.*taken"),
        (lambda: relu(graph=lambda g: g.node[0].input.__setitem__(0, "y")), InvalidArgument, "not valid"),
        (lambda: relu(graph=lambda g: g.input.pop()), InvalidArgument, "not valid"),
        (lambda: relu(model=lambda m: m.opset_import.pop()), InvalidArgument, "opset"),
        (lambda: relu(graph=lambda g: setattr(g.node[0], "op_type", "Reluu")), IsokernError, "Reluu.*only"),
        (lambda: relu(graph=lambda g: setattr(g.output[0], "name", "z")), InvalidArgument, "z"),
        (lambda: relu(model=lambda m: setattr(m.opset_import[0], "version", 1000)), InvalidArgument, "opset 1000"),
        (lambda: relu(model=lambda m: m.ClearField("graph")), InvalidArgument, "there is no graph"),
    ],
)
def test_a_model_that_is_not_valid(made, error, words):
    with pytest.raises(error, match=words):
        load(made())


def test_two_initialisers_of_one_name():
    twice = [tensor("w", np.float32([1, 2])), tensor("w", np.float32([3, 4]))]
    with pytest.raises(InvalidArgument, match=r"initialiser 'w': the name is missing or taken"):
        load(model([node("Add", "x w", "y")], [value("x", [2])], [value("y", [2])], twice))


@pytest.mark.parametrize("dims", [[1 << 62], [1 << 62, 1 << 62], [-2], [3]])
def test_dims_that_the_bytes_are_not_of(dims):
    wrong = tensor("w", np.float32([1, 2]))
    del wrong.dims[:]
    wrong.dims.extend(dims)
    with pytest.raises((InvalidArgument, BadTensorShape), match=r"initialiser 'w'"):
        load(model([node("Add", "x w", "y")], [value("x", [2])], [value("y", [2])], [wrong]))


@pytest.mark.parametrize("kind", ["FLOAT", "INT4"])
@pytest.mark.parametrize(
    ("dims", "words"),
    [([0, 1 << 62, 1 << 62], r"dims \[0, .*fewer than 8589934592 elements"), ([1] * 70, "70 dims; allowed: 0 to 8")],
)
def test_dims_that_no_array_has(tmp_path, dims, words, kind):
    weights = TensorProto(name="w", data_type=getattr(TensorProto, kind), dims=dims)
    weights.raw_data = b"" if 0 in dims else bytes(4 if kind == "FLOAT" else 1)
    made = model([node("Identity", "w", "y")], [], [value("y", None, weights.data_type)], [weights])
    with pytest.raises(BadTensorShape, match=f"initialiser 'w': {words}"):
        load(made)
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="weights.bin")
    made.graph.initializer[0].CopyFrom(weights)
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(BadTensorShape, match=f"initialiser 'w': {words}"):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("kind", "inputs", "given"),
    [
        ("Conv", "x w", FLOAT),
        ("ConvTranspose", "x v", FLOAT),
        ("ConvInteger", "u i", TensorProto.INT32),
        ("QLinearConv", "u s z i s z s z", TensorProto.UINT8),
    ],
)
def test_a_kernel_shape_that_is_not_the_weights(kind, inputs, given):
    w = np.ones((4, 2, 3), np.float32)
    held = {"w": w, "v": w.reshape(2, 4, 3), "i": w.astype(np.uint8), "s": np.float32(1), "z": np.uint8(0)}
    feeds = [value("x", [1, 2, 9]), value("u", [1, 2, 9], TensorProto.UINT8)]
    held = [tensor(n, array) for n, array in held.items()]
    for wrong in ([5], [3, 3]):
        nodes = [node(kind, inputs, "y", kernel_shape=wrong, name="n")]
        said = ", ".join(map(str, wrong))
        with pytest.raises(InvalidArgument, match=rf"'n', {kind}: .*kernel_shape \[{said}\]; allowed: \[3\]"):
            load(model(nodes, feeds, [value("y", None, given)], held))
    load(model([node(kind, inputs, "y", kernel_shape=[3])], feeds, [value("y", None, given)], held))


@pytest.mark.parametrize(
    ("kind", "attrs", "words"),
    [
        ("QLinearConcat", {}, "attribute axis is not given; allowed: one of type INT"),
        ("QLinearAveragePool", {}, "attribute kernel_shape is not given; allowed: one of type INTS"),
        ("QLinearAveragePool", {"kernel_shape": "zz"}, "attribute kernel_shape is 'zz'; allowed: type INTS"),
        ("QLinearSoftmax", {"opset": "13"}, "attribute opset is '13'; allowed: type INT"),
        ("QGemm", {"alpha": "q"}, "attribute alpha is 'q'; allowed: type FLOAT"),
    ],
)
def test_attributes_that_another_domain_has_no_use_for(kind, attrs, words):
    inputs = {"QLinearConcat": "s z x s z", "QGemm": "x s z w s z c"}.get(kind, "x s z s z")
    held = [tensor("s", np.float32(1)), tensor("z", np.uint8(0)), tensor("w", np.ones((4, 4), np.uint8))]
    nodes = [node(kind, inputs, "y", domain="com.microsoft", name="n", **attrs)]
    feed = value("x", [1, 1, 4, 4] if "Pool" in kind else [4, 4], TensorProto.UINT8)
    held.append(tensor("c", np.zeros(4, np.int32)))
    made = model(nodes, [feed], [value("y", None, 0)], held, domains=["com.microsoft"])
    with pytest.raises(InvalidArgument, match=f"'n', {kind}: {kind}: {words}"):
        load(made)


def test_types_that_do_not_fit_name_the_node(cpu):
    made = model(
        [node("Add", "x w", "y", name="sum")], [value("x", [2])], [value("y", [2])], [tensor("w", np.int64([1]))]
    )
    with pytest.raises(BadTensorDtype, match="'sum', Add"):
        load(made, cpu)


def test_results_of_another_type_than_declared(cpu):
    made = model([node("Shape", "x", "y")], [value("x", [2])], [value("y", [1])])
    with pytest.raises(BadTensorDtype, match="y: the result has elements of type INT64; allowed: FLOAT"):
        load(made, cpu)


def test_dims_that_do_not_fit_name_the_node(cpu):
    made = model(
        [node("Add", "x w", "y", name="sum")],
        [value("x", [2])],
        [value("y", [2])],
        [tensor("w", np.float32([1, 2, 3]))],
    )
    with pytest.raises(IsokernError, match="'sum', Add"):
        load(made, cpu)


def test_a_giant_result_is_refused_without_memory():
    nodes = [node("ConstantOfShape", "s", "big"), node("Add", "big x", "y")]
    made = model(nodes, [value("x", [1])], [value("y", None)], [tensor("s", np.int64([1 << 40, 1 << 40]))])
    with pytest.raises(IsokernError, match="ConstantOfShape"):
        load(made)


def test_no_path_and_no_model(tmp_path):
    for wrong in (3, None, b"bytes"):
        with pytest.raises(InvalidArgument, match=r"a path or an onnx\.ModelProto"):
            load(wrong)
    for path in (tmp_path, tmp_path / "missing", os.devnull):
        with pytest.raises(InvalidArgument, match=r"onnx\.load"):
            load(path)


def test_a_file_of_any_length(tmp_path):
    content = classifier().SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(content), max(1, len(content) // 60)):
        path.write_bytes(content[:length])
        with pytest.raises(IsokernError):
            load(path)


def test_graphs_within_graphs_have_an_end():
    inner = helper.make_graph([], "g", [], [value("y", [1])])
    for _ in range(40):
        inner = helper.make_graph(
            [node("If", "c", "y", then_branch=inner, else_branch=inner)], "g", [], [value("y", [1])]
        )
        if inner.ByteSize() > 1 << 20:
            break
    inner.input.append(value("c", [], TensorProto.BOOL))
    with pytest.raises(IsokernError):
        load(helper.make_model(inner, opset_imports=[helper.make_opsetid("", 21)]))


SMALL = 1 << 16  # elements of a feed, and of a value of a model that is run
LIMIT = 20  # seconds that a model may take


@contextmanager
def limited(seconds):
    """Raise TimeoutError where the block takes longer, as soon as Python runs again."""

    def stop(number, frame):
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_small(loaded):
    """Run a model on ones, where its feeds and what it computes are small; return whether it was run."""
    feeds = {}
    for info in loaded.inputs:
        shape = [2 if isinstance(d, str) else d for d in info.shape]
        if math.prod(shape) > SMALL or info.element not in OURS:
            return False
        feeds[info.name] = np.ones(shape, OURS[info.element].numpy)
    known = not loaded.known_inputs and all(isinstance(d, int) for info in loaded.inputs for d in info.shape)
    if known and any(v.spec.numel > SMALL for v in loaded.graph.values.values()):
        return False
    loaded.run(feeds)
    return True


def mutate(folder, count, seed, device):
    """Load mutated models, and run those that load; whatever is no typed error fails. Return how many of each."""
    draw, made, refused, ran = random.Random(seed), seeds(), 0, 0
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 2)
    contents = [m.SerializeToString() for m in made]
    path = folder / "mutated.onnx"
    for n in range(count):
        chosen = draw.randrange(len(made))
        if n % 2:
            broken = break_message(made[chosen], draw)
            path.write_bytes(broken.SerializeToString())
        else:
            path.write_bytes(break_bytes(contents[chosen], draw))
        try:
            with limited(LIMIT):
                ran += run_small(load(path, device))
        except IsokernError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}, model {n}: {type(error).__name__}: {error}") from error
    return refused, ran


def test_mutated_models_are_refused_or_run(tmp_path, cpu):
    refused, ran = mutate(tmp_path, 300, 0, cpu)
    assert refused > 150 and ran > 30


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_mutated_models(tmp_path, cpu, seed):
    refused, ran = mutate(tmp_path, 1000, seed, cpu)
    assert refused > 500 and ran > 50


def test_the_seeds_are_valid(tmp_path, cpu):
    (tmp_path / "weights.bin").write_bytes(bytes(512))
    for n, made in enumerate(seeds()):
        onnx.save(made, tmp_path / f"{n}.onnx")
        onnx.checker.check_model(tmp_path / f"{n}.onnx")
        assert run_small(load(tmp_path / f"{n}.onnx", cpu))
