"""Test what hostile files can do: read other files, work without end, or end in an error that is not typed."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isokern.llm import Model, Tokenizer
from isokern.llm.folder_tokenizer import add_tokenizer
from isokern.llm.gguf import GGUF
from isokern.llm.templates import find_template
from isokern.llm.tokenizer_file import MAX_GROWTH
from isokern.onnx import load
from isokern.onnx.bounds import MAX_CALLS, MAX_DEPTH, MAX_NODES
from isokern.status import InvalidArgument

onnx = pytest.importorskip("onnx")
helper, TensorProto = onnx.helper, onnx.TensorProto
SECRET = b"-----PRIVATE KEY-----"


# Tensors in files


def places(descriptor: Any, depth: int = 0) -> Iterator[list[Any]]:
    """Yield the fields that lead from a message to each place at which the format lets a tensor be, graphs twice."""
    for field in descriptor.fields:
        if field.message_type is None or depth > 9:
            continue
        if field.message_type.full_name == TensorProto.DESCRIPTOR.full_name:
            yield [field]
        elif not field.message_type.full_name.endswith(("TypeProto", "ValueInfoProto", "TensorShapeProto")):
            yield from ([field, *rest] for rest in places(field.message_type, depth + 1))


def seed() -> Any:
    """Return a valid model with a function, and a graph in a node."""
    branch = [helper.make_graph([helper.make_node("Identity", ["x"], [n])], n, [], [value(n)]) for n in "tu"]
    nodes = [
        helper.make_node("If", ["c"], ["z"], then_branch=branch[0], else_branch=branch[1]),
        helper.make_node("F", ["z"], ["y"], domain="d"),
    ]
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("d", "F", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    graph = helper.make_graph(nodes, "g", [value("x"), value("c", TensorProto.BOOL, [])], [value("y")])
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10, functions=[function])


def value(name: str, kind: int = TensorProto.FLOAT, shape: Any = (2,)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def fill(message: Any, path: list[Any]) -> Any:
    """Add the messages of a path, with what makes them complete, and return the last one, which is a tensor."""
    for field in path:
        held = getattr(message, field.name)
        message = held.add() if hasattr(held, "add") else held
        message.SetInParent() if not hasattr(held, "add") else None
        kind = field.message_type.name
        if kind == "NodeProto":
            message.op_type = "Constant"
            message.output.append("made")
        elif kind == "AttributeProto":
            message.name, message.type = "value", onnx.AttributeProto.TENSOR
        elif kind in ("GraphProto", "FunctionProto"):
            message.name = "inner"
    return message


def is_short(path: list[Any]) -> bool:
    """Return whether a path goes through graphs within the graph once at most: deeper ones are the same again."""
    return sum(field.message_type.name == "GraphProto" for field in path) <= 2


EVERY = [path for path in places(onnx.ModelProto.DESCRIPTOR) if is_short(path)]


@pytest.mark.parametrize(
    ("path", "form"),
    [*zip(EVERY, itertools.cycle(["file", "message"]))],
    ids=[".".join(f.name for f in path) for path in EVERY],
)
def test_a_tensor_in_a_file_is_read_nowhere_but_as_an_initialiser(
    path: list[Any], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library opens what a tensor names, relative to the working directory, where the user has a file."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    Path("secret").write_bytes(SECRET)
    made = seed()
    tensor = fill(made, path)
    tensor.name, tensor.data_type, tensor.data_location = "w", TensorProto.UINT8, TensorProto.EXTERNAL
    tensor.dims.append(len(SECRET))
    tensor.external_data.add(key="location", value="secret")
    given: Any = made
    if form == "file":
        (tmp_path / "models").mkdir()
        given = tmp_path / "models" / "m.onnx"
        given.write_bytes(made.SerializeToString())
    if path[0].name == "training_info":
        assert load(given, "cpu:0").outputs, "what is said of training is not read"
        return
    with pytest.raises(InvalidArgument, match=r"in a file|in the file|there is no file|sparse"):
        load(given, "cpu:0")


def test_the_places_are_all_that_the_format_has() -> None:
    names = {".".join(f.name for f in path) for path in EVERY}
    assert names >= {
        "graph.initializer",
        "graph.sparse_initializer.values",
        "graph.node.attribute.t",
        "graph.node.attribute.sparse_tensor.indices",
        "graph.node.attribute.g.initializer",
        "graph.node.attribute.graphs.node.attribute.tensors",
        "functions.node.attribute.t",
        "functions.attribute_proto.t",
        "training_info.algorithm.initializer",
    }


def test_an_initialiser_in_a_file_of_the_folder_is_read(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], [tensor])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "w.bin").write_bytes(np.float32([1, 2]).tobytes())
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    assert load(tmp_path / "m.onnx", "cpu:0").run(np.float32([3, 4])).tolist() == [4, 6]
    for name in ("a" * 5000, "a/" * 3000, "w.bin/x"):
        tensor.external_data[0].value = name
        made.graph.initializer[0].CopyFrom(tensor)
        (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
        with pytest.raises(InvalidArgument, match="file"):
            load(tmp_path / "m.onnx", "cpu:0")


# Work without end


def calls(functions: dict[str, list[str]], first: str = "F0") -> Any:
    """Return a model that calls functions of these names, each a list of the functions that it calls in turn."""

    def body(names: list[str]) -> list[Any]:
        values = ["a", *(f"v{n}" for n in range(len(names) - 1)), "b"]
        domains = ["d" if name in functions else "" for name in names]
        steps = zip(names, values[:-1], values[1:], domains, strict=True)
        return [helper.make_node(name, [a], [b], domain=domain) for name, a, b, domain in steps]

    versions = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
    made = [helper.make_function("d", name, ["a"], ["b"], body(of), versions) for name, of in functions.items()]
    graph = helper.make_graph([helper.make_node(first, ["x"], ["y"], domain="d")], "g", [value("x")], [value("y")])
    return helper.make_model(graph, opset_imports=versions, ir_version=10, functions=made)


def doubling(levels: int) -> dict[str, list[str]]:
    """Return functions that call the next one twice: two to the power of their number of nodes."""
    return {f"F{n}": [f"F{n + 1}"] * 2 if n < levels else ["Relu"] for n in range(levels + 1)}


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (doubling(24), rf"e\+07 nodes, once its functions are expanded; allowed: {MAX_NODES} nodes"),
        (doubling(60), r"e\+18 nodes"),
        ({f"F{n}": [f"F{n + 1}"] * 50 if n < 9 else ["Relu"] for n in range(10)}, r"e\+15 nodes"),
        ({f"F{n}": [f"F{n + 1}"] if n < 90 else ["Relu"] for n in range(91)}, f"allowed: {MAX_CALLS} calls"),
        ({"F0": ["F1"], "F1": ["F0"]}, "calls itself"),
        ({"F0": ["F0"]}, "calls itself"),
    ],
    ids=["24", "60", "wide", "deep", "circle", "itself"],
)
def test_functions_that_expand_to_more_than_a_model_has(functions: dict[str, list[str]], message: str) -> None:
    begin = time.monotonic()
    with pytest.raises(InvalidArgument, match=message):
        load(calls(functions), "cpu:0")
    assert time.monotonic() - begin < 5


def test_functions_that_call_functions_are_expanded() -> None:
    x = np.float32([-1, 2])
    assert load(calls(doubling(4)), "cpu:0").run(x).tolist() == [0, 2]


@pytest.mark.parametrize("depth", [40, 2000])
def test_graphs_within_graphs(depth: int) -> None:
    made = seed()
    at = made.graph
    for n in range(depth):
        node = at.node.add(op_type="If", input=["c"], output=[f"z{n}"])
        attribute = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        at = attribute.g
        at.name = f"g{n}"
    with pytest.raises(InvalidArgument, match=f"graphs within graphs; allowed: a depth of {MAX_DEPTH}"):
        load(made, "cpu:0")


# Tokenizers and folders


def tokenizer(normalizer: Any = None, pre_tokenizer: Any = None, normalized: bool = False) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json with three letters, and an added token."""
    token = {"id": 4, "content": "<u>", "special": False, "normalized": normalized}
    file = {
        "version": "1.0",
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "x": 3}, "merges": []},
        "added_tokens": [token | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)],
    }
    keys: dict[str, Any] = {}
    add_tokenizer(keys, Path(), {}, [file, {}, {}, {}], 8)
    return Tokenizer(keys)


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    ("normalizers", "pre_tokenizers"),
    [
        ([replace("a" * 10, String="a")] * 10, []),
        ([replace("aa", Regex="a")] * 6, []),
        ([replace("a" * 3, String="")] * 6, []),
        ([{"pattern": {"String": "a"}, "content": "a" * 300}], []),
        ([], [BYTES] * 17),
        ([], [{"type": "Sequence", "pretokenizers": [BYTES] * 8}] * 3),
    ],
    ids=["tens", "expressions", "empty", "untagged", "bytes", "nested"],
)
def test_steps_that_make_texts_longer_without_end(normalizers: list[Any], pre_tokenizers: list[Any]) -> None:
    begin = time.monotonic()
    steps = [{"type": "Sequence", "normalizers": normalizers}, {"type": "Sequence", "pretokenizers": pre_tokenizers}]
    with pytest.raises(InvalidArgument, match=rf"times longer; allowed: up to {MAX_GROWTH} times"):
        tokenizer(*steps)
    assert time.monotonic() - begin < 5


