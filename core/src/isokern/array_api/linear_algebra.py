"""Linear algebra of the array API standard: products, and what the operators know of matrices."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..arguments import is_integer
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor
from .complex_parts import is_complex
from .dtypes import is_scalar
from .factorizations import factor_qr
from .operands import are_alike, as_array, axes_of, axis_of, change_shape, common_shape, takes_array, together
from .operators import function
from .statistical import prod, sum

_FLOATING = "floats and complex numbers"


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """Return the matrix product of the last two dims, the others broadcast; a vector is a row or a column."""
    a, b = x1, x2
    if not (are_alike((a, b)) and a.desc.shape and b.desc.shape):
        for x in (x1, x2):
            if is_scalar(x) or as_array("matmul", x).ndim == 0:
                raise BadTensorShape("matmul", f"{quote(x)}", allowed="arrays of rank 1 or more")
        a, b = together("matmul", x1, x2)
    made: Tensor = function("matmul")(a, b)
    return made


@takes_array
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return the view with its last two dims swapped."""
    if x.ndim < 2:
        raise BadTensorShape("matrix_transpose", f"{x.desc}", allowed="rank 2 or more")
    order = list(range(x.ndim))
    return x.permute((*order[:-2], order[-1], order[-2]))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the dot products along an axis counted from the end, of the conjugate of x1; the other dims broadcast."""
    a, b = together("vecdot", x1, x2)
    if not isinstance(axis, int) or not -min(a.ndim, b.ndim) <= axis < 0:
        allowed = f"{-min(a.ndim, b.ndim)}..-1"
        raise InvalidArgument("vecdot", f"axis={quote(axis)} of {a.desc} and {b.desc}", allowed=allowed)
    if a.shape[axis] != b.shape[axis]:
        raise BadTensorShape("vecdot", f"{a.desc} and {b.desc} along {axis}", allowed="equal lengths")
    shape = common_shape("vecdot", a, b)
    views = [x.broadcast_to(shape) for x in (a, b)]
    last = [a for a in range(len(shape)) if a != len(shape) + axis] + [len(shape) + axis]
    made: Tensor = function("vecdot")(*(v.permute(tuple(last)) for v in views))
    return made


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Return the sum of products along `axes`: a number of x1's last and x2's first, or a list for each."""
    a, b = together("tensordot", x1, x2)
    if isinstance(axes, int):
        left, right = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise InvalidArgument("tensordot", f"axes={axes} of {a.desc}, {b.desc}", allowed="as many as both have")
    else:
        left, right = axes_of("tensordot", tuple(axes[0]), a.ndim), axes_of("tensordot", tuple(axes[1]), b.ndim)
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise BadTensorShape("tensordot", f"{a.desc} and {b.desc} along {quote(axes)}", allowed="equal dims")
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    terms = math.prod(a.shape[i] for i in left)
    out = (*(a.shape[i] for i in rows), *(b.shape[i] for i in columns))
    m, n = math.prod(a.shape[i] for i in rows), math.prod(b.shape[i] for i in columns)
    first = change_shape(a.permute((*rows, *left)), (m, terms))
    second = change_shape(b.permute((*right, *columns)), (terms, n))
    made: Tensor = function("matmul")(first, second)
    return made.reshape(out)


def square_matrices(where: str, x: Any) -> Tensor:
    """Return an array of square matrices of floats or complex numbers, or raise a typed error."""
    held = as_array(where, x)
    if held.dtype.kind not in "fc":
        raise BadTensorDtype(where, f"an array of {held.dtype}", allowed=_FLOATING, hint="tensor.astype(…)")
    if held.ndim < 2 or held.shape[-1] != held.shape[-2]:
        raise BadTensorShape(where, f"{held.desc}", allowed="square matrices in the last two dims")
    return held


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


def det(x: Tensor, /) -> Tensor:
    """Return the determinants of square matrices."""
    held = square_matrices("det", x)
    made: Tensor = prod(_factor(held), axis=-1) if is_complex(held) else function("det")(held)
    return made


