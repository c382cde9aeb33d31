"""Tapers of signals: the windows of Hann, Hamming and Blackman; powers: vander, matrix_power and ldexp."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, flag, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import F32, F64, FLOATS, I32, INDICES
from ..layout import TensorDesc, broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

Shape = tuple[int, ...]


def _taper(name: str, kind: str, doc: str, parts: Any, *own: Attr) -> None:
    """Declare the window Σ parts[i] cos(2πik / N); `parts` makes them of the attributes."""

    def turns(length: int, periodic: bool) -> int:
        return max(1, length if periodic else length - 1)

    def reference(length: int, periodic: bool, **values: Any) -> Any:
        angle = 2 * np.pi * np.arange(length) / turns(length, periodic)
        y = sum(a * np.cos(i * angle) for i, a in enumerate(parts(**values)))
        return y if length != 1 else np.ones(1)

    def scale(length: int, periodic: bool, **values: Any) -> Any:
        return np.full(length, 8.0 * sum(map(abs, parts(**values))))

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        y = outputs[0]
        if y.numel < 2:
            return e.fill(y.shape, 1.0, y.dtype)
        own_values = {n: v for n, v in values.items() if n not in ("length", "periodic")}
        step = 2 * math.pi / turns(values["length"], values["periodic"])
        terms = [
            f"{constant(a)} * cos(x0 * {constant(i * step)})" if i else constant(a)
            for i, a in enumerate(parts(**own_values))
        ]
        return e.loop("a->a", " + ".join(terms), e.iota(y.numel, y.dtype.compute), dtype=y.dtype)

    declare(
        name,
        kind,
        "-> y: T[length]",
        {"T": FLOATS},
        family="movement",
        doc=doc + " N is the length, or one less where not periodic; one element is 1.",
        reference=reference,
        tolerance=Tolerance(1, scale),
        attrs=attrs(
            kind, integer("length", doc="of the window", minimum=0), flag("periodic", True, "for a spectrum"), *own
        ),
        normal_form=as_given,
        decompose=decompose,
        samples=lambda: [
            Sample({}, {"length": n, "periodic": periodic}, size=size)
            for n, periodic, size in [
                (7, True, "small"),
                (8, False, "small"),
                (1, False, "small"),
                (1, True, "small"),
                (2, False, "small"),
                (0, True, "small"),
                (1025, True, "small"),
                (600_001, False, "wide"),
            ]
        ],
        errors=[
            ErrorCase({}, InvalidArgument),
            ErrorCase({}, InvalidArgument, {"length": -1}),
            ErrorCase({}, BadTensorShape, {"length": 3}, outputs={"y": (4,)}),
        ],
    )


_taper("hann_window", "HANN", "½ - ½ cos(2πk / N).", lambda: (0.5, -0.5))
_taper(
    "hamming_window",
    "HAMM",
    "alpha - beta · cos(2πk / N); ONNX has 25/46 and 21/46.",
    lambda alpha, beta: (alpha, -beta),
    number("alpha", 0.54, "the constant", minimum=-1e30, maximum=1e30),
    number("beta", 0.46, "factor of the cosine", minimum=-1e30, maximum=1e30),
)
_taper("blackman_window", "BLKM", "0.42 - ½ cos(2πk / N) + 0.08 cos(4πk / N).", lambda: (0.42, -0.5, 0.08))


# Powers
def _vander_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (n,) = inputs[0]
    return [(n, n if values["columns"] < 0 else values["columns"])]


def _vander(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y = outputs[0]
    start, step = (0, 1) if values["increasing"] else (y.shape[1] - 1, -1)
    powers = e.iota(y.shape[1], y.dtype.compute, start=start, step=step)
    return e.loop("a,b->ab", "pow(x0, x1)", e.cast(inputs[0], y.dtype.compute), powers, dtype=y.dtype)


def _vander_reference(x: Any, columns: int, increasing: bool) -> Any:
    n = x.shape[0] if columns < 0 else columns
    powers = np.arange(n) if increasing else np.arange(n)[::-1]
    return np.power(x[:, None], powers.astype(np.float64))


declare(
    "vander",
    "VAND",
    "x: T[n] -> y: T[n, m]",
    {"T": FLOATS},
    family="contraction",
    doc="Powers of x, one in each column, the highest first or with `increasing` last (NumPy's vander).",
    reference=_vander_reference,
    tolerance=Tolerance(8),
    attrs=attrs(
        "VAN1",
        integer("columns", -1, "of y; as many as x has elements where -1", minimum=-1),
        flag("increasing", False, "from the power 0 on"),
    ),
    shapes=_vander_shapes,
    normal_form=as_given,
    decompose=_vander,
    samples=lambda: [
        Sample({"x": (n,)}, {"columns": m, "increasing": increasing}, size=size)
        for n, m, increasing, size in [
            (5, -1, False, "small"),
            (7, 3, True, "small"),
            (3, 9, False, "small"),
            (1, 0, False, "small"),
            (0, 3, True, "small"),
            (1025, 4, False, "small"),
            (60_001, 10, False, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (3,)}, InvalidArgument, {"columns": -2}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": I32}),
    ],
)


def _square_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x = inputs[0]
    if len(x) < 2 or x[-1] != x[-2]:
        raise BadTensorShape("matrix_power", f"x is {list(x)}", allowed="square matrices x[…, n, n]")
    return [x]


def _matrix_power(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit products of repeated squares, those that the exponent's bits name."""
    y, left = outputs[0], values["n"]
    square = e.cast(inputs[0], y.dtype.compute)
    found: V | None = None
    while left > 0:
        if left & 1:
            found = square if found is None else e("matmul", found, square)
        left >>= 1
        square = e("matmul", square, square) if left else square
    if found is None:
        one = e("eye", dtypes={"T": y.dtype}, rows=y.shape[-1])
        return e.repeat(one, y.shape)
    return e.cast(found, y.dtype)


