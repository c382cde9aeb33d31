"""The doors through which files and texts of others come in, each with small valid inputs: what tests/fuzz mutates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy
from gguf_write import write_gguf
from onnx import TensorProto, helper, numpy_helper
from small_model import made
from test_folder import write_folder
from test_gguf_fuzz import write_seeds
from test_tokenizer import gpt2_metadata, llama_metadata
from test_tokenizer_file import NORMALIZERS, write_file

from isokern.eager.conveniences import parse_equation
from isokern.expr.tree import parse as parse_expression
from isokern.graph import Builder, parse as parse_graph
from isokern.graph.ir import text as print_graph
from isokern.llm import GGUF, Grammar, Tokenizer
from isokern.llm.architecture import Config
from isokern.llm.folder import open_folder
from isokern.llm.safetensors_file import read_safetensors
from isokern.onnx import load
from isokern.ops.loop_maps import parse_maps
from isokern.status import IsokernError

BETWEEN = b"\n%%%%\n"  # separates the files of a folder in one input
FILES = ("config.json", "tokenizer.json", "model.safetensors")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", None]}}, "required": ["a"]}

GRAMMARS = ['gbnf:root ::= "a" [0-9]* | root', 'lark:start: "a"+', "regex:a(b|c){2,3}"]
GRAMMARS += [f"json_schema:{json.dumps(SCHEMA)}"]


@dataclass(frozen=True)
class Door:
    """One kind of input: `enter` reads it or raises a typed error, `seeds` gives valid ones.

    A folder stands ready for what can be read from a file alone.
    """

    enter: Callable[[bytes, Path], object]
    seeds: Callable[[Path], Sequence[bytes]]
    errors: tuple[type[Exception], ...] = (IsokernError,)


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _enter_gguf(content: bytes, folder: Path) -> None:
    """Read a file, and what a model makes of it before any weight is used."""
    gguf = GGUF(content)
    for part in (Config.of, Tokenizer.from_gguf):
        try:
            part(gguf)
        except IsokernError:
            continue


def _gguf_seeds(folder: Path) -> Iterator[bytes]:
    yield from write_seeds(folder)
    for n, change in enumerate((llama_metadata(), gpt2_metadata())):
        made(folder / "m.gguf", width=32, inner=32, **change)
        write_gguf(folder / "v.gguf", {**GGUF.open(folder / "m.gguf").metadata, "n": n}, {})
        yield (folder / "v.gguf").read_bytes()


def _enter_folder(content: bytes, folder: Path) -> None:
    for name, part in zip(FILES, content.split(BETWEEN), strict=False):
        (folder / name).write_bytes(part)
    gguf = open_folder(folder)
    Config.of(gguf)
    if "tokenizer.ggml.model" in gguf.metadata:
        Tokenizer.from_gguf(gguf).encode("he <u>")


def _folder_seeds(folder: Path) -> Iterator[bytes]:
    model = made(folder / "m.gguf", width=64, inner=96)
    for kind in ("llama", "qwen3"):
        written = write_folder(folder / kind, made(folder / "m.gguf", kind) if kind == "qwen3" else model, kind)
        weights = (written / "model.safetensors").read_bytes()
        for normalizer in NORMALIZERS.values():
            vocabulary = json.dumps(write_file([("<u>", {})], normalizer=normalizer))
            yield BETWEEN.join([(written / "config.json").read_bytes(), vocabulary.encode(), weights])


def _enter_safetensors(content: bytes, folder: Path) -> None:
    (folder / "x.safetensors").write_bytes(content)
    for tensor in read_safetensors(folder / "x.safetensors").values():
        assert tensor.data.nbytes <= len(content)


def _safetensors_seeds(folder: Path) -> Iterator[bytes]:
    weights = {"a": np.ones((2, 3), np.float32), "b.c": np.arange(8, dtype=np.uint8), "d": np.zeros(1, np.float16)}
    yield safetensors.numpy.save(weights, {"format": "pt"})
    yield safetensors.numpy.save({})


def _enter_onnx(content: bytes, folder: Path) -> None:
    (folder / "x.onnx").write_bytes(content)
    load(folder / "x.onnx", device="cpu:0")


def _onnx_seeds(folder: Path) -> Iterator[bytes]:
    """Yield models with a weight, a function, branches, a loop, and sparse and typed tensors."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    products = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    yield _model(helper.make_graph(products, "g", [x], [y], [weight]), opsets)
    body = [helper.make_node("Constant", [], ["c"], value=weight), helper.make_node("MatMul", ["a", "c"], ["b"])]
    function = helper.make_function("own", "F", ["a"], ["b"], body, opsets[:1])
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="own")], "g", [x], [y])
    yield _model(graph, opsets, functions=[function])
    then, other = (
        helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [helper.make_tensor_value_info(op, 1, [2, 3])])
        for op in ("Exp", "Neg")
    )
    true = numpy_helper.from_array(np.array(True), "t")
    branch = helper.make_node("If", ["t"], ["y"], then_branch=then, else_branch=other)
    yield _model(helper.make_graph([branch], "g", [x], [y], [true]), opsets)
    state = [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("k", 9, []), ("v", 1, [2, 3]))]
    step = [helper.make_node("Identity", ["k"], ["k2"]), helper.make_node("Add", ["v", "x"], ["v2"])]
    results = [helper.make_tensor_value_info("k2", 9, []), helper.make_tensor_value_info("v2", 1, [2, 3])]
    loop = helper.make_node("Loop", ["n", "t", "x"], ["y"], body=helper.make_graph(step, "b", state, results))
    count = numpy_helper.from_array(np.array(3), "n")
    yield _model(helper.make_graph([loop], "g", [x], [y], [true, count]), opsets)


