"""Launch blocks: the comment at the head of a kernel file that says in a few lines what it launches for a call.

    /* launch
     * tensors(y, x)
     * let(rows=y.shape[0])
     * refuse(when=y.shape[-1] > 4096, reason="rows longer than 4096")
     * workspace(bytes=8 * rows)
     * softmax(groups=rows, local=128, UNROLL=4, rows=rows)
     */

Each line is one call with arguments by name. `tensors` names the plan's tensors by position; `let` names values, or
gives a tensor another description; `refuse`, `workspace` and the entries of the file are as in `launch.py`, and
`launch_rows(entry="softmax", …)` and its like as in `launch_shared.py`. They take `when=`, without which they always
hold.

Expressions are a closed language: numbers, texts, names, `x.attribute`, `x[index]`, lists, arithmetic, comparisons,
`and`, `or`, `not`, `a if c else b`, and calls of the functions below. Names are the tensors (None where absent),
`attrs`, `op`, `device` and what `let` named. A kernel file whose launches take more than that has a Python file beside
it.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..layout import TensorDesc
from .launch import (
    Call,
    Launches,
    PythonLaunches,
    bits,
    ceil_div,
    coalesce,
    convert_bits,
    count_parts,
    launch_file,
    pack,
    pieces,
    tensor,
    whole_pack,
)
from .launch_shared import choose_tile, launch_held_rows, launch_rows, launch_runs
from .source import expand

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "bits": bits,
    "ceil_div": ceil_div,
    "coalesce": coalesce,
    "convert_bits": convert_bits,
    "count_parts": count_parts,
    "int": int,
    "len": len,
    "max": max,
    "min": min,
    "pack": pack,
    "pieces": pieces,
    "prod": math.prod,
    "tensor": tensor,
    "choose_tile": choose_tile,
    "whole_pack": whole_pack,
}
SHARED: dict[str, Callable[..., None]] = {
    "launch_held_rows": launch_held_rows,
    "launch_rows": launch_rows,
    "launch_runs": launch_runs,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_NODES = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.List,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.IfExp,
    ast.Call,
)
_PARTS = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def check(where: str, text: str, tree: ast.expr) -> ast.expr:
    """The expression, or ValueError where it leaves the language."""
    for node in ast.walk(tree):
        known = isinstance(node, (*_NODES, *_PARTS))
        if isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords
        elif isinstance(node, ast.Attribute):
            known = not node.attr.startswith("_")
        elif isinstance(node, ast.BinOp):
            known = type(node.op) in _BINARY
        if not known:
            raise ValueError(f"{where}: {text!r}: {ast.unparse(node)!r} is not in the language; write a Python file")
    return tree


def value(node: ast.AST, scope: Mapping[str, Any]) -> Any:
    """What a checked expression is worth."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return scope[node.id]
        case ast.Attribute():
            return getattr(value(node.value, scope), node.attr)
        case ast.Subscript():
            return value(node.value, scope)[value(node.slice, scope)]
        case ast.Slice():
            return slice(*(None if n is None else value(n, scope) for n in (node.lower, node.upper, node.step)))
        case ast.List():
            return [value(n, scope) for n in node.elts]
        case ast.BinOp():
            return _BINARY[type(node.op)](value(node.left, scope), value(node.right, scope))
        case ast.UnaryOp():
            inner = value(node.operand, scope)
            return not inner if isinstance(node.op, ast.Not) else -inner
        case ast.Compare():
            left = value(node.left, scope)
            for op, other in zip(node.ops, node.comparators, strict=True):
                right = value(other, scope)
                if not _COMPARE[type(op)](left, right):
                    return False
                left = right
            return True
        case ast.BoolOp():
            stop = isinstance(node.op, ast.Or)
            result: Any = None
            for n in node.values:
                result = value(n, scope)
                if bool(result) is stop:
                    break
            return result
        case ast.IfExp():
            return value(node.body if value(node.test, scope) else node.orelse, scope)
        case ast.Call():
            assert isinstance(node.func, ast.Name)
            return FUNCTIONS[node.func.id](*(value(n, scope) for n in node.args))
        case _:
            raise AssertionError(f"{node} was not checked")


@dataclass(frozen=True)
class _Line:
    name: str
    positional: tuple[str, ...]
    keywords: tuple[tuple[str, ast.expr], ...]


class LaunchBlock(Launches):
    """The parsed launch block of one kernel file."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(path, text)
        text = path.read_text(encoding="utf-8")
        found = re.search(r"^/\* launch\n(.*?)\*/", text, re.S | re.M)
        if found is None:
            raise ValueError(f"{path}: no launch block; it begins with a line `/* launch`")
        first = text[: found.start()].count("\n") + 2
        self.lines = [
            self._parse(first + i, line.strip().removeprefix("*").strip())
            for i, line in enumerate(found[1].splitlines())
            if line.strip(" *")
        ]
        for line in self.lines:
            entry = getattr(dict(line.keywords).get("entry"), "value", "") if line.name in SHARED else line.name
            if entry not in ("tensors", "let", "refuse", "workspace") and entry not in self.entries:
                raise ValueError(f"{path}: the launch block names {entry}, which is no IK_ENTRY of the file")

    def _parse(self, number: int, text: str) -> _Line:
        where = f"{self.path}:{number}"
        try:
            call = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"{where}: {text!r}: {error.msg}") from None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(f"{where}: {text!r} is not a call")
        if call.func.id == "tensors":
            return _Line("tensors", tuple(ast.unparse(a) for a in call.args), ())
        keywords = []
        for k in call.keywords:
            if k.arg is not None:
                keywords.append((k.arg, check(where, text, k.value)))
        if call.args or len(keywords) < len(call.keywords):
            raise ValueError(f"{where}: {text!r}: arguments are given by name")
        return _Line(call.func.id, (), tuple(keywords))

    def run(self, call: Call) -> None:
        """Ask the call for the launches of each line in turn."""
        names = next((line.positional for line in self.lines if line.name == "tensors"), ())
        tensors = call.tensors(*names)
        scope: dict[str, Any] = {"attrs": call.attrs, "op": call.op, "device": call.device}
        for line in self.lines:
            if line.name == "tensors":
                continue
            known = {**scope, **vars(tensors)}
            given = dict(line.keywords)
            if "when" in given and not value(given.pop("when"), known):
                continue
            if line.name == "let":
                for name, node in line.keywords:
                    made = value(node, {**scope, **vars(tensors)})
                    if hasattr(tensors, name) and (made is None or isinstance(made, TensorDesc)):
                        setattr(tensors, name, made)
                    else:
                        scope[name] = made
                continue
            values = {name: value(node, known) for name, node in given.items()}
            if line.name == "refuse":
                call.refuse(values["reason"])
            elif line.name == "workspace":
                call.workspace(values["bytes"])
            elif line.name in SHARED:
                SHARED[line.name](call, **values)
            else:
                call.launch(line.name, **values)


@cache
def launches(path: Path) -> Launches:
    """The launches of a kernel file, read once: those of the Python file beside it, else its launch block."""
    text, module = expand(path), launch_file(path)
    return PythonLaunches(path, text, module) if module.is_file() else LaunchBlock(path, text)
