"""ssd_scan: the state space model of Mamba-2, whose decay is one number a head: a linear attention with a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag
from ..declare.decomposition import Emitter, V
from ..declare.error_bound import bounds, exactly
from ..declare.normal_form import as_given
from ..declare.registry import find
from ..dtypes import F64, FLOATS, I32
from ..expr.tree import parse
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape
from .generalized_delta_rule import run_rule
from .linear_attention import measure


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    x, b = inputs[0], inputs[3]
    heads, groups = x[2], b[2]
    if (heads % groups if groups else heads) != 0:
        raise BadTensorShape(
            "ssd_scan", f"{heads} heads of x share {groups} of b and c", allowed=f"a divisor of {heads}"
        )
    return [x, (x[0], heads, b[3], x[3])]


def _scan(
    x: Any, dt: Any, a: Any, b: Any, c: Any, d: Any, z: Any, bias: Any, init: Any, *, dt_softplus: bool
) -> tuple[Any, Any, Any, Any]:
    """Return (y, last, error bounds of both), in eps of the compute type."""
    softplus, silu = find("softplus").expression, find("silu").expression
    assert softplus is not None and silu is not None
    steps = exactly(dt) if bias is None else bounds(parse("x0 + x1"), {"x0": dt, "x1": bias}, F64)
    steps = bounds(softplus, {"x": steps}, F64) if dt_softplus else steps
    factor = bounds(parse("exp(x0 * x1)"), {"x0": steps, "x1": a}, F64)
    off = 2 + measure(steps) + measure(factor)
    share = x.shape[2] // max(1, b.shape[2])
    k, q = np.repeat(b, share, 2) * steps.value[..., None], np.repeat(c, share, 2)
    state = np.zeros((x.shape[0], x.shape[2], b.shape[3], x.shape[3])) if init is None else init
    decay = np.broadcast_to(factor.value[..., None], k.shape)
    y, last, far, state_far = run_rule(q, k, x, state, decay, None, None, False, off)
    if d is not None:
        y, far = y + d[:, None] * x, far + np.abs(y) + np.abs(d[:, None] * x)
    if z is not None:
        gate = bounds(silu, {"x": z}, F64)
        y, far = y * gate.value, far * np.abs(gate.value) + (1 + measure(gate)) * np.abs(y * gate.value)
    return y, last, far, state_far


def _loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> tuple[V, V]:
    given: list[V | None] = [*inputs, *[None] * (9 - len(inputs))]
    x, dt, a, b, c, d, z, bias, init = given
    assert x is not None and dt is not None and a is not None and b is not None and c is not None
    element, (batch, length, heads, _) = outputs[0].dtype, x.spec.shape
    wide, groups, n = element.compute, b.spec.shape[2], b.spec.shape[3]
    steps = e.cast(dt, wide)
    steps = steps if bias is None else e.loop("blh,h->blh", "x0 + x1", steps, bias)
    steps = e("softplus", steps) if values["dt_softplus"] else steps
    decay = e.reshape(e.loop("blh,h->blh", "exp(x0 * x1)", steps, a), (batch, length, heads, 1))
    share = heads // max(1, groups)
    own = e.reshape(steps, (batch, length, groups, share))
    k = e.reshape(e.loop("blgr,blgn->blgrn", "x0 * x1", own, b), (batch, length, heads, n))
    read = e.reshape(e.cast(c, wide), (batch, length, groups, 1, n))
    q = e.reshape(e.repeat(read, (batch, length, groups, share, n)), (batch, length, heads, n))
    start = e.fill(outputs[1].shape, 0.0, wide) if init is None else e.cast(init, wide)
    y, last = e.all("generalized_delta_rule", q, k, e.cast(x, wide), start, decay)
    y = y if d is None else e.loop("blhp,h,blhp->blhp", "x0 + x1 * x2", y, d, x)
    y = y if z is None else e.loop("blhp,blhp->blhp", "x0 * x1", y, e("silu", e.cast(z, wide)))
    return e.cast(y, element), e.cast(last, element)


def _sample(
    batch: int, length: int, heads: int, dim: int, groups: int, n: int, given: str = "", **fields: Any
) -> Sample:
    """Return a sample with the optional inputs whose names are given."""
    wide, pair = (batch, length, heads, dim), (batch, length, groups, n)
    shapes = {"x": wide, "dt": wide[:3], "a": (heads,), "b": pair, "c": pair}
    others = {"d": (heads,), "z": wide, "bias": (heads,), "init": (batch, heads, n, dim)}
    shapes |= {name: others[name] for name in given.split()}
    return Sample(shapes, {"dt_softplus": "bias" in shapes}, **fields)


_PLAIN = dict(_sample(2, 5, 4, 3, 2, 6, "d z bias init").shapes)

declare(
    "ssd_scan",
    "SSDS",
    "x: T[batch, length, heads, dim], dt: T[batch, length, heads], a: T[heads], b: T[batch, length, groups, state],"
    " c: T[batch, length, groups, state], d?: T[heads], z?: T[batch, length, heads, dim], bias?: T[heads],"
    " init?: T[batch, heads, state, dim] -> y: T[batch, length, heads, dim], last: T[batch, heads, state, dim]",
    {"T": FLOATS},
    family="structured",
    doc=(
        "The state space model of Mamba-2 (Dao and Gu 2024, state space duality): with steps s = dt + bias, or softplus"
        " of that with `dt_softplus`, S ← e^(s a) S + s b xᵀ for each head, from init or 0 on, and y = Sᵀ c + d x,"
        " times silu(z) where z is given. The heads of x share groups of b and c; a and d are a number for each head."
        " last is S after the last step."
    ),
    reference=lambda *given, dt_softplus: _scan(*given, dt_softplus=dt_softplus)[:2],
    tolerance=Tolerance(4, lambda *given, dt_softplus: _scan(*given, dt_softplus=dt_softplus)[2:]),
    attrs=attrs("SSD1", flag("dt_softplus", False, "steps are softplus(dt + bias)")),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_loops,
    flops=lambda i, o: 6.0 * o[0].numel * o[1].shape[2],
    domains=dict.fromkeys(("x", "dt", "a", "b", "c", "d", "bias", "init"), "unit"),
    samples=lambda: [
        _sample(1, 4, 2, 32, 1, 32),
        _sample(2, 5, 4, 3, 2, 7, "d z bias init"),
        _sample(1, 9, 3, 33, 3, 5, "d init"),
        _sample(1, 1, 2, 5, 1, 1, "z bias"),
        *(_sample(*dims, "init") for dims in [(0, 2, 2, 3, 1, 4), (2, 0, 2, 3, 1, 4), (2, 3, 2, 0, 1, 4)]),
        _sample(2, 3, 2, 3, 1, 0, "d"),
        _sample(2, 3, 0, 3, 0, 4),
        _sample(2, 24, 4, 64, 1, 64, "d z bias", size="wide"),
        _sample(1, 64, 8, 64, 1, 64, "d z bias", size="medium"),
        _sample(1, 512, 32, 64, 1, 128, "d z bias", size="large"),
    ],
    errors=[
        ErrorCase({**_PLAIN, "x": (2, 5, 4)}, BadTensorShape),
        ErrorCase({**_PLAIN, "dt": (2, 5, 3)}, BadTensorShape),
        ErrorCase({**_PLAIN, "a": (4, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "b": (2, 5, 3, 6), "c": (2, 5, 3, 6)}, BadTensorShape),
        ErrorCase({**_PLAIN, "c": (2, 5, 2, 5)}, BadTensorShape),
        ErrorCase({**_PLAIN, "init": (2, 4, 3, 6)}, BadTensorShape),
        ErrorCase(_PLAIN, BadTensorDtype, dtypes={"T": I32}),
    ],
)
