"""The linalg extension of the array API standard."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..dtypes import COMPLEX, F32, F64
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor
from . import statistical
from .complex_parts import PART, is_complex, square_magnitudes, view_part
from .dtypes import astype, finfo
from .elementwise import conj
from .factorizations import factor_cholesky, factor_qr, find_phase, rotate_columns, turn
from .linear_algebra import (
    cross,
    det,
    diagonal,
    inv,
    matmul,
    matrix_power,
    matrix_transpose,
    outer,
    slogdet,
    solve,
    square_matrices,
    tensordot,
    trace,
    vecdot,
    vector_norm,
)
from .operands import as_array, change_shape
from .operators import function


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _matrices(where: str, x: Any) -> Tensor:
    held = as_array(where, x)
    if held.dtype not in (F32, F64, *COMPLEX):
        raise BadTensorDtype(where, f"an array of {held.dtype}", allowed="F32, F64, C64, C128", hint="tensor.astype(…)")
    if held.ndim < 2:
        raise BadTensorShape(where, f"{held.desc}", allowed="matrices in the last two dims")
    return held


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return L with L · Lᴴ = x of Hermitian positive definite matrices, or Lᴴ; NaN for others."""
    lower = factor_cholesky(square_matrices("cholesky", _matrices("cholesky", x)))
    return turn(lower) if upper else lower


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Return orthonormal Q and upper triangular R with Q · R = x; Q is square where mode is "complete"."""
    if mode not in ("reduced", "complete"):
        raise InvalidArgument("qr", f"mode={mode!r}", allowed="'reduced' or 'complete'")
    return QRResult(*factor_qr(_matrices("qr", x), mode == "complete"))


def _take_columns(x: Tensor, order: Tensor) -> Tensor:
    """Return the columns of matrices in the order that each has for itself."""
    wide = order[..., None, :].broadcast_to(x.shape)
    made: Tensor = function("gather_elements")(x, wide, axis=x.ndim - 1)
    return made


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Return U, S and Vh with U · diag(S) · Vh = x, the singular values falling, by one-sided Jacobi rotations.

    The matrices are scaled by their largest magnitude, so that squares neither overflow nor vanish. U is the Q of a QR
    factorization of the rotated columns: it is orthonormal where some singular values are 0, too.
    """
    held = _matrices("svd", x)
    m, n = held.shape[-2:]
    if m < n:
        v, s, uh = svd(matrix_transpose(held), full_matrices=full_matrices)
        return SVDResult(matrix_transpose(uh), s, matrix_transpose(v))
    call = function
    if not held.desc.numel:
        lead = held.shape[:-2]
        parts = {"dtype": held.dtype, "device": held.device}
        u, vh = (call("eye")(rows=a, columns=b, **parts) for a, b in ((m, m if full_matrices else n), (n, n)))
        none = call("fill")(shape=(*lead, n), dtype=PART.get(held.dtype, held.dtype), device=held.device)
        return SVDResult(u.broadcast_to((*lead, *u.shape)), none, vh.broadcast_to((*lead, *vh.shape)))
    axes = (held.ndim - 2, held.ndim - 1)
    largest = call("reduce_max")(call("abs")(held), axes=axes, keepdims=True)
    scale = call("where")(call("equal")(largest, 0.0), 1.0, largest)
    turned, v = rotate_columns(call("div")(held, scale))
    lengths = call("sqrt")(call("reduce_sum")(square_magnitudes(turned), axes=(held.ndim - 2,)))
    values, order = call("sort")(lengths, axis=lengths.ndim - 1, descending=True)
    q, r = factor_qr(_take_columns(turned, order), full_matrices)
    u = call("mul")(q[..., :n], find_phase(call("diagonal")(r))[..., None, :])
    if q.shape[-1] > n:
        u = call("concat")([u, q[..., n:]], axis=q.ndim - 1)
    return SVDResult(u, call("mul")(values, scale[..., 0]), turn(_take_columns(v, order)))


def svdvals(x: Tensor, /) -> Tensor:
    """Return the singular values of matrices, falling."""
    return svd(x, full_matrices=False).S


