"""The parser of a graph's text, which `Graph.dump` prints.

    graph digits {
      %0 = input "images": F32[2, 1, 8, 8]
      %1 = parameter "conv1.weight": F32[8, 1, 3, 3]
      %2 = conv2d(%0, %1) {padding = [1, 1]} "conv1": F32[2, 8, 8, 8]
      %3 = relu(%2) where alias(0) hint {variant = "portable"} "relu1": F32[2, 8, 8, 8]
      return %3
    }

An absent input is `_`; attributes that have their defaults are left out; several outputs are
`%2, %3 = … : F32[2], I64[2]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..dtypes import ALL
from ..ops import find
from ..status import InvalidArgument, IsokernError
from .builder import Builder, error_context
from .ir import CONSTRAINTS, INPUT, PARAMETER, Constraint, Graph, TensorSpec, Value

DTYPES = tuple(d.name for d in ALL)
TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<vid>%\d+)|(?P<number>-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|Infinity))"""
    r"""|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>[{}()\[\],=:]))"""
)


class _Reader:
    """The tokens of a text, in order."""

    def __init__(self, source: str) -> None:
        self.source, self.at, self.line = source, 0, 1
        self.kind = self.token = ""
        self.advance()

    def advance(self) -> str:
        """Go to the next token and return the one before."""
        before = self.token
        found = TOKEN.match(self.source, self.at)
        if found is None:
            rest = self.source[self.at :].lstrip()
            if rest:
                self._move(len(self.source) - len(rest))
                raise self.error(f"{rest[:20]!r}", "the text of a graph")
            self.kind, self.token = "end", ""
            return before
        self._move(found.end())
        self.kind = str(found.lastgroup)
        self.token = found[self.kind]
        return before

    def _move(self, at: int) -> None:
        """Go to a place in the source and update `line`, the number of the line that it is in."""
        self.line += self.source.count("\n", self.at, at)
        self.at = at

    def error(self, given: str, allowed: str) -> InvalidArgument:
        return InvalidArgument("graph text", f"line {self.line}: {given}", allowed=allowed)

    def take(self, token: str) -> None:
        """Consume this token; raise an error if another one is next."""
        if not self.skip(token):
            raise self.error(f"{self.token or 'the end'!r}", repr(token))

    def skip(self, token: str) -> bool:
        """Return whether the next token is this one, and consume it if so."""
        if self.token != token or self.kind == "string":
            return False
        self.advance()
        return True

    def of(self, kind: str, what: str) -> str:
        """Consume a token of a kind and return it; raise an error that says what is expected otherwise."""
        if self.kind != kind:
            raise self.error(f"{self.token or 'the end'!r}", what)
        return self.advance()

    def string(self, what: str) -> str:
        return str(self.literal(self.of("string", what)))

    def literal(self, token: str) -> Any:
        """Return the value of a JSON token."""
        try:
            return json.loads(token, strict=False)
        except ValueError as error:
            raise self.error(f"{token}: {error}", "JSON") from None

    def integer(self) -> int:
        token = self.of("number", "an integer")
        try:
            return int(token)
        except ValueError:
            raise self.error(repr(token), "an integer") from None

    def integers(self) -> list[int]:
        self.take("[")
        found: list[int] = []
        while not self.skip("]"):
            found.append(self.integer())
            if self.token != "]":
                self.take(",")
        return found

    def spec(self) -> TensorSpec:
        dtype = self.of("word", "an element type")
        if dtype not in DTYPES:
            raise self.error(f"{dtype!r} is not an element type", ", ".join(DTYPES))
        shape = self.integers()
        if not self.skip("strides"):
            return TensorSpec(dtype, shape)
        strides = self.integers()
        self.take("offset")
        return TensorSpec(dtype, shape, strides, self.integer())

    def attr(self) -> Any:
        if not self.skip("["):
            return self.scalar("a number, true, false, a string or a list")
        found = []
        while not self.skip("]"):
            found.append(self.scalar("a number, true, false or a string"))
            if self.token != "]":
                self.take(",")
        return found

    def fields(self, what: str) -> dict[str, Any]:
        """Return `name = value, …` up to the closing brace."""
        found: dict[str, Any] = {}
        while not self.skip("}"):
            name = self.of("word", what)
            self.take("=")
            found[name] = self.attr()
            if self.token != "}":
                self.take(",")
        return found

    def scalar(self, what: str) -> Any:
        if self.kind in ("string", "number") or self.token in ("true", "false", "NaN"):
            return self.literal(self.advance())
        raise self.error(f"{self.token or 'the end'!r}", what)


