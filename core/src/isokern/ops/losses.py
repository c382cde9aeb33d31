"""Losses, forward: an expression for each element, then none, the mean or the sum of them; and of pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import Attr, attrs, choice, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.elementwise import attributes
from ..declare.error_bound import Range, bounds, distance
from ..declare.normal_form import as_given
from ..declare.operator import Decompose
from ..dtypes import FLOATS, I32, DType
from ..expr.tree import Expr, parse, substitute, to_text
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .generic_reference import growth

_REDUCTIONS = ("none", "mean", "sum")


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x = inputs[0]
    return [tuple(x) if values["reduction"] == "none" else ()]


def _reduce(terms: Any, reduction: str) -> Any:
    if reduction == "none":
        return terms
    total = np.sum(terms)
    return total if reduction == "sum" else np.divide(total, terms.size)


def with_reduction(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reference of a loss with a reduction, from that of its elements."""

    def reduce(*inputs: Any, reduction: str, **values: Any) -> Any:
        return _reduce(reference(*inputs, **values), reduction)

    return reduce


def _scale(names: Sequence[str], tree: Expr) -> Callable[..., Any]:
    """Return the rounding error of each element's expression, carried through the reduction, plus that of the sum."""

    def scale(*inputs: Any, reduction: str, compute: DType, **values: Any) -> Any:
        given = dict(zip(names, inputs, strict=True))
        found = bounds(substitute(tree, attributes(values, compute)), given, compute)
        value, low, high = (np.broadcast_to(end, inputs[0].shape) for end in (found.value, found.low, found.high))
        made = distance(Range(*(_reduce(end, reduction) for end in (value, low, high))))
        if reduction == "none":
            return made
        own = growth(value, tuple(range(value.ndim)), np.float64(0))
        return made + (own if reduction == "sum" else np.divide(own, value.size))

    return scale


def reduce_terms(e: Emitter[V], y: V, reduction: str, element: DType) -> V:
    """Emit the reduction of all elements, in their dtype, and the cast to the output's."""
    if reduction == "none":
        return e.cast(y, element)
    total = e.loop(f"{LETTERS[: y.spec.ndim]}->", "x0", y, combine="sum")
    return finish_sum(e, total, reduction, y.spec.numel, element)


def finish_sum(e: Emitter[V], total: V, reduction: str, count: int, element: DType) -> V:
    """Emit the mean of so many terms from their sum, or the sum, and the cast to the output's dtype."""
    y = e.loop("->", f"x0 / {constant(count)}", total) if reduction == "mean" else total
    return e.cast(y, element)


def _decompose(names: Sequence[str], tree: Expr) -> Decompose:
    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        element, reduction, loops = outputs[0].dtype, values["reduction"], LETTERS[: inputs[0].spec.ndim]
        given = {n: Expr("name", f"x{i}") for i, n in enumerate(names)}
        body = to_text(substitute(tree, given | attributes(values, element.compute)))
        maps = f"{','.join([loops] * len(names))}->"
        if reduction == "none":
            return e.loop(maps + loops, body, *inputs)
        total = e.loop(maps, body, *inputs, dtype=element.compute, combine="sum")
        return finish_sum(e, total, reduction, inputs[0].spec.numel, element)

    return decompose


