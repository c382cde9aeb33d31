"""Products of matrices with batches, and contractions over letters."""

from __future__ import annotations

import math

from ..status import InvalidArgument
from .emission import Emission
from .operand import Operand, dtype_of, shape_of


def multiply(node: Emission, a: Operand, b: Operand) -> Operand:
    """Return the product of two tensors as NumPy's matmul has it."""
    left, right = shape_of(a), shape_of(b)
    if not left or not right:
        raise InvalidArgument(node.op_type, f"dims {list(left)} and {list(right)}", allowed="rank 1 or more")
    if len(left) == 1:
        a = node.reshape(a, (1, *left))
    if len(right) == 1:
        b = node.reshape(b, (*right, 1))
    y = node.emit("matmul", a, b)
    *batch, m, n = shape_of(y)
    return node.reshape(y, (*batch, *([m] if len(left) > 1 else []), *([n] if len(right) > 1 else [])))


def contract(node: Emission, operands: list[Operand], terms: list[str], result: str) -> Operand:
    """Return the sum of products of elements over the letters that the result lacks."""
    if len(operands) == 2 and (found := _product(node, operands, terms, result)) is not None:
        return found
    sizes = {c: d for x, t in zip(operands, terms, strict=True) for c, d in zip(t, shape_of(x), strict=True)}
    dtype = dtype_of(operands[0])
    reduces = set("".join(terms)) > set(result)
    init = node.full([sizes[c] for c in result], 0, dtype) if reduces else None
    how = {"maps": f"{','.join(terms)}->{result}", "body": " * ".join(f"x{i}" for i in range(len(terms)))}
    return node.emit("generic", init, *operands, combine="sum" if reduces else "none", to=dtype, **how)


def _product(node: Emission, operands: list[Operand], terms: list[str], result: str) -> Operand | None:
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
