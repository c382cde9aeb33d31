"""Products and norms of vectors and matrices, in the forms of BLAS, NumPy and PyTorch: loop nests, or `gemm`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, flag, integer, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import as_given
from ..declare.operator import Decompose
from ..dtypes import BOOL, FLOATS, NUMBERS, DType
from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .gemm import accumulated_magnitude

ALPHA = number("alpha", 1.0, "factor of the product")
BETA = number("beta", 1.0, "factor of c; with 0, c is not read")


def _algebra(
    name: str,
    kind: str,
    signature: str,
    decompose: Decompose,
    reference: Callable[..., Any],
    scale: Callable[..., Any] | None,
    samples: Sequence[tuple[Any, ...]],
    errors: Sequence[ErrorCase],
    *,
    doc: str,
    fields: Sequence[Attr] = (),
    types: Mapping[str, tuple[DType, ...]] | None = None,
    ulps: float = 4,
    **more: Any,
) -> Operator:
    """Declare a product or a norm; `samples` are shapes in the signature's order and attributes, the last wide."""
    names = [part.partition(":")[0].strip(" ?") for part in signature.partition("->")[0].split("],")]

    def make_sample(i: int, row: tuple[Any, ...]) -> Sample:
        shapes, values = (row[:-1], row[-1]) if isinstance(row[-1], dict) else (row, {})
        given = {n: s for n, s in zip(names, shapes, strict=False) if s is not None}
        return Sample(given, values, size="wide" if i == len(samples) - 1 else "small")

    return declare(
        name,
        kind,
        signature,
        types or {"T": FLOATS},
        family="contraction",
        doc=doc,
        reference=reference,
        tolerance=Tolerance(ulps, scale),
        attrs=attrs("A" + kind[:3], *fields) if fields else attrs(""),
        normal_form=as_given,
        decompose=decompose,
        samples=lambda: [make_sample(i, row) for i, row in enumerate(samples)],
        errors=[*errors, ErrorCase(make_sample(0, samples[0]).shapes, BadTensorDtype, dtypes={"T": BOOL})],
        **more,
    )


def _growth(terms: int) -> float:
    """Return the factor by which a sum of so many terms may be off, in eps of the sum of their magnitudes."""
    return float(4 + np.sqrt(terms))


def _nest(maps: str, body: str, combine: str = "sum") -> Decompose:
    """Return the decomposition into one loop nest in the compute type, rounded once."""

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        y = outputs[0]
        wide = y.dtype.compute if y.dtype.kind == "f" else y.dtype
        if combine == "none":
            return e.loop(maps, body, *inputs, dtype=y.dtype)
        return e.cast(e.loop(maps, body, *inputs, combine=combine, dtype=wide), y.dtype)

    return decompose


# Products of vectors

_algebra(
    "dot",
    "DOT_",
    "a: T[n], b: T[n] -> y: T[]",
    _nest("a,a->", "x0 * x1"),
    lambda a, b: np.sum(a * b, dtype=a.dtype),
    lambda a, b: _growth(a.size) * np.sum(np.abs(a * b)),
    [((1,), (1,)), ((7,), (7,)), ((0,), (0,)), ((1025,), (1025,)), ((4133,), (4133,)), ((600_001,), (600_001,))],
    [ErrorCase({"a": (3,), "b": (4,)}, BadTensorShape), ErrorCase({"a": (3, 1), "b": (3, 1)}, BadTensorShape)],
    types={"T": NUMBERS},
    doc="Σ a·b of two vectors (BLAS dot, NumPy's vdot); integers wrap.",
)