def parse(source: str) -> Graph:
    """Return the graph of a text.

    InvalidArgument names the line; an operator's own errors have the line in front.
    """
    reader = _Reader(source)
    reader.take("graph")
    name = reader.string("a name") if reader.kind == "string" else reader.of("word", "a name")
    builder = Builder(name)
    values: dict[str, Value] = {}
    reader.take("{")
    while not reader.skip("return"):
        line = reader.line
        try:
            _line(reader, builder, values)
        except IsokernError as error:
            if error.where == "graph text":
                raise
            raise type(error)(
                f"graph text, line {line}: {error.where}", error.problem, allowed=error.allowed, hint=error.hint
            ) from None
    while reader.kind == "vid":
        builder.output(_find_value(reader, values))
        if not reader.skip(","):
            break
    reader.take("}")
    if reader.kind != "end":
        raise reader.error(repr(reader.token), "nothing after the graph")
    return builder.graph


def _find_value(reader: _Reader, values: Mapping[str, Value]) -> Value:
    vid = reader.of("vid", "a value such as %0")
    if vid not in values:
        raise reader.error(f"{vid} is read and was not made before", ", ".join(values) or "none so far")
    return values[vid]


def _line(reader: _Reader, builder: Builder, values: dict[str, Value]) -> None:
    vids = [reader.of("vid", "a value such as %0, or return")]
    while reader.skip(","):
        vids.append(reader.of("vid", "a value such as %0"))
    for n, vid in enumerate(vids):
        if vid in values or vid != f"%{len(builder.graph.values) + n}":
            raise reader.error(f"{vid} is made", f"%{len(builder.graph.values) + n}, the next number")
    reader.take("=")
    kind = reader.of("word", "input, parameter or an operator")
    if kind in (INPUT, PARAMETER):
        name = reader.string("a name")
        reader.take(":")
        values[vids[0]] = builder.value(reader.spec(), name, kind)
        return
    reader.take("(")
    inputs: list[Value | None] = []
    while not reader.skip(")"):
        inputs.append(None if reader.skip("_") else _find_value(reader, values))
        if reader.token != ")":
            reader.take(",")
    attrs = reader.fields("an attribute") if reader.skip("{") else {}
    constraints = _constraints(reader)
    hints: dict[str, Any] = {}
    if reader.skip("hint"):
        reader.take("{")
        hints = reader.fields("a hint")
    name = reader.string("a name") if reader.kind == "string" else ""
    reader.take(":")
    specs = [reader.spec()]
    while reader.skip(","):
        specs.append(reader.spec())
    if len(specs) != len(vids):
        raise reader.error(f"{len(vids)} values and {len(specs)} types", "a type for each value")
    with error_context(name):
        find(kind)
    made = builder.emit(kind, inputs, attrs, name=name, outputs=specs, constraints=constraints, hints=hints)
    values.update(zip(vids, made, strict=True))


def _constraints(reader: _Reader) -> list[Constraint]:
    found: list[Constraint] = []
    if not reader.skip("where"):
        return found
    while True:
        kind = reader.of("word", f"a constraint: {', '.join(CONSTRAINTS)}")
        reader.take("(")
        operand = reader.integer()
        amount = reader.integer() if reader.skip(",") else 0
        reader.take(")")
        found.append(Constraint(kind, operand, amount))
        if not reader.skip(","):
            return found
