"""Loop nests that nodes emit: what several operators in a row would compute, as one."""

from __future__ import annotations

from ..importing.emission import Emission
from ..importing.operand import Operand, dtype_of, shape_of


def nest(node: Emission, maps: str, body: str, *operands: Operand, combine: str = "none") -> Operand:
    """Return a loop nest in the dtype of its first operand; a sum or a maximum begins at 0."""
    init, dtype = None, dtype_of(operands[0])
    if combine != "none":
        letters, _, out = maps.partition("->")
        sizes: dict[str, int] = {}
        for map_, x in zip(letters.split(","), operands, strict=True):
            sizes |= zip(map_, shape_of(x), strict=True)
        init = node.full([sizes[c] for c in out], 0, dtype)
    return node.emit("generic", init, *operands, maps=maps, body=body, combine=combine, to=dtype)


def square_distances(node: Emission, a: Operand, b: Operand) -> Operand:
    """Return the squared distance of each row of `a` from each row of `b`."""
    return nest(node, "nf,vf->nv", "(x0 - x1) * (x0 - x1)", a, b, combine="sum")