def loss(
    name: str,
    kind: str,
    inputs: str,
    expression: str,
    reference: Callable[..., Any],
    doc: str,
    *others: Attr,
    schema: str = "LOS1",
    **fields: Any,
) -> Operator:
    """Declare one loss of tensors of one shape; `expression` is that of an element, of `inputs` and attributes."""
    names, tree = inputs.split(), parse(expression)
    shapes = [(7,), (), (3, 5), (2, 3, 4), (5, 205), (2, 1, 2, 1, 3, 1, 2, 2), (0,), (3, 0)]
    return declare(
        name,
        kind,
        f"{', '.join(f'{n}: T[*d]' for n in names)} -> y: T[*s]",
        {"T": FLOATS},
        family="loss",
        doc=f"{doc} For each element, or the mean or the sum of all.",
        reference=with_reduction(reference),
        tolerance=Tolerance(1, _scale(names, tree)),
        attrs=attrs(schema, choice("reduction", _REDUCTIONS, "mean", "what becomes of the elements' losses"), *others),
        shapes=_shapes,
        normal_form=as_given,
        decompose=_decompose(names, tree),
        flops=lambda i, o: 2.0 * (i[0].numel if i[0] is not None else 0),
        samples=lambda: [
            *(
                Sample(dict.fromkeys(names, s), {"reduction": _REDUCTIONS[(i + len(s)) % 3]})
                for i, s in enumerate(shapes)
            ),
            Sample(dict.fromkeys(names, (3, 35)), {"reduction": "none"}),
            Sample(dict.fromkeys(names, (1025,))),
            *(Sample(dict.fromkeys(names, (6, 7)), {a.name: 0.3, "reduction": "sum"}) for a in others),
            Sample(dict.fromkeys(names, (601, 1025)), size="wide"),
            Sample(dict.fromkeys(names, (512, 512)), size="medium"),
            Sample(dict.fromkeys(names, (4096, 4096)), size="large"),
        ],
        errors=[
            ErrorCase(dict(zip(names, [(3, 4), *[(4,)] * (len(names) - 1)], strict=True)), BadTensorShape),
            ErrorCase(dict.fromkeys(names, (3,)), BadTensorShape, outputs={"y": (3,)}),
            ErrorCase(dict.fromkeys(names, (3,)), InvalidArgument, {"reduction": "product"}),
            ErrorCase({names[0]: (3,)}, InvalidArgument),
            ErrorCase(dict.fromkeys(names, (3,)), BadTensorDtype, dtypes={"T": I32}),
            *(
                ErrorCase(dict.fromkeys(names, (3,)), InvalidArgument, {a.name: -1.0})
                for a in others
                if a.minimum is not None
            ),
        ],
        **fields,
    )


def _huber(x: Any, target: Any, delta: float) -> Any:
    off = np.abs(x - target)
    return np.where(off < delta, 0.5 * off * off, delta * (off - 0.5 * delta))


def _smooth_l1(x: Any, target: Any, beta: float) -> Any:
    off = np.abs(x - target)
    return np.where(off < beta, 0.5 * off / beta * off, off - 0.5 * beta)


def _kl(x: Any, target: Any) -> Any:
    return np.where(target == 0, 0.0, target * (np.log(target) - x))


def _bce(x: Any, target: Any) -> Any:
    return -(target * np.maximum(np.log(x), -100) + (1 - target) * np.maximum(np.log1p(-x), -100))


def _bce_with_logits(x: Any, target: Any) -> Any:
    return np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))


def _gaussian_nll(x: Any, target: Any, var: Any, eps: float) -> Any:
    spread = np.maximum(var, eps)
    return 0.5 * (np.log(spread) + np.square(x - target) / spread)


# Regression
loss(
    "mse_loss",
    "MSEL",
    "x target",
    "(x - target) * (x - target)",
    lambda x, target: np.square(x - target),
    "(x - target)².",
)
loss("l1_loss", "L1LS", "x target", "abs(x - target)", lambda x, target: np.abs(x - target), "|x - target|.")
loss(
    "smooth_l1_loss",
    "SML1",
    "x target",
    "0.5 * abs(x - target) / beta * abs(x - target) if abs(x - target) < beta else abs(x - target) - 0.5 * beta",
    _smooth_l1,
    "With d = |x - target|: d² / 2β below β, else d - β/2 (Girshick 2015).",
    number("beta", 1.0, "where the parabola becomes a line", minimum=0),
    schema="SML1",
)
loss(
    "huber_loss",
    "HUBR",
    "x target",
    "0.5 * abs(x - target) * abs(x - target) if abs(x - target) < delta else delta * (abs(x - target) - 0.5 * delta)",
    _huber,
    "With d = |x - target|: d²/2 below δ, else δ(d - δ/2) (Huber 1964).",
    number("delta", 1.0, "where the parabola becomes a line", minimum=0),
    schema="HUB1",
)
loss(
    "poisson_nll_loss",
    "PNLL",
    "x target",
    "exp(x) - target * x",
    lambda x, target: np.exp(x) - target * x,
    "eˣ - target · x: x is the logarithm of the rate of a Poisson distribution; without Stirling's term.",
)
loss(
    "gaussian_nll_loss",
    "GNLL",
    "x target var",
    "0.5 * (log(maximum(var, eps)) + (x - target) * (x - target) / maximum(var, eps))",
    _gaussian_nll,
    "½(ln v + (x - target)² / v) with v = max(var, eps) (Nix & Weigend 1994), without the constant.",
    number("eps", 1e-6, "least variance", minimum=0),
    schema="GNL1",
    domains={"var": "positive"},
)

