"""The closed scalar language of elementwise rows: Python syntax, parsed once into a tree and printed for each target.

Names are the row's inputs (`x`, or `a` and `b`, …) and attributes. The language has literals, `+ - * /`, comparisons,
`and or not`, `a if c else b`, and the named functions below. All values are of the row's compute type; a condition that
is the row's result or a function's argument counts as 1 or 0.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

UNARY_FUNCTIONS = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "sqrt",
    "rsqrt",
    "cbrt",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "abs",
    "sign",
    "isnan",
    "erfc",
]
# Functions with a cheaper ik_<function>_near_f32, which gives the same bits for F32 arguments below IK_NEAR_F32
NEAR = ["sin", "cos", "tan"]
BINARY_FUNCTIONS = ["minimum", "maximum", "pow", "copysign", "fmod", "remainder"]
SHARED_FUNCTIONS = ["abs", "sign", "minimum", "maximum", "fmod", "remainder"]  # of floats and of integers
INTEGER_FUNCTIONS = [
    *SHARED_FUNCTIONS,
    "quotient",
    "bitand",
    "bitor",
    "bitxor",
    "bitnot",
    "shift_left",
    "shift_right",
]
ARITY = {**dict.fromkeys(UNARY_FUNCTIONS, 1), **dict.fromkeys(BINARY_FUNCTIONS, 2)}
ARITY |= {"quotient": 2, "bitand": 2, "bitor": 2, "bitxor": 2, "bitnot": 1, "shift_left": 2, "shift_right": 2}


DEEPEST = 200  # deepest nesting of a text: more than stack code can hold
LEAVES = ("const", "name")


@dataclass(frozen=True)
class Expr:
    """A node: `kind` is const, name, call, arith (+ - * /), neg, compare, and, or, not, or select.

    A subtree that occurs several times may be one object in all its places. `parts` counts the nodes as written out,
    `height` those on the longest path down. Both, and the hash, are computed once, so that sharing costs nothing.
    """

    kind: str
    value: Any = None
    args: tuple[Expr, ...] = ()
    parts: int = field(init=False, repr=False, compare=False)
    height: int = field(init=False, repr=False, compare=False)
    _sign: float = field(init=False, repr=False)  # distinguishes -0.0 from 0.0
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        negative = isinstance(self.value, float) and math.copysign(1, self.value) < 0
        object.__setattr__(self, "parts", 1 + sum(a.parts for a in self.args))
        object.__setattr__(self, "height", 1 + max((a.height for a in self.args), default=0))
        object.__setattr__(self, "_sign", -1.0 if negative else 1.0)
        object.__setattr__(self, "_hash", hash((self.kind, self.value, self.args, self._sign)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self.kind, self.value, self.args)  # hashes differ between processes

    @property
    def is_condition(self) -> bool:
        """Whether the node is true or false rather than a number."""
        return self.kind in ("compare", "and", "or", "not")

    def walk(self) -> Iterator[Expr]:
        """Yield the node and everything under it, from left to right."""
        rest = [self]
        while rest:
            node = rest.pop()
            yield node
            rest += reversed(node.args)

    def near(self, inputs: Collection[str]) -> tuple[Expr, list[str]]:
        """Return the tree with the cheaper versions of functions for small arguments.

        Also returns the names of the inputs that must then be small.
        """
        if self.kind == "call" and self.value in NEAR and self.args[0].kind == "name" and self.args[0].value in inputs:
            return Expr("call", f"{self.value}_near", self.args), [self.args[0].value]
        found = [arg.near(inputs) for arg in self.args]
        return Expr(self.kind, self.value, tuple(tree for tree, _ in found)), sorted(
            {n for _, names in found for n in names}
        )


_ARITH = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def parse(text: str) -> Expr:
    """Return the tree of an expression.

    Anything outside the language is a ValueError that quotes it, as is nesting deeper than `DEEPEST`. A subexpression
    that occurs several times is one object. The trees of recent texts are cached, since the body of a call is parsed at
    every step.
    """
    return _parse_once(text) if isinstance(text, str) and len(text) <= LONGEST_KEPT else _parse(text)


LONGEST_KEPT = 1 << 16  # characters of the longest text whose tree is cached


@lru_cache(maxsize=256)
def _parse_once(text: str) -> Expr:
    return _parse(text)


def _parse(text: str) -> Expr:
    made: dict[tuple[Expr, type], Expr] = {}

    def one(kind: str, value: Any = None, args: tuple[Expr, ...] = ()) -> Expr:
        """Return the node, or the equal node made before; operands are then the same objects and cheap to compare."""
        node = Expr(kind, value, args)
        return made.setdefault((node, type(value)), node)

    def convert(node: ast.expr) -> Expr:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return one("const", node.value)
        if isinstance(node, ast.Name):
            return one("name", node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITH:
            return one("arith", _ARITH[type(node.op)], (convert(node.left), convert(node.right)))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = convert(node.operand)
            return one("const", -inner.value) if inner.kind == "const" else one("neg", None, (inner,))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return one("not", None, (convert(node.operand),))
        if isinstance(node, ast.BoolOp):
            word = "and" if isinstance(node.op, ast.And) else "or"
            return one(word, None, tuple(convert(v) for v in node.values))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            return one("compare", _COMPARE[type(node.ops[0])], (convert(node.left), convert(node.comparators[0])))
        if isinstance(node, ast.IfExp):
            return one("select", None, (convert(node.test), convert(node.body), convert(node.orelse)))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and not node.keywords
            and ARITY.get(node.func.id) == len(node.args)
        ):
            return one("call", node.func.id, tuple(convert(a) for a in node.args))
        raise ValueError(f"expression {text!r}: {ast.unparse(node)!r} is outside the language")

    try:
        body = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"expression {text!r}: {error.msg}") from None
    except (RecursionError, MemoryError):  # Python's parser gives up on such a text
        body = None
    if body is None or (len(text) > DEEPEST - 2 and not _is_shallow(body)):  # a level takes a character
        raise ValueError(f"expression {text!r}: more than {DEEPEST} operations are within one another")
    return convert(body)


def _is_shallow(node: ast.AST) -> bool:
    """Return whether nodes are nested at most `DEEPEST` levels."""
    level = [node]
    for _ in range(DEEPEST):
        level = [child for parent in level for child in ast.iter_child_nodes(parent)]
        if not level:
            return True
    return False


def to_text(tree: Expr) -> str:
    """Return the expression in the language itself, fully parenthesised; `parse` restores the same tree."""

    spelled: dict[int, str] = {}  # by identity: 1 and 1.0 are equal but written differently

    def spell(node: Expr) -> str:
        if id(node) not in spelled:
            spelled[id(node)] = write_node(node, [spell(a) for a in node.args])
        return spelled[id(node)]

    def write_node(node: Expr, args: list[str]) -> str:
        if node.kind == "const":
            return repr(node.value).replace("inf", "1e999")  # Python reads 1e999 as inf
        if node.kind == "name":
            return str(node.value)
        if node.kind == "call":
            return f"{node.value}({', '.join(args)})"
        if node.kind in ("arith", "compare"):
            return f"({args[0]} {node.value} {args[1]})"
        if node.kind in ("and", "or"):
            return f"({f' {node.kind} '.join(args)})"
        if node.kind == "select":
            return f"({args[1]} if {args[0]} else {args[2]})"
        return f"(not {args[0]})" if node.kind == "not" else f"(-{args[0]})"

    return spell(tree)


def substitute(tree: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return the tree with names replaced by other trees."""
    if tree.kind == "name":
        return values.get(tree.value, tree)
    return Expr(tree.kind, tree.value, tuple(substitute(a, values) for a in tree.args))


