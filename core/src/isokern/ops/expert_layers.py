"""Layers of experts, each a gated feed-forward network: fused_moe, and fused_moe_mxfp4 with weights of 4 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import Record, attrs, choice, flag, number
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.error_bound import UNBOUNDED
from ..declare.normal_form import as_given
from ..declare.registry import find
from ..dtypes import ACTIVATIONS, ALL_WEIGHTS, BF16, F16, F32, F64, I8, I64, INDICES, STORED_BLOCKS, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .expert_products import apply_experts, find_known
from .gemm import accumulated_magnitude
from .microscaling import dequantize_mxfp4

GATES = ("silu_mul", "gelu_mul", "gelu_tanh_mul", "relu_mul", "swiglu_clamped")
LARGEST = float(np.finfo(np.float32).max)


def _record(schema: str) -> Record:
    return attrs(
        schema,
        choice("gate", GATES, "silu_mul", "the operator between the two products, of the gate and the other half"),
        flag("interleaved", False, "rows of gates and of the others alternate; else all gates come first"),
        number("alpha", 1.702, "α of swiglu_clamped"),
        number("limit", 7.0, "limit of swiglu_clamped", minimum=0),
    )


# The layer


def _emit_gate(e: Emitter[V], h: V, values: Mapping[str, Any]) -> V:
    """Emit the gate of the two halves of the last dim."""
    width = h.spec.shape[-1]
    starts, ends, steps = (
        ((0, 1), (width, width), 2) if values["interleaved"] else ((0, width // 2), (width // 2, width), 1)
    )
    a, b = (
        e("slice", h, starts=(begin,), ends=(end,), axes=(h.spec.ndim - 1,), steps=(steps,))
        for begin, end in zip(starts, ends, strict=True)
    )
    own = {n: values[n] for n in ("alpha", "limit")} if values["gate"] == "swiglu_clamped" else {}
    return e(values["gate"], a, b, **own)


def _emit_layer(e: Emitter[V], given: Sequence[V | None], values: Mapping[str, Any], y: TensorDesc) -> V:
    """Emit the layer of x, both weights, ids and weights of the experts, both biases, and the shared weights."""
    x, gate_up, down, ids, weights, gate_up_bias, down_bias, shared_gate_up, shared_down = given
    assert x is not None and gate_up is not None and down is not None and ids is not None and weights is not None
    wide, experts = e.cast(x, F32), gate_up.spec.shape[0]
    # An index below 0 becomes less than -experts, so that it has no bias, rather than one counted from the end
    at = e.loop("ab->ab", f"x0 if x0 >= 0 else x0 - {experts}", e.cast(ids, I64))
    h = e("matmul_id", wide, gate_up, ids)
    h = h if gate_up_bias is None else e("add_id", h, e.cast(gate_up_bias, F32), at)
    h = e("matmul_id", _emit_gate(e, h, values), down, ids)
    h = h if down_bias is None else e("add_id", h, e.cast(down_bias, F32), at)
    result = e("moe_sum", h, weights)
    if shared_gate_up is not None and shared_down is not None:
        h = _emit_gate(e, e("matmul_transposed", wide, shared_gate_up), values)
        result = e("add", result, e("matmul_transposed", h, shared_down))
    return e.cast(result, y.dtype)


def _apply_gate(h: Any, gate: str, interleaved: bool, alpha: float, limit: float) -> tuple[Any, Any, Any]:
    """Return both halves of the last dim, and the gate of them."""
    half = h.shape[-1] // 2
    a, b = (h[..., ::2], h[..., 1::2]) if interleaved else (h[..., :half], h[..., half:])
    return a, b, find(gate).reference(a, b, **({"alpha": alpha, "limit": limit} if gate == "swiglu_clamped" else {}))


def _pick(table: Any, ids: Any) -> Any:
    """Return rows of a table of biases, 0 if an id has none; 0 without a table."""
    if table is None:
        return 0.0
    known = (ids >= 0) & (ids < table.shape[0])
    rows = table[np.where(known, ids, 0)] if table.shape[0] else np.zeros((*ids.shape, table.shape[1]))
    return np.where(known[..., None], rows, 0)


def _layer_reference(given: Sequence[Any], values: Mapping[str, Any]) -> Any:
    x, gate_up, down, ids, weights, gate_up_bias, down_bias, shared_gate_up, shared_down = given
    h = apply_experts(np.matmul, x, gate_up, ids) + _pick(gate_up_bias, ids)
    h = apply_experts(np.matmul, _apply_gate(h, **values)[2], down, ids) + _pick(down_bias, ids)
    y = (h * weights[:, :, None]).sum(1)
    return y if shared_down is None else y + _apply_gate(x @ shared_gate_up.T, **values)[2] @ shared_down.T


def _expert_scale(of_rows: Any, x: Any, first: Any, second: Any, biases: tuple[Any, Any], values: Any) -> Any:
    """Return the result of an expert's two products, and its rounding error in eps.

    `of_rows(f, x, w)` applies f to each expert's rows and weights. A gate is as steep as 1.2 at most.
    """
    h = of_rows(np.matmul, x, first) + biases[0]
    sizes = 2 * of_rows(accumulated_magnitude, x, first) + 2 * np.abs(biases[0])
    a, b, y = _apply_gate(h, **values)
    error_a, error_b, _ = _apply_gate(sizes, "relu_mul", values["interleaved"], 0, 0)
    other = np.abs(b) + (values["gate"] == "swiglu_clamped")
    size = np.abs(a) * other if values["gate"].startswith("gelu") else np.abs(y)
    error = 1.2 * error_a * other + np.abs(a) * error_b + 12 * size
    far = (np.abs(h) + sizes > LARGEST / 16).any(-1, keepdims=True)  # a sum may have overflowed on its way
    result = of_rows(np.matmul, y, second) + biases[1]
    total = of_rows(np.matmul, error, np.abs(second)) + 2 * of_rows(accumulated_magnitude, y, second)
    total = total + 2 * np.abs(biases[1]) + np.abs(result)
    return result, np.where(far | (total > LARGEST / 16), UNBOUNDED, total)


def _layer_scale(given: Sequence[Any], values: Mapping[str, Any]) -> Any:
    x, gate_up, down, ids, weights, gate_up_bias, down_bias, shared_gate_up, shared_down = given
    biases = _pick(gate_up_bias, ids), _pick(down_bias, ids)
    h, error = _expert_scale(lambda f, x, w: apply_experts(f, x, w, ids), x, gate_up, down, biases, values)
    known = ((ids >= 0) & (ids < gate_up.shape[0]))[:, :, None]
    sizes = np.abs(weights)[:, :, None] * np.where(known, error + (2 + ids.shape[1]) * np.abs(h), 0)
    total = np.where((error >= UNBOUNDED).any(1), UNBOUNDED, sizes.sum(1))
    if shared_down is not None:
        y, error = _expert_scale(lambda f, x, w: f(x, w.T), x, shared_gate_up, shared_down, (0.0, 0.0), values)
        total = total + error + np.abs(y) + np.abs((h * weights[:, :, None]).sum(1))
    return np.where(total > LARGEST / 16, UNBOUNDED, total)


def _check_halves(where: str, gate_up: Sequence[int], down: Sequence[int], names: str) -> None:
    if gate_up[-2] != 2 * down[-1]:
        given = f"{names} are {list(gate_up)} and {list(down)}"
        raise BadTensorShape(where, given, allowed=f"{2 * down[-1]} rows in the first: as many gates as others")


# fused_moe


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, gate_up, down = inputs[:3]
    _check_halves("fused_moe", gate_up, down, "gate_up and down")
    shared_gate_up, shared_down = [*inputs[5:], None, None, None, None][2:4]
    if (shared_gate_up is None) != (shared_down is None):
        given = f"shared_{'down' if shared_gate_up is None else 'gate_up'} alone"
        raise InvalidArgument("fused_moe", given, allowed="both weights of the shared expert, or neither")
    if shared_gate_up is not None and shared_down is not None:
        _check_halves("fused_moe", shared_gate_up, shared_down, "shared_gate_up and shared_down")
    return [(x[0], down[1])]


def _emit_moe(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    return _emit_layer(e, [*inputs, *[None] * (9 - len(inputs))], values, outputs[0])


def _moe_reference(*given: Any, **values: Any) -> Any:
    return _layer_reference(given, values)


def _moe_scale(*given: Any, **values: Any) -> Any:
    return _layer_scale(given, values)


def _sample(
    sizes: Sequence[int],
    given: str = "",
    size: str = "small",
    types: Mapping[str, tuple[DType, ...]] | None = None,
    **values: Any,
) -> Sample:
    """Return a sample of m tokens with k elements, e experts of width f, top of them chosen."""
    m, k, e, f, top = sizes
    shapes = {"x": (m, k), "gate_up": (e, 2 * f, k), "down": (e, k, f), "ids": (m, top), "weights": (m, top)}
    others = {"gate_up_bias": (e, 2 * f), "down_bias": (e, k), "shared_gate_up": (4 * f, k), "shared_down": (k, 2 * f)}
    shapes |= {name: others[name] for name in given.split()}
    return Sample(shapes, values, {"ids": f"length:{e - 1}"}, size=size, types=types or {})


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    x, gate_up, down, ids = inputs[:4]
    assert x is not None and gate_up is not None and down is not None and ids is not None
    return 2.0 * ids.numel * (gate_up.shape[1] * x.shape[1] + down.shape[1] * gate_up.shape[1] / 2)


_GIVEN = {"x": (3, 64), "gate_up": (4, 64, 64), "down": (4, 64, 32), "ids": (3, 2), "weights": (3, 2)}
BIASES, SHARED = "gate_up_bias down_bias", "shared_gate_up shared_down"

declare(
    "fused_moe",
    "FMOE",
    (
        "x: T[m, k], gate_up: W[e, h, k], down: W[e, d, f], ids: I[m, top], weights: F32[m, top],"
        " gate_up_bias?: T[e, h], down_bias?: T[e, d], shared_gate_up?: W[s, k], shared_down?: W[d, r] -> y: T[m, d]"
    ),
    {"W": ALL_WEIGHTS, "T": ACTIVATIONS, "I": INDICES},
    family="contraction",
    doc=(
        "y[i] = Σ weights[i, t] · (down[j] gate(gate_up[j] x[i] + gate_up_bias[j]) + down_bias[j]), j = ids[i, t]: the"
        " feed-forward layers of the experts that a router chose, in F32 between x and y. gate_up has the rows of the"
        " gates and those that they are multiplied with (as swiglu_clamped with interleaved rows, gpt-oss). A shared"
        " expert computes every token, with weight 1 (DeepSeek). An id outside 0 … e - 1 adds nothing and raises"
        " InvalidArgument as `matmul_id` does."
    ),
    reference=_moe_reference,
    tolerance=Tolerance(2, _moe_scale),
    attrs=_record("FMO1"),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_emit_moe,
    constants=("gate_up", "down"),
    flops=_flops,
    domains={"weights": "unit"},
    samples=lambda: [
        _sample((3, 64, 4, 32, 2)),
        _sample((5, 32, 3, 96, 2), BIASES, gate="swiglu_clamped", interleaved=True),
        _sample((4, 96, 8, 64, 3), SHARED, gate="gelu_mul"),
        _sample((33, 32, 5, 32, 2), f"{BIASES} {SHARED}", gate="gelu_tanh_mul"),
        _sample((1, 160, 6, 32, 4), gate="relu_mul"),
        _sample((0, 32, 3, 32, 2)),
        _sample((3, 32, 3, 32, 0)),
        _sample((2, 32, 3, 0, 2), "down_bias"),
        _sample((3, 5, 2, 3, 1), "gate_up_bias"),
        _sample((3, 256, 4, 256, 2), BIASES, types={"W": STORED_BLOCKS}),
        _sample((1, 512, 3, 256, 2), gate="gelu_mul", types={"W": STORED_BLOCKS}),
        _sample((90, 64, 6, 96, 4), SHARED, "wide"),
        _sample((1, 2048, 32, 768, 8), "", "medium"),
        _sample((256, 2048, 32, 768, 4), "", "large"),
    ],
    errors=[
        ErrorCase({**_GIVEN, "x": (3, 32)}, BadTensorShape),
        ErrorCase({**_GIVEN, "gate_up": (4, 32, 64)}, BadTensorShape),
        ErrorCase({**_GIVEN, "down": (3, 64, 32)}, BadTensorShape),
        ErrorCase({**_GIVEN, "weights": (3, 3)}, BadTensorShape),
        ErrorCase({**_GIVEN, "gate_up_bias": (4, 32)}, BadTensorShape),
        ErrorCase({**_GIVEN, "shared_gate_up": (64, 64)}, InvalidArgument),
        ErrorCase({**_GIVEN, "shared_gate_up": (64, 64), "shared_down": (64, 64)}, BadTensorShape),
        ErrorCase(_GIVEN, InvalidArgument, {"gate": "silu"}),
        ErrorCase(_GIVEN, InvalidArgument, {"limit": -1.0}),
        ErrorCase(_GIVEN, BadTensorDtype, dtypes={"weights": F16}),
        ErrorCase(_GIVEN, BadTensorDtype, dtypes={"T": F64}),
    ],
    device_error="ids[{at}] is {value}, out of range for the experts",
)


# fused_moe_mxfp4


def _check_packed(x: Sequence[int], scales: Sequence[int], width: int, name: str) -> None:
    if width % 32 != 0 or x[-1] != width // 2 or tuple(scales) != (*x[:-1], width // 32):
        given = f"{name} is {list(x)}, {name}_scales is {list(scales)} for rows of {width}"
        allowed = f"[…, {width // 2}] and […, {width // 32}]" if width % 32 == 0 else "rows of whole blocks of 32"
        raise BadTensorShape("fused_moe_mxfp4", given, allowed=allowed)


def _packed_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, gate_up, gate_up_scales, down, down_scales = inputs[:5]
    _check_packed(gate_up, gate_up_scales, x[1], "gate_up")
    if gate_up[1] % 2 != 0:
        raise BadTensorShape("fused_moe_mxfp4", f"gate_up is {list(gate_up)}", allowed="as many gates as others")
    _check_packed(down, down_scales, gate_up[1] // 2, "down")
    return [(x[0], down[1])]


def _emit_packed(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the weights as BF16, which has all their values, of all experts, or of those chosen if they are fewer."""
    x, *packed, ids, weights = inputs[:7]
    biases = [find_optional(inputs, i) for i in (7, 8)]
    (rows, top), experts = ids.spec.shape, packed[0].spec.shape[0]
    if 0 < rows * top < experts:
        known = find_known(e, ids, experts)
        at = e.loop("a,a->a", f"x0 if x1 > 0 else {experts}", e.cast(e.reshape(ids, (rows * top,)), I64), known)
        packed = [e("gather", part, at, axis=0) for part in packed]
        biases = [None if bias is None else e("gather", bias, at, axis=0) for bias in biases]
        places = e.loop("a,a->a", f"x0 if x1 > 0 else {rows * top}", e.iota(rows * top, I64), known)
        ids = e.reshape(places, (rows, top))
    gate_up, down = (e("dequantize_mxfp4", *packed[i : i + 2], dtypes={"T": BF16}) for i in (0, 2))
    return _emit_layer(e, [x, gate_up, down, ids, weights, *biases, None, None], values, outputs[0])


