"""A graph as pictures, pass by pass, in one self-contained page; or the last of them as SVG."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from ..graph.ir import COMPUTED, Graph, Op, Value, attrs_text, spec_text
from ..passes import run
from ..rewriting.conversion import convert
from ..rewriting.rewriter import Rewriter, State
from ..status import InvalidArgument
from .picture import STYLE, picture, speakable

KINDS = (".html", ".svg")
PAGE = """
body { margin: 0; font: 14px system-ui, sans-serif; color: #1d2733; background: #f7f8fa }
header { position: sticky; top: 0; padding: 8px 16px; background: #ffffff; border-bottom: 1px solid #c8d0d9 }
h1 { display: inline; font-size: 16px; margin: 0 16px 0 0 }
label { display: inline-block; padding: 3px 8px; margin: 2px; border: 1px solid #c8d0d9; border-radius: 4px; \
cursor: pointer }
input { position: fixed; opacity: 0 }
section { display: none; padding: 8px 16px; overflow-x: auto }
svg { background: #ffffff; display: block; margin: 8px auto }
.key { padding: 1px 6px; border: 1px solid; border-radius: 3px; margin-left: 6px }
.key.changed { background: #fff0cf; border-color: #c77700 }
.key.input { background: #dcebfa; border-color: #3a78b5 }
.key.result { background: #def3e1; border-color: #2f8a43 }
"""


@dataclass(frozen=True)
class Stage:
    """A graph after a change: what was done, the operators that are new, and how many of those before are gone."""

    title: str
    graph: Graph
    changed: frozenset[Op] = frozenset()
    gone: int = 0


def list_stages(state: State, passes: str | Sequence[str]) -> list[Stage]:
    """Return the graph as built, after each pass that changes it, and as the state's target has it, if there is one.

    The last is what `compile` makes for a device. An operator is new where none before it had its kind, name,
    attributes, constraints, parameters and descriptions of operands and outputs. Raises what the passes raise, and
    NotImplementedOnDevice where the target lacks an operator.
    """
    found = [Stage("as built", state.graph)]

    def add_stage(title: str, after: State) -> None:
        before = found[-1].graph
        if _plain(before) != _plain(after.graph):
            found.append(Stage(title, after.graph, *_news(before, after.graph)))

    last = run(state, passes, add_stage)
    if last.target is not None:
        add_stage("for the device", convert(last, last.target))
    return found


def _plain(graph: Graph) -> str:
    """Return the graph's text with values renumbered, so that graphs that differ in numbers alone are equal."""
    rewriter = Rewriter(State(graph, {}))
    for op in graph.ops:
        rewriter.copy(op)
    return rewriter.finish().graph.dump()


def _news(before: Graph, after: Graph) -> tuple[frozenset[Op], int]:
    """Return the operators that were not there before, and how many are gone."""
    left = Counter(map(_description, before.ops))
    new = set()
    for op in after.ops:
        if left[_description(op)]:
            left[_description(op)] -= 1
        else:
            new.add(op)
    return frozenset(new), left.total()


def _description(op: Op) -> Hashable:
    """Return all that identifies an operator, except the numbers of values."""

    def operand(v: Value | None) -> Hashable:
        return None if v is None else (v.name if v.role != COMPUTED else None, spec_text(v.spec))

    outputs = tuple(spec_text(v.spec) for v in op.outputs)
    attrs = tuple(attrs_text(op.operator, op.attrs))
    return op.kind, op.name, attrs, op.constraints, tuple(map(operand, op.inputs)), outputs


def page(name: str, shown: Sequence[Stage]) -> str:
    """Return an HTML page, also well-formed XML, with a picture of each stage and buttons between them.

    It loads nothing and runs no script.
    """
    html = Element("html", {"xmlns": "http://www.w3.org/1999/xhtml", "lang": "en"})
    head, body = SubElement(html, "head"), SubElement(html, "body")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "title").text = speakable(name)
    numbers = range(len(shown))
    pick = "".join(
        f"#s{n}:checked ~ main #p{n} {{ display: block }}\n"
        f"#s{n}:checked ~ header label[for=s{n}] {{ background: #1d2733; color: #ffffff }}\n"
        for n in numbers
    )
    SubElement(head, "style").text = PAGE + STYLE + pick
    for n in numbers:
        button = SubElement(body, "input", {"type": "radio", "name": "stage", "id": f"s{n}"})
        if n == 0:
            button.set("checked", "checked")
    header, main = SubElement(body, "header"), SubElement(body, "main")
    SubElement(header, "h1").text = speakable(name)
    for n, stage in enumerate(shown):
        SubElement(header, "label", {"for": f"s{n}"}).text = f"{n}. {stage.title}"
    for kind, text in (("changed", "made or changed"), ("input", "input"), ("result", "result")):
        SubElement(header, "span", {"class": f"key {kind}"}).text = text
    for n, stage in enumerate(shown):
        section = SubElement(main, "section", {"id": f"p{n}"})
        SubElement(section, "p").text = _caption(stage, first=n == 0)
        section.append(picture(stage.graph, stage.changed))
    return "<!DOCTYPE html>\n" + tostring(html, encoding="unicode") + "\n"


def _caption(stage: Stage, first: bool) -> str:
    held = f"{len(stage.graph.ops)} operators"
    return (
        f"As built: {held}."
        if first
        else f"After {stage.title}: {held}, {len(stage.changed)} made or changed, {stage.gone} gone."
    )


def svg(stage: Stage) -> str:
    """Return the picture of one stage, as a document of its own."""
    made = picture(stage.graph, stage.changed)
    style = Element("style")
    style.text = STYLE
    made.insert(0, style)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(made, encoding="unicode") + "\n"


def save(path: str | os.PathLike[str], name: str, shown: Sequence[Stage]) -> None:
    """Write the page, or the picture of the last stage where the file ends in .svg.

    InvalidArgument where the file has another ending or cannot be written.
    """
    ends = Path(path).suffix.lower()
    if ends not in KINDS:
        raise InvalidArgument("view", f"{os.fspath(path)} ends in {ends!r}", allowed=" or ".join(KINDS))
    text = svg(shown[-1]) if ends == ".svg" else page(name, shown)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument("view", f"{os.fspath(path)}: {error.strerror}", allowed="a file to write") from None
