"""Test the pages of the operators: each example prints what its page shows, which is the reference's result."""

from __future__ import annotations

import importlib.util
from typing import Any

import operator_pages
import pytest
import speeds
import support

from isokern.ops import all_operators, find


@pytest.fixture(scope="module", autouse=True)
def on_the_processor():
    if importlib.util.find_spec("isokern_cpu") is None:
        pytest.skip("isokern_cpu is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISOKERN_DEVICE", "cpu:0")
        yield


@pytest.mark.parametrize("name", [op.name for op in all_operators()])
def test_an_example_prints_what_the_page_shows(name, capsys):
    example = operator_pages.make_example(find(name))
    names: dict[str, Any] = {}
    exec(compile(example.code, f"{name}.md", "exec"), names)
    assert capsys.readouterr().out == example.printed + "\n"
    assert f"isokern.{name}(" in example.code


def test_a_page_has_its_speeds_or_says_that_there_are_none(monkeypatch):
    (row, *_) = (row for row in speeds.read_rows(speeds.TABLE) if row["operator"] == "exp" and row["peer"] == "numpy")
    page = operator_pages.write(find("exp"), support.read())
    assert f"| NumPy {row['version']} | {row['ratio']} |" in page
    assert "On one machine (" in page
    monkeypatch.setattr(speeds, "read_rows", lambda path: [])
    assert speeds.say_operator("exp") == ["It has not been compared with another library."]


PARTS = (
    "Example",
    "Calls",
    "Dtypes by device",
    "Accuracy",
    "Speed",
    "Decomposition",
    "A call as its kernel receives it",
)
SHOWN = {  # what the pages of some operators have
    "softmax": (
        "| `axis` | an integer | `-1` |",
        "isokern.softmax(x, *, axis=-1, out=None, device=None, stream=None, on_missing=None)",
        "4 × [generic](generic.md), 2 × [fill](fill.md)",
    ),
    "generic": ("It is a [primitive](../primitives.md)",),
    "copy": ("Exact: results are compared bit for bit",),
    "add": ("(a + b)",),
}


@pytest.fixture(scope="module")
def kept():
    return support.read()


@pytest.mark.quick(*SHOWN, "attention", "conv2d", "quantize_linear", "random_normal", "topk")
@pytest.mark.parametrize("name", [op.name for op in all_operators()])
def test_a_page_has_every_part(name, kept):
    page = operator_pages.write(find(name), kept)
    assert [part for part in PARTS if f"\n## {part}\n" not in page] == []
    assert [words for words in SHOWN.get(name, ()) if words not in page] == []


def test_every_primitive_is_on_the_list():
    listed = operator_pages.primitives()
    assert [op.name for op in all_operators() if (f"| [{op.name}](" in listed) != (op.decompose is None)] == []


@pytest.mark.parametrize(
    ("doc", "first"),
    [
        ("One. Two.", "One."),
        ("After Ba et al. 2016 it is. So.", "After Ba et al. 2016 it is."),
        ("By 1.5 more.", "By 1.5 more."),
    ],
)
def test_first_sentences(doc, first):
    assert operator_pages.first_sentence(doc) == first