# Classification
loss(
    "bce_loss",
    "BCEL",
    "x target",
    "-(target * maximum(log(x), -100) + (1 - target) * maximum(log1p(-x), -100))",
    _bce,
    "-(target · ln x + (1 - target) · ln(1 - x)), each logarithm at least -100, as in PyTorch; NaN outside [0, 1].",
    domains={"x": "unit", "target": "unit"},
)
loss(
    "bce_with_logits_loss",
    "BCEX",
    "x target",
    "maximum(x, 0) - x * target + log1p(exp(-abs(x)))",
    _bce_with_logits,
    "The binary cross entropy of sigmoid(x), without overflow.",
)
loss(
    "kl_div",
    "KLDV",
    "x target",
    "0 if target == 0 else target * (log(target) - x)",
    _kl,
    "target · (ln target - x), 0 where target is 0, in PyTorch NaN if x is -∞ there: x is a logarithm. The divergence"
    " is the sum.",
    domains={"target": "positive"},
)
loss(
    "kl_div_log",
    "KLDL",
    "x target",
    "exp(target) * (target - x)",
    lambda x, target: np.exp(target) * (target - x),
    "e^target · (target - x): `kl_div` of two logarithms.",
    domains={"target": "moderate"},
)
loss(
    "soft_margin_loss",
    "SMLS",
    "x target",
    "maximum(-target * x, 0) + log1p(exp(-abs(target * x)))",
    lambda x, target: np.logaddexp(0, -target * x),
    "ln(1 + e^(-target · x)), without overflow; targets are 1 and -1.",
)
loss(
    "hinge_loss",
    "HNGL",
    "x target",
    "maximum(1 - target * x, 0)",
    lambda x, target: np.maximum(1 - target * x, 0),
    "max(1 - target · x, 0); targets are 1 and -1.",
)
loss(
    "hinge_embedding_loss",
    "HNGE",
    "x target",
    "x if target > 0 else maximum(margin - x, 0)",
    lambda x, target, margin: np.where(target > 0, x, np.maximum(margin - x, 0)),
    "x where target is above 0, else max(margin - x, 0). PyTorch's adds both for targets other than 1 and -1.",
    number("margin", 1.0, "distance beyond which nothing is lost"),
    schema="HNG1",
)
loss(
    "margin_ranking_loss",
    "MRNK",
    "a b target",
    "maximum(-target * (a - b) + margin, 0)",
    lambda a, b, target, margin: np.maximum(-target * (a - b) + margin, 0),
    "max(margin - target · (a - b), 0): a ranks above b where target is 1, and below where it is -1.",
    number("margin", 0.0, "least distance of the ranks"),
    schema="MRK1",
)


# Pairs of rows
_LEAST = 1e-12  # added to squared norms, as in PyTorch


def _row_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    target = inputs[2]
    return [tuple(target) if values["reduction"] == "none" else ()]


def _norm(a: Any) -> Any:
    return np.sqrt(np.sum(np.square(a), -1) + _LEAST)