def _factor(x: Tensor) -> Tensor:
    """Return numbers of which the determinant of a complex matrix is the product, by its QR factorization.

    Each of the n - 1 reflections has the determinant -1, but where the column is 0, and the determinant, too.
    """
    diagonals: Tensor = function("diagonal")(factor_qr(x, complete=False)[1])
    if x.shape[-1] % 2 or not diagonals.desc.numel:
        return diagonals
    signs = [function("neg")(diagonals[..., :1]), diagonals[..., 1:]]
    turned: Tensor = function("concat")(signs, axis=diagonals.ndim - 1)
    return turned


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Return the signs or phases of the determinants, and the logarithms of their magnitudes."""
    if is_complex(x):
        factors = _factor(square_matrices("slogdet", x))
        logs = function("log")(function("abs")(factors))
        return SlogdetResult(prod(function("sign")(factors), axis=-1), sum(logs, axis=-1))
    return SlogdetResult(*function("slogdet")(square_matrices("slogdet", x)))


def inv(x: Tensor, /) -> Tensor:
    """Return the inverses of square matrices; infinite or NaN for a singular one."""
    made: Tensor = function("inverse")(square_matrices("inv", x))
    return made


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the solution of x1 · y = x2; x2 is one vector, or matrices whose leading dims broadcast with x1's."""
    a, b = together("solve", square_matrices("solve", x1), x2)
    columns = b[..., None] if b.ndim == 1 else b
    if columns.shape[-2] != a.shape[-1]:
        raise BadTensorShape("solve", f"{a.desc} and {b.desc}", allowed=f"{a.shape[-1]} rows")
    lead = common_shape("solve", a[..., 0, 0] if a.shape[-1] else _lead(a), _lead(columns))
    made: Tensor = function("solve")(
        a.broadcast_to((*lead, *a.shape[-2:])), columns.broadcast_to((*lead, *columns.shape[-2:]))
    )
    return made[..., 0] if b.ndim == 1 else made


def _lead(x: Tensor) -> Tensor:
    """Return a view whose shape is that of x without its last two dims."""
    shape = x.shape[:-2]
    made: Tensor = function("fill")(shape=(), dtype=x.dtype, device=x.device).broadcast_to(shape)
    return made


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return square matrices to an integer power: products, of the inverses for a negative one."""
    held = square_matrices("matrix_power", x)
    if not is_integer(n):
        raise InvalidArgument("matrix_power", f"n={quote(n)}", allowed="an integer")
    base = inv(held) if n < 0 else held
    result: Tensor | None = None
    left = abs(n)
    while left:
        if left & 1:
            result = base if result is None else function("matmul")(result, base)
        left >>= 1
        base = function("matmul")(base, base) if left else base
    if result is None:
        one = function("eye")(rows=held.shape[-1], dtype=held.dtype, device=held.device)
        result = one.broadcast_to(held.shape)
    copied: Tensor = function("copy")(result)
    return copied


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return the diagonals of matrices."""
    made: Tensor = function("diagonal")(as_array("diagonal", x), offset=offset)
    return made


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the products of each element of a vector with each of another."""
    a, b = together("outer", x1, x2)
    made: Tensor = function("outer")(a, b)
    return made


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of 3 along an axis counted from the end; the other dims broadcast."""
    a, b = together("cross", x1, x2)
    shape = common_shape("cross", a, b)
    at = axis_of("cross", axis, len(shape))
    if {a.shape[at - len(shape)], b.shape[at - len(shape)]} != {3}:
        raise BadTensorShape("cross", f"{a.desc} and {b.desc} along {axis}", allowed="3 elements")
    parts = [[x.broadcast_to(shape)[(slice(None),) * at + (i,)] for i in range(3)] for x in (a, b)]
    u, v = parts
    mul, sub = function("mul"), function("sub")
    rows = [sub(mul(u[i], v[j]), mul(u[j], v[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    made: Tensor = function("stack")(rows, axis=at)
    return made


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return the sums of the diagonals of matrices, of integers in 64 bits."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Return the norms along axes: (Σ|x|^ord)^(1/ord), the extremes for ±inf, the number that is not zero for 0."""
    held = as_array("vector_norm", x)
    axes = axes_of("vector_norm", axis, held.ndim)
    if held.dtype.kind not in "fc":
        raise BadTensorDtype("vector_norm", f"an array of {held.dtype}", allowed=_FLOATING, hint="tensor.astype(…)")
    if not is_scalar(ord) or isinstance(ord, complex):
        raise InvalidArgument("vector_norm", f"ord={quote(ord)}", allowed="a number, infinite ones too")
    if not axes:  # of each element, which the operator has no axes for
        held, axes, keepdims = held[..., None], (held.ndim,), False
    made: Tensor = function("norm")(held, p=float(ord), axes=axes, keepdims=keepdims)
    return made
