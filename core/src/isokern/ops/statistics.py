"""Statistics over any axes: variances, norms, logarithms of sums, counts and truths; each consists of loop nests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, flag, integers, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.error_bound import EPS, UNBOUNDED, Range, distance
from ..declare.normal_form import as_given
from ..dtypes import BOOL, COMPUTED, FLOATS, I32, I64, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .reduce import kept_shape, reduced_axes, reduced_form, reduced_shapes, restore_dims

# Of the emitter, x in the compute type, the letters of its loops and of the kept ones, and the attributes
Loops = Callable[[Emitter[V], V, str, str, Mapping[str, Any]], V]


def _axes(axes: Sequence[int]) -> tuple[int, ...] | None:
    return tuple(axes) or None


def _total(x: Any, axes: Sequence[int], keepdims: bool) -> Any:
    return np.sum(x, _axes(axes), keepdims=keepdims)


def _count(x: Any, axes: Sequence[int]) -> int:
    """Return how many elements each result is made of."""
    return math.prod(x.shape[a] for a in axes) if axes else x.size


def _growth(count: int) -> float:
    """Return the rounding errors of a blocked sum, in eps of the sum of magnitudes."""
    return 4 + math.log2(max(1, count))


def _apply(function: Callable[[Any], Any], total: Any, error: Any, count: int, compute: DType) -> Any:
    """Return the distance, in eps, of a monotone function's ends over a rounded sum of so many terms.

    A sum of at least 0 stays so; each term may underflow.
    """
    limits = np.finfo(compute.numpy)
    eps = float(limits.eps)
    off = np.where(np.isfinite(total), error * eps + count * float(limits.smallest_subnormal), 0.0)
    low = np.where(total < 0, total - off, np.maximum(total - off, 0))
    found = distance(Range(*(function(end) for end in (total, low, total + off))))
    return np.where(found == UNBOUNDED, found, found * (EPS / eps))


def _decompose(loops: Loops[Any], element: Callable[[DType], DType]) -> Any:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
        x, rank = inputs[0], inputs[0].spec.ndim
        axes = reduced_axes("reduce", rank, values)
        every = LETTERS[:rank]
        kept = "".join(c for i, c in enumerate(every) if i not in axes)
        made = loops(e, e.cast(x, element(x.spec.dtype)), every, kept, values)
        found = made if isinstance(made, tuple) else (made,)
        folded = axes if values["keepdims"] else []
        return tuple(
            restore_dims(e, e.cast(y, o.dtype), rank, folded, o.shape) for y, o in zip(found, outputs, strict=True)
        )

    return decompose


def _statistic(
    name: str,
    kind: str,
    reference: Callable[..., Any],
    loops: Loops[Any],
    doc: str,
    *others: Attr,
    outputs: str = "y: T[*d]",
    dtypes: tuple[DType, ...] = FLOATS,
    element: Callable[[DType], DType] = lambda d: d.compute,
    schema: str = "RED1",
    tries: Sequence[Mapping[str, Any]] = (),
    more: Sequence[Sample] = (),
    **fields: Any,
) -> Operator:
    """Declare one statistic; `element` gives the dtype that its loops compute in."""
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()),
        ((7,), ()),
        ((3, 5), (1,)),
        ((3, 5), (0,)),
        ((2, 3, 4), (0, 2)),
        ((5, 1025), (-1,)),
        ((2, 1, 3, 1, 2, 1, 2, 2), (1, 2, 6)),
        ((3, 0), (1,)),
        ((0, 3), (1,)),
    ]
    first = outputs.partition(":")[0]
    fields.setdefault("normal_form", reduced_form(name))
    fields.setdefault("shapes", reduced_shapes(name))
    return declare(
        name,
        kind,
        f"x: T[*s] -> {outputs}",
        {"T": dtypes},
        family="reduction",
        doc=doc,
        reference=reference,
        attrs=attrs(
            schema,
            integers("axes", (), "all where empty"),
            flag("keepdims", False, "leave reduced dims as 1"),
            *others,
        ),
        decompose=_decompose(loops, element),
        flops=lambda i, o: 2.0 * (i[0].numel if i[0] is not None else 0),
        samples=lambda: [
            *(Sample({"x": s}, {"axes": a, "keepdims": bool(i % 2)}) for i, (s, a) in enumerate(shapes)),
            *(Sample({"x": (4, 33)}, {"axes": (1,), **given}) for given in tries),
            *more,
            Sample({"x": (601, 1025)}, {"axes": (1,)}, size="wide"),
            Sample({"x": (512, 512)}, {"axes": (1,)}, size="medium"),
            Sample({"x": (4096, 4096)}, {"axes": (1,)}, size="large"),
        ],
        errors=[
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (2,)}),
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (0, 0)}),
            ErrorCase({"x": (3, 4)}, BadTensorShape, {"axes": (0,)}, outputs=_wrong(outputs, first)),
            *(ErrorCase({"x": (3, 4)}, InvalidArgument, {a.name: -1.0}) for a in others if a.minimum is not None),
        ],
        **fields,
    )


def _wrong(outputs: str, first: str) -> dict[str, tuple[int, ...]]:
    """Return shapes of outputs of which the first is wrong."""
    return {part.partition(":")[0].strip(): (3,) if part.startswith(first) else (4,) for part in outputs.split(", ")}


# Sums of terms, and functions of them
def _sum_of(body: str, then: str = "") -> Loops[Any]:
    def loops(e: Emitter[V], x: V, every: str, kept: str, values: Mapping[str, Any]) -> V:
        y = e.loop(f"{every}->{kept}", body, x, combine="sum")
        return e.loop(f"{kept}->{kept}", then, y) if then else y

    return loops


def _declare_sum(
    name: str,
    kind: str,
    body: str,
    term: Callable[[Any], Any],
    doc: str,
    then: str = "",
    after: Callable[[Any], Any] | None = None,
    **fields: Any,
) -> None:
    """Declare the sum of a term, or a function of it; `body` and `then` are their expressions."""

    def reference(x: Any, axes: Any, keepdims: bool) -> Any:
        y = _total(term(x), axes, keepdims)
        return y if after is None else after(y)

    def scale(x: Any, axes: Any, keepdims: bool, compute: DType) -> Any:
        terms = term(x)
        error = _growth(_count(x, axes)) * _total(np.abs(terms), axes, keepdims)
        return error if after is None else _apply(after, _total(terms, axes, keepdims), error, _count(x, axes), compute)

    _statistic(name, kind, reference, _sum_of(body, then), doc, tolerance=Tolerance(4, scale), **fields)


_declare_sum("reduce_sum_square", "RSSQ", "x0 * x0", np.square, "Σ x², by ONNX's name.")
_declare_sum("reduce_l1", "RDL1", "abs(x0)", np.abs, "Σ |x|, the L1 norm.")
_declare_sum(
    "reduce_l2", "RDL2", "x0 * x0", np.square, "√(Σ x²), the L2 norm; the squares are not scaled.", "sqrt(x0)", np.sqrt
)
_declare_sum(
    "reduce_log_sum",
    "RLGS",
    "x0",
    np.asarray,
    "ln(Σ x); NaN where the sum is below 0.",
    "log(x0)",
    np.log,
    domains={"x": "positive"},
)


# ln Σ eˣ
def _logsumexp_parts(x: Any, axes: Any) -> tuple[Any, Any, Any]:
    """Return the maximum (0 where it is not finite), the exponentials below it, and their sum."""
    which = _axes(axes)
    top = np.max(x, which, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    powers = np.exp(x - top)
    return top, powers, np.sum(powers, which, keepdims=True)


def _fold(y: Any, axes: Any, keepdims: bool) -> Any:
    return y if keepdims else np.squeeze(y, _axes(axes))


def _logsumexp(x: Any, axes: Any, keepdims: bool) -> Any:
    top, _, total = _logsumexp_parts(x, axes)
    return _fold(top + np.log(total), axes, keepdims)


def _logsumexp_scale(x: Any, axes: Any, keepdims: bool) -> Any:
    """Return the error of ln Σ: that of the exponents by their shares, of exp and the sum, and of the logarithm."""
    with np.errstate(all="ignore"):
        top, powers, total = _logsumexp_parts(x, axes)
        far = np.where(powers > 0, powers / total * np.abs(np.where(np.isfinite(x), x, 0) - top), 0)
        shares = np.sum(far, _axes(axes), keepdims=True)
        error = 4 + _growth(_count(x, axes)) + shares + 4 * np.abs(np.log(total))
    return _fold(np.nan_to_num(error, nan=0.0, posinf=0.0), axes, keepdims)


def _reduce(e: Emitter[V], kind: str, x: V, every: str, kept: str) -> V:
    """Emit the mean or the maximum over the loops that are not kept; of no elements, NaN or -∞."""
    axes = tuple(i for i, c in enumerate(every) if c not in kept)
    if kind == "reduce_max" and any(x.spec.shape[i] == 0 for i in axes):
        return e.loop(f"{every}->{kept}", "x0", x, combine="maximum")
    return e(kind, x, axes=axes) if axes else e("copy", x)


def _logsumexp_loops(e: Emitter[V], x: V, every: str, kept: str, values: Mapping[str, Any]) -> V:
    top = _reduce(e, "reduce_max", x, every, kept)
    top = e.loop(f"{kept}->{kept}", "x0 if x0 - x0 == 0 else 0", top)
    total = e.loop(f"{every},{kept}->{kept}", "exp(x0 - x1)", x, top, combine="sum")
    return e.loop(f"{kept},{kept}->{kept}", "x0 + log(x1)", top, total)


_statistic(
    "logsumexp",
    "LSXP",
    _logsumexp,
    _logsumexp_loops,
    "ln(Σ eˣ), without overflow; -∞ for none: ONNX's ReduceLogSumExp.",
    tolerance=Tolerance(4, _logsumexp_scale),
    more=[
        *(Sample({"x": s}, {"axes": (0,)}) for s in [(1025, 3), (37, 70), (9, 4133)]),
        Sample({"x": (4, 33, 5)}, {"axes": (1,)}),
        *(Sample({"x": s}, {"axes": (axis,)}, size="long") for s, axis in [((3, 40_000), 1), ((20_001, 20), 0)]),
        *(Sample({"x": (200, 200)}, {"axes": (axis,)}, values={"x": "peaks"}, size="long") for axis in (0, 1)),
        *(Sample({"x": (601, 1025)}, {"axes": axes}, size="wide") for axes in [(0,), ()]),
    ],
)


# Variances
def _freedom(x: Any, axes: Any, correction: float) -> float:
    return max(0.0, _count(x, axes) - correction)


def _center(x: Any, axes: Any) -> Any:
    return x - np.divide(np.sum(x, _axes(axes), keepdims=True), _count(x, axes))


def _var(x: Any, axes: Any, keepdims: bool, correction: float) -> Any:
    return np.divide(_total(np.square(_center(x, axes)), axes, keepdims), _freedom(x, axes, correction))


def _mean(x: Any, axes: Any, keepdims: bool) -> Any:
    return np.divide(_total(x, axes, keepdims), _count(x, axes))


def _var_scale(x: Any, axes: Any, keepdims: bool, correction: float, compute: DType) -> Any:
    """Return the error of the variance: that of the squares' sum, and what subtracting a rounded mean cancels."""
    eps, growth = float(np.finfo(compute.numpy).eps), _growth(_count(x, axes))
    off = np.abs(x) + growth * _mean(np.abs(x), axes, True)
    centred = np.abs(_center(x, axes))
    squares = growth * np.square(centred) + 2 * centred * off + eps * np.square(off)
    return np.divide(_total(squares, axes, keepdims), _freedom(x, axes, correction))


