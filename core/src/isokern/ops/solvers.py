"""What the factors L and U of a matrix give: det, slogdet, logdet, inverse and solve, each of `lu_factor`.

Their bounds are backward error analyses (Higham 2002, theorems 9.3 and 9.4). The computed factors are those of a matrix
x + E with |E| ≤ γ |L| |U|, where γ is n eps / 2 at most, and grows as √n where roundings are independent. |L| |U| is
taken from the factors in the compute type, which `lu_factor` fixes bit for bit; a system solved by them is exact for an
E three times as large. So a badly conditioned matrix widens the bound as far as the computation may be off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.error_bound import UNBOUNDED
from ..declare.normal_form import as_given
from ..dtypes import BOOL, FLOATS, I32, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape
from .lu_factor import check_square, factor
from .solve_triangular import substitute

Shape = tuple[int, ...]


# Error bounds


def _eps(compute: DType) -> float:
    return float(np.finfo(compute.numpy).eps)


def _backward_error(x: Any, compute: DType) -> Any:
    """Return γ |L| |U| in the order of x's rows, with a γ of n or 4 + √n roundings, the smaller, of one eps each."""
    lu, _, order = factor(x.astype(compute.numpy))
    wide, n = np.abs(lu.astype(np.float64)), x.shape[-1]
    off = np.empty_like(wide)
    sizes = (np.tril(wide, -1) + np.eye(n)) @ np.triu(wide) * (min(n, 4 + np.sqrt(n)) * _eps(compute))
    np.put_along_axis(off, order[..., None], sizes, -2)
    return off


def _determinant_error(x: Any, compute: DType) -> tuple[Any, Any]:
    """Return |det x| and how far the determinant of x + E may be from it.

    It is at most Π (σ + e) - Π σ for the singular values σ of x and a norm e of E (Ipsen and Rehman 2008).
    """
    with np.errstate(all="ignore"):
        known = np.isfinite(x).all((-1, -2))
        safe = np.where(known[..., None, None], x, 0.0)
        e = np.linalg.norm(_backward_error(safe, compute), axis=(-2, -1))[..., None]
        singular = np.linalg.svd(safe, compute_uv=False)
        size = np.prod(singular, -1)
        n_eps = x.shape[-1] * _eps(compute)
        grown = size * np.expm1(np.sum(np.log1p(e / singular), -1) + n_eps)
        return size, np.where(size > 0, grown, np.prod(singular + e, -1) * (1 + n_eps))


def _solution_error(a: Any, x: Any, compute: DType) -> Any:
    """Return how far a computed solution may be from x, where (a + E) x' = b for its columns, in eps.

    x' - x = -a⁻¹ E x', so |x' - x| ≤ G |x| + G |x' - x| with G = |a⁻¹| |E|: a geometric series, if it converges. No
    analysis says how far it may be where a has an infinity; where it has NaN, all is NaN.
    """
    n = a.shape[-1]
    with np.errstate(all="ignore"):
        known = np.isfinite(a).all((-1, -2), keepdims=True)
        safe = np.where(known, a, np.eye(n))
        g = np.abs(_inverse_of(safe)) @ (1.5 * _backward_error(safe, compute))
        finite = np.isfinite(g).all((-1, -2), keepdims=True)
        series = _inverse_of(np.eye(n) - np.where(finite, g, 0))
        off = series @ (np.where(finite, g, 0) @ np.abs(np.nan_to_num(x)))
        converges = finite & (series >= 0).all((-1, -2), keepdims=True)
        infinite = ~known & ~np.isnan(a).any((-1, -2), keepdims=True)
        return np.where(converges & ~infinite, off / _eps(compute), UNBOUNDED)


# In float64


def _solve_in_float64(a: Any, b: Any) -> Any:
    """Return the solution by the algorithm of the decomposition, so that a singular matrix gives its infinities."""
    lu, _, order = factor(a)
    y = np.take_along_axis(b, np.broadcast_to(order[..., None], b.shape), -2)
    return substitute(lu, substitute(lu, y, lower=True, unit_diagonal=True), lower=False)


