"""Einsum: a product of matrices where two inputs are contracted, else one loop nest over the letters."""

from __future__ import annotations

import math
import re

from ..status import InvalidArgument
from .node import Handler, Node, Operand, Output, dtype_of, shape_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def einsum(node: Node) -> Output:
    """Multiply elements, and add over the letters that the result lacks."""
    terms, result = _spell(node)
    return contract(node, [node.x(i) for i in range(len(terms))], terms, result)


def _spell(node: Node) -> tuple[list[str], str]:
    """Return the letters of each input and of the result, with dots as letters, too."""
    text = re.sub(r"\s", "", node.attrs["equation"])
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs) or not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", text):
        raise InvalidArgument(node.op_type, f"equation {text!r} of {len(node.inputs)} inputs")
    plain = [t.replace("...", "") for t in terms]
    dotted = [len(node.shape(i)) - len(plain[i]) if "..." in t else 0 for i, t in enumerate(terms)]
    free, every = max(dotted), sorted(set("".join(plain)))
    if min(dotted) < 0 or len(every) + free > len(LETTERS):
        raise InvalidArgument(node.op_type, f"equation {text!r}", allowed="a letter for each axis")
    if not arrow:
        once = [c for c in every if "".join(plain).count(c) == 1]
        right = ("..." if any("..." in t for t in terms) else "") + "".join(once)
    named = dict(zip(every, LETTERS, strict=False))
    dots = LETTERS[len(every) : len(every) + free]

    def spell(term: str, count: int) -> str:
        before, found, after = term.partition("...")
        own = dots[free - count :] if found else ""
        return "".join(named[c] for c in before) + own + "".join(named[c] for c in after)

    return [spell(t, n) for t, n in zip(terms, dotted, strict=True)], spell(right, free)


def contract(node: Node, operands: list[Operand], terms: list[str], result: str) -> Operand:
    """Return the sum of products of elements over the letters that the result lacks."""
    if len(operands) == 2 and (found := _product(node, operands, terms, result)) is not None:
        return found
    sizes = {c: d for x, t in zip(operands, terms, strict=True) for c, d in zip(t, shape_of(x), strict=True)}
    dtype = dtype_of(operands[0])
    reduces = set("".join(terms)) > set(result)
    init = node.full([sizes[c] for c in result], 0, dtype) if reduces else None
    how = {"maps": f"{','.join(terms)}->{result}", "body": " * ".join(f"x{i}" for i in range(len(terms)))}
    return node.emit("generic", init, *operands, combine="sum" if reduces else "none", to=dtype, **how)


def _product(node: Node, operands: list[Operand], terms: list[str], result: str) -> Operand | None:
    """Return a contraction as a product of matrices, None where a letter is repeated or summed in one input alone."""
    a, b = terms
    if any(len(set(t)) != len(t) for t in (a, b, result)):
        return None
    batch = [c for c in a if c in b and c in result]
    inner = [c for c in a if c in b and c not in result]
    rows, columns = ([c for c in t if c not in other] for t, other in ((a, b), (b, a)))
    if not inner or not set(rows + columns) <= set(result):
        return None
    sizes = {c: d for x, t in zip(operands, terms, strict=True) for c, d in zip(t, shape_of(x), strict=True)}

    def matrix(x: Operand, term: str, first: list[str], second: list[str]) -> Operand:
        turned = node.transpose(x, [term.index(c) for c in (*batch, *first, *second)])
        dims = [math.prod(sizes[c] for c in group) for group in (first, second)]
        return node.reshape(turned, (*(sizes[c] for c in batch), *dims))

    y = node.emit("matmul", matrix(operands[0], a, rows, inner), matrix(operands[1], b, inner, columns))
    order = [*batch, *rows, *columns]
    y = node.reshape(y, [sizes[c] for c in order])
    return node.transpose(y, [order.index(c) for c in result])


NODES: dict[str, Handler] = {"Einsum": einsum}