def _model(graph: onnx.GraphProto, opsets: list[onnx.OperatorSetIdProto], **more: object) -> bytes:
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more).SerializeToString()


def _enter_grammar(content: bytes, folder: Path) -> None:
    kind, _, text = _text(content).partition(":")
    Grammar(kind, text)


def _graph_seeds(folder: Path) -> Iterator[bytes]:
    builder = Builder("g")
    x, w = builder.input("x", (2, 3)), builder.parameter("w", (4, 3))
    builder.output(*builder.emit("softmax", builder.emit("linear", [x, w]), {"axis": -1}))
    yield print_graph(builder.graph).encode()


def _texts(*texts: str) -> Callable[[Path], list[bytes]]:
    return lambda folder: [t.encode() for t in texts]


DOORS = {
    "gguf": Door(_enter_gguf, lambda folder: list(_gguf_seeds(folder))),
    "folder": Door(_enter_folder, lambda folder: list(_folder_seeds(folder))),
    "safetensors": Door(_enter_safetensors, lambda folder: list(_safetensors_seeds(folder))),
    "onnx": Door(_enter_onnx, lambda folder: list(_onnx_seeds(folder))),
    "grammar": Door(
        _enter_grammar,
        _texts(
            'gbnf:root ::= "a" [0-9]* | root',
            f"json_schema:{json.dumps(SCHEMA)}",
            "regex:a(b|c){2,3}",
            'lark:start: "a"+',
        ),
    ),
    "graph": Door(lambda content, folder: parse_graph(_text(content)), lambda folder: list(_graph_seeds(folder))),
    "expression": Door(
        lambda content, folder: parse_expression(_text(content)),
        _texts("exp(x) / (1.0 + y)", "(x if x > 0.5 else -x) * 2.0", "exp(x) * quotient(x, y) + 3.0"),
        (ValueError,),
    ),
    "maps": Door(lambda content, folder: parse_maps("maps", _text(content), 2), _texts("mk,nk->mn", "ii,i->i")),
    "equation": Door(
        lambda content, folder: parse_equation(_text(content), (2, 2)), _texts("ij,jk->ik", "...i,i...->...")
    ),
}
