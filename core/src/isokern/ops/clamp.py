"""clamp: elements limited by tensors, of which either may be absent; `clip` has its limits as attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.decomposition import Emitter, V
from ..dtypes import BOOL, NUMBERS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape


def _reference(x: Any, min: Any, max: Any) -> Any:
    y = x if min is None else np.maximum(x, min)
    return y if max is None else np.minimum(y, max)


def _loop(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit one loop nest over what is there."""
    x, least, most = [*inputs, None, None][:3]
    assert x is not None
    if least is None:
        return e("copy", x) if most is None else e.pointwise("minimum(x0, x1)", x, most)
    body = "maximum(x0, x1)"
    return e.pointwise(body, x, least) if most is None else e.pointwise(f"minimum({body}, x2)", x, least, most)


clamp = declare(
    "clamp",
    "CLMP",
    "x: T[*d], min?: T[*d], max?: T[*d] -> y: T[*d]",
    {"T": NUMBERS},
    broadcast=("d",),
    family="elementwise",
    doc=(
        "min(max(x, min), max) of tensors that broadcast by NumPy's rule; a limit that is absent does not limit. Where"
        " min > max the result is max, and NaN in any operand is NaN (ONNX Clip, PyTorch's clamp)."
    ),
    reference=_reference,
    tolerance=Tolerance(0),
    decompose=_loop,
    aliases=("x",),
    flops=lambda i, o: float(o[0].numel),
    samples=lambda: [
        Sample({"x": x, **({"min": low} if low is not None else {}), **({"max": high} if high is not None else {})},
               size=size)
        for x, low, high, size in [
            ((), (), (), "small"),
            ((7,), None, None, "small"),
            ((1025,), (), None, "small"),
            ((3, 5), None, (), "small"),
            ((3, 5), (), (), "small"),
            ((3, 5), (3, 5), (5,), "small"),
            ((4, 1), (1, 3), (), "small"),
            ((3,), (2, 1), (4, 1, 1), "small"),
            ((4, 1, 33), None, (4, 2, 1), "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), (1, 2), (2, 2), "small"),
            ((3, 0, 2), (), (2,), "small"),
            ((601, 1025), (1025,), (601, 1), "wide"),
            ((512, 512), (512,), (512, 1), "medium"),
            ((4096, 4096), (4096,), (4096, 1), "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3,), "min": (4,)}, BadTensorShape),
        ErrorCase({"x": (3,), "max": (2, 4)}, BadTensorShape),
        ErrorCase({"x": (3,), "min": ()}, BadTensorShape, outputs={"y": (1,)}),
        ErrorCase({"x": (3,), "min": ()}, BadTensorDtype, dtypes={"T": BOOL}),
    ],
)  # fmt: skip
