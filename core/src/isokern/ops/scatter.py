"""scatter: rows (or slices) of a copy of x replaced by updates, or combined with them, at indices; gather's inverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, choice, integer
from ..declare.normal_form import as_given, axis_of
from ..dtypes import BOOL, F32, FLOATS, NUMBERS, PLAIN, TOKENS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

REDUCTIONS = ("none", "add", "mul", "min", "max")


def check_reduction(where: str, x: TensorDesc | None, values: Mapping[str, Any]) -> None:
    """Raise BadTensorDtype where a reduction is asked of booleans, or of floats that are only stored."""
    if x is not None and values["reduction"] != "none" and x.dtype not in NUMBERS:
        raise BadTensorDtype(
            where, f"reduction={values['reduction']} of {x.dtype}", allowed="numbers to compute with, or reduction=none"
        )


def _check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    check_reduction("scatter", inputs[0], values)


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, indices, updates = inputs
    axis = axis_of("scatter", values["axis"], len(x))
    expected = (*x[:axis], *indices, *x[axis + 1 :])
    if updates != expected:
        raise BadTensorShape(
            "scatter", f"updates is {list(updates)}", allowed=f"{list(expected)}, as gather picks from x {list(x)}"
        )
    return [tuple(x)]


def _keep_smaller(a: Any, b: Any) -> Any:
    return np.where((b < a) | (b != b), b, a)


def _keep_larger(a: Any, b: Any) -> Any:
    return np.where((b > a) | (b != b), b, a)


# How a slice of y becomes the next one; in the dtype itself, so each step is rounded as a kernel rounds it
COMBINES: Mapping[str, Callable[[Any, Any], Any]] = {
    "none": lambda a, b: b,
    "add": np.add,
    "mul": np.multiply,
    "min": _keep_smaller,
    "max": _keep_larger,
}


def _reference(x: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    y, size, at = x.copy(), x.shape[axis], axis % x.ndim
    rows = np.moveaxis(y, at, 0)
    given = np.moveaxis(updates.reshape((*x.shape[:at], indices.size, *x.shape[at + 1 :])), at, 0)
    for row, update in zip(indices.reshape(-1).tolist(), given, strict=True):
        if -size <= row < size:
            rows[row] = COMBINES[reduction](rows[row], update)
    return y


SAMPLES = [
    ((9, 33), (12,), 0, "none", "small"),  # first: a device that only moves a type takes it in part
    ((7,), (3,), 0, "add", "small"),
    ((7,), (), 0, "none", "small"),
    ((5, 4), (6,), 0, "mul", "small"),
    ((5, 4), (2, 3), 1, "max", "small"),
    ((2, 3, 4), (5,), -2, "min", "small"),
    ((2, 3, 4), (0,), 1, "add", "small"),
    ((3, 2, 5, 4), (2, 3, 2), 2, "add", "small"),
    ((2, 1, 2, 1, 3, 1, 2, 2), (2,), 4, "max", "small"),
    ((3, 300), (7,), 0, "add", "small"),
    ((0, 3), (2,), 1, "add", "small"),
    ((7,), (4103,), 0, "add", "long"),  # the portable kernels check so many indices in parts
    ((40_000,), (603,), 0, "none", "long"),  # more rows than one part has
    ((600, 1025), (603,), 0, "add", "wide"),
    ((4096, 256), (1024,), 0, "add", "medium"),
    ((32768, 1024), (8192,), 0, "add", "large"),
]

scatter = declare(
    "scatter",
    "SCAT",
    "x: T[*s], indices: I[*i], updates: T[*u] -> y: T[*s]",
    {"T": PLAIN, "I": TOKENS},
    family="reduction",
    doc=(
        "y = x; then y[…, indices, …] along `axis` is replaced by updates, or combined with them: gather's inverse."
        " updates has gather's shape: that of x, with the indices' dims in place of the axis. Of equal indices, the"
        " updates are applied in their order, so with `none` the last one stays, and each result is rounded to T before"
        " the next: all devices give the same bits. min and max keep a NaN, and of equal numbers the earlier. Negative"
        " indices count from the end. An index out of range changes nothing and raises InvalidArgument at the call on"
        " a synchronous device, else at the next synchronise."
    ),
    reference=_reference,
    attrs=attrs(
        "SCT1",
        integer("axis", 0, "the axis of x that the indices pick from"),
        choice("reduction", REDUCTIONS, "none", "how an update joins what is there"),
    ),
    shapes=_shapes,
    check=_check,
    normal_form=as_given,
    aliases=("x",),
    samples=lambda: [
        Sample(
            {"x": x, "indices": i, "updates": (*x[:axis], *i, *x[axis % len(x) + 1 :])},
            {"axis": axis, "reduction": reduction},
            {"indices": f"index:{x[axis]}"},
            size=size,
            types={} if reduction == "none" else {"T": NUMBERS},
        )
        for x, i, axis, reduction, size in SAMPLES
    ],
    errors=[
        ErrorCase({"x": (3, 4), "indices": (2,), "updates": (2, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"x": (), "indices": (2,), "updates": (2,)}, InvalidArgument),
        ErrorCase({"x": (3, 4), "indices": (2,), "updates": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "indices": (2,), "updates": (2,)}, BadTensorShape),
        ErrorCase({"x": (3,), "indices": (2,), "updates": (2,)}, InvalidArgument, {"reduction": "mean"}),
        ErrorCase({"x": (3,), "indices": (2,), "updates": (2,)}, BadTensorDtype, dtypes={"indices": F32}),
        ErrorCase({"x": (3,), "indices": (2,), "updates": (2,)}, BadTensorDtype, dtypes={"updates": FLOATS[1]}),
        ErrorCase(
            {"x": (3,), "indices": (2,), "updates": (2,)}, BadTensorDtype, {"reduction": "add"}, dtypes={"T": BOOL}
        ),
    ],
    exact=True,
    device_error="indices[{at}] is {value}, out of range for the axis",
)
