"""Linear attention, its gates, and the time mixing of RWKV, made of generalized_delta_rule.

Each makes the inputs of that recurrence, in the compute type, and adds what is its own to what is read of the state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.error_bound import Range, bounds, distance
from ..declare.normal_form import as_given
from ..declare.registry import find
from ..dtypes import F16, F32, F64, FLOATS, I32, DType
from ..expr.tree import parse
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape
from .generalized_delta_rule import find_fault, keeps_state, run_rule

STATES = {"T": FLOATS, "U": (F32, F64)}


def measure(found: Range) -> float:
    """Return how many eps of itself a value may be off, at most, where it is finite."""
    with np.errstate(all="ignore"):
        share = np.where(found.value == 0, 0, distance(found) / np.abs(found.value))
    return float(np.max(share, initial=0.0, where=np.isfinite(share) & np.isfinite(found.value)))


# y = scale · qᵀ S, where S ← e^decay S, then S ← S + k β (v - kᵀ S)ᵀ
def _linear_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, k, v, state, decay = [*inputs, None][:5]
    fault = find_fault("linear_attention", [q, k, v, state, decay])
    if fault is not None:
        raise BadTensorShape("linear_attention", fault[0], allowed=fault[1])
    return [(*q[:3], v[3]), state]


def _scale_of(scale: float, d: int) -> float:
    return scale if scale != 0 else 1 / math.sqrt(max(d, 1))


def _attend(q: Any, k: Any, v: Any, state: Any, decay: Any, beta: Any, *, scale: float) -> tuple[Any, Any, Any, Any]:
    off, kept = 4.0, None
    if decay is not None:
        found = bounds(parse("exp(x0)"), {"x0": decay}, F64)
        kept, off = np.broadcast_to(found.value, k.shape), off + measure(found)
    a = b = None
    if beta is not None:
        a, b, v = (k if kept is None else kept * k), -beta[..., None] * k, beta[..., None] * v
    return run_rule(q * _scale_of(scale, q.shape[3]), k, v, state, kept, a, b, False, off)


def _linear(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, V]:
    given: list[V | None] = [*inputs, *[None] * (6 - len(inputs))]
    q, k, v, state, decay, beta = given
    assert q is not None and k is not None and v is not None and state is not None
    wide = outputs[1].dtype
    q = e.loop("bthd->bthd", f"x0 * {constant(_scale_of(values['scale'], q.spec.shape[3]))}", q, dtype=wide)
    k, v = e.cast(k, wide), e.cast(v, wide)
    kept = None if decay is None else e("exp", decay)
    a = b = None
    if beta is not None:
        a = k if kept is None else e.pointwise("x0 * x1", k, kept)
        b = e.loop("btgd,btg->btgd", "-(x0 * x1)", k, beta)
        v = e.loop("btge,btg->btge", "x0 * x1", v, beta)
    rest = [kept, a, b] if a is not None else [kept] if kept is not None else []
    y, present = e.all("generalized_delta_rule", q, k, v, state, *rest)
    return e.cast(y, outputs[0].dtype), present


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    q, k, v = inputs[:3]
    assert q is not None and k is not None and v is not None
    return 2.0 * v.shape[3] * (q.numel + k.numel * (4 if len(inputs) > 5 else 2))


def _linear_sample(
    b: int, t: int, h: int, g: int, d: int, e: int, given: str = "", size: str = "small", **values: Any
) -> Sample:
    """Return a sample; `given` has w for a decay, h for one by head, b for beta."""
    shapes: dict[str, Any] = {"q": (b, t, h, d), "k": (b, t, g, d), "v": (b, t, g, e), "past_state": (b, g, d, e)}
    if "w" in given or "h" in given:
        shapes["decay"] = (b, t, g, d if "w" in given else 1)
    if "b" in given:
        shapes["beta"] = (b, t, g)
    return Sample(shapes, values, size=size)


_PLAIN = {"q": (2, 5, 4, 6), "k": (2, 5, 2, 6), "v": (2, 5, 2, 3), "past_state": (2, 2, 6, 3)}

declare(
    "linear_attention",
    "LINA",
    "q: T[b, t, h, d], k: T[b, t, g, d], v: T[b, t, g, e], past_state: U[b, g, d, e], decay?: U[*r], beta?: U[b, t, g]"
    " -> y: T[b, t, h, e], present_state: U[b, g, d, e]",
    STATES,
    combinations=keeps_state,
    family="attention",
    doc=(
        "At each step S ← e^decay S, then S ← S + k vᵀ, or with beta S ← S + β k (v - Sᵀ k)ᵀ, and y = scale · qᵀ S. The"
        " four update rules of ONNX LinearAttention follow from what is given: linear with neither decay nor beta"
        " (Katharopoulos et al. 2020), gated with a decay, which is a logarithm and broadcasts to k, such as [b, t, g,"
        " 1] (Yang et al. 2023, GLA; by head, Mamba-2 and RetNet), delta with beta (Schlag et al. 2021), gated delta"
        " with both (Yang et al. 2024; Kimi delta attention where the decay is by channel). h heads of q share g of k"
        " and v. S is past_state at the start (zeros for none) and present_state at the end; it, decay and beta have"
        " the compute type. scale 0 is 1/sqrt(d)."
    ),
    reference=lambda *given, scale: _attend(*given, scale=scale)[:2],
    tolerance=Tolerance(4, lambda *given, scale: _attend(*given, scale=scale)[2:]),
    attrs=attrs("LIA1", number("scale", 0.0, "factor of y; 0 for 1/sqrt(d)")),
    shapes=_linear_shapes,
    normal_form=as_given,
    decompose=_linear,
    flops=_flops,
    domains=dict.fromkeys(("q", "k", "v", "past_state", "decay", "beta"), "unit"),
    samples=lambda: [
        _linear_sample(1, 4, 2, 2, 32, 32),
        _linear_sample(2, 5, 4, 2, 7, 5, "w", scale=1.0),
        _linear_sample(1, 9, 3, 3, 8, 33, "b"),
        _linear_sample(2, 3, 2, 1, 33, 17, "wb", scale=-0.5),
        _linear_sample(1, 4, 2, 2, 5, 6, "hb"),
        _linear_sample(2, 0, 2, 2, 4, 4, "wb"),
        _linear_sample(1, 3, 2, 2, 0, 4, "b"),
        _linear_sample(0, 3, 2, 1, 4, 4, "h"),
        _linear_sample(2, 24, 4, 4, 64, 64, "hb", "wide"),
        _linear_sample(1, 1, 8, 8, 128, 128, "hb", "medium"),
        _linear_sample(1, 512, 32, 32, 128, 128, "hb", "large"),
    ],
    errors=[
        ErrorCase({**_PLAIN, "q": (2, 5, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "k": (2, 5, 2, 5)}, BadTensorShape),
        ErrorCase({**_PLAIN, "q": (2, 5, 3, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "past_state": (2, 2, 3, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "decay": (3, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "beta": (2, 5, 4)}, BadTensorShape),
        ErrorCase(_PLAIN, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase(_PLAIN, BadTensorDtype, dtypes={"T": F32, "U": F16}),
        ErrorCase(_PLAIN, BadTensorShape, outputs={"y": (2, 5, 4, 6), "present_state": (2, 2, 6, 3)}),
    ],
)


# Gates of the gated delta rule
_DECAY = "-exp(x0) * (maximum(x1 + x2, 0) + log1p(exp(-abs(x1 + x2))))"


def _gates(a: Any, b: Any, a_log: Any, bias: Any) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        small = np.exp(-np.abs(b))
        return -np.exp(a_log) * np.logaddexp(a + bias, 0), np.where(b >= 0, 1, small) / (1 + small)


def _gates_scale(a: Any, b: Any, a_log: Any, bias: Any, compute: DType) -> tuple[Any, Any]:
    sigmoid = find("sigmoid").expression
    assert sigmoid is not None
    decay = bounds(parse(_DECAY), {"x0": a_log, "x1": a, "x2": bias}, compute)
    return distance(decay), distance(bounds(sigmoid, {"x": b}, compute))


def _gates_loops(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, V]:
    a, b, a_log, bias = inputs
    wide = outputs[0].dtype
    return e.pointwise(_DECAY, a_log, e.cast(a, wide), bias), e("sigmoid", e.cast(b, wide))


declare(
    "gated_delta_net_gating",
    "GDNG",
    "a: T[*s, h], b: T[*s, h], a_log: U[h], bias: U[h] -> decay: U[*s, h], beta: U[*s, h]",
    STATES,
    combinations=keeps_state,
    family="attention",
    doc=(
        "decay = -e^a_log · softplus(a + bias) and beta = sigmoid(b), for each of h heads: the gates of a gated delta"
        " net (Yang et al. 2024), in the compute type, as `linear_attention` takes them (decay as [b, t, h, 1]). a_log"
        " and bias are parameters of the model, A_log and dt_bias of Mamba-2."
    ),
    reference=_gates,
    tolerance=Tolerance(1, _gates_scale),
    normal_form=as_given,
    decompose=_gates_loops,
    flops=lambda i, o: 10.0 * o[0].numel,
    domains={"a_log": "unit"},
    samples=lambda: [
        *(
            Sample({"a": s, "b": s, "a_log": s[-1:], "bias": s[-1:]})
            for s in [(7,), (3, 5), (2, 3, 32), (1, 1, 1), (0, 4), (3, 0)]
        ),
        *(
            Sample({"a": s, "b": s, "a_log": s[-1:], "bias": s[-1:]}, size=size)
            for s, size in [((9, 1025, 33), "wide"), ((1, 512, 32), "medium"), ((1, 8192, 64), "large")]
        ),
    ],
    errors=[
        ErrorCase({"a": (3, 5), "b": (3, 4), "a_log": (5,), "bias": (5,)}, BadTensorShape),
        ErrorCase({"a": (3, 5), "b": (3, 5), "a_log": (3,), "bias": (5,)}, BadTensorShape),
        ErrorCase({"a": (3, 5), "b": (3, 5), "a_log": (5,), "bias": (1, 5)}, BadTensorShape),
        ErrorCase({"a": (), "b": (), "a_log": (1,), "bias": (1,)}, BadTensorShape),
        ErrorCase({"a": (3, 5), "b": (3, 5), "a_log": (5,), "bias": (5,)}, BadTensorDtype, dtypes={"U": F16}),
    ],
)


# RWKV: y reads S before the step, and the step's own term with a weight of its own
def _wkv_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    r, k, v, decay, _, state = inputs
    fault = find_fault("rwkv_wkv", [r, k, v, state, decay])
    if fault is not None:
        raise BadTensorShape("rwkv_wkv", fault[0], allowed=fault[1])
    return [(*r[:3], v[3]), state]


def _wkv(r: Any, k: Any, v: Any, decay: Any, bonus: Any, state: Any) -> tuple[Any, Any, Any, Any]:
    y, present, off, state_off = run_rule(r, k, v, state, np.broadcast_to(decay, k.shape), None, None, True)
    own, size = (r * bonus * k).sum(-1), (6 + np.sqrt(r.shape[3])) * np.abs(r * bonus * k).sum(-1)
    return y + own[..., None] * v, present, off + np.abs(y) + size[..., None] * np.abs(v), state_off


def _wkv_loops(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, V]:
    r, k, v, decay, bonus, state = inputs
    wide = outputs[1].dtype
    r, k, v, decay = (e.cast(x, wide) for x in (r, k, v, decay))
    y, present = e.all("generalized_delta_rule", r, k, v, state, decay, read_before=True)
    own = e.loop("bthd,hd,bthd->bth", "x0 * x1 * x2", r, bonus, k, combine="sum")
    return e.cast(e.loop("bthe,bth,bthe->bthe", "x0 + x1 * x2", y, own, v), outputs[0].dtype), present


def _wkv_sample(b: int, t: int, h: int, d: int, e: int, each: bool = True, size: str = "small") -> Sample:
    wide = (b, t, h, d)
    shapes = {"r": wide, "k": wide, "v": (b, t, h, e), "decay": wide if each else (h, d), "bonus": (h, d)}
    return Sample({**shapes, "past_state": (b, h, d, e)}, size=size)


_WKV = dict(_wkv_sample(2, 5, 3, 6, 4).shapes)

declare(
    "rwkv_wkv",
    "RWKV",
    "r: T[b, t, h, d], k: T[b, t, h, d], v: T[b, t, h, e], decay: T[*r], bonus: T[h, d], past_state: U[b, h, d, e]"
    " -> y: T[b, t, h, e], present_state: U[b, h, d, e]",
    STATES,
    combinations=keeps_state,
    family="attention",
    doc=(
        "y = rᵀ (S + diag(bonus) k vᵀ), then S ← diag(decay) S + k vᵀ, at each step of t: the time mixing of RWKV-5,"
        " whose decay is [h, d], and of RWKV-6, whose decay is [b, t, h, d] (Peng et al. 2024). decay is the factor"
        " itself, e^(-e^w) of the model's w, and broadcasts to k. S is past_state at the start (zeros for none) and"
        " present_state at the end, in the compute type. RWKV-7 is `generalized_delta_rule`."
    ),
    reference=lambda *given: _wkv(*given)[:2],
    tolerance=Tolerance(4, lambda *given: _wkv(*given)[2:]),
    shapes=_wkv_shapes,
    normal_form=as_given,
    decompose=_wkv_loops,
    flops=lambda i, o: 6.0 * o[0].numel * o[1].shape[2],
    domains=dict.fromkeys(("r", "k", "v", "decay", "bonus", "past_state"), "unit"),
    samples=lambda: [
        _wkv_sample(1, 4, 2, 32, 32),
        _wkv_sample(2, 5, 3, 7, 5, False),
        _wkv_sample(1, 9, 1, 33, 3),
        _wkv_sample(1, 1, 2, 5, 1, False),
        _wkv_sample(2, 0, 2, 4, 4),
        _wkv_sample(1, 3, 2, 0, 4),
        _wkv_sample(0, 3, 2, 4, 4, False),
        _wkv_sample(2, 24, 4, 64, 64, size="wide"),
        _wkv_sample(1, 1, 32, 64, 64, size="medium"),
        _wkv_sample(1, 512, 32, 64, 64, size="large"),
    ],
    errors=[
        ErrorCase({**_WKV, "k": (2, 5, 3, 5)}, BadTensorShape),
        ErrorCase({**_WKV, "v": (2, 4, 3, 4)}, BadTensorShape),
        ErrorCase({**_WKV, "decay": (5, 6)}, BadTensorShape),
        ErrorCase({**_WKV, "bonus": (2, 6)}, BadTensorShape),
        ErrorCase({**_WKV, "past_state": (2, 3, 4, 6)}, BadTensorShape),
        ErrorCase(_WKV, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase(_WKV, BadTensorDtype, dtypes={"T": F32, "U": F16}),
    ],
)
