"""Stack code: a scalar expression as words in postfix order for kernels that interpret it on a stack machine.

A word has an opcode in its low byte and, for `input`, the number of the input in the bits above; a `const` is followed
by a word with the bits of a float64. `a if c else b` is c, a, b, select.

A subexpression that occurs several times is computed once: `keep` remembers the value on top of the stack, which stays
there, under the number in the bits above, and `again` pushes it once more. A number is reused only when no value with
it is left on the stack, so a kernel need not copy.

Opcodes are numbered in the order of `OPCODES`, on which the fingerprint of a record depends.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from functools import lru_cache

from .tree import ARITY, Expr, find_repeated, parse, to_text

LENGTH = 128  # most words of the code
DEPTH = 8  # most values on the stack
INPUTS = 8  # most inputs, x0 to x7
PARTS = 4000  # most nodes of an expression, written out
KEPT = 4  # most values remembered at a time

_ARITH = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_MARKS = {word: mark for mark, word in (_ARITH | _COMPARE).items()}
_WORDS = ["const", "input", "neg", *_ARITH.values(), *_COMPARE.values(), "and", "or", "not", "select"]
OPCODES = {name: i for i, name in enumerate([*_WORDS, *(f"fn_{f}" for f in ARITY), "keep", "again"])}
CODE_NAMES = list(OPCODES)
_OPERANDS = {"input": INPUTS, "keep": KEPT, "again": KEPT}
LANGUAGE = hashlib.sha256(" ".join(CODE_NAMES).encode()).hexdigest()[:8]
TAKES = {"const": 0, "input": 0, "again": 0, "keep": 1, "neg": 1, "not": 1, "select": 3}
TAKES |= {f"fn_{f}": n for f, n in ARITY.items()}


def names_of(inputs: int) -> list[str]:
    """Return the names of so many inputs in an expression."""
    return [f"x{i}" for i in range(inputs)]


def words(tree: Expr) -> list[int]:
    """Return the stack code of an expression.

    Raises ValueError where it is too long or too deep, has a name other than x0 to x7, or has a constant that is not a
    float64.
    """
    _check_size(tree)
    made: list[int] = []
    left = find_repeated(tree)
    number: dict[Expr, int] = {}
    stack: list[int | None] = []  # the number of each value on it, if any

    def emit(node: Expr) -> None:
        """Append the node's code; remember its value for later uses where a number is free."""
        height = len(stack)
        if node in number:
            made.append(OPCODES["again"] | number[node] << 8)
        else:
            emit_parts(node)
        stack[height:] = [number.get(node)]
        if node not in left:
            return
        left[node] -= 1
        free = [n for n in range(KEPT) if n not in number.values() and n not in stack]
        if node not in number and left[node] and free:
            number[node] = stack[-1] = free[0]
            made.append(OPCODES["keep"] | free[0] << 8)
        elif node in number and not left[node]:
            del number[node]

    def emit_parts(node: Expr) -> None:
        if node.kind == "const":
            made.extend((OPCODES["const"], _bits(node.value)))
        elif node.kind == "name":
            if node.value not in names_of(INPUTS):
                raise ValueError(f"{node.value!r} is no input: they are x0 to x{INPUTS - 1}")
            made.append(OPCODES["input"] | int(node.value[1:]) << 8)
        elif node.kind in ("and", "or"):
            emit(node.args[0])
            for arg in node.args[1:]:
                emit(arg)
                made.append(OPCODES[node.kind])
                stack[-2:] = [None]
        else:
            for arg in node.args:
                emit(arg)
            made.append(OPCODES[_opcode(node)])

    emit(tree)
    if len(made) > LENGTH:
        raise ValueError(f"its program has {len(made)} words, and {LENGTH} are the most")
    if (deepest := depth(made)) > DEPTH:
        raise ValueError(f"it holds {deepest} values at a time, and {DEPTH} are the most")
    return made


@lru_cache(maxsize=256)
def words_of(text: str) -> tuple[int, ...]:
    """Return the stack code of an expression's text; errors are those of `parse` and `words`."""
    return tuple(words(parse(text)))


@lru_cache(maxsize=256)
def normal_form(text: str) -> str:
    """Return the text of the tree that the stack code of `text` stands for; errors are those of `parse` and `words`.

    It is the same for all texts with the same code.
    """
    return to_text(tree_of(words_of(text)))


def _check_size(tree: Expr) -> None:
    """Raise ValueError where a tree has too many nodes, or is higher than the code may have words.

    Every level takes at least one word.
    """
    if tree.parts > PARTS:
        raise ValueError(f"it has more than {PARTS} parts")
    if tree.height > LENGTH:
        raise ValueError(f"{tree.height} operations are within one another, and {LENGTH} are the most")


def _bits(value: float) -> int:
    """Return the bits of a constant's float64."""
    try:
        exact = math.isnan(value) or float(value) == value
    except OverflowError:
        exact = False
    if not exact:
        raise ValueError(f"no float64 is {value}")
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _opcode(node: Expr) -> str:
    if node.kind == "call":
        return f"fn_{node.value}"
    return {**_ARITH, **_COMPARE}[node.value] if node.kind in ("arith", "compare") else node.kind


def depth(program: Sequence[int]) -> int:
    """Return the largest number of values on the stack."""
    held = most = at = 0
    while at < len(program):
        name = CODE_NAMES[program[at] & 255]
        at += 2 if name == "const" else 1
        held += 1 - TAKES.get(name, 2)
        most = max(most, held)
    return most


def tree_of(program: Sequence[int]) -> Expr:
    """Return the expression of stack code; raise ValueError for words that are none."""
    stack: list[tuple[Expr, int | None]] = []  # values, each with its number, if it is kept
    kept: dict[int, Expr] = {}
    at = 0
    while at < len(program):
        code, operand = program[at] & 255, program[at] >> 8
        at += 1
        if code >= len(CODE_NAMES) or not 0 <= operand < _OPERANDS.get(CODE_NAMES[code], 1):
            raise ValueError(f"word {program[at - 1]:#x} is no instruction")
        name = CODE_NAMES[code]
        if name == "const" and at < len(program):
            stack.append((Expr("const", float_of(program[at])), None))
            at += 1
            continue
        if name == "input":
            stack.append((Expr("name", f"x{operand}"), None))
            continue
        if name == "again" and operand in kept:
            stack.append((kept[operand], operand))
            continue
        if name == "keep" and stack:
            if operand in (n for _, n in stack):
                raise ValueError(f"keep {operand} would write over what is on the stack")
            kept[operand] = stack[-1][0]
            stack[-1] = (kept[operand], operand)
            continue
        takes = TAKES.get(name, 2)
        if name in ("const", "again") or len(stack) < takes:
            raise ValueError(f"{name} finds {len(stack)} values on the stack")
        args = tuple(e for e, _ in stack[len(stack) - takes :])
        del stack[len(stack) - takes :]
        made = node(name, args)
        _check_size(made)
        stack.append((made, None))
    if len(stack) != 1:
        raise ValueError(f"{len(stack)} values are left, and one is the result")
    return stack[0][0]


def float_of(word: int) -> float:
    """Return the float64 whose bits a word is."""
    number: float = struct.unpack("<d", struct.pack("<q", word))[0]
    return number


def node(name: str, args: tuple[Expr, ...]) -> Expr:
    """Return the node that an opcode other than const and input makes of its operands."""
    if name.startswith("fn_"):
        return Expr("call", name[3:], args)
    if name in _MARKS:
        return Expr("arith" if name in _ARITH.values() else "compare", _MARKS[name], args)
    return Expr(name, None, args)
