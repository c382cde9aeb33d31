"""Test that docs/files.md says the bounds that the readers have."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
# What a row bounds → the constants with its bounds, in their order
BOUNDS: dict[str, tuple[tuple[str, str], ...]] = {
    "graphs within graphs": (("onnx.bounds", "MAX_DEPTH"),),
    "functions within functions": (("onnx.bounds", "MAX_CALLS"),),
    "nodes, with those of functions and loops each time": (("onnx.bounds", "MAX_NODES"),),
    "bytes of nodes when functions are expanded": (("onnx.bounds", "MAX_BYTES"),),
    "steps of a loop that is unrolled, and its nodes": (
        ("onnx.control", "MAX_STEPS"),
        ("onnx.control", "MAX_UNROLLED"),
    ),
    "elements of a tensor": (("onnx.elements", "MAX_ELEMENTS"),),
    "bytes of a name": (("llm.gguf", "MAX_NAME"),),
    "arrays within arrays": (("llm.gguf", "MAX_DEPTH"),),
    "rank of a tensor": (("llm.gguf", "MAX_RANK"),),
    "alignment": (("llm.gguf", "MAX_ALIGNMENT"),),
    "each size of a model": (("llm.metadata", "MOST"),),
    "bytes of its header": (("llm.safetensors_file", "MAX_HEADER"),),
    "bytes of the index of a file in parts": (("graph.checkpoint", "MOST_INDEX"),),
    "letters that its steps produce for one letter": (("llm.tokenizer_file", "MAX_GROWTH"),),
    "letters of a token whose merges are searched": (("llm.vocabularies", "MAX_PIECE"),),
    "letters of a template, and of its output": (("llm.templates", "LONGEST"), ("llm.render", "MOST")),
    "parentheses within parentheses of an expression": (("expr.tree", "DEEPEST"),),
    "bytes": (("arguments", "MAX_TEXT"),),
}


def read_rows() -> dict[str, str]:
    """Return what each row of the table bounds, and the text of its bound."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("|")]
    return {what: bound for _, what, bound in rows[2:]}


def read_number(text: str) -> int:
    """Return the number that a bound is written as."""
    number, _, unit = text.partition(" ")
    base, _, power = number.replace(",", "").partition("^")
    return int(base) ** int(power or 1) * {"": 1, "MiB": 1 << 20, "GiB": 1 << 30}[unit]


def test_every_row_has_a_bound_that_is_compared() -> None:
    # By the tests of files and of the server
    tried = {"files of tensors", "bytes of a prompt, and of the messages of a chat"}
    assert read_rows().keys() - BOUNDS.keys() == tried


@pytest.mark.parametrize("what", BOUNDS)
def test_the_page_has_the_bound_of_the_reader(what: str) -> None:
    given = [read_number(part.strip()) for part in read_rows()[what].split(";")]
    assert given == [getattr(importlib.import_module(f"isokern.{m}"), name) for m, name in BOUNDS[what]]
