"""cache_update: new keys or values written into a cache, cast or quantized on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import blocks
from ..declare import ErrorCase, Sample, declare
from ..declare.conversion import convert
from ..declare.normal_form import as_given
from ..dtypes import ACTIVATIONS, BF16, F16, F32, F64, FP8, INDICES, Q4_0, Q8_0
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape

CACHED = (F32, F16, BF16, Q8_0, Q4_0, *FP8)


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[tuple[int, ...]]:
    x, positions = inputs
    y = x if outputs is None else outputs[0]
    b, n = x[:2]
    if positions != (b,):
        raise BadTensorShape("cache_update", f"positions is {list(positions)}", allowed=f"[{b}], one a sequence")
    if len(y) != len(x) or y[:1] + y[2:] != x[:1] + x[2:] or y[1] < n:
        raise BadTensorShape(
            "cache_update", f"y is {list(y)} with x {list(x)}", allowed=f"[{b}, {n} or more, …] as x otherwise"
        )
    return [tuple(y)]


def _reference(x: Any, positions: Any, before: Sequence[Any], out: Sequence[TensorDesc]) -> Any:
    element = out[0].dtype
    new = blocks.quantize(x, element) if element.block > 1 else convert(x, element.numpy)
    y = before[0].copy()
    for sequence, position in enumerate(positions):
        if 0 <= position <= y.shape[1] - x.shape[1]:
            y[sequence, position : position + x.shape[1]] = new[sequence]
    return y


cache_update = declare(
    "cache_update",
    "CUPD",
    "x: T[b, n, *r, d], positions: I[b] -> y: C[b, s, *r, d]",
    {"C": CACHED, "T": ACTIVATIONS, "I": INDICES},  # no F64: a cache is what `attention` reads, in F32
    family="conversion",
    doc=(
        "y[b, positions[b] + i] = x[b, i], cast or quantized (as `cast` and `quantize` do); the rest of y keeps its"
        " content (ONNX TensorScatter, linear). If a sequence would pass the ends of y, nothing of it is written, and"
        " InvalidArgument is raised at the call"
        " on a synchronous device, else at the next synchronize."
    ),
    reference=_reference,
    shapes=_shapes,
    normal_form=as_given,
    inout=("y",),
    samples=lambda: [
        Sample(
            {"x": (b, n, *r), "positions": (b,)},
            {},
            {"positions": f"length:{s - n}"},
            outputs={"y": (b, s, *r)},
            size=size,
        )
        for b, n, s, r, size in [
            (1, 1, 7, (2, 32), "small"),
            (1, 5, 5, (1, 64), "small"),
            (3, 2, 9, (2, 32), "small"),
            (2, 3, 40, (96,), "small"),
            (2, 1, 3, (2, 1, 3, 32), "small"),
            (2, 0, 3, (2, 32), "small"),
            (0, 2, 3, (2, 32), "small"),
            (2, 3, 8, (3, 5), "small"),
            (2, 300, 400, (8, 128), "wide"),
            (1, 64, 1024, (8, 128), "medium"),
            (1, 4096, 8192, (8, 128), "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (2, 3), "positions": (2,)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 32), "positions": (3,)}, BadTensorShape),
        ErrorCase({"x": (2, 3, 32), "positions": (2,)}, BadTensorShape, outputs={"y": (2, 2, 32)}),
        ErrorCase({"x": (2, 3, 32), "positions": (2,)}, BadTensorShape, outputs={"y": (2, 3, 64)}),
        ErrorCase({"x": (2, 3, 32), "positions": (2,)}, BadTensorDtype, dtypes={"T": F64}),
        ErrorCase({"x": (2, 3, 32), "positions": (2,)}, BadTensorDtype, dtypes={"positions": F32}),
    ],
    exact=True,
    device_error="positions[{at}] is {value}, out of range for the cache",
)
