"""Test that commands print text as it is: brackets and colons in names, reasons and normal forms are no markup."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from isokern.cli import _output, explain_call, why
from isokern.declare.operator import Operator
from isokern.graph import Model
from isokern.graph.layers import Linear
from isokern.ops import all_operators

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "core" / "src").rglob("*.py"),
    *(p for s in (ROOT / "plugins").glob("*/src") for p in s.rglob("*.py")),
]
# What prints text → how it is called so that it reads none as markup
PLAIN = {
    "Console": {"markup": False, "emoji": False, "highlight": False},
    "TextColumn": {"markup": False},
    "Typer": {"rich_markup_mode": None},
}
ODD = ["x[batch]", "[/b] alone", "[bold]loud[/bold]", ":smile:", "\\[escaped]", "[link=file:///x]y[/link]"]


def list_calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Give the calls of functions by the last part of their names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def find_markup(source: str) -> list[str]:
    """Return what of a module may read text as markup."""
    tree, found = ast.parse(source), []
    for name, call in list_calls(tree):
        given = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
        lacking = {k: v for k, v in PLAIN.get(name, {}).items() if given.get(k, "not given") is not v}
        if lacking:
            found.append(f"line {call.lineno}: {name} without {lacking}")
        if name in ("from_markup", "render_markup"):
            found.append(f"line {call.lineno}: {name}")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "rich"
            and {"print", "print_json"} & {n.name for n in node.names}
        ):
            found.append(f"line {node.lineno}: rich.print")
    return found


def test_all_that_prints_reads_no_markup() -> None:
    assert len(SOURCES) > 300
    found = {str(path.relative_to(ROOT)): find_markup(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "Console(stderr=True)",
        "rich.console.Console(markup=True, emoji=False, highlight=False)",
        "TextColumn('{task.description}')",
        "typer.Typer(help='a')",
        "Text.from_markup(reason)",
        "from rich import print",
    ],
)
def test_each_way_to_markup_is_found(source: str) -> None:
    assert find_markup(source)


@pytest.mark.quick("softmax", "fold")
@pytest.mark.parametrize("op", all_operators(), ids=lambda op: op.name)
def test_a_call_is_explained_letter_by_letter(
    op: Operator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "9999")
    document = explain_call.describe_received(why.resolve(op, []))
    explain_call._show(document)
    shown = capsys.readouterr().out
    layouts = [tensor["layout"] for tensor in document["tensors"] if tensor["layout"]]
    for text in (document["normal_form"], *layouts, *(str(field["value"]) for field in document["attrs"])):
        assert text in shown


@pytest.mark.parametrize("text", ODD)
def test_a_reason_is_printed_letter_by_letter(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "9999")
    document = explain_call.describe_received(why.resolve(next(iter(all_operators())), []))
    explain_call._show({**document, "device": {"name": text, "variant": None, "reason": f"because {text}"}})
    assert f"because {text}" in capsys.readouterr().out
    _output.table(f"title {text}", [f"column {text}"], [[f"cell {text}"]])
    shown = capsys.readouterr().out
    assert all(f"{part} {text}" in shown for part in ("title", "column", "cell"))


@pytest.mark.parametrize("text", ODD)
def test_the_name_of_a_layer_is_shown_letter_by_letter(text: str) -> None:
    model = Model()
    model.output(model.add(Linear(4), model.input("x", (2, 4)), name=text))
    assert text in model.summary()


@pytest.mark.parametrize("command", ["why", "explain-call"])
def test_help_has_the_brackets_of_the_grammar(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    from isokern.cli import main

    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert why.GRAMMAR.partition(",")[0] in " ".join(capsys.readouterr().out.split())
