"""Einsum: a product of matrices where two inputs are contracted, else one loop nest over the letters."""

from __future__ import annotations

import re

from ..importing.products import contract
from ..status import InvalidArgument
from .node import Handler, Node, Output, shape_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def einsum(node: Node) -> Output:
    """Multiply elements, and add over the letters that the result lacks."""
    terms, result = _spell(node)
    given, sizes = [node.x(i) for i in range(len(terms))], dict[str, int]()
    for x, term in zip(given, terms, strict=True):
        if len(shape_of(x)) != len(term):
            raise InvalidArgument(node.op_type, f"{list(shape_of(x))} for {term}", allowed="a letter for each axis")
        sizes.update((c, d) for c, d in zip(term, shape_of(x), strict=True) if d != 1 or c not in sizes)
    for n, (x, term) in enumerate(zip(given, terms, strict=True)):  # a dim of 1 goes with any
        alone = [d == 1 and sizes[c] != 1 for c, d in zip(term, shape_of(x), strict=True)]
        if any(alone):
            terms[n] = "".join(c for c, one in zip(term, alone, strict=True) if not one)
            given[n] = node.reshape(x, [d for d, one in zip(shape_of(x), alone, strict=True) if not one])
    return contract(node, given, terms, result)


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


NODES: dict[str, Handler] = {"Einsum": einsum}