def _std_scale(x: Any, axes: Any, keepdims: bool, correction: float, compute: DType) -> Any:
    error = _var_scale(x, axes, keepdims, correction, compute)
    return _apply(np.sqrt, _var(x, axes, keepdims, correction), error, _count(x, axes), compute)


def _mean_scale(x: Any, axes: Any, keepdims: bool) -> Any:
    return _growth(_count(x, axes)) * _mean(np.abs(x), axes, keepdims)


def _var_mean_scale(x: Any, axes: Any, keepdims: bool, correction: float, compute: DType) -> tuple[Any, Any]:
    return _var_scale(x, axes, keepdims, correction, compute), _mean_scale(x, axes, keepdims)


def _moments(then: str) -> Loops[Any]:
    def loops(e: Emitter[V], x: V, every: str, kept: str, values: Mapping[str, Any]) -> tuple[V, V]:
        count = math.prod(d for c, d in zip(every, x.spec.shape, strict=True) if c not in kept)
        mean = _reduce(e, "reduce_mean", x, every, kept)
        squares = e.loop(f"{every},{kept}->{kept}", "(x0 - x1) * (x0 - x1)", x, mean, combine="sum")
        freedom = constant(max(0.0, count - values["correction"]))
        return e.loop(f"{kept}->{kept}", then.format(f"x0 / {freedom}"), squares), mean

    return loops