def _unpack(given: Sequence[Any]) -> list[Any]:
    x, gate_up, gate_up_scales, down, down_scales, *rest = given
    unpacked = (dequantize_mxfp4.reference(*pair) for pair in ((gate_up, gate_up_scales), (down, down_scales)))
    return [x, *unpacked, *rest, None, None]


def _packed_reference(*given: Any, **values: Any) -> Any:
    return _layer_reference(_unpack(given), values)


def _packed_scale(*given: Any, **values: Any) -> Any:
    return _layer_scale(_unpack(given), values)


def _packed_sample(sizes: Sequence[int], given: str = "", size: str = "small", **values: Any) -> Sample:
    plain = _sample(sizes, given, size, **values)
    shapes = {n: s for n, s in plain.shapes.items() if n not in ("gate_up", "down")}
    for name in ("gate_up", "down"):
        lead, width = plain.shapes[name][:-1], plain.shapes[name][-1]
        shapes |= {name: (*lead, width // 2), f"{name}_scales": (*lead, width // 32)}
    return Sample(shapes, values, plain.values, size=size)


_PACKED = {
    **_GIVEN,
    "gate_up": (4, 64, 32),
    "gate_up_scales": (4, 64, 2),
    "down": (4, 64, 16),
    "down_scales": (4, 64, 1),
}

declare(
    "fused_moe_mxfp4",
    "FMX4",
    (
        "x: T[m, k], gate_up: U8[e, h, p], gate_up_scales: U8[e, h, c], down: U8[e, d, q], down_scales: U8[e, d, r],"
        " ids: I[m, top], weights: F32[m, top], gate_up_bias?: T[e, h], down_bias?: T[e, d] -> y: T[m, d]"
    ),
    {"T": ACTIVATIONS, "I": INDICES},
    family="contraction",
    doc=(
        "`fused_moe` with weights in MXFP4, blocks of 32 along k and f with their scales, as `dequantize_mxfp4` takes"
        " them (gpt-oss)."
    ),
    reference=_packed_reference,
    tolerance=Tolerance(2, _packed_scale),
    attrs=_record("FMX1"),
    shapes=_packed_shapes,
    normal_form=as_given,
    decompose=_emit_packed,
    constants=("gate_up", "down"),
    domains={
        "gate_up": "any",
        "down": "any",
        **dict.fromkeys(("gate_up_scales", "down_scales"), "exponents"),
        "weights": "unit",
    },
    samples=lambda: [
        _packed_sample((3, 64, 4, 32, 2)),
        _packed_sample((5, 32, 3, 96, 2), BIASES, gate="swiglu_clamped", interleaved=True),
        _packed_sample((1, 96, 6, 32, 2), "down_bias"),
        _packed_sample((1, 32, 2, 32, 1), gate="relu_mul"),
        _packed_sample((0, 32, 3, 32, 2)),
        _packed_sample((90, 64, 6, 96, 4), BIASES, "wide", gate="swiglu_clamped", interleaved=True),
        _packed_sample((1, 1024, 16, 512, 4), BIASES, "medium", gate="swiglu_clamped", interleaved=True),
    ],
    errors=[
        ErrorCase({**_PACKED, "gate_up": (4, 64, 64)}, BadTensorShape),
        ErrorCase({**_PACKED, "down_scales": (4, 64, 2)}, BadTensorShape),
        ErrorCase({**_PACKED, "x": (3, 32)}, BadTensorShape),
        ErrorCase({**_PACKED, "gate_up": (4, 63, 32), "gate_up_scales": (4, 63, 2)}, BadTensorShape),
        ErrorCase({**_PACKED, "ids": (2, 2)}, BadTensorShape),
        ErrorCase(_PACKED, BadTensorDtype, dtypes={"gate_up": I8}),
        ErrorCase(_PACKED, InvalidArgument, {"gate": "silu"}),
    ],
    device_error="ids[{at}] is {value}, out of range for the experts",
)
