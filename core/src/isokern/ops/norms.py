"""Norms of any order: `norm` over any axes, `dist` of a difference, and triplet_margin_loss of differences of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, choice, flag, integers, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import as_given
from ..dtypes import FLOATS, I32
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .losses import reduce_terms, with_reduction
from .reduce import reduced_axes, reduced_form, reduced_shapes, restore_dims

_P = number("p", 2.0, "the order: any number, an infinity too")
_ORDERS = (0.0, 1.0, 2.0, 3.0, 0.5, -1.5, math.inf, -math.inf)


def _loops(e: Emitter[V], x: V, every: str, kept: str, p: float) -> V:
    """Emit the norm of x, which has the compute type.

    The powers are those of shares of the largest magnitude, or for a negative order of the smallest, so that they
    neither overflow nor vanish altogether (Blue 1978).
    """
    if p == 0:
        return e.loop(f"{every}->{kept}", "1 if x0 != 0 else 0", x, combine="sum")
    if p == 1:
        return e.loop(f"{every}->{kept}", "abs(x0)", x, combine="sum")
    if p > 0:
        start = e.fill([n for c, n in zip(every, x.spec.shape, strict=True) if c in kept], 0.0, x.spec.dtype)
        top = e.loop(f"{every}->{kept}", "abs(x0)", x, combine="maximum", init=start)
    else:
        top = e.loop(f"{every}->{kept}", "abs(x0)", x, combine="minimum")
    if math.isinf(p):
        return top
    safe = "x1 > 0 and x1 < 1e999"
    share = e.loop(f"{every},{kept}->{every}", f"abs(x0) / x1 if {safe} else 1", x, top)
    power, root = ("x0 * x0", "sqrt(x0)") if p == 2 else (f"pow(x0, {constant(p)})", f"pow(x0, {constant(1 / p)})")
    total = e.loop(f"{every}->{kept}", power, share, combine="sum")
    return e.loop(f"{kept},{kept}->{kept}", f"x1 * {root} if {safe} else x1", total, top)


def _norm(x: Any, axes: Any, keepdims: bool, p: float) -> Any:
    size, over = np.abs(x), tuple(axes) or None
    if p == 0:
        return np.sum(x != 0, over, keepdims=keepdims).astype(np.float64)
    least = np.min(size, over, keepdims=True, initial=math.inf)
    top = np.max(size, over, keepdims=True, initial=0.0) if p > 0 else least
    if math.isinf(p):
        return top if keepdims else np.squeeze(top, over)
    safe = (top > 0) & np.isfinite(top)
    share = np.where(safe, size / np.where(safe, top, 1), 1.0)
    y = np.where(safe, top * np.sum(share**p, over, keepdims=True) ** (1 / p), top)
    return y if keepdims else np.squeeze(y, over)


def _error(p: float, count: int) -> float:
    """Return the relative error of a norm: of a share times the order, of its power, and of the sum, then of the root.

    The exponents are rounded, too, which matters by the logarithm of what they are exponents of.
    """
    log = math.log(max(2, count))
    return 4 + 2 * log if p in (0, 1, 2) or math.isinf(p) else 12 + 2 * (12 + abs(p) + 3 * log) / abs(p)


def _norm_scale(x: Any, axes: Any, keepdims: bool, p: float) -> Any:
    count = math.prod(x.shape[a] for a in axes) if axes else x.size
    return _error(p, count) * np.nan_to_num(np.abs(_norm(x, axes, keepdims, p)), nan=0, posinf=0)


def _reduce(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y, rank = inputs, outputs[0], inputs[0].spec.ndim
    axes = reduced_axes("norm", rank, values)
    kept = "".join(c for i, c in enumerate(LETTERS[:rank]) if i not in axes)
    made = _loops(e, e.cast(x, y.dtype.compute), LETTERS[:rank], kept, values["p"])
    return restore_dims(e, e.cast(made, y.dtype), rank, axes if values["keepdims"] else [], y.shape)


def _check(where: str) -> Any:
    def check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
        if values["p"] != values["p"]:
            raise InvalidArgument(where, "order p is NaN", allowed="any number, an infinity too")

    return check


def _declare(name: str, kind: str, signature: str, doc: str, *own: Any, **fields: Any) -> Operator:
    return declare(
        name,
        kind,
        signature,
        {"T": FLOATS},
        family="reduction",
        doc=f"{doc} With m the largest |x|, m · (Σ (|x| / m)^p)^(1/p): m for p = ∞, the smallest |x| for -∞, the number"
        " of non-zero elements for 0. NaN if any element is, but for p = 0. Of none it is 0, or ∞ where p < 0.",
        attrs=attrs(kind, _P, *own),
        check=_check(name),
        flops=lambda i, o: 4.0 * (i[0].numel if i[0] is not None else 0),
        **fields,
    )


_declare(
    "norm",
    "NRMP",
    "x: T[*s] -> y: T[*d]",
    "The p-norm over axes (PyTorch's vector norm).",
    integers("axes", (), "all where empty"),
    flag("keepdims", False, "leave reduced dims as 1"),
    reference=_norm,
    tolerance=Tolerance(4, _norm_scale),
    shapes=reduced_shapes("norm"),
    normal_form=reduced_form("norm"),
    decompose=_reduce,
    samples=lambda: [
        *(Sample({"x": (4, 33)}, {"p": p, "axes": (1,), "keepdims": p > 1}) for p in _ORDERS),
        *(
            Sample({"x": shape}, {"p": p, "axes": axes}, size=size)
            for shape, p, axes, size in [
                ((), 2.0, (), "small"),
                ((7,), -1.5, (), "small"),
                ((3, 5), 2.5, (0,), "small"),
                ((2, 1, 3, 1, 2, 1, 2, 2), 3.0, (1, 2, -2), "small"),
                ((3, 0), -1.0, (1,), "small"),
                ((0, 3), math.inf, (1,), "small"),
                ((5, 1025), 4.0, (1,), "small"),
                ((201, 1025), 3.0, (1,), "wide"),
                ((512, 512), 3.0, (1,), "medium"),
                ((4096, 4096), 3.0, (1,), "large"),
            ]
        ),
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (2,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (0, 0)}),
        ErrorCase({"x": (3,)}, InvalidArgument, {"p": math.nan}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"axes": (0,)}, outputs={"y": (3,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": I32}),
    ],
)


def _scalar(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return [()]


def _dist(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y, loops = outputs[0], LETTERS[: inputs[0].spec.ndim]
    a, b = (e.cast(x, y.dtype.compute) for x in inputs)
    return e.cast(_loops(e, e.pointwise("x0 - x1", a, b), loops, "", values["p"]), y.dtype)


_declare(
    "dist",
    "DIST",
    "a: T[*s], b: T[*s] -> y: T[]",
    "The p-norm of x = a - b, over all elements (PyTorch's dist).",
    reference=lambda a, b, p: _norm(a - b, (), False, p),
    tolerance=Tolerance(4, lambda a, b, p: _norm_scale(a - b, (), False, p)),
    shapes=_scalar,
    normal_form=as_given,
    decompose=_dist,
    samples=lambda: [
        Sample({"a": shape, "b": shape}, {"p": p}, size=size)
        for shape, p, size in [
            ((), 2.0, "small"),
            ((7,), 1.0, "small"),
            ((3, 5), -1.5, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), 2.0, "small"),
            ((0, 3), 2.0, "small"),
            ((4, 33), 0.0, "small"),
            ((5, 205), math.inf, "small"),
            ((101, 1025), 2.0, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"a": (3,), "b": (4,)}, BadTensorShape),
        ErrorCase({"a": (3,), "b": (3,)}, InvalidArgument, {"p": math.nan}),
        ErrorCase({"a": (3,), "b": (3,)}, BadTensorDtype, dtypes={"T": I32}),
    ],
)


# Triplets
_EPS = number("eps", 1e-6, "added to each difference", minimum=0)


def _apart(e: Emitter[V], a: V, b: V, values: Mapping[str, Any]) -> V:
    loops = LETTERS[: a.spec.ndim]
    off = e.pointwise(f"x0 - x1 + {constant(values['eps'])}", a, b)
    return _loops(e, off, loops, loops[:-1], values["p"])


def _triplet(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    wide, margin = outputs[0].dtype.compute, constant(values["margin"])
    anchor, positive, negative = (e.cast(x, wide) for x in inputs)
    near, far = _apart(e, anchor, positive, values), _apart(e, anchor, negative, values)
    if values["swap"]:
        far = e.pointwise("minimum(x0, x1)", far, _apart(e, positive, negative, values))
    terms = e.pointwise(f"maximum(x0 - x1 + {margin}, 0)", near, far)
    return reduce_terms(e, terms, values["reduction"], outputs[0].dtype)


def _triplet_parts(a: Any, b: Any, c: Any, p: float, eps: float, swap: bool) -> tuple[Any, Any]:
    near, far = (_norm(x, (-1,), False, p) for x in (a - b + eps, a - c + eps))
    return near, np.minimum(far, _norm(b - c + eps, (-1,), False, p)) if swap else far


def _triplet_reference(a: Any, b: Any, c: Any, margin: float, p: float, eps: float, swap: bool) -> Any:
    near, far = _triplet_parts(a, b, c, p, eps, swap)
    return np.maximum(near - far + margin, 0)


def _triplet_scale(a: Any, b: Any, c: Any, margin: float, p: float, eps: float, swap: bool, reduction: str) -> Any:
    """Return the error of both distances, to which those of the differences add, and of the reduction."""
    near, far = _triplet_parts(a, b, c, p, eps, swap)
    sizes = [_norm(np.abs(x) + np.abs(y) + eps, (-1,), False, p) for x, y in ((a, b), (a, c), (b, c))]
    each = _error(p, a.shape[-1]) * (near + far) + 2 * sum(sizes) + abs(margin)
    more = 1 if reduction == "none" else 4 + math.log2(max(1, near.size))
    total = each if reduction == "none" else np.sum(each)
    made = more * (np.divide(total, near.size) if reduction == "mean" else total)
    return np.nan_to_num(made, nan=0, posinf=0)


_ROWS = {"anchor": (3, 4), "positive": (3, 4), "negative": (3, 4)}


def _row_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return [tuple(inputs[0][:-1]) if values["reduction"] == "none" else ()]


_TRIPLETS: SampleTable = [
    ((7,), {"reduction": "none"}, "small"),
    ((3, 5), {}, "small"),
    ((2, 3, 4), {"reduction": "none", "swap": True, "margin": 3.0}, "small"),
    ((5, 33), {"p": 1.0, "reduction": "sum"}, "small"),
    ((4, 9), {"p": 3.0, "swap": True, "eps": 0.1}, "small"),
    ((2, 1, 2, 1, 3, 1, 2, 2), {"reduction": "none"}, "small"),
    ((0, 3), {"reduction": "sum"}, "small"),
    ((3, 0), {}, "small"),
    ((2, 1025), {}, "small"),
    ((101, 513), {}, "wide"),
]

declare(
    "triplet_margin_loss",
    "TRIP",
    "anchor: T[*b, d], positive: T[*b, d], negative: T[*b, d] -> y: T[*s]",
    {"T": FLOATS},
    family="loss",
    doc=(
        "max(0, |anchor - positive| - |anchor - negative| + margin) of p-norms of rows (Balntas et al. 2016). With swap"
        " it is the smaller of |anchor - negative| and |positive - negative|. For each row, or the mean or sum of all."
    ),
    reference=with_reduction(_triplet_reference),
    tolerance=Tolerance(4, _triplet_scale),
    attrs=attrs(
        "TRP1",
        choice("reduction", ("none", "mean", "sum"), "mean", "what becomes of the rows' losses"),
        number("margin", 1.0, "least difference of the distances", minimum=0),
        number("p", 2.0, "the order of the norm", minimum=0.5),
        _EPS,
        flag("swap", False, "take the nearer of the negative's distances"),
    ),
    shapes=_row_shapes,
    normal_form=as_given,
    decompose=_triplet,
    samples=lambda: [Sample(dict.fromkeys(_ROWS, shape), values, size=size) for shape, values, size in _TRIPLETS],
    errors=[
        ErrorCase({**_ROWS, "negative": (3, 5)}, BadTensorShape),
        ErrorCase(dict.fromkeys(_ROWS, ()), BadTensorShape),
        ErrorCase(_ROWS, InvalidArgument, {"margin": -1.0}),
        ErrorCase(_ROWS, InvalidArgument, {"p": 0.0}),
        ErrorCase(_ROWS, InvalidArgument, {"reduction": "product"}),
        ErrorCase(_ROWS, BadTensorDtype, dtypes={"T": I32}),
    ],
)