def find_repeated(tree: Expr) -> dict[Expr, int]:
    """Return how often each node with operands is used, for those used more than once; parts of one come later."""
    uses: dict[Expr, int] = {}

    def count(node: Expr) -> None:
        if node.kind in LEAVES:
            return
        uses[node] = uses.get(node, 0) + 1
        if uses[node] == 1:
            for arg in node.args:
                count(arg)

    count(tree)
    return {node: n for node, n in uses.items() if n > 1}


def to_c(tree: Expr, compute: str, name: Callable[[str], str], known: Mapping[Expr, str] | None = None) -> str:
    """Return C for the tree in compute type `compute` (F32, F64, I64, U64); `name` spells an input or attribute.

    `known` are names of parts that were computed before. The functions are `ik_<function>_<type>` of isokern_math.h; a
    condition used as a number becomes 1 or 0.
    """
    suffix = compute.lower()

    def number(node: Expr) -> str:
        text = spell(node)
        return f"({text} ? {literal(1, compute)} : {literal(0, compute)})" if node.is_condition else text

    def condition(node: Expr) -> str:
        return spell(node) if node.is_condition else f"({number(node)} != {literal(0, compute)})"

    def wrapping(before: str, last: str) -> str:
        """Compute as unsigned: overflow of signed integers is undefined."""
        return f"((int64_t)({before} (uint64_t){last}))"

    def spell(node: Expr) -> str:
        if known is not None and node in known:
            return known[node]
        if node.kind == "const":
            return literal(node.value, compute)
        if node.kind == "name":
            return name(node.value)
        if node.kind == "neg":
            return wrapping("0 -", number(node.args[0])) if compute == "I64" else f"(-{number(node.args[0])})"
        if node.kind == "arith" and compute == "I64" and node.value != "/":
            return wrapping(f"(uint64_t){number(node.args[0])} {node.value}", number(node.args[1]))
        if node.kind in ("arith", "compare"):
            return f"({number(node.args[0])} {node.value} {number(node.args[1])})"
        if node.kind in ("and", "or"):
            # Both sides are pure, and a branch would prevent vectorisation
            sign = " & " if node.kind == "and" else " | "
            return f"({sign.join(condition(a) for a in node.args)})"
        if node.kind == "not":
            return f"(!{condition(node.args[0])})"
        if node.kind == "select":
            test, yes, no = node.args
            return f"({condition(test)} ? {number(yes)} : {number(no)})"
        return f"ik_{node.value}_{suffix}({', '.join(number(a) for a in node.args)})"

    return number(tree)


def fit(value: float, least: int, most: int) -> int:
    """Return a constant as an integer from `least` to `most`: truncated, saturated, 0 for NaN."""
    if math.isnan(value):
        return 0
    return max(least, min(most, int(value))) if math.isfinite(value) else least if value < 0 else most


def literal(value: float, compute: str) -> str:
    """Return a C literal of the compute type that reads back as the same value; an integer one as `fit` has it."""
    if compute == "U64":
        return f"UINT64_C({fit(value, 0, (1 << 64) - 1)})"
    if compute == "I64":
        whole = fit(value, -(1 << 63), (1 << 63) - 1)
        return f"INT64_C({whole})" if whole > -(1 << 63) else f"(INT64_C({whole + 1}) - 1)"
    text, end = repr(float(value)), "f" if compute == "F32" else ""
    if text in ("inf", "-inf"):
        return f"({text.removesuffix('inf')}1.0{end} / 0.0{end})"
    if text == "nan":
        raise ValueError(f"{value} has no literal; write it as an expression")
    return text + end
