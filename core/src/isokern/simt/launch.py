"""Launch blocks: the comment at the head of a kernel file that says which of its entries run for a call, how often, and with what.

    /* launch
     * tensors(y, x)
     * let(rows=y.shape[0])
     * refuse(when=y.shape[-1] > 4096, reason="rows longer than 4096")
     * workspace(bytes=8 * rows)
     * softmax(groups=rows, local=128, UNROLL=4, rows=rows)
     */

Each line is one call in Python's expression syntax. `tensors` names the plan's tensors by position (else they are called as in the
signature; a name with * takes the rest); `let` names values; `refuse` declines the call; `workspace` books scratch memory, in bytes. Any
other name is an entry of the file, launched in the order of the lines. A tensor's name that is given another value, by `let` or in one line,
is that for the kernel: a view of it, with another dtype of its size perhaps (`bits`), or None, which leaves it out.

    groups=N, local=L   N work-groups that may use barriers, of at most L items (a power of two; the device may make it less: IK_GROUP)
    items=N             N independent items without barriers; the launch rounds up, so the kernel compares with p.items
    when=C              launched only where C is true
    aliased=B           launched only where the first output shares memory with the first input (True), or does not (False)
    each=NAME           launched once for each tensor of the variadic operand, which it then knows as NAME; `index` counts them
    all=NAME            one launch knows the tensors of the variadic operand as NAME0, NAME1, …; they have the first tensor's shape, and their
                        records are p.NAME0.offset and .strides alone, so that many of them are few bytes
    UPPER=V             a macro for the compiler
    lower=V             an integer in the parameters: p.lower; or a list of at most 8: p.lower.v

Expressions know the tensors (None where absent) with their `shape`, `strides`, `offset`, `ndim`, `numel`, `dtype`, `is_contiguous`; the
operator's attributes as attrs.NAME and its name as `op`; the device's traits as `device`; min, max, abs, int, len, sum, any, all, range, sorted, zip, enumerate,
prod, ceil_div; tensor(x, shape, strides, offset), a view of x; coalesce([x, …]), tensors of one shape with dims ordered and merged as in
`ops.views`; bits(x), x as unsigned integers of its size, so that dtypes share programs; converted(value, dtype), the bits of a number
that is converted as `cast` does, as an integer; pieces(x), how many groups move the lines of x (`place.h`); and pack([x, …], n), how many
elements of the last dim may be taken at once: the largest power of two that is n bytes or less of each tensor, and at whose multiples the lines of
all that are dense along it begin and end (a single line may end anywhere). Tensors that repeat one element along it do not count but by their
size; 1 where another step is.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np

from ..cabi.plan import Plan
from ..declare.conversion import convert
from ..declare.normal_form import coalesce
from ..dtypes import UNSIGNED, DType
from ..layout import TensorDesc
from .traits import Traits

PIECE = 4096  # elements of a line that a group moves (place.h)
RESERVED = ("groups", "local", "items", "when", "aliased", "each", "all")


def _tensor(x: TensorDesc, shape: Sequence[int], strides: Sequence[int], offset: int) -> TensorDesc:
    return TensorDesc(x.dtype, shape, strides, offset)


def _bits(x: TensorDesc) -> TensorDesc:
    unsigned = next(d for d in UNSIGNED if d.itemsize == x.dtype.itemsize)
    return TensorDesc(unsigned, x.shape, x.strides, x.offset)


def _convert(value: float, dtype: DType) -> int:
    return int.from_bytes(convert(np.array(value, np.float64), dtype.numpy).tobytes(), "little", signed=True)


def _pieces(x: TensorDesc) -> int:
    length = x.shape[-1]
    return x.numel // max(1, length) * -(-length // PIECE)


def _pack(tensors: Sequence[TensorDesc | None], most: int) -> int:
    given = [t for t in tensors if t is not None]
    lines = [t for t in given if t.strides[-1] != 0]
    marks = [n for t in lines for n in (t.offset, *t.strides[:-1], *(t.shape[-1:] if t.ndim > 1 else ()))]
    count = most // max(t.dtype.itemsize for t in given)
    while count > 1 and (any(n % count for n in marks) or any(t.strides[-1] != 1 for t in lines)):
        count //= 2
    return max(1, count)


FUNCTIONS: dict[str, Any] = {
    "min": min,
    "max": max,
    "abs": abs,
    "len": len,
    "sum": sum,
    "any": any,
    "all": all,
    "range": range,
    "int": int,
    "sorted": sorted,
    "zip": zip,
    "enumerate": enumerate,
    "prod": math.prod,
    "ceil_div": lambda a, b: -(-a // b),
    "tensor": _tensor,
    "coalesce": coalesce,
    "bits": _bits,
    "converted": _convert,
    "pieces": _pieces,
    "pack": _pack,
}


@dataclass(frozen=True)
class Step:
    """One launch of an entry: `tensors` are (name, position in the plan's table, what the kernel is told of it); of those that `slim` names,
    offset and strides alone."""

    entry: str
    groups: int
    local: int
    items: int | None
    defines: tuple[tuple[str, Any], ...]
    scalars: tuple[tuple[str, int | tuple[int, ...]], ...]
    tensors: tuple[tuple[str, int, TensorDesc], ...]
    aliased: bool | None = None
    slim: tuple[str, ...] = ()
    single: bool = False  # groups of one item by the block's own wish: an item does much


@dataclass(frozen=True)
class Steps:
    """What a plan comes to: its launches in order and the workspace in bytes, or why it is declined."""

    steps: tuple[Step, ...] = ()
    workspace: int = 0
    refusal: str | None = None


@dataclass(frozen=True)
class _Line:
    name: str
    positional: tuple[str, ...]
    keywords: tuple[tuple[str, CodeType], ...]


class Block:
    """The parsed launch block of one kernel file."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        entries = set(re.findall(r"^IK_ENTRY\((\w+)\)", text, re.M))
        for line in self.lines:
            if line.name not in ("tensors", "let", "refuse", "workspace") and line.name not in entries:
                raise ValueError(f"{path}: the launch block names {line.name}, which is no IK_ENTRY of the file")

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
        if call.args:
            raise ValueError(f"{where}: {text!r}: arguments are given by name")
        keywords = []
        for k in call.keywords:
            code = compile(ast.Expression(k.value), f"{where}: {k.arg}", "eval")
            if k.arg is None:
                raise ValueError(f"{where}: {text!r}: arguments are given by name")
            keywords.append(
                (k.arg, compile(repr(ast.unparse(k.value)), "", "eval") if k.arg in ("each", "all") else code)
            )
        return _Line(call.func.id, (), tuple(keywords))

    @property
    def books_workspace(self) -> bool:
        """Whether it may book scratch memory."""
        return any(line.name == "workspace" for line in self.lines)

    def steps(self, plan: Plan, traits: Traits) -> Steps:
        """The launches for a plan on a device with these traits."""
        scope, positions, variadic = self._tensors(plan)
        scope |= FUNCTIONS | {"attrs": SimpleNamespace(**plan.attrs), "op": plan.operator.name, "device": traits}
        steps: list[Step] = []
        workspace = 0
        for line in self.lines:
            if line.name == "tensors":
                continue
            if line.name == "let":
                for name, code in line.keywords:
                    scope[name] = _value(code, scope)
                continue
            every: Sequence[Mapping[str, Any]] = [{}]
            given = dict(line.keywords)
            if "each" in given:
                every = [{"index": i, _value(given["each"], {}): d} for i, d in enumerate(scope[variadic])]
            elif "all" in given:
                every = [{f"{_value(given['all'], {})}{i}": d for i, d in enumerate(scope[variadic])}]
            for extra in every:
                local = {**scope, **extra}
                values = {n: _value(c, local) for n, c in _check_condition_first(line.keywords, local)}
                if values.get("when") is False:
                    continue
                if line.name == "refuse":
                    return Steps(refusal=str(values["reason"]))
                if line.name == "workspace":
                    workspace = max(workspace, int(values["bytes"]))
                    continue
                named = dict(positions)
                if "each" in values:
                    named[values["each"]] = positions[variadic] + extra["index"]
                    del named[variadic]
                slim: tuple[str, ...] = ()
                if "all" in values:
                    slim = tuple(extra)
                    named |= {name: positions[variadic] + i for i, name in enumerate(slim)}
                    del named[variadic]
                step = _step(line.name, values, traits, named, {**local, **values}, slim)
                if step is not None:
                    steps.append(step)
        return Steps(tuple(steps), workspace)

    def _tensors(self, plan: Plan) -> tuple[dict[str, Any], dict[str, int], str]:
        """Name → tensor; name → position in the table, of those that are there; and the variadic name."""
        names = next((line.positional for line in self.lines if line.name == "tensors"), None)
        if names is None:
            operands = (*plan.operator.signature.outputs, *plan.operator.signature.inputs)
            names = tuple(f"*{o.name}" if o.variadic else o.name for o in operands)
        scope: dict[str, Any] = {}
        positions: dict[str, int] = {}
        variadic = ""
        for i, name in enumerate(names):
            if name.startswith("*"):
                variadic = name[1:]
                scope[variadic], positions[variadic] = list(plan.table[i:]), i
                continue
            desc = plan.table[i] if i < len(plan.table) else None
            scope[name] = desc
            if desc is not None:
                positions[name] = i
        return scope, positions, variadic


def _value(code: CodeType, scope: Mapping[str, Any]) -> Any:
    return eval(code, {**scope, "__builtins__": {}})  # as globals: comprehensions see no others


def _check_condition_first(
    keywords: Sequence[tuple[str, CodeType]], scope: Mapping[str, Any]
) -> list[tuple[str, CodeType]]:
    """`when` alone where it is false: what the others say need not make sense then."""
    for name, code in keywords:
        if name == "when" and not _value(code, scope):
            return [(name, compile("False", "", "eval"))]
    return [(n, c) for n, c in keywords if n != "when"]


def _step(
    entry: str,
    values: dict[str, Any],
    traits: Traits,
    positions: Mapping[str, int],
    scope: Mapping[str, Any],
    slim: tuple[str, ...],
) -> Step | None:
    """The launch; None where it has nothing to do."""
    items = values.get("items")
    if items is not None:
        local = traits.items
        groups = -(-int(items) // local)
    else:
        groups = int(values["groups"])
        local = min(int(values["local"]), traits.group)
    if groups <= 0:
        return None
    defines = tuple((n, v) for n, v in values.items() if n.isupper())
    scalars = [
        (n, int(v) if hasattr(v, "__index__") else tuple(map(int, v)))
        for n, v in values.items()
        if n not in RESERVED and n not in positions and not n.isupper()
    ]
    if items is not None:
        scalars.append(("items", int(items)))
    present = tuple((n, i, d) for n, i in positions.items() if isinstance(d := scope.get(n), TensorDesc))
    slim = tuple(n for n, _, _ in present if n in slim)
    single = items is None and int(values["local"]) == 1
    return Step(entry, groups, local, items, defines, tuple(scalars), present, values.get("aliased"), slim, single)


@cache
def block(path: Path) -> Block:
    """The block of a kernel file, parsed once."""
    return Block(path)
