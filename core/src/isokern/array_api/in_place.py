"""Writing into arrays: what `x += y` does."""

from __future__ import annotations

from typing import Any

from ..status import BadTensorDtype, BadTensorShape
from ..tensors import Tensor
from .elementwise import BINARY, FUNCTIONS, SPECIAL
from .linear_algebra import matmul
from .operands import common_shape, shares_memory, together, write
from .operators import function


def update(name: str, x: Tensor, other: Any) -> Tensor:
    """Write `name(x, other)` into x and return x: what `x += other` does. The result has to have x's shape and dtype.

    The operator writes into x itself where the two share no memory, or exactly the same.
    """
    if name in BINARY:
        a, b = together(name, x, other)
        operator, kinds = BINARY[name]
        if a is x and a.dtype.kind in kinds.replace("c", "") and (name, a.dtype.kind) not in SPECIAL:
            if common_shape(name, a, b) != x.shape:
                raise BadTensorShape(name, f"{b.desc} into {x.desc} in place", allowed="what broadcasts to it")
            if not shares_memory(a, b) or (b.desc == a.desc and b.buffer is a.buffer):
                function(operator)(a, b, out=x)
                return x
        made = FUNCTIONS[name](a, b)
    else:
        made = matmul(x, other)
    if made.dtype is not x.dtype:
        given = f"a result of {made.dtype} into an array of {x.dtype}"
        raise BadTensorDtype(name, given, allowed=f"{x.dtype}", hint="not in place: x = x + y")
    if made.shape != x.shape:
        raise BadTensorShape(name, f"a result {made.desc} into {x.desc} in place", allowed="the same shape")
    write(x, made, name)
    return x