def _variance(then: str) -> Loops[Any]:
    every = _moments(then)
    return lambda e, x, loops, kept, values: every(e, x, loops, kept, values)[0]


def _pair_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    (x,) = inputs
    y = kept_shape(x, reduced_axes("var_mean", len(x), values), values["keepdims"])
    return [y, y]


_CORRECTION = number("correction", 1.0, "taken from the count in the divisor: 0 for a population", minimum=0)
_VARIANCES: dict[str, Any] = {"schema": "VAR1", "tries": [{"correction": 0.0}]}
_NONE = "the sum of squares is divided by max(0, count - correction)"

_statistic(
    "var",
    "VAR_",
    _var,
    _variance("{}"),
    f"Variance: {_NONE}.",
    _CORRECTION,
    tolerance=Tolerance(8, _var_scale),
    **_VARIANCES,
)
_statistic(
    "std",
    "STD_",
    lambda x, **v: np.sqrt(_var(x, **v)),
    _variance("sqrt({})"),
    f"Standard deviation: {_NONE}.",
    _CORRECTION,
    tolerance=Tolerance(8, _std_scale),
    **_VARIANCES,
)


_statistic(
    "var_mean",
    "VARM",
    lambda x, axes, keepdims, correction: (_var(x, axes, keepdims, correction), _mean(x, axes, keepdims)),
    _moments("{}"),
    f"Variance and mean: {_NONE}.",
    _CORRECTION,
    outputs="var: T[*d], mean: T[*d]",
    shapes=_pair_shapes,
    normal_form=as_given,
    tolerance=Tolerance(8, _var_mean_scale),
    **_VARIANCES,
)


