"""generalized_delta_rule: the recurrence of a matrix state that linear attention and its kin share.

Each step decays the state, corrects it by a term of rank one, and adds another: diagonal plus low rank. Normal form:
the signature's dims, the decay as [b, t, g, d] with stride 0 if it repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag
from ..declare.normal_form import Descs
from ..dtypes import F16, F32, F64, FLOATS, I32, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument


def find_fault(where: str, inputs: Sequence[Any]) -> tuple[str, str] | None:
    """Return what is wrong about the shapes of q, k, v, the past state and the decay, and what is allowed."""
    q, k, v, state, decay = inputs
    b, t, h, d = q
    g, e = v[2], v[3]
    if k != (b, t, g, d):
        return f"k is {list(k)} with q {list(q)} and v {list(v)}", f"[{b}, {t}, {g}, {d}]"
    if v[:2] != (b, t):
        return f"v is {list(v)} with q {list(q)}", f"[{b}, {t}, heads, …]"
    if (h % g if g else h) != 0:
        return f"{h} heads of q share {g} of k", f"a divisor of {h}"
    if state != (b, g, d, e):
        return f"past_state is {list(state)}", f"[{b}, {g}, {d}, {e}]"
    if decay is not None:
        full, given = (b, t, g, d), (1,) * (4 - len(decay)) + decay
        if len(decay) > 4 or any(x not in (1, f) for x, f in zip(given, full, strict=True)):
            return f"decay is {list(decay)}", f"what broadcasts to {list(full)}"
    return None


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    q, k, v, state, decay, a, b = [*inputs, None, None, None][:7]
    fault = find_fault("generalized_delta_rule", [q, k, v, state, decay])
    if fault is not None:
        raise BadTensorShape("generalized_delta_rule", fault[0], allowed=fault[1])
    if (a is None) != (b is None):
        raise InvalidArgument("generalized_delta_rule", "one of a and b", allowed="both, or neither")
    if a is not None and (a != k or b != k):
        raise BadTensorShape("generalized_delta_rule", f"a is {list(a)} and b {list(b)}", allowed=f"{list(k)}, as k")
    return [(*q[:3], v[3]), state]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return all tensors as they were given, but decay in k's shape, with stride 0 along dims that it repeats."""
    q, k, v, state, decay, a, b = [*inputs, None, None, None][:7]
    assert k is not None
    if decay is not None:
        decay = decay.broadcast_to(k.shape)
    return [q, k, v, state, decay, a, b], list(outputs)


def keeps_state(types: Mapping[str, DType]) -> bool:
    """Return whether the state has the compute type of the other tensors."""
    return types["U"] is types["T"].compute


def run_rule(
    q: Any, k: Any, v: Any, state: Any, decay: Any, a: Any, b: Any, read_before: bool, inexact: float = 0.0
) -> tuple[Any, Any, Any, Any]:
    """Return (y, present state, error bounds of both), in eps of the compute type, in float64.

    An error of the state is carried on by the magnitudes of what multiplies it; each step adds the rounding of its own
    terms. `inexact` is how many eps off each input may be.
    """
    d, h, g = q.shape[3], q.shape[2], k.shape[2]
    shared, growth = h // g if g else 1, 4 + np.sqrt(d) + 3 * inexact
    s = state.astype(np.float64)
    off, y, bound = 0 * np.abs(s), np.zeros((*q.shape[:3], v.shape[3])), np.zeros((*q.shape[:3], v.shape[3]))
    w = np.broadcast_to(1.0 if decay is None else decay, k.shape)

    def read(i: int) -> None:
        heads, rough = np.repeat(s, shared, 1), np.repeat(off + growth * np.abs(s), shared, 1)
        y[:, i] = np.einsum("bhd,bhde->bhe", q[:, i], heads)
        bound[:, i] = np.einsum("bhd,bhde->bhe", np.abs(q[:, i]), rough)

    for i in range(q.shape[1]):
        if read_before:
            read(i)
        column, added = w[:, i, :, :, None], k[:, i, :, :, None] * v[:, i, :, None]
        kept, rough = column * s, np.abs(column) * (off + growth * np.abs(s)) + growth * np.abs(added)
        if a is not None:
            seen = np.einsum("bgd,bgde->bge", a[:, i], s)[:, :, None]
            blurred = np.einsum("bgd,bgde->bge", np.abs(a[:, i]), off + 2 * growth * np.abs(s))[:, :, None]
            kept, rough = kept + b[:, i, :, :, None] * seen, rough + np.abs(b[:, i, :, :, None]) * blurred
        s, off = kept + added, rough
        if not read_before:
            read(i)
    return y, s, bound, off + np.abs(s)


def _reference(q: Any, k: Any, v: Any, past_state: Any, decay: Any, a: Any, b: Any, read_before: bool) -> Any:
    return run_rule(q, k, v, past_state, decay, a, b, read_before)[:2]