def _inverse_of(a: Any) -> Any:
    return _solve_in_float64(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))


def _slogdet_reference(x: Any) -> tuple[Any, Any]:
    lu, pivots, _ = factor(x)
    diagonal = np.diagonal(lu, 0, -2, -1)
    exchanged = np.where(pivots == np.arange(x.shape[-1]), 1.0, -1.0)
    return np.prod(np.sign(diagonal) * exchanged, -1), np.sum(np.log(np.abs(diagonal)), -1)


def _det_reference(x: Any) -> Any:
    lu, pivots, _ = factor(x)
    diagonal = np.diagonal(lu, 0, -2, -1)
    exchanged = np.where(pivots == np.arange(x.shape[-1]), diagonal, -diagonal)
    return np.where((diagonal == 0).any(-1), 0.0, np.prod(exchanged, -1))


def _logdet_reference(x: Any) -> Any:
    sign, size = _slogdet_reference(x)
    return np.where(sign < 0, np.nan, size)


def _det_scale(x: Any, compute: DType) -> Any:
    return _determinant_error(x, compute)[1] / _eps(compute)


def _slogdet_scale(x: Any, compute: DType) -> tuple[Any, Any]:
    """Return the bounds of sign and logarithm: both may be anything where the determinant may be 0."""
    with np.errstate(all="ignore"):
        size, off = _determinant_error(x, compute)
        share = np.where(size > 0, off / size, 1.0)
        terms = np.abs(np.log(np.abs(np.diagonal(factor(x)[0], 0, -2, -1))))
        rounding = (4 + np.sqrt(x.shape[-1])) * np.sum(np.where(np.isfinite(terms), 1 + terms, 0), -1)
        unsure = share >= 1
        log = np.where(unsure, UNBOUNDED, -np.log1p(-np.minimum(share, 0.999999)) / _eps(compute) + rounding)
        return np.where(unsure, UNBOUNDED, 0.0), log


# Decompositions


def _factor(e: Emitter[V], x: V) -> tuple[V, V, V]:
    lu, pivots, order = e.all("lu_factor", e.cast(x, x.spec.dtype.compute))
    return lu, pivots, order


def _reduce_diagonal(e: Emitter[V], x: V, bodies: Sequence[tuple[str, str]]) -> list[V]:
    """Emit reductions along U's diagonal of bodies of its elements (x0), the pivots (x1) and their numbers (x2)."""
    lu, pivots, _ = _factor(e, x)
    diagonal, n = e("diagonal", lu), x.spec.shape[-1]
    loops = LETTERS[: diagonal.spec.ndim]
    numbers = e.iota(n, I64)
    maps = f"{loops},{loops},{loops[-1]}->{loops[:-1]}"
    return [e.loop(maps, body, diagonal, pivots, numbers, combine=combine) for body, combine in bodies]


_SIGN = ("sign(x0) if x1 == x2 else -sign(x0)", "product")
_LOG = ("log(abs(x0))", "sum")


