"""solve_triangular: systems of equations of a triangular matrix, by substitution.

Normal form: x, a and b so that a x = b; where the matrix stands on the right, all are transposed. As in lu_factor, the
order of all operations on an element is part of the definition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, flag
from ..declare.normal_form import Descs
from ..dtypes import F16, F32, F64
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape

Shape = tuple[int, ...]


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    a, b = inputs
    if len(a) < 2 or a[-1] != a[-2]:
        raise BadTensorShape("solve_triangular", f"a is {list(a)}", allowed="square matrices [..., n, n]")
    n, lead = a[-1], tuple(a[: len(a) - 2])
    side = -2 if values["left"] else -1
    if len(b) != len(a) or tuple(b[: len(b) - 2]) != lead or b[side] != n:
        allowed = f"rank {len(a)}, the dims {list(lead)} first, and dim {side} of {n}"
        raise BadTensorShape("solve_triangular", f"b is {list(b)} beside a {list(a)}", allowed=allowed)
    return [b]


def _turn(d: TensorDesc | None) -> TensorDesc | None:
    return None if d is None else d.permute([*range(d.ndim - 2), d.ndim - 1, d.ndim - 2])


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the tensors with the matrix on the left; a kernel takes `lower` as the other one where it was not."""
    if values["left"]:
        return list(inputs), list(outputs)
    return [_turn(d) for d in inputs], [_turn(d) for d in outputs]


def substitute(a: Any, b: Any, lower: bool, left: bool = True, unit_diagonal: bool = False) -> Any:
    """Return the solution in the type of a and b, by NumPy."""
    if not left:
        turned = substitute(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower, True, unit_diagonal)
        return np.swapaxes(turned, -1, -2)
    n, count = a.shape[-1], math.prod(a.shape[:-2])
    matrix, x = a.reshape(count, n, n), np.array(b).reshape(count, n, b.shape[-1])
    for i in range(n) if lower else range(n - 1, -1, -1):
        if not unit_diagonal:
            x[:, i] /= matrix[:, i, i, None]
        rest = slice(i + 1, n) if lower else slice(0, i)
        x[:, rest] -= matrix[:, rest, i, None] * x[:, i, None]
    return x.reshape(b.shape)


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    a = inputs[0]
    assert a is not None
    return float(outputs[0].numel * a.shape[-1])


SOLVED: list[tuple[Shape, Shape, dict[str, bool]]] = [
    ((1, 1), (1, 1), {}),
    ((3, 3), (3, 2), {"lower": True}),
    ((2, 5, 5), (2, 5, 7), {"unit_diagonal": True}),
    ((2, 4, 4), (2, 3, 4), {"left": False, "lower": True}),
    ((2, 2, 6, 6), (2, 2, 1, 6), {"left": False}),
    ((33, 33), (33, 5), {}),
    ((33, 33), (33, 1), {"lower": True, "unit_diagonal": True}),
    ((2, 17, 17), (2, 40, 17), {"left": False, "lower": True, "unit_diagonal": True}),
    ((70, 70), (70, 3), {"lower": True}),
    ((0, 0), (0, 3), {}),
    ((2, 3, 3), (2, 3, 0), {"lower": True}),
    ((0, 3, 3), (0, 3, 2), {}),
    ((1, 2, 1, 2, 1, 1, 2, 2), (1, 2, 1, 2, 1, 1, 2, 3), {}),
]

declare(
    "solve_triangular",
    "STRI",
    "a: T[*b, n, n], b: T[*b, p, q] -> x: T[*b, p, q]",
    {"T": (F32, F64)},
    family="contraction",
    doc=(
        "x with a x = b, or x a = b where not `left`, for triangular matrices a (BLAS trsm, SciPy's and PyTorch's"
        " solve_triangular, ggml's SOLVE_TRI). The other triangle of a is not read, nor is its diagonal with"
        " `unit_diagonal`. By substitution: x[i] = (b[i] - Σ a[i, j] x[j]) / a[i, i], a product after the other"
        " subtracted, and each operation rounded, in the order in which the x[j] are found. A 0 on the diagonal divides"
        " as IEEE 754 says: to infinity or NaN."
    ),
    reference=substitute,
    attrs=attrs(
        "STR1",
        flag("lower", False, "a is a lower triangular matrix, else an upper one"),
        flag("left", True, "a stands on the left: a x = b"),
        flag("unit_diagonal", False, "the diagonal of a counts as 1"),
    ),
    shapes=_shapes,
    normal_form=_normal_form,
    flops=_flops,
    domains={"a": "peaks"},
    samples=lambda: [
        *(Sample({"a": a, "b": b}, values) for a, b, values in SOLVED),
        Sample({"a": (2, 9, 9), "b": (2, 9, 4)}, {"lower": True}, {"a": "nonzero"}),
        Sample({"a": (2, 9, 9), "b": (2, 9, 4)}, {}, {"a": "moderate"}),
        Sample({"a": (1, 131, 131), "b": (1, 131, 9)}, size="long"),
        Sample({"a": (1, 20, 20), "b": (1, 20, 300)}, {"lower": True}, size="long"),
        Sample({"a": (130, 16, 16), "b": (130, 16, 16)}, {"lower": True}, size="wide"),
        Sample({"a": (64, 128, 128), "b": (64, 128, 128)}, {"lower": True}, size="medium"),
        Sample({"a": (16, 512, 512), "b": (16, 512, 512)}, {}, size="large"),
    ],
    errors=[
        ErrorCase({"a": (3,), "b": (3,)}, BadTensorShape),
        ErrorCase({"a": (3, 4), "b": (3, 4)}, BadTensorShape),
        ErrorCase({"a": (3, 3), "b": (4, 3)}, BadTensorShape),
        ErrorCase({"a": (3, 3), "b": (3, 4)}, BadTensorShape, {"left": False}),
        ErrorCase({"a": (2, 3, 3), "b": (3, 3)}, BadTensorShape),
        ErrorCase({"a": (3, 3), "b": (3, 3)}, BadTensorDtype, dtypes={"T": F16}),
        ErrorCase({"a": (3, 3), "b": (3, 3)}, BadTensorShape, outputs={"x": (3, 2)}),
    ],
    exact=True,
)