def _scale(q: Any, k: Any, v: Any, past_state: Any, decay: Any, a: Any, b: Any, read_before: bool) -> Any:
    return run_rule(q, k, v, past_state, decay, a, b, read_before)[2:]


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    q, k, v = inputs[:3]
    assert q is not None and k is not None and v is not None
    corrected = len(inputs) > 5 and inputs[5] is not None
    return 2.0 * v.shape[3] * (q.numel + k.numel * (4 if corrected else 2))


def sample(
    b: int, t: int, h: int, g: int, d: int, e: int, given: str = "", size: str = "small", **attributes: Any
) -> Sample:
    """Return a sample; `given` names the optional inputs: w of a decay, h of a decay by head, a for a and b."""
    shapes: dict[str, Any] = {"q": (b, t, h, d), "k": (b, t, g, d), "v": (b, t, g, e), "past_state": (b, g, d, e)}
    if "w" in given or "h" in given:
        shapes["decay"] = (b, t, g, d) if "w" in given else (g, 1)
    if "a" in given:
        shapes |= {"a": (b, t, g, d), "b": (b, t, g, d)}
    return Sample(shapes, attributes, size=size)


_PLAIN = {"q": (2, 5, 4, 6), "k": (2, 5, 2, 6), "v": (2, 5, 2, 3), "past_state": (2, 2, 6, 3)}
_BOTH = {"y": (2, 5, 4, 3), "present_state": (2, 2, 6, 3)}

declare(
    "generalized_delta_rule",
    "GDLR",
    "q: T[b, t, h, d], k: T[b, t, g, d], v: T[b, t, g, e], past_state: U[b, g, d, e], decay?: T[*r],"
    " a?: T[b, t, g, d], b?: T[b, t, g, d] -> y: T[b, t, h, e], present_state: U[b, g, d, e]",
    {"T": FLOATS, "U": (F32, F64)},
    combinations=keeps_state,
    family="attention",
    doc=(
        "S ← diag(decay) S + b (aᵀ S) + k vᵀ and y = qᵀ S at each step of t (the generalized delta rule, a transition"
        " that is diagonal plus low rank: Peng et al. 2025, RWKV-7). S is a d × e matrix of each of g heads, past_state"
        " at the start (zeros for none) and present_state at the end, in the compute type. h heads of q share g of k"
        " and v. decay broadcasts to k; it is 1 where absent. a reads S before the step. All of linear attention,"
        " RetNet, GLA, Mamba-2, RWKV-5 to -7 and the (gated) delta rule are this, with inputs made for it."
    ),
    reference=_reference,
    tolerance=Tolerance(4, _scale),
    attrs=attrs("GDL1", flag("read_before", False, "y reads S before the step's update, as RWKV-5 and -6 do")),
    shapes=_shapes,
    normal_form=_normal_form,
    flops=_flops,
    domains=dict.fromkeys(("q", "k", "v", "past_state", "decay", "a", "b"), "unit"),
    samples=lambda: [
        sample(1, 4, 2, 2, 32, 32),
        sample(2, 5, 4, 2, 7, 5, "w"),
        sample(1, 9, 3, 3, 8, 33, "h", read_before=True),
        sample(2, 3, 2, 1, 33, 17, "wa"),
        sample(1, 4, 1, 1, 5, 6, "a", read_before=True),
        sample(1, 1, 2, 2, 130, 40, "wa"),
        sample(2, 0, 2, 2, 4, 4, "w"),
        sample(1, 3, 2, 2, 0, 4),
        sample(1, 3, 2, 2, 4, 0, "wa"),
        sample(0, 3, 2, 1, 4, 4),
        sample(2, 40, 4, 4, 64, 64, "w", "wide"),
        sample(1, 1, 8, 8, 128, 128, "wa", "medium"),
        sample(1, 512, 32, 32, 128, 128, "wa", "large"),
    ],
    errors=[
        ErrorCase({**_PLAIN, "q": (2, 5, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "k": (2, 5, 2, 5)}, BadTensorShape),
        ErrorCase({**_PLAIN, "v": (2, 4, 2, 3)}, BadTensorShape),
        ErrorCase({**_PLAIN, "q": (2, 5, 3, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "past_state": (2, 2, 3, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "decay": (3, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "a": (2, 5, 2, 6)}, InvalidArgument),
        ErrorCase({**_PLAIN, "a": (2, 5, 2, 6), "b": (2, 5, 1, 6)}, BadTensorShape),
        ErrorCase(_PLAIN, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase(_PLAIN, BadTensorDtype, dtypes={"T": F32, "U": F16}),
        ErrorCase(_PLAIN, BadTensorShape, outputs={**_BOTH, "y": (2, 5, 4, 6)}),
    ],
)