def _matrix_scale(x: Any, n: int) -> Any:
    """Return the error of as many products as squaring takes, each of rows times columns, at the magnitudes' power."""
    return 2 * n * (4 + np.log2(max(1, x.shape[-1]))) * np.linalg.matrix_power(np.abs(x), n)


declare(
    "matrix_power",
    "MPOW",
    "x: T[*s] -> y: T[*s]",
    {"T": FLOATS},
    family="contraction",
    doc="The n-th power of square matrices, by repeated squaring; the identity for n = 0 (NumPy's matrix_power).",
    reference=lambda x, n: np.linalg.matrix_power(x, n),
    tolerance=Tolerance(4, _matrix_scale),
    attrs=attrs("MPW1", integer("n", doc="the exponent", minimum=0, maximum=1 << 30)),
    shapes=_square_shapes,
    normal_form=as_given,
    decompose=_matrix_power,
    samples=lambda: [
        Sample({"x": shape}, {"n": n}, values={"x": "unit"}, size=size)
        for shape, n, size in [
            ((1, 1), 3, "small"),
            ((3, 3), 2, "small"),
            ((2, 5, 5), 5, "small"),
            ((2, 3, 3), 0, "small"),
            ((4, 4), 1, "small"),
            ((0, 3, 3), 2, "small"),
            ((2, 0, 0), 3, "small"),
            ((2, 1, 1, 2, 1, 1, 2, 2), 6, "small"),
            ((2, 101, 101), 3, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"n": 2}),
        ErrorCase({"x": (3,)}, BadTensorShape, {"n": 2}),
        ErrorCase({"x": (3, 3)}, InvalidArgument, {"n": -1}),
        ErrorCase({"x": (3, 3)}, InvalidArgument),
        ErrorCase({"x": (3, 3)}, BadTensorDtype, {"n": 2}, dtypes={"T": I32}),
    ],
)


def _ldexp(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit x times 2^n in three factors, since 2^n alone may leave the range; n is limited to what differs."""
    y = outputs[0]
    wide = y.dtype.compute
    most = 378 if wide is F32 else 3066
    n = e.pointwise(f"maximum(minimum(x0, {most}), -{most})", e.cast(inputs[1], inputs[1].spec.dtype.compute))
    third = "exp2(trunc(x1 / 3))"
    body = f"x0 * {third} * {third} * exp2(x1 - 2 * trunc(x1 / 3))"
    return e.pointwise(body, e.cast(inputs[0], wide), e.cast(n, wide), dtype=y.dtype)


def _ldexp_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, n = inputs
    made = broadcast_shapes(x, n)
    if made is None:
        raise BadTensorShape("ldexp", f"n is {list(n)}", allowed=f"what broadcasts with x{list(x)}")
    return [made]


declare(
    "ldexp",
    "LDXP",
    "x: T[*s], n: I[*m] -> y: T[*d]",
    {"T": FLOATS, "I": INDICES},
    family="elementwise",
    doc="x · 2ⁿ, exact where it is in the range; x and n broadcast by NumPy's rule (NumPy's ldexp).",
    reference=lambda x, n: np.ldexp(x, np.clip(n, -4000, 4000).astype(np.int32)),
    tolerance=Tolerance(0, lambda x, n, compute: np.full(np.broadcast_shapes(x.shape, n.shape), _least(compute))),
    shapes=_ldexp_shapes,
    normal_form=as_given,
    decompose=_ldexp,
    samples=lambda: [
        Sample({"x": x, "n": n}, values={"n": domain}, size=size)
        for x, n, domain, size in [
            ((), (), "moderate", "small"),
            ((7,), (7,), "any", "small"),
            ((3, 5), (5,), "moderate", "small"),
            ((4, 1), (1, 3), "moderate", "small"),
            ((0, 3), (3,), "moderate", "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), (3, 1, 1, 1), "moderate", "small"),
            ((1025,), (1025,), "length:260", "small"),
            ((601, 1025), (1025,), "moderate", "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,), "n": (4,)}, BadTensorShape),
        ErrorCase({"x": (3,)}, InvalidArgument),
        ErrorCase({"x": (3,), "n": (3,)}, BadTensorDtype, dtypes={"I": F64}),
    ],
)


def _least(compute: Any) -> float:
    """Return the smallest subnormal in eps: results below the range may be rounded twice."""
    limits = np.finfo(compute.numpy)
    return float(limits.smallest_subnormal) / float(limits.eps)
