"""lu_factor: matrices as products of triangular ones, with rows exchanged for the largest pivots.

Normal form: the tensors as they are given. The order of all operations on an element is part of the definition, and
each is rounded, so that results and choices of pivots are the same on every device, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs
from ..declare.normal_form import as_given
from ..dtypes import F16, F32, F64, I32
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape

Shape = tuple[int, ...]


def check_square(where: str, x: Sequence[int]) -> int:
    """Return n of matrices n x n, or raise BadTensorShape."""
    if len(x) < 2 or x[-1] != x[-2]:
        raise BadTensorShape(where, f"x is {list(x)}", allowed="square matrices [..., n, n]")
    return x[-1]


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    check_square("lu_factor", x)
    return [x, tuple(x[: len(x) - 1]), tuple(x[: len(x) - 1])]


def factor(x: Any) -> tuple[Any, Any, Any]:
    """Return (lu, pivots, permutation) in x's own type, by NumPy, whose argmax takes the first NaN, or first largest.

    A column without a pivot other than 0 is not divided.
    """
    n = x.shape[-1]
    lu = np.array(x).reshape(math.prod(x.shape[:-2]), n, n)
    every = np.arange(len(lu))
    pivots = np.zeros((len(lu), n), np.int64)
    order = np.tile(np.arange(n, dtype=np.int64), (len(lu), 1))
    for k in range(n if lu.size else 0):
        at = k + np.argmax(np.abs(lu[:, k:, k]), 1)
        pivots[:, k] = at
        for rows in (lu, order):
            first = rows[:, k].copy()
            rows[:, k] = rows[every, at]
            rows[every, at] = first
        pivot, column = lu[:, k, k, None], lu[:, k + 1 :, k]
        lu[:, k + 1 :, k] = np.where(pivot == 0, column, column / np.where(pivot == 0, 1, pivot))
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, k, None, k + 1 :]
    return lu.reshape(x.shape), pivots.reshape(x.shape[:-1]), order.reshape(x.shape[:-1])


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    return 2 / 3 * outputs[0].numel * outputs[0].shape[-1]


lu_factor = declare(
    "lu_factor",
    "LUFA",
    "x: T[*b, n, n] -> lu: T[*b, n, n], pivots: I64[*b, n], permutation: I64[*b, n]",
    {"T": (F32, F64)},
    family="contraction",
    doc=(
        "x[permutation] = L U of each matrix, by Gaussian elimination with partial pivoting (LAPACK's getrf, SciPy's"
        " lu_factor): lu has U on and above its diagonal, and below it L, whose diagonal is 1. At step k row k changes"
        " places with row pivots[k], which has the largest magnitude of column k from row k on: the first of equal"
        " ones; NaN counts as largest. L[i, k] is the quotient by the pivot, or what stands there where the pivot is 0,"
        " so a singular matrix has a 0 on U's diagonal. Then x[i, j] ← x[i, j] - L[i, k] · U[k, j] for all i, j > k,"
        " product and difference rounded one after the other. permutation (JAX's) is what the exchanges do to the rows."
    ),
    reference=factor,
    attrs=attrs(""),
    shapes=_shapes,
    normal_form=as_given,
    flops=_flops,
    samples=lambda: [
        *(Sample({"x": s}) for s in [(1, 1), (2, 2), (3, 3), (2, 5, 5), (2, 3, 4, 4), (17, 17), (3, 33, 33), (70, 70)]),
        *(Sample({"x": s}) for s in [(0, 0), (2, 0, 0), (0, 3, 3), (1, 2, 1, 2, 1, 1, 2, 2)]),
        Sample({"x": (2, 6, 6)}, values={"x": "equal"}),
        Sample({"x": (2, 9, 9)}, values={"x": "peaks"}),
        Sample({"x": (2, 12, 12)}, values={"x": "moderate"}),
        Sample({"x": (2, 20, 20)}, values={"x": "unit"}, size="long"),
        Sample({"x": (1, 131, 131)}, size="long"),
        Sample({"x": (130, 16, 16)}, size="wide"),
        Sample({"x": (64, 128, 128)}, size="medium"),
        Sample({"x": (16, 512, 512)}, size="large"),
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (3, 3)}, BadTensorDtype, dtypes={"T": F16}),
        ErrorCase({"x": (3, 3)}, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase({"x": (3, 3)}, BadTensorShape, outputs={"lu": (3, 3), "pivots": (3, 3), "permutation": (3,)}),
    ],
    exact=True,
)
