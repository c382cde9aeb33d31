"""paged_cache_update: new keys or values written into the slots of a cache of pages, cast or quantised on the way.

Normal form of the stem `cache_update`, which computes it: x as [n, 1, *r, d]; y as it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import blocks
from ..declare import ErrorCase, Sample, declare
from ..declare.conversion import convert
from ..declare.normal_form import Descs
from ..dtypes import ACTIVATIONS, F32, F64, INDICES
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape
from .cache_update import CACHED


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[tuple[int, ...]]:
    x, slots = inputs
    y = (x[0], 1, *x[1:]) if outputs is None else outputs[0]
    if slots != x[:1]:
        raise BadTensorShape("paged_cache_update", f"slots is {list(slots)}", allowed=f"[{x[0]}], one a row of x")
    if len(y) != len(x) + 1 or y[2:] != x[1:]:
        allowed = f"[pages, page size, …] and then as x, {list(x[1:])}"
        raise BadTensorShape("paged_cache_update", f"y is {list(y)} beside x {list(x)}", allowed=allowed)
    return [tuple(y)]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return x with a dim of 1 before its rows, as the slots of single rows have it; y and slots as given."""
    x, slots = inputs
    assert x is not None
    lifted = TensorDesc(x.dtype, (x.shape[0], 1, *x.shape[1:]), (x.strides[0], 0, *x.strides[1:]), x.offset)
    return [lifted, slots], list(outputs)


def _reference(x: Any, slots: Any, before: Sequence[Any], out: Sequence[TensorDesc]) -> Any:
    element = out[0].dtype
    new = blocks.quantize(x, element) if element.block > 1 else convert(x, element.numpy)
    y = before[0].copy()
    pages, size = y.shape[:2]
    for row, slot in enumerate(slots.tolist()):
        if 0 <= slot < pages * size:
            y[slot // size, slot % size] = new[row]
    return y


_X, _Y = (3, 2, 32), (4, 2, 2, 32)

declare(
    "paged_cache_update",
    "PCUP",
    "x: T[n, *r, d], slots: I[n] -> y: C[p, s, *r, d]",
    {"C": CACHED, "T": ACTIVATIONS, "I": INDICES},
    family="conversion",
    stem="cache_update",
    doc=(
        "y[slots[i] // s, slots[i] mod s] = x[i], cast or quantised (as `cast` and `quantize` do), in a cache of p"
        " pages of s rows; the rest of y keeps its content (Kwon et al. 2023; vLLM's slot mapping). Slots that are not"
        " negative must differ; a negative one leaves its row out. Of a slot behind the last page nothing is written,"
        " and InvalidArgument is raised at the call on a synchronous device, else at the next synchronise."
    ),
    reference=_reference,
    shapes=_shapes,
    normal_form=_normal_form,
    inout=("y",),
    samples=lambda: [
        Sample({"x": (n, *r), "slots": (n,)}, {}, {"slots": f"slots:{p * s}"}, outputs={"y": (p, s, *r)}, size=size)
        for n, p, s, r, size in [
            (1, 3, 4, (2, 32), "small"),
            (7, 3, 4, (1, 64), "small"),
            (9, 5, 2, (96,), "small"),
            (5, 16, 1, (2, 32), "small"),
            (20, 3, 4, (3, 5), "small"),
            (3, 2, 3, (2, 1, 3, 32), "small"),
            (0, 3, 4, (2, 32), "small"),
            (3, 2, 2, (2, 0), "small"),
            (600, 50, 16, (8, 128), "wide"),
            (64, 64, 16, (8, 128), "medium"),
            (4096, 512, 16, (8, 128), "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (32,), "slots": (32,)}, BadTensorShape, outputs={"y": (4, 2, 2)}),
        ErrorCase({"x": _X, "slots": (2,)}, BadTensorShape, outputs={"y": _Y}),
        ErrorCase({"x": _X, "slots": (3,)}, BadTensorShape, outputs={"y": (4, 2, 32)}),
        ErrorCase({"x": _X, "slots": (3,)}, BadTensorShape, outputs={"y": (4, 2, 2, 64)}),
        ErrorCase({"x": _X, "slots": (3,)}, BadTensorDtype, outputs={"y": _Y}, dtypes={"T": F64}),
        ErrorCase({"x": _X, "slots": (3,)}, BadTensorDtype, outputs={"y": _Y}, dtypes={"slots": F32}),
    ],
    exact=True,
    device_error="slots[{at}] is {value}, out of range for the pages",
)