def _vecdot(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    a, b = inputs
    loops = LETTERS[: a.spec.ndim]
    y = outputs[0]
    wide = y.dtype.compute if y.dtype.kind == "f" else y.dtype
    return e.cast(e.loop(f"{loops},{loops}->{loops[:-1]}", "x0 * x1", a, b, combine="sum", dtype=wide), y.dtype)


_algebra(
    "vecdot",
    "VDOT",
    "a: T[*b, k], b: T[*b, k] -> y: T[*b]",
    _vecdot,
    lambda a, b: np.sum(a * b, -1, dtype=a.dtype),
    lambda a, b: _growth(a.shape[-1]) * np.sum(np.abs(a * b), -1),
    [
        ((7,), (7,)),
        ((3, 5), (3, 5)),
        ((2, 3, 0), (2, 3, 0)),
        ((0, 4), (0, 4)),
        ((2, 1, 2, 1, 3, 1, 2, 2), (2, 1, 2, 1, 3, 1, 2, 2)),
        ((2, 4133), (2, 4133)),
        ((601, 1025), (601, 1025)),
    ],
    [ErrorCase({"a": (3, 4), "b": (4,)}, BadTensorShape), ErrorCase({"a": (), "b": ()}, BadTensorShape)],
    types={"T": NUMBERS},
    doc="Σ a·b over the last dim (NumPy's vecdot); integers wrap.",
)


def _inner_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    a, b = inputs
    if len(a) + len(b) - 2 >= MAX_RANK:
        raise BadTensorShape("inner", f"ranks {len(a)} and {len(b)}", allowed=f"up to {MAX_RANK + 1} together")
    return [(*a[: len(a) - 1], *b[: len(b) - 1])]


def _inner(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (a, b), y = inputs, outputs[0]
    k = a.spec.shape[-1]
    rows = [e.reshape(x, (_count(x.spec.shape[:-1]), k)) for x in (a, b)]
    wide = y.dtype.compute if y.dtype.kind == "f" else y.dtype
    product = e.loop("ak,bk->ab", "x0 * x1", *rows, combine="sum", dtype=wide)
    return e.reshape(e.cast(product, y.dtype), y.shape)


def _count(shape: Sequence[int]) -> int:
    return math.prod(shape)


_algebra(
    "inner",
    "INNR",
    "a: T[*p, k], b: T[*q, k] -> y: T[*d]",
    _inner,
    np.inner,
    lambda a, b: _growth(a.shape[-1]) * np.inner(np.abs(a), np.abs(b)),
    [
        ((7,), (7,)),
        ((3, 5), (4, 5)),
        ((2, 3, 4), (4,)),
        ((2, 3, 4), (5, 2, 4)),
        ((3, 0), (2, 0)),
        ((0, 4), (3, 4)),
        ((2, 4133), (3, 4133)),
        ((130, 257), (131, 257)),
    ],
    [
        ErrorCase({"a": (3, 4), "b": (4, 3)}, BadTensorShape),
        ErrorCase({"a": (), "b": (3,)}, BadTensorShape),
        ErrorCase({"a": (1, 1, 1, 1, 1, 3), "b": (1, 1, 1, 1, 3)}, BadTensorShape),
    ],
    types={"T": NUMBERS},
    shapes=_inner_shapes,
    doc="Σ a·b over the last dims, the others of a and then of b in the result (NumPy's inner); integers wrap.",
)

_algebra(
    "outer",
    "OUTR",
    "a: T[m], b: T[n] -> y: T[m, n]",
    _nest("a,b->ab", "x0 * x1", "none"),
    np.multiply.outer,
    None,
    [((1,), (1,)), ((7,), (5,)), ((0,), (3,)), ((3,), (0,)), ((2,), (1025,)), ((801,), (803,))],
    [ErrorCase({"a": (3, 1), "b": (3,)}, BadTensorShape), ErrorCase({"a": (3,)}, InvalidArgument)],
    types={"T": NUMBERS},
    ulps=1,
    doc="a[i] · b[j] (BLAS ger of 0, NumPy's outer); integers wrap.",
)


def _kron(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    return e.collapse(e.loop("ac,bd->abcd", "x0 * x1", *inputs), (2, 2))


_algebra(
    "kron",
    "KRON",
    "a: T[m, n], b: T[p, q] -> y: T[m*p, n*q]",
    _kron,
    np.kron,
    None,
    [
        ((1, 1), (1, 1)),
        ((2, 3), (4, 5)),
        ((0, 3), (2, 2)),
        ((2, 2), (3, 0)),
        ((2, 5), (1, 205)),
        ((31, 29), (17, 43)),
    ],
    [ErrorCase({"a": (3,), "b": (3, 3)}, BadTensorShape), ErrorCase({"a": (3, 3)}, InvalidArgument)],
    types={"T": NUMBERS},
    ulps=1,
    doc="The Kronecker product: b times each element of a, in the place of that element (NumPy's kron).",
)


def _cross(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit a[i + 1] · b[i + 2] - a[i + 2] · b[i + 1], each turned by two slices."""
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    last, turned = y.ndim - 1, []
    for x in inputs:
        twice = e("concat", x, x, axis=last)
        turned += [e("slice", twice, starts=(n,), ends=(n + 3,), axes=(last,)) for n in (1, 2)]
    a1, a2, b1, b2 = turned
    maps = ",".join([loops] * 4)
    return e.loop(f"{maps}->{loops}", "x0 * x1 - x2 * x3", a1, b2, a2, b1, dtype=y.dtype)


def _cross_reference(a: Any, b: Any, sign: int = -1) -> Any:
    return np.roll(a, -1, -1) * np.roll(b, -2, -1) + sign * np.roll(a, -2, -1) * np.roll(b, -1, -1)


_algebra(
    "cross",
    "CRSS",
    "a: T[*b, 3], b: T[*b, 3] -> y: T[*b, 3]",
    _cross,
    _cross_reference,
    lambda a, b: 2 * _cross_reference(np.abs(a), np.abs(b), 1),
    [
        ((3,), (3,)),
        ((5, 3), (5, 3)),
        ((0, 3), (0, 3)),
        ((2, 1, 4, 3), (2, 1, 4, 3)),
        ((1025, 3), (1025, 3)),
        ((200_003, 3), (200_003, 3)),
    ],
    [ErrorCase({"a": (4,), "b": (4,)}, BadTensorShape), ErrorCase({"a": (2, 3), "b": (3,)}, BadTensorShape)],
    doc="The cross product of vectors of three along the last dim (NumPy's cross).",
)


# BLAS level 1

_algebra(
    "axpy",
    "AXPY",
    "a: T[*s], b: T[*s] -> y: T[*s]",
    lambda e, i, v, o: e.pointwise(f"x0 * {constant(v['alpha'])} + x1", *i, dtype=o[0].dtype),
    lambda a, b, alpha: alpha * a + b,
    lambda a, b, alpha: 2 * (np.abs(alpha * a) + np.abs(b)),
    [
        ((), (), {"alpha": 2.0}),
        ((7,), (7,), {"alpha": -0.5}),
        ((3, 5), (3, 5), {}),
        ((3, 0), (3, 0), {}),
        ((2, 1025), (2, 1025), {"alpha": 0.1}),
        ((600_001,), (600_001,), {"alpha": 3.0}),
    ],
    [
        ErrorCase({"a": (3,), "b": (4,)}, BadTensorShape),
        ErrorCase({"a": (3,), "b": (3,)}, InvalidArgument, {"alpha": "x"}),
    ],
    fields=[number("alpha", 1.0, "factor of a", minimum=-1e30, maximum=1e30)],
    doc="alpha · a + b (BLAS axpy).",
)

_algebra(
    "asum",
    "ASUM",
    "x: T[*s] -> y: T[]",
    lambda e, i, v, o: e.cast(
        e.loop(f"{LETTERS[: i[0].spec.ndim]}->", "abs(x0)", i[0], combine="sum", dtype=o[0].dtype.compute), o[0].dtype
    ),
    lambda x: np.sum(np.abs(x)),
    lambda x: _growth(x.size) * np.sum(np.abs(x)),
    [((),), ((7,),), ((3, 5),), ((0,),), ((2, 4133),), ((601, 1025),)],
    [ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (1,)}), ErrorCase({}, InvalidArgument)],
    doc="Σ |x| of all elements (BLAS asum).",
)


def _nrm2(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the root of the squares of x over its largest magnitude, which neither overflow nor vanish."""
    (x,), y, loops = inputs, outputs[0], LETTERS[: inputs[0].spec.ndim]
    wide = y.dtype.compute
    top = e.loop(f"{loops}->", "abs(x0)", x, combine="maximum", init=e.fill((), 0.0, wide), dtype=wide)
    safe = "x1 > 0 and x1 < 1e999"
    share = e.loop(f"{loops},->{loops}", f"x0 / x1 if {safe} else x0", e.cast(x, wide), top)
    total = e.loop(f"{loops}->", "x0 * x0", share, combine="sum")
    return e.loop(",->", f"sqrt(x0) * x1 if {safe} else sqrt(x0)", total, top, dtype=y.dtype)


_algebra(
    "nrm2",
    "NRM2",
    "x: T[*s] -> y: T[]",
    _nrm2,
    lambda x: np.sqrt(np.sum(np.square(x.astype(np.longdouble)))).astype(np.float64),
    lambda x: _growth(x.size) * np.sqrt(np.sum(np.square(x))),
    [((),), ((7,),), ((3, 5),), ((0,),), ((2, 4133),), ((601, 1025),)],
    [ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (1,)}), ErrorCase({}, InvalidArgument)],
    doc="√ Σ x² of all elements, without overflow on the way (BLAS nrm2; Blue 1978).",
)


# Products with a matrix, and what is added to them


def _gemm(e: Emitter[V], a: V, b: V, c: V | None, values: Mapping[str, Any], **more: Any) -> V:
    return e("gemm", a, b, None, c, alpha=values.get("alpha", 1.0), beta=values.get("beta", 1.0), **more)


def _add(product: Any, c: Any, alpha: float, beta: float) -> Any:
    return alpha * product + (0 if c is None or beta == 0 else beta * c)


def _magnitude(size: Any, c: Any, alpha: float, beta: float) -> Any:
    return 4 * (abs(alpha) * size + (0 if c is None or beta == 0 else 2 * abs(beta) * np.abs(c)))


def _gemv(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    a, x, c = [*inputs, None][:3]
    assert a is not None and x is not None
    column = e.reshape(x, (x.spec.shape[0], 1))
    added = None if c is None else e.reshape(c, (c.spec.shape[0], 1))
    return e.reshape(_gemm(e, a, column, added, values, trans_a=values["trans"]), outputs[0].shape)


def _gemv_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (m, n), x = inputs[0], inputs[1]
    rows, columns = (n, m) if values["trans"] else (m, n)
    if x != (columns,):
        raise BadTensorShape("gemv", f"x is {list(x)} with trans={values['trans']}", allowed=f"[{columns}]")
    c = [*inputs, None][2]
    if c is not None and c != (rows,):
        raise BadTensorShape("gemv", f"c is {list(c)}", allowed=f"[{rows}]")
    return [(rows,)]


_algebra(
    "gemv",
    "GEMV",
    "a: T[m, n], x: T[k], c?: T[r] -> y: T[r]",
    _gemv,
    lambda a, x, c, trans, alpha, beta: _add((a.T if trans else a) @ x, c, alpha, beta),
    lambda a, x, c, trans, alpha, beta: _magnitude(
        accumulated_magnitude(a.T if trans else a, x[:, None])[:, 0], c, alpha, beta
    ),
    [
        ((3, 5), (5,), None),
        ((3, 5), (3,), (5,), {"trans": True, "alpha": 0.5}),
        ((7, 4), (4,), (7,), {"beta": -2.0}),
        ((7, 4), (4,), (7,), {"beta": 0.0}),
        ((3, 0), (0,), (3,)),
        ((0, 3), (3,), None),
        ((3, 4133), (4133,), (3,)),
        ((601, 1025), (1025,), None),
    ],
    [
        ErrorCase({"a": (3, 5), "x": (3,)}, BadTensorShape),
        ErrorCase({"a": (3, 5), "x": (5,)}, BadTensorShape, {"trans": True}),
        ErrorCase({"a": (3, 5), "x": (5,), "c": (5,)}, BadTensorShape),
        ErrorCase({"a": (3,), "x": (3,)}, BadTensorShape),
    ],
    fields=[flag("trans", False, "use the transpose of a"), ALPHA, BETA],
    shapes=_gemv_shapes,
    doc="alpha · op(a) x + beta · c, op(a) being a or its transpose (BLAS gemv; PyTorch's addmv and mv).",
)


def _ger(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    a, b, c = [*inputs, None][:3]
    assert a is not None and b is not None
    left, right = e.reshape(a, (a.spec.shape[0], 1)), e.reshape(b, (1, b.spec.shape[0]))
    return _gemm(e, left, right, c, values)


_algebra(
    "ger",
    "GER_",
    "a: T[m], b: T[n], c?: T[m, n] -> y: T[m, n]",
    _ger,
    lambda a, b, c, alpha, beta: _add(np.multiply.outer(a, b), c, alpha, beta),
    lambda a, b, c, alpha, beta: _magnitude(np.abs(np.multiply.outer(a, b)), c, alpha, beta),
    [
        ((3,), (5,), None),
        ((7,), (4,), (7, 4), {"alpha": 0.5, "beta": -2.0}),
        ((7,), (4,), (7, 4), {"beta": 0.0}),
        ((0,), (4,), (0, 4)),
        ((2,), (1025,), (2, 1025)),
        ((801,), (803,), (801, 803)),
    ],
    [
        ErrorCase({"a": (3,), "b": (5,), "c": (5, 3)}, BadTensorShape),
        ErrorCase({"a": (3, 1), "b": (5,)}, BadTensorShape),
    ],
    fields=[ALPHA, BETA],
    doc="alpha · a bᵀ + beta · c of two vectors (BLAS ger, PyTorch's addr).",
)

MATRIX_ERRORS = [
    ErrorCase({"a": (2, 3), "b": (4, 5), "c": (2, 5)}, BadTensorShape),
    ErrorCase({"a": (2, 3), "b": (3, 5), "c": (5, 2)}, BadTensorShape),
    ErrorCase({"a": (3,), "b": (3, 5), "c": (1, 5)}, BadTensorShape),
]
_algebra(
    "addmm",
    "ADMM",
    "a: T[m, k], b: T[k, n], c: T[m, n] -> y: T[m, n]",
    lambda e, i, v, o: _gemm(e, i[0], i[1], i[2], v),
    lambda a, b, c, alpha, beta: _add(a @ b, c, alpha, beta),
    lambda a, b, c, alpha, beta: _magnitude(accumulated_magnitude(a, b), c, alpha, beta),
    [
        ((3, 5), (5, 4), (3, 4)),
        ((3, 5), (5, 4), (3, 4), {"alpha": -0.5, "beta": 2.0}),
        ((3, 5), (5, 4), (3, 4), {"beta": 0.0}),
        ((2, 0), (0, 3), (2, 3)),
        ((0, 3), (3, 2), (0, 2)),
        ((2, 1025), (1025, 3), (2, 3)),
        ((257, 130), (130, 259), (257, 259)),
    ],
    MATRIX_ERRORS,
    fields=[ALPHA, BETA],
    doc="alpha · a b + beta · c of matrices (PyTorch's addmm, c first there).",
)


def _bmm(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    return e("matmul", *inputs)


_algebra(
    "bmm",
    "BMM_",
    "a: T[b, m, k], b: T[b, k, n] -> y: T[b, m, n]",
    _bmm,
    np.matmul,
    accumulated_magnitude,
    [
        ((2, 3, 5), (2, 5, 4)),
        ((1, 1, 70), (1, 70, 37)),
        ((2, 3, 0), (2, 0, 2)),
        ((0, 3, 4), (0, 4, 2)),
        ((2, 2, 1025), (2, 1025, 3)),
        ((3, 129, 130), (3, 130, 131)),
    ],
    [
        ErrorCase({"a": (2, 3, 4), "b": (3, 4, 5)}, BadTensorShape),
        ErrorCase({"a": (3, 4), "b": (4, 5)}, BadTensorShape),
    ],
    types={"T": NUMBERS},
    doc="a b, matrix by matrix of two batches of one length (PyTorch's bmm); integers wrap.",
)
_algebra(
    "baddbmm",
    "BADM",
    "a: T[b, m, k], b: T[b, k, n], c: T[b, m, n] -> y: T[b, m, n]",
    lambda e, i, v, o: _gemm(e, i[0], i[1], i[2], v),
    lambda a, b, c, alpha, beta: _add(a @ b, c, alpha, beta),
    lambda a, b, c, alpha, beta: _magnitude(accumulated_magnitude(a, b), c, alpha, beta),
    [
        ((2, 3, 5), (2, 5, 4), (2, 3, 4)),
        ((2, 3, 5), (2, 5, 4), (2, 3, 4), {"alpha": -0.5, "beta": 2.0}),
        ((2, 3, 5), (2, 5, 4), (2, 3, 4), {"beta": 0.0}),
        ((0, 3, 5), (0, 5, 4), (0, 3, 4)),
        ((2, 2, 1025), (2, 1025, 3), (2, 2, 3)),
        ((3, 129, 130), (3, 130, 131), (3, 129, 131)),
    ],
    [ErrorCase({"a": (2, 3, 4), "b": (2, 4, 5), "c": (3, 5)}, BadTensorShape)],
    fields=[ALPHA, BETA],
    doc="alpha · a b + beta · c, matrix by matrix (PyTorch's baddbmm, c first there).",
)


def _addbmm(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit one product, whose contracted dim is the batch and k together."""
    a, b, c = inputs
    n, m, k = a.spec.shape
    left = e.reshape(e("transpose", a, axes=(1, 0, 2)), (m, n * k))
    return _gemm(e, left, e.collapse(b, (2, 1)), c, values)


_algebra(
    "addbmm",
    "ADBM",
    "a: T[b, m, k], b: T[b, k, n], c: T[m, n] -> y: T[m, n]",
    _addbmm,
    lambda a, b, c, alpha, beta: _add((a @ b).sum(0), c, alpha, beta),
    lambda a, b, c, alpha, beta: _magnitude(
        _growth(a.shape[0] * a.shape[2]) * np.matmul(np.abs(a), np.abs(b)).sum(0), c, alpha, beta
    ),
    [
        ((2, 3, 5), (2, 5, 4), (3, 4)),
        ((2, 3, 5), (2, 5, 4), (3, 4), {"alpha": -0.5, "beta": 2.0}),
        ((2, 3, 5), (2, 5, 4), (3, 4), {"beta": 0.0}),
        ((0, 3, 5), (0, 5, 4), (3, 4)),
        ((2, 2, 1025), (2, 1025, 3), (2, 3)),
        ((3, 129, 130), (3, 130, 131), (129, 131)),
    ],
    [ErrorCase({"a": (2, 3, 4), "b": (2, 4, 5), "c": (2, 3, 5)}, BadTensorShape)],
    fields=[ALPHA, BETA],
    doc="alpha · Σ a[i] b[i] + beta · c, the products of a batch added up (PyTorch's addbmm, c first there).",
)


# Distances


def _cdist(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y, batch = outputs[0], outputs[0].shape[:-2]
    if y.ndim == MAX_RANK:  # the sum would be one loop too many
        batch = (math.prod(batch),)
    a, b = (e.reshape(v, (*batch, *v.spec.shape[-2:])) for v in inputs)
    loops = LETTERS[: len(batch) + 2]
    lead = loops[:-2]
    body = "abs(x0 - x1)" if values["p"] == 1 else "(x0 - x1) * (x0 - x1)"
    maps = f"{lead}{loops[-2]}z,{lead}{loops[-1]}z->{loops}"
    total = e.loop(maps, body, a, b, combine="sum", dtype=y.dtype.compute)
    root = f"{loops}->{loops}"
    made = e.cast(total, y.dtype) if values["p"] == 1 else e.loop(root, "sqrt(x0)", total, dtype=y.dtype)
    return e.reshape(made, y.shape)


def _cdist_reference(a: Any, b: Any, p: int) -> Any:
    apart = np.abs(a[..., :, None, :] - b[..., None, :, :])
    return apart.sum(-1) if p == 1 else np.sqrt(np.square(apart).sum(-1))


def _cdist_scale(a: Any, b: Any, p: int) -> Any:
    """Return the growth of the sums, and what rounding the differences adds; at most their size for p = 2."""
    return _growth(a.shape[-1]) * _cdist_reference(a, b, p)


_algebra(
    "cdist",
    "CDST",
    "a: T[*b, m, k], b: T[*b, n, k] -> y: T[*b, m, n]",
    _cdist,
    _cdist_reference,
    _cdist_scale,
    [
        ((3, 5), (4, 5)),
        ((3, 5), (4, 5), {"p": 1}),
        ((2, 3, 4), (2, 5, 4)),
        ((2, 1, 2, 1, 1, 1, 3, 4), (2, 1, 2, 1, 1, 1, 2, 4)),
        ((3, 0), (2, 0)),
        ((0, 3), (2, 3), {"p": 1}),
        ((2, 1025), (3, 1025)),
        ((2, 101, 64), (2, 99, 64)),
    ],
    [
        ErrorCase({"a": (3, 4), "b": (3, 5)}, BadTensorShape),
        ErrorCase({"a": (4,), "b": (3, 4)}, BadTensorShape),
        ErrorCase({"a": (3, 4), "b": (3, 4)}, InvalidArgument, {"p": 3}),
    ],
    fields=[integer("p", 2, "of the norm", minimum=1, maximum=2)],
    doc="Distances of each row of a from each of b: Σ |a - b|, or √ Σ (a - b)² (PyTorch and SciPy's cdist).",
)