def _det(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the product of the pivots; 0 where one is, however large the others are."""
    bodies = [("x0 if x1 == x2 else -x0", "product"), ("abs(x0)", "minimum")]
    product, least = _reduce_diagonal(e, inputs[0], bodies)
    return e.cast(e.pointwise("0 if x1 == 0 else x0", product, least), outputs[0].dtype)


def _slogdet(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, ...]:
    found = _reduce_diagonal(e, inputs[0], [_SIGN, _LOG])
    return tuple(e.cast(v, o.dtype) for v, o in zip(found, outputs, strict=True))


def _logdet(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    sign, log = _reduce_diagonal(e, inputs[0], [_SIGN, _LOG])
    return e.cast(e.pointwise(f"{constant(math.nan)} if x0 < 0 else x1", sign, log), outputs[0].dtype)


def _substitute(e: Emitter[V], lu: V, b: V, y: TensorDesc) -> V:
    """Emit the solution of L U x = b."""
    middle = e("solve_triangular", lu, b, lower=True, unit_diagonal=True)
    return e.cast(e("solve_triangular", lu, middle), y.dtype)


def _inverse(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    lu, _, order = _factor(e, inputs[0])
    loops = LETTERS[: order.spec.ndim + 1]
    numbers = e.iota(lu.spec.shape[-1], I64)
    rows = e.loop(f"{loops[:-1]},{loops[-1]}->{loops}", "x0 == x1", order, numbers, dtype=BOOL)
    return _substitute(e, lu, e.cast(rows, lu.spec.dtype), outputs[0])


def _solve(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    lu, _, order = _factor(e, inputs[0])
    b = e.cast(inputs[1], lu.spec.dtype)
    index = e.repeat(e.reshape(order, (*order.spec.shape, 1)), b.spec.shape)
    return _substitute(e, lu, e("gather_elements", b, index, axis=-2), outputs[0])


# Declarations


def _shapes_of(where: str, outputs: int, dropped: int) -> Any:
    """Return the shape function of so many outputs, each x without its last `dropped` dims."""

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        (x,) = inputs
        check_square(where, x)
        y = tuple(x[: len(x) - dropped])
        return [y] if outputs == 1 else [y, y]

    return shapes


SQUARES: list[tuple[Shape, str, str]] = [
    ((1, 1), "any", "small"),
    ((2, 2), "any", "small"),
    ((3, 3), "any", "small"),
    ((2, 3, 5, 5), "any", "small"),
    ((1, 2, 1, 2, 1, 1, 2, 2), "any", "small"),
    ((0, 0), "any", "small"),
    ((2, 0, 0), "any", "small"),
    ((0, 3, 3), "any", "small"),
    ((3, 17, 17), "unit", "small"),
    ((4, 4), "hilbert", "small"),
    ((2, 33, 33), "unit", "small"),
    ((2, 6, 6), "equal", "long"),
    ((2, 9, 9), "peaks", "long"),
    ((700, 16, 16), "unit", "wide"),
    ((64, 128, 128), "unit", "medium"),
    ((16, 512, 512), "unit", "large"),
]


def _declare_of_square(
    name: str,
    kind: str,
    outputs: str,
    dropped: int,
    reference: Callable[..., Any],
    scale: Callable[..., Any],
    decompose: Any,
    wrong: Mapping[str, Shape],
    doc: str,
) -> None:
    """Declare what one matrix gives."""
    declare(
        name,
        kind,
        f"x: T[*b, n, n] -> {outputs}",
        {"T": FLOATS},
        family="contraction",
        doc=doc,
        reference=reference,
        tolerance=Tolerance(4, scale),
        attrs=attrs(""),
        shapes=_shapes_of(name, outputs.count(":"), dropped),
        normal_form=as_given,
        decompose=decompose,
        flops=lambda i, o: 0.0 if i[0] is None or not i[0].shape else 2 / 3 * i[0].numel * i[0].shape[-1],
        samples=lambda: [Sample({"x": s}, values={"x": v}, size=size) for s, v, size in SQUARES],
        errors=[
            ErrorCase({"x": (3,)}, BadTensorShape),
            ErrorCase({"x": (3, 4)}, BadTensorShape),
            ErrorCase({"x": (3, 3)}, BadTensorDtype, dtypes={"T": I32}),
            ErrorCase({"x": (3, 3)}, BadTensorShape, outputs=wrong),
        ],
    )


_declare_of_square(
    "det",
    "DETM",
    "y: T[*b]",
    2,
    _det_reference,
    _det_scale,
    _det,
    {"y": (3,)},
    "The determinant of each matrix (ONNX Det, NumPy's det): the product of the pivots of `lu_factor`, with another"
    " sign for each exchange of rows. 0 where a pivot is 0; 1 of a matrix without rows; NaN where any element is."
    " Computed in F32 or F64; products beyond their range are infinite, where `slogdet` has their logarithm.",
)
_declare_of_square(
    "slogdet",
    "SLDT",
    "sign: T[*b], logabsdet: T[*b]",
    2,
    _slogdet_reference,
    _slogdet_scale,
    _slogdet,
    {"sign": (), "logabsdet": (3,)},
    "The sign of the determinant of each matrix, -1, 0 or 1, and the logarithm of its magnitude (NumPy's and PyTorch's"
    " slogdet): 0 and -infinity of a singular matrix, NaN where any element is.",
)
_declare_of_square(
    "logdet",
    "LGDT",
    "y: T[*b]",
    2,
    _logdet_reference,
    lambda x, compute: _slogdet_scale(x, compute)[1],
    _logdet,
    {"y": (3,)},
    "The logarithm of the determinant of each matrix (PyTorch's logdet): -infinity where that is 0, and NaN where it is"
    " negative.",
)
_declare_of_square(
    "inverse",
    "INVM",
    "y: T[*b, n, n]",
    0,
    _inverse_of,
    lambda x, compute: _solution_error(x, _inverse_of(x), compute),
    _inverse,
    {"y": (3, 4)},
    "The inverse of each matrix (NumPy's and PyTorch's inv): the solution of L U y = P, of the factors of `lu_factor`."
    " That of a singular matrix is made of infinities and NaN, as dividing by its pivot 0 gives; it is no error. NaN"
    " wherever an element of the matrix is NaN.",
)


def _solve_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    a, b = inputs
    n = check_square("solve", a)
    if len(b) != len(a) or tuple(b[: len(b) - 1]) != (*a[: len(a) - 2], n):
        allowed = f"dims {list(a[: len(a) - 1])}, and one of any size"
        raise BadTensorShape("solve", f"b is {list(b)} beside a {list(a)}", allowed=allowed)
    return [b]


SYSTEMS: list[tuple[Shape, Shape, str, str]] = [
    ((1, 1), (1, 1), "any", "small"),
    ((2, 2), (2, 3), "any", "small"),
    ((2, 5, 5), (2, 5, 1), "any", "small"),
    ((1, 2, 1, 2, 1, 1, 3, 3), (1, 2, 1, 2, 1, 1, 3, 2), "any", "small"),
    ((0, 0), (0, 3), "any", "small"),
    ((2, 3, 3), (2, 3, 0), "any", "small"),
    ((0, 3, 3), (0, 3, 2), "any", "small"),
    ((4, 4), (4, 2), "hilbert", "small"),
    ((2, 33, 33), (2, 33, 5), "unit", "small"),
    ((130, 130), (130, 3), "peaks", "long"),
    ((700, 16, 16), (700, 16, 4), "unit", "wide"),
    ((64, 128, 128), (64, 128, 128), "unit", "medium"),
    ((16, 512, 512), (16, 512, 512), "unit", "large"),
]

declare(
    "solve",
    "SLVE",
    "a: T[*b, n, n], b: T[*b, n, k] -> x: T[*b, n, k]",
    {"T": FLOATS},
    family="contraction",
    doc=(
        "x with a x = b (NumPy's and PyTorch's solve, LAPACK's gesv): by `lu_factor` and two triangular systems,"
        " computed in F32 or F64. A singular a gives infinities and NaN, as `inverse` does; a NaN in a gives NaN."
    ),
    reference=_solve_in_float64,
    tolerance=Tolerance(4, lambda a, b, compute: _solution_error(a, _solve_in_float64(a, b), compute)),
    attrs=attrs(""),
    shapes=_solve_shapes,
    normal_form=as_given,
    decompose=_solve,
    flops=lambda i, o: 2.0 * o[0].numel * o[0].shape[-2],
    samples=lambda: [Sample({"a": a, "b": b}, values={"a": v}, size=size) for a, b, v, size in SYSTEMS],
    errors=[
        ErrorCase({"a": (3,), "b": (3,)}, BadTensorShape),
        ErrorCase({"a": (3, 4), "b": (3, 4)}, BadTensorShape),
        ErrorCase({"a": (3, 3), "b": (4, 3)}, BadTensorShape),
        ErrorCase({"a": (3, 3), "b": (3,)}, BadTensorShape),
        ErrorCase({"a": (2, 3, 3), "b": (3, 3)}, BadTensorShape),
        ErrorCase({"a": (3, 3), "b": (3, 3)}, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase({"a": (3, 3), "b": (3, 2)}, BadTensorShape, outputs={"x": (3, 3)}),
    ],
)
