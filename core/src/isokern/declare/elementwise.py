"""Elementwise rows as operators: an expression and a reference; samples and error cases derive from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dtypes import FLOATS, PLAIN, DType
from ..expr.tree import Expr, fit, parse, substitute, to_text
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .attributes import Record
from .decomposition import Emitter, V, constant
from .error_bound import bounds, distance
from .operator import Decompose, ErrorCase, Operator, Sample, Tolerance
from .registry import declare


def row(
    name: str,
    kind: str,
    inputs: str,
    expression: str,
    reference: Callable[..., Any],
    dtypes: tuple[DType, ...],
    *,
    doc: str,
    domain: str = "any",
    ulps: float | None = 4.0,
    scale: Callable[..., Any] | None = None,
    record: Record | None = None,
    result: str = "T",
    signature: str = "",
    **fields: Any,
) -> Operator:
    """Declare one row; `inputs` are the names in the expression, `result` is T, or BOOL for a predicate.

    With `ulps` None the tolerance is the rounding error of the expression's own operations, as for a body of `generic`.
    """
    names, tree = inputs.split(), parse(expression)
    text = signature or f"{', '.join(f'{n}: T[*d]' for n in names)} -> y: {result}[*d]"
    broadcast = ("d",) if "signature" not in fields and not signature and len(names) > 1 else ()
    fields.setdefault("samples", lambda: samples(names))
    fields.setdefault("errors", _errors(names, dtypes, record or Record()))
    fields.setdefault("aliases", tuple(names) if result == "T" else ())
    fields.setdefault("decompose", _loop(names, tree))
    fields.setdefault("domains", dict.fromkeys(names, domain))
    return declare(
        name,
        kind,
        text,
        {"T": dtypes},
        broadcast=fields.pop("broadcast", broadcast),
        family="elementwise",
        stem="elementwise",
        doc=doc,
        expression=tree,
        reference=reference,
        tolerance=Tolerance(1, _rounding(names, tree)) if ulps is None else Tolerance(ulps, scale),
        attrs=record or Record(),
        flops=lambda i, o: float(o[0].numel),
        **fields,
    )


def attributes(attrs: Mapping[str, Any], element: DType) -> dict[str, Expr]:
    """Return a row's numeric attributes as constants of its body.

    For integers they are converted to their type as `cast` does; the ends of a range that are not float64s are written
    as expressions.
    """
    found = {n: constant(v) for n, v in attrs.items() if isinstance(v, float)}
    if element.kind in "iu":
        bits, signed = 8 * element.itemsize, element.kind == "i"
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        wide = {n: fit(attrs[n], low, high) for n in found}
        least = "(-4611686018427387904 * 2)"
        ends = {-(2**63): least, 2**63 - 1: f"bitnot({least})", 2**64 - 1: "bitnot(0)"}
        found = {n: ends.get(v) or constant(float(v)) for n, v in wide.items()}
    return {n: parse(text) for n, text in found.items()}


def _rounding(names: Sequence[str], tree: Expr) -> Callable[..., Any]:
    """Return the scale of a row's tolerance that is the rounding error of its expression."""

    def scale(*inputs: Any, compute: DType, **attrs: Any) -> Any:
        given = dict(zip(names, inputs, strict=True))
        return distance(bounds(substitute(tree, attributes(attrs, compute)), given, compute))

    return scale


def _loop(names: Sequence[str], tree: Expr) -> Decompose:
    """Return the decomposition of a row into a loop nest.

    Operands broadcast, in the dtype of the last, or its compute type where it is only stored; attributes are constants.
    """

    def decompose(e: Emitter[V], inputs: Sequence[V], attrs: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        values = {n: Expr("name", f"x{i}") for i, n in enumerate(names)}
        element, y = inputs[-1].spec.dtype, outputs[0].dtype
        if element.storage:
            element = y = element.compute
        values |= attributes(attrs, element)
        xs = [e.cast(x, element) for x in inputs]
        return e.cast(e.pointwise(to_text(substitute(tree, values)), *xs, dtype=y), outputs[0].dtype)

    return decompose


def samples(names: Sequence[str], *others: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of every row: all ranks, broadcasting, empty tensors, and benchmark sizes.

    `others` are further values of the attributes to try, each on a tensor of two dims.
    """
    shapes = [(), (1,), (7,), (1025,), (3, 5), (2, 3, 4), (4, 1, 33), (2, 1, 2, 1, 3, 1, 2, 2), (0,), (3, 0, 2)]
    cases = [Sample(dict.fromkeys(names, s)) for s in shapes]
    if len(names) > 1:
        stretched = [((5,), ()), ((4, 1), (1, 3)), ((2, 3, 4), (4,)), ((1, 5), (3, 1)), ((3, 0), (1, 1))]
        cases += [Sample(dict(zip(names, [a, *[b] * (len(names) - 1)], strict=True))) for a, b in stretched]
    cases += [Sample(dict.fromkeys(names, (3, 35)), attrs) for attrs in others]
    sizes = {"small": 4096, "medium": 1 << 18, "large": 1 << 24}
    bench = [Sample(dict.fromkeys(names, (n,)), size=size) for size, n in sizes.items()]
    return [*cases, Sample(dict.fromkeys(names, (600_001,)), size="wide"), *bench]


def _errors(names: Sequence[str], dtypes: tuple[DType, ...], record: Record) -> list[ErrorCase]:
    cases = [ErrorCase(dict.fromkeys(names, (3,)), BadTensorShape, outputs={"y": (4,)})]
    refused = next((d for d in PLAIN if d not in dtypes), None)
    if refused is not None:
        cases.append(ErrorCase(dict.fromkeys(names, (3,)), BadTensorDtype, dtypes={"T": refused}))
    if len(names) > 1:
        cases.append(ErrorCase(dict(zip(names, [(3,), *[(4,)] * (len(names) - 1)], strict=True)), BadTensorShape))
        cases.append(ErrorCase({names[0]: (3,)}, InvalidArgument))
    beyond = [(a.name, a.minimum - 1) for a in record.attrs if a.minimum is not None]
    beyond += [(a.name, a.maximum + 1) for a in record.attrs if a.maximum is not None]
    return [*cases, *(ErrorCase(dict.fromkeys(names, (3,)), InvalidArgument, {n: value}) for n, value in beyond)]


def unary(
    name: str,
    kind: str,
    expression: str,
    reference: Callable[..., Any],
    dtypes: tuple[DType, ...] = FLOATS,
    **fields: Any,
) -> Operator:
    """Declare a row of one input, `x`."""
    return row(name, kind, "x", expression, reference, dtypes, **fields)


def binary(
    name: str,
    kind: str,
    expression: str,
    reference: Callable[..., Any],
    dtypes: tuple[DType, ...] = FLOATS,
    **fields: Any,
) -> Operator:
    """Declare a row of two inputs, `a` and `b`, that broadcast."""
    return row(name, kind, "a b", expression, reference, dtypes, **fields)
