"""Test that large initialisers leave a file before it is parsed: what is read is what the library would read.

Files that are laid out in another way, cut off or damaged are left to the library.
"""

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from isokern import InvalidArgument
from isokern.onnx import load
from isokern.onnx.reader import read
from isokern.onnx.wire import ALIGNED, SMALL, split

LARGE = np.random.default_rng(1).standard_normal((70, 60)).astype(np.float32)
EXACT = np.arange(SMALL // 4, dtype=np.float32).reshape(-1, 4)  # as many bytes as may stay
MORE = np.arange(SMALL // 4 + 4, dtype=np.float32).reshape(-1, 4)


def model():
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["a"]),
        helper.make_node("Add", ["a", "bias"], ["y"]),
        helper.make_node("Transpose", ["exact"], ["z"], perm=[1, 0]),
        helper.make_node("Transpose", ["more"], ["w"], perm=[-1 + 2, 0]),
    ]
    held = {"large": LARGE, "bias": LARGE[0], "exact": EXACT, "more": MORE, "none": np.zeros((0, 3), np.float32)}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 70])]
    shapes = {"y": [2, 60], "z": list(EXACT.T.shape), "w": list(MORE.T.shape)}
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    initialisers = [numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = helper.make_graph(nodes, "wired", inputs, outputs, initialisers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    made.model_version = -3  # ten bytes
    return made


@pytest.fixture
def path(tmp_path):
    onnx.save(model(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def whole(found):
    """Return the message with the elements that were taken out."""
    message = onnx.ModelProto()
    message.ParseFromString(found[0])
    for place, content in found[1].items():
        message.graph.initializer[place].raw_data = content.tobytes()
    return message


def test_what_is_left_and_what_is_taken_are_the_model(path):
    found = split(path)
    assert whole(found) == model()
    assert sorted(found[1]) == [0, 3]  # one byte more than may stay, and more
    assert len(found[0]) < path.stat().st_size - LARGE.nbytes
    for content in found[1].values():
        assert content.ctypes.data % ALIGNED == 0 and not content.flags.writeable


def test_a_file_and_a_message_give_the_same_results(path, cpu):
    x = LARGE[:2, :1] + np.ones((2, 70), np.float32)
    wanted = x @ LARGE + LARGE[0], EXACT.T, MORE.T
    for given in (path, str(path), model()):
        for y, w in zip(load(given, cpu).run(x), wanted, strict=True):
            np.testing.assert_allclose(y, w, rtol=1e-4, atol=1e-4)


def test_a_message_that_is_given_stays_as_it_was():
    given = model()
    source = read(given)
    assert given == model()
    assert {t.name for t in source.message.graph.initializer} == {"bias", "exact", "none"}
    np.testing.assert_array_equal(source.arrays["large"], LARGE)


def test_what_a_device_can_have_in_place_is_not_copied(tmp_path, cpu):
    table = np.random.default_rng(2).standard_normal((300, 16)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 16])
    graph = helper.make_graph(nodes, "g", [ids], [y], [numpy_helper.from_array(table, "table")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, tmp_path / "t.onnx")
    loaded = load(tmp_path / "t.onnx", cpu)
    at = np.array([299, 0, 7])
    np.testing.assert_array_equal(loaded.run(at), table[at])
    (program,) = next(iter(loaded._programs.values())).programs
    (held,) = program.parameters.values()
    assert np.shares_memory(held.numpy(), loaded.built.parameters["table"]) and not held.buffer.writable


def test_other_layouts_are_left_to_the_library(path, tmp_path):
    content = path.read_bytes()
    twice = tmp_path / "twice.onnx"
    twice.write_bytes(content + content)  # two graphs, which a parser merges
    assert split(twice) is None
    again = onnx.ModelProto()
    again.graph.initializer.add(raw_data=LARGE.tobytes())
    doubled = again.SerializeToString()
    tensor = again.graph.initializer[0].SerializeToString()
    parts = tensor + tensor  # one tensor with its elements twice
    body = b"\x2a" + varint(len(parts)) + parts
    (tmp_path / "doubled.onnx").write_bytes(b"\x3a" + varint(len(body)) + body)
    assert split(tmp_path / "doubled.onnx") is None and len(doubled) < len(body)
    for text in (b"", b"\xff" * 40, b"no model at all, but a text of some length"):
        (tmp_path / "odd.onnx").write_bytes(text)
        with pytest.raises(InvalidArgument):
            load(tmp_path / "odd.onnx")


def varint(number):
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def test_text_is_read_by_its_ending(tmp_path):
    onnx.save(model(), tmp_path / "m.textproto")
    assert read(tmp_path / "m.textproto").arrays.keys() == read(model()).arrays.keys()


def test_damaged_files_are_read_as_the_library_reads_them(path, tmp_path):
    content, draw = path.read_bytes(), random.Random(5)
    damaged, same = tmp_path / "d.onnx", 0
    for n in range(400):
        made = bytearray(content)
        if n % 4 == 0:
            made = made[: draw.randrange(len(made))]
        else:
            heads = [
                draw.randrange(400),
                len(made) - 1 - draw.randrange(400),
                content.find(b"large") - draw.randrange(20),
            ]
            for _ in range(1 + n % 3):
                made[draw.choice(heads)] = draw.randrange(256)
        damaged.write_bytes(made)
        found = split(damaged)
        if found is None:
            continue
        wanted = onnx.ModelProto()
        try:
            wanted.ParseFromString(bytes(made))
        except Exception:
            with pytest.raises(InvalidArgument):
                load(damaged)
            continue
        assert whole(found).SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)
        same += 1
    assert same > 50