# Counts and truths
def _truths(e: Emitter[V], x: V, every: str, element: DType) -> V:
    return e.cast(e.loop(f"{every}->{every}", "x0 != 0", x, dtype=BOOL), element)


def _count_loops(e: Emitter[V], x: V, every: str, kept: str, values: Mapping[str, Any]) -> V:
    return e.loop(f"{every}->{kept}", "x0", _truths(e, x, every, I64), combine="sum")


def _truth(combine: str) -> Loops[Any]:
    def loops(e: Emitter[V], x: V, every: str, kept: str, values: Mapping[str, Any]) -> V:
        y = e.loop(f"{every}->{kept}", "x0", _truths(e, x, every, I32), combine=combine)
        return e.loop(f"{kept}->{kept}", "x0 > 0", y, dtype=BOOL)  # of nothing, y is a limit of I32

    return loops


def _all(x: Any, axes: Any, keepdims: bool) -> Any:
    return np.all(x != 0, _axes(axes), keepdims=keepdims)


def _any(x: Any, axes: Any, keepdims: bool) -> Any:
    return np.any(x != 0, _axes(axes), keepdims=keepdims)


def _count_nonzero(x: Any, axes: Any, keepdims: bool) -> Any:
    return np.sum(x != 0, _axes(axes), dtype=np.int64, keepdims=keepdims)


_ANY_DTYPE: dict[str, Any] = {"dtypes": COMPUTED, "element": lambda d: d}
_statistic(
    "reduce_all",
    "RALL",
    _all,
    _truth("minimum"),
    "Whether no element is 0; true for none.",
    outputs="y: BOOL[*d]",
    **_ANY_DTYPE,
)
_statistic(
    "reduce_any",
    "RANY",
    _any,
    _truth("maximum"),
    "Whether some element is not 0; false for none.",
    outputs="y: BOOL[*d]",
    **_ANY_DTYPE,
)
_statistic(
    "count_nonzero",
    "CNTN",
    _count_nonzero,
    _count_loops,
    "How many elements are not 0; NaN counts.",
    outputs="y: I64[*d]",
    **_ANY_DTYPE,
)