def test_steps_as_published_tokenizers_have_them() -> None:
    steps = [replace("▁", String=" "), replace("a", Regex="b+"), replace("", Regex="x"), {"type": "NFKC"}]
    assert tokenizer({"type": "Sequence", "normalizers": steps}).encode("bbx", bos=False, eos=False) == [0]


@pytest.mark.parametrize(
    "normalizer",
    [
        {"strip_left": True, "strip_right": True},
        {"normalizers": [{"type": "NFC"}]},
        {"prepend": "x"},
        {"pattern": {"String": "x"}, "content": "y"},
        {"type": "Sequence", "normalizers": [{"prepend": "x"}]},
    ],
    ids=str,
)
def test_steps_without_a_type(normalizer: dict[str, Any]) -> None:
    """The library reads what older versions of it wrote, without a type."""
    assert tokenizer(normalizer, normalized=True).encode("a", bos=False, eos=False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_files_of_a_folder_that_have_no_end(name: str, kind: str, tmp_path: Path) -> None:
    """A model of a few numbers, of whose files one is a pipe, a device, or a folder."""
    safetensors = pytest.importorskip("safetensors.numpy")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 0, "num_attention_heads": 1}
    config = {"model_type": "llama", "vocab_size": 8, "tie_word_embeddings": True, "max_position_embeddings": 8}
    whole = {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []}
    texts = {"config.json": config | sizes, "tokenizer.json": whole, "generation_config.json": {}}
    for file, content in texts.items():
        (tmp_path / file).write_text(json.dumps(content))
    tensors = {"model.embed_tokens.weight": np.ones((8, 8), np.float32), "model.norm.weight": np.ones(8, np.float32)}
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    begin = time.monotonic()
    with pytest.raises(InvalidArgument, match=f"{name}.*is not a regular file"):
        Model.open(tmp_path, device="cpu:0")
    assert time.monotonic() - begin < 5


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="a pipe has no path here")
def test_a_template_that_a_user_names_may_be_a_pipe() -> None:
    """As a shell's <(…): only files of a folder that came from elsewhere have to be regular."""
    reading, writing = os.pipe()
    os.write(writing, b"{{ messages }}")
    os.close(writing)
    assert find_template(GGUF.from_parts({}, {}), f"/dev/fd/{reading}")[0] == "{{ messages }}"
    os.close(reading)
