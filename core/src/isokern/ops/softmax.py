"""softmax and log_softmax along an axis; kernel stem `softmax`, normal form rows along the last dim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import LENGTHS, ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import attrs, integer
from ..declare.decomposition import LETTERS, Emitter, V
from ..declare.normal_form import along_axis, axis_of
from ..declare.operator import Decompose
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument

SIZES = {"small": (64, 64), "wide": (601, 1025), "medium": (512, 512), "large": (4096, 4096)}


def _total(e: Any, axis: int) -> Any:
    """Return the sums along an axis, added in pairs: NumPy adds one by one where the axis is strided."""
    return np.expand_dims(np.ascontiguousarray(np.moveaxis(e, axis, -1)).sum(-1), axis)


def _softmax(x: Any, axis: int) -> Any:
    with np.errstate(invalid="ignore"):
        e = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
    return e / _total(e, axis)


def _log_softmax(x: Any, axis: int) -> Any:
    with np.errstate(invalid="ignore"):
        centred = x - np.max(x, axis, keepdims=True, initial=-np.inf)
    return centred - np.log(_total(np.exp(centred), axis))


def _distance(x: Any, axis: int) -> Any:
    """Return how far x lies below its maximum: exp turns the rounding of that difference into relative error."""
    finite = np.where(np.isfinite(x), x, 0)
    return np.abs(finite - np.max(finite, axis, keepdims=True, initial=-np.inf))


def _shapes(where: str) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        axis_of(where, values["axis"], len(inputs[0]))
        return [inputs[0]]

    return shapes


def _shares(log: bool) -> Decompose:
    """Return the decomposition: the maximum, exponentials below it, and their sum, in the compute type."""

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        element, loops = outputs[0].dtype, LETTERS[: outputs[0].ndim]
        rows = loops.replace(loops[values["axis"]], "")
        x = e.cast(inputs[0], element.compute)
        top = e.loop(f"{loops}->{rows}", "x0", x, combine="maximum")
        if log:
            below = e.loop(f"{loops},{rows}->{loops}", "x0 - x1", x, top)
            total = e.loop(f"{loops}->{rows}", "exp(x0)", below, combine="sum")
            return e.loop(f"{loops},{rows}->{loops}", "x0 - log(x1)", below, total, dtype=element)
        powers = e.loop(f"{loops},{rows}->{loops}", "exp(x0 - x1)", x, top)
        total = e.loop(f"{loops}->{rows}", "x0", powers, combine="sum")
        return e.loop(f"{loops},{rows}->{loops}", "x0 / x1", powers, total, dtype=element)

    return decompose


def _declare(name: str, kind: str, reference: Callable[..., Any], scale: Callable[..., Any], doc: str) -> Operator:
    return declare(
        name,
        kind,
        "x: T[*s] -> y: T[*s]",
        {"T": FLOATS},
        family="normalization",
        stem="softmax",
        doc=doc,
        reference=reference,
        tolerance=Tolerance(16, scale),
        attrs=attrs("SMX1", integer("axis", -1, "the axis that sums to one")),
        shapes=_shapes(name),
        normal_form=along_axis,
        aliases=("x",),
        decompose=_shares(name == "log_softmax"),
        flops=lambda i, o: 5.0 * o[0].numel,
        samples=lambda: [
            *(
                Sample({"x": s}, {"axis": a})
                for s, a in [
                    ((1,), 0),
                    ((7,), -1),
                    ((3, 5), 1),
                    ((3, 5), 0),
                    ((2, 3, 4), 1),
                    ((5, 1025), -1),
                    ((3, 4133), -1),
                    ((9, 4133), -1),
                    ((1025, 3), 0),
                    ((0, 3), 1),
                    ((3, 0), 1),
                    ((2, 1, 2, 1, 3, 1, 2, 2), 4),
                    ((4, 33), -1),
                    ((5, 34), 0),
                ]
            ),
            *(Sample({"x": (200, 200)}, {"axis": axis}, values={"x": "peaks"}, size="long") for axis in (0, 1)),
            *(Sample({"x": s}, values={"x": "peaks"}, size="long") for s in [(100, 100), (3, 40_000)]),
            *(Sample({"x": (2, n)}, size="long") for n in LENGTHS),
            Sample({"x": (40_000, 8)}, size="long"),
            *(Sample({"x": s}, size=size) for size, s in SIZES.items()),
        ],
        errors=[
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"axis": 2}),
            ErrorCase({"x": ()}, InvalidArgument),
            ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4, 3)}),
        ],
    )


_declare(
    "softmax",
    "SOFT",
    _softmax,
    lambda x, axis: (2 + _distance(x, axis)) * _softmax(x, axis),
    "exp(x - max) / sum exp(x - max) along `axis`; a row with NaN or with nothing but -∞ is NaN.",
)
_declare(
    "log_softmax",
    "LSFT",
    _log_softmax,
    # The sum may be off by the 16 ULP that softmax allows (rows are added one by one along a strided axis); ln makes
    # that an absolute error
    lambda x, axis: 16 + 2 * _distance(x, axis),
    "x - max - ln(sum exp(x - max)) along `axis`.",
)