def eigh(x: Tensor, /) -> EighResult:
    """Return the eigenvalues, rising, and the orthonormal eigenvectors, as columns, of Hermitian matrices.

    x + 2‖x‖ has the same eigenvectors, and is well conditioned, so rotations that make its columns orthogonal find
    them; the eigenvalues are vᴴ · x · v.
    """
    held = square_matrices("eigh", _matrices("eigh", x))
    n = held.shape[-1]
    call = function
    if not held.desc.numel:
        eye = call("eye")(rows=n, dtype=held.dtype, device=held.device)
        none = call("fill")(shape=held.shape[:-1], dtype=PART.get(held.dtype, held.dtype), device=held.device)
        return EighResult(none, eye.broadcast_to(held.shape))
    sums = call("reduce_sum")(call("abs")(held), axes=(held.ndim - 1,), keepdims=True)
    norm = call("reduce_max")(sums, axes=(held.ndim - 2,), keepdims=True)
    scale = call("where")(call("equal")(norm, 0.0), 1.0, norm)
    unit = call("div")(held, scale)
    eye = call("eye")(rows=n, dtype=held.dtype, device=held.device)
    _, v = rotate_columns(call("add")(unit, call("mul")(eye, 2.0)))
    parts = call("mul")(conj(v) if is_complex(v) else v, call("matmul")(unit, v))
    sums = call("reduce_sum")(parts, axes=(held.ndim - 2,))
    values = view_part(sums, 0) if is_complex(sums) else sums
    rising, order = call("sort")(values, axis=values.ndim - 1)
    return EighResult(call("mul")(rising, scale[..., 0]), _take_columns(v, order))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Return the eigenvalues of Hermitian matrices, rising."""
    return eigh(x).eigenvalues


def _threshold(s: Tensor, shape: tuple[int, ...], rtol: Any) -> Any:
    """Return the singular value up to which others count as 0: `rtol`, by default max(m, n) · eps, of the largest."""
    largest = s[..., :1]
    if isinstance(rtol, Tensor):
        return function("mul")(largest, astype(rtol, s.dtype, copy=False)[..., None])
    factor = finfo(s.dtype).eps * max(shape[-2:]) if rtol is None else float(rtol)
    return function("mul")(largest, factor)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Return the number of singular values above `rtol` (max(m, n) · eps by default) times the largest."""
    s = svdvals(x)
    above = function("greater")(s, _threshold(s, x.shape, rtol)) if s.shape[-1] else s
    made: Tensor = statistical.sum(function("cast")(above, dtype="I64"), axis=-1)
    return made


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Return the pseudo-inverses: singular values up to `rtol` times the largest count as 0."""
    u, s, vh = svd(x, full_matrices=False)
    if not s.shape[-1]:
        return turn(x)
    call = function
    kept = call("greater")(s, _threshold(s, x.shape, rtol))
    inverse = call("where")(kept, call("div")(1.0, call("where")(kept, s, 1.0)), 0.0)
    made: Tensor = call("matmul")(call("mul")(turn(vh), inverse[..., None, :]), turn(u))
    return made


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Return the norms of matrices: "fro", "nuc", 1 and -1 (columns), inf and -inf (rows), 2 and -2 (singular)."""
    held = _matrices("matrix_norm", x)
    axes = (held.ndim - 2, held.ndim - 1)
    if ord == "fro":
        made: Tensor = function("norm")(held, p=2.0, axes=axes, keepdims=keepdims)
        return made
    if ord in ("nuc", 2, -2):
        s = svdvals(held)
        last = {"nuc": "reduce_sum", 2: "reduce_max", -2: "reduce_min"}[ord]
        found = function(last)(s, axes=(s.ndim - 1,))
    elif ord in (1, -1, math.inf, -math.inf):
        inner = axes[0] if abs(ord) == 1 else axes[1]
        sums = function("reduce_sum")(function("abs")(held), axes=(inner,))
        found = function("reduce_max" if ord > 0 else "reduce_min")(sums, axes=(sums.ndim - 1,))
    else:
        raise InvalidArgument("matrix_norm", f"ord={quote(ord)}", allowed="'fro', 'nuc', ±1, ±2, ±inf")
    return change_shape(found, (*held.shape[:-2], 1, 1)) if keepdims else found


__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
