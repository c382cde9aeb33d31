"""causal_conv1d: each channel convolved by itself with what came before, and the state that a next call begins with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.epilogue import ACTIVATION
from ..declare.normal_form import as_given
from ..dtypes import FLOATS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .convolutions import Shape, add_and_activate


def _causal_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, w = inputs[0], inputs[1]
    if w[1] == 0:
        raise BadTensorShape("causal_conv1d", f"w is {list(w)}", allowed="a window of at least 1")
    state = (x[0], x[1], w[1] - 1)
    given = [*inputs[2:], None, None][1]
    if given is not None and given != state:
        raise BadTensorShape("causal_conv1d", f"state is {list(given)}", allowed=f"{list(state)}")
    return [x, state]


def _causal(x: Any, w: Any, bias: Any, state: Any, activation: str) -> Any:
    before = np.zeros((*x.shape[:2], w.shape[1] - 1), x.dtype) if state is None else state
    full = np.concatenate([before, x], 2)
    if x.shape[2] == 0:
        return x, full
    view = np.lib.stride_tricks.sliding_window_view(full, w.shape[1], 2)
    y = add_and_activate(np.einsum("bclk,ck->bcl", view, w), bias, activation)
    return y, full[:, :, x.shape[2] :]


def _causal_scale(x: Any, w: Any, bias: Any, state: Any, activation: str) -> Any:
    sizes: list[Any] = [*(None if t is None else np.abs(t) for t in (x, w, bias, state)), "none"]
    y, kept = _causal(*sizes)
    slope = 1 if activation in ("none", "relu") else 4
    return slope * (2 + math.sqrt(w.shape[1])) * y, 0 * kept


def _causal_parts(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, V]:
    x, w, bias, state = inputs[0], inputs[1], find_optional(inputs, 2), find_optional(inputs, 3)
    (c, k), size = w.spec.shape, x.spec.shape[2]
    before = e.fill(outputs[1].shape, 0.0, x.spec.dtype) if state is None else state
    full = e("concat", before, x, axis=2)
    filters = e.reshape(w, (c, 1, k))
    if c == 0 or size == 0:
        return e.fill(outputs[0].shape, 0.0, x.spec.dtype), before
    y = e("conv1d", full, filters, bias, groups=c, activation=values["activation"])
    return y, e("slice", full, starts=(size,), ends=(size + k - 1,), axes=(2,))


declare(
    "causal_conv1d",
    "CCV1",
    "x: T[b, c, l], w: T[c, k], bias?: T[c], state?: T[b, c, m] -> y: T[b, c, l], new_state: T[b, c, j]",
    {"T": FLOATS},
    family="contraction",
    doc=(
        "Each channel convolved by itself with the k - 1 elements before it: activation(Σ w[c, i]·z[b, c, l + i] +"
        " bias[c]), z being the state (zeros where absent) and then x. new_state is the last k - 1 elements of z, for"
        " the next call (Gu and Dao 2023, Mamba; ONNX CausalConvWithState)."
    ),
    reference=_causal,
    tolerance=Tolerance(2, _causal_scale),
    attrs=attrs("CCV1", ACTIVATION),
    shapes=_causal_shapes,
    normal_form=as_given,
    decompose=_causal_parts,
    flops=lambda i, o: 2.0 * o[0].numel * (i[1].shape[1] if i[1] is not None else 0),
    samples=lambda: [
        Sample(
            {
                "x": x,
                "w": (x[1], k),
                **({"bias": x[1:2]} if "b" in given else {}),
                **({"state": (*x[:2], k - 1)} if "s" in given else {}),
            },
            {"activation": activation},
            size=size,
        )
        for x, k, given, activation, size in [
            ((1, 1, 3), 2, "", "none", "small"),
            ((2, 5, 7), 4, "bs", "silu", "small"),
            ((1, 3, 1), 4, "s", "none", "small"),
            ((2, 3, 5), 1, "b", "none", "small"),
            ((0, 3, 5), 4, "bs", "silu", "small"),
            ((2, 3, 0), 4, "bs", "silu", "small"),
            ((2, 300, 3), 4, "bs", "silu", "small"),
            ((1, 2, 35), 18, "bs", "gelu", "small"),
            ((2, 33, 1025), 4, "bs", "silu", "wide"),
            ((1, 2048, 1), 4, "bs", "silu", "medium"),  # a step of generation
            ((1, 768, 256), 4, "bs", "silu", "medium"),
            ((4, 2048, 2048), 4, "bs", "silu", "large"),
        ]
    ],
    errors=[
        ErrorCase({"x": (1, 3, 4), "w": (2, 4)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4), "w": (3, 0)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "w": (3, 4)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4), "w": (3, 4), "bias": (3,), "state": (1, 3, 4)}, BadTensorShape),
        ErrorCase({"x": (1, 3, 4), "w": (3, 4)}, InvalidArgument, {"activation": "swish"}),
    ],
)