def _cosine_embedding(a: Any, b: Any, target: Any, margin: float) -> Any:
    cosine = np.sum(a * b, -1) / _norm(a) / _norm(b)
    return np.where(target > 0, 1 - cosine, np.maximum(cosine - margin, 0))


def _cosine_scale(a: Any, b: Any, target: Any, margin: float, reduction: str) -> Any:
    """Return the error of each cosine, of which that of the products' sum may be most of it, and of the reduction."""
    size = np.sum(np.abs(a * b), -1) / _norm(a) / _norm(b)
    each = (16 + 2 * np.log2(max(1, a.shape[-1]))) * size + 2 + abs(margin)
    more = 4 + np.log2(max(1, target.size))
    return _reduce(each + (0 if reduction == "none" else more * (1 + size + abs(margin))), reduction)


def _cosine_loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    element, loops = outputs[0].dtype, LETTERS[: inputs[0].spec.ndim]
    a, b, target = (e.cast(x, element.compute) for x in inputs)
    rows = loops[:-1]
    product = e.loop(f"{loops},{loops}->{rows}", "x0 * x1", a, b, combine="sum")
    squares = [e.loop(f"{loops}->{rows}", "x0 * x0", x, combine="sum") for x in (a, b)]
    cosine = e.pointwise(f"x0 / sqrt(x1 + {_LEAST}) / sqrt(x2 + {_LEAST})", product, *squares)
    body = f"1 - x0 if x1 > 0 else maximum(x0 - {constant(values['margin'])}, 0)"
    return reduce_terms(e, e.pointwise(body, cosine, target), values["reduction"], element)


_ROWS = {"a": (3, 4), "b": (3, 4), "target": (3,)}

declare(
    "cosine_embedding_loss",
    "COSE",
    "a: T[*b, d], b: T[*b, d], target: T[*b] -> y: T[*s]",
    {"T": FLOATS},
    family="loss",
    doc=(
        "1 - cos(a, b) where target is above 0, else max(cos(a, b) - margin, 0), for rows a and b; 1e-12 is added to"
        " their squared norms. For each pair, or the mean or the sum of all."
    ),
    reference=with_reduction(_cosine_embedding),
    tolerance=Tolerance(4, _cosine_scale),
    attrs=attrs(
        "COE1",
        choice("reduction", _REDUCTIONS, "mean", "what becomes of the pairs' losses"),
        number("margin", 0.0, "largest cosine without a loss", minimum=-1, maximum=1),
    ),
    shapes=_row_shapes,
    normal_form=as_given,
    decompose=_cosine_loops,
    flops=lambda i, o: 6.0 * (i[0].numel if i[0] is not None else 0),
    samples=lambda: [
        Sample({"a": s, "b": s, "target": s[:-1]}, {"reduction": r, "margin": m}, size=size)
        for s, r, m, size in [
            ((7,), "none", 0.0, "small"),
            ((3, 5), "mean", 0.3, "small"),
            ((2, 3, 4), "none", -0.3, "small"),
            ((33, 34), "none", 0.0, "small"),
            ((5, 1025), "sum", 0.5, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), "none", 0.0, "small"),
            ((0, 3), "sum", 0.0, "small"),
            ((3, 0), "mean", 0.0, "small"),
            ((601, 1025), "mean", 0.0, "wide"),
            ((512, 512), "mean", 0.0, "medium"),
            ((4096, 4096), "mean", 0.0, "large"),
        ]
    ],
    errors=[
        ErrorCase({**_ROWS, "b": (3, 5)}, BadTensorShape),
        ErrorCase({**_ROWS, "target": (4,)}, BadTensorShape),
        ErrorCase({"a": (), "b": (), "target": ()}, BadTensorShape),
        ErrorCase(_ROWS, InvalidArgument, {"margin": 1.5}),
        ErrorCase(_ROWS, InvalidArgument, {"reduction": "product"}),
        ErrorCase(_ROWS, BadTensorDtype, dtypes={"T": I32}),
    ],
)
