"""One graph as an SVG picture.

Each operator is a box that names its parameters, inputs and results are boxes, and edges say which values they carry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.etree.ElementTree import Element, SubElement

from ..graph.ir import COMPUTED, INPUT, Graph, Op, Value, attrs_text, op_text, spec_text
from .layout import Arrangement, Point, place

STYLE = """
.picture text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1d2733; text-anchor: middle }
.picture text.kind { font-size: 13px; font-weight: bold }
.picture text.small { font-size: 10px; fill: #5a6675 }
.picture rect { fill: #ffffff; stroke: #8a97a6; stroke-width: 1 }
.picture .input rect { fill: #dcebfa; stroke: #3a78b5 }
.picture .result rect { fill: #def3e1; stroke: #2f8a43 }
.picture .parameter rect { fill: #f1f1f1; stroke: #8a97a6 }
.picture .changed rect { fill: #fff0cf; stroke: #c77700; stroke-width: 2 }
.picture path { fill: none; stroke: #7c8896; stroke-width: 1.5 }
.picture path:hover { stroke: #d02f2f; stroke-width: 4 }
.picture polygon { fill: #7c8896 }
"""
KIND, LINE, SMALL = "kind", "line", "small"
HEIGHTS = {KIND: 18.0, LINE: 16.0, SMALL: 14.0}
LETTER = {KIND: 8.6, LINE: 7.3, SMALL: 6.1}  # pixels, of a font of one width
LONGEST = {KIND: 34, LINE: 36, SMALL: 44}  # letters of a line
MARGIN, INSIDE = 20.0, 8.0
UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 has no letters for


@dataclass
class Box:
    """What stands in a box: its class, the lines with their kinds, and the text that is shown on hover."""

    role: str
    name: str
    lines: list[tuple[str, str]]
    title: str
    width: float = field(init=False)
    height: float = field(init=False)

    def __post_init__(self) -> None:
        self.lines = [(kind, shorten(text, LONGEST[kind])) for kind, text in self.lines]
        self.width = max(LETTER[kind] * len(text) for kind, text in self.lines) + 2 * INSIDE
        self.height = sum(HEIGHTS[kind] for kind, _ in self.lines) + 2 * INSIDE


def picture(graph: Graph, changed: Collection[Op] = ()) -> Element:
    """Return the `svg` element of a graph, with operators in `changed` highlighted. Its style is `STYLE`."""
    boxes = _boxes(graph, changed)
    edges = _edges(graph)
    at = place({k: (b.width, b.height) for k, b in boxes.items()}, [(a, b) for a, b, _ in edges], _loose(graph))
    width, height = (f"{side + 2 * MARGIN:g}" for side in (max(at.width, 1.0), max(at.height, 1.0)))
    view = f"{-MARGIN:g} {-MARGIN:g} {width} {height}"
    svg = Element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", "class": "picture", "width": width, "height": height, "viewBox": view},
    )
    for points, (a, b, value) in zip(at.edges, edges, strict=True):
        _edge(svg, points, boxes[a], boxes[b], value)
    for key, box in boxes.items():
        _box(svg, box, at, key)
    return svg


def _boxes(graph: Graph, changed: Collection[Op]) -> dict[Op | Value | int, Box]:
    """Return the boxes by operator, by value that is fed or that no operator reads, and by the number of a result.

    Each box comes after those that it reads.
    """
    found: dict[Op | Value | int, Box] = {}
    for value in graph.values.values():
        if value.role == INPUT or (value.role != COMPUTED and (not value.users or value in graph.outputs)):
            lines = [(KIND, value.name), (LINE, spec_text(value.spec))]
            found[value] = Box(value.role, f"v{value.vid}", lines, f"{value.role} {value!r}")
    for op in graph.ops:
        found[op] = _of_op(op, op in changed)
    for n, value in enumerate(graph.outputs):
        lines = [(KIND, f"result {n}" if len(graph.outputs) > 1 else "result"), (LINE, spec_text(value.spec))]
        found[n] = Box("result", f"r{n}", lines, f"result {n}: {value!r}")
    return found


def _of_op(op: Op, changed: bool) -> Box:
    lines = [(KIND, op.kind)]
    lines += [(LINE, op.name)] if op.name else []
    lines += [(LINE, spec_text(v.spec)) for v in op.outputs]
    lines += [(SMALL, line) for line in _fill_lines(attrs_text(op.operator, op.attrs))]
    held = [(v, v.name.removeprefix(f"{op.name}.")) for v in dict.fromkeys(op.given) if v.role not in (INPUT, COMPUTED)]
    lines += [(SMALL, f"{name} {spec_text(v.spec)}") for v, name in held]
    title = "\n".join([op_text(op), *(f"parameter {v!r}" for v, _ in held)])
    return Box("op changed" if changed else "op", f"v{op.outputs[0].vid}", lines, title)


def _fill_lines(words: Sequence[str]) -> list[str]:
    """Join as many words on a line as fit."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= LONGEST[SMALL]:
            lines[-1] += f", {word}"
        else:
            lines.append(word)
    return lines


def _loose(graph: Graph) -> set[Op | Value | int]:
    """Return what depends on nothing that is fed, and so may stand anywhere above its readers; and what is fed."""
    found: set[Op | Value | int] = set(graph.inputs)
    for op in graph.ops:
        if all(v.producer in found if v.role == COMPUTED else v.role != INPUT for v in op.given):
            found.add(op)
    return found


def _edges(graph: Graph) -> list[tuple[Op | Value | int, Op | Value | int, Value]]:
    """Return (from, to, value) for each reader of what is fed or computed, and for each result."""

    def source(value: Value) -> Op | Value:
        return value if value.producer is None else value.producer

    found: list[tuple[Op | Value | int, Op | Value | int, Value]] = []
    for op in graph.ops:
        found += [(source(v), op, v) for v in dict.fromkeys(op.given) if v.role in (INPUT, COMPUTED)]
    return found + [(source(v), n, v) for n, v in enumerate(graph.outputs)]


def _box(svg: Element, box: Box, at: Arrangement[Op | Value | int], key: Op | Value | int) -> None:
    (x, y), (width, height) = at.centres[key], at.sizes[key]
    group = SubElement(svg, "g", {"class": box.role, "data-name": box.name})
    SubElement(group, "title").text = speakable(box.title)
    shape = {"x": x - width / 2, "y": y - height / 2, "width": width, "height": height}
    round_ = "4" if box.role.startswith("op") else "14"
    SubElement(group, "rect", {k: f"{v:.1f}" for k, v in shape.items()} | {"rx": round_})
    top = y - height / 2 + INSIDE
    for kind, text in box.lines:
        top += HEIGHTS[kind]
        SubElement(group, "text", {"class": kind, "x": f"{x:.1f}", "y": f"{top - 4:.1f}"}).text = text


def _edge(svg: Element, points: list[Point], begin: Box, end: Box, value: Value) -> None:
    """Draw an edge: straight in its layers, a curve between them, and an arrow."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for n, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        middle = (y + to_y) / 2
        curve = f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
        path += curve if n % 2 else f"L{to_x:.1f} {to_y:.1f}"
    group = SubElement(svg, "g", {"class": "edge", "data-from": begin.name, "data-to": end.name})
    SubElement(group, "title").text = speakable(repr(value))
    SubElement(group, "path", {"d": path})
    x, y = points[-1]
    SubElement(group, "polygon", {"points": f"{x:.1f},{y:.1f} {x - 4:.1f},{y - 8:.1f} {x + 4:.1f},{y - 8:.1f}"})


def shorten(text: str, letters: int) -> str:
    """Return the text on one line, of at most `letters` letters: a longer one has … in the middle."""
    text = " ".join(speakable(text).split())
    if len(text) <= letters:
        return text
    head = (letters - 1) // 2
    return f"{text[:head]}…{text[len(text) - (letters - 1 - head) :]}"


def speakable(text: str) -> str:
    """Return the text with what XML 1.0 has no letters for replaced."""
    return UNSPEAKABLE.sub("\ufffd", text)
