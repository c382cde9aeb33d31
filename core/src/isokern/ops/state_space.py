"""Linear recurrences, each a scan: h = a h + b, and the selective state space model of Mamba made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag, integer
from ..declare.decomposition import Emitter, V
from ..declare.error_bound import EPS, Range, bounds, distance, exactly
from ..declare.normal_form import as_given, axis_of
from ..declare.registry import find
from ..dtypes import FLOATS, DType
from ..expr.tree import parse
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .generic_reference import growth
from .scan import LINEAR, along, carry, scan_scale


# h[t] = a[t] h[t - 1] + b[t]
def _recurrence_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    a, init = inputs[0], inputs[2] if len(inputs) > 2 else None
    axis = axis_of("linear_recurrence", values["axis"], len(a))
    rest = [d for i, d in enumerate(a) if i != axis]
    if init is not None and list(init) != rest:
        raise BadTensorShape("linear_recurrence", f"init is {list(init)}", allowed=f"{rest}, as a without the axis")
    return [a]


def _recurrence(a: Any, b: Any, init: Any, axis: int, reverse: bool, out: Sequence[TensorDesc]) -> Any:
    h = np.empty_like(a)
    factors, terms, made = (along(x, axis, reverse) for x in (a, b, h))
    state = np.zeros(factors.shape[1:]) if init is None else init
    for t, (factor, term) in enumerate(zip(factors, terms, strict=True)):
        state = carry(factor * state + term, out[0].dtype.compute)
        made[t] = state
    return h


def _recurrence_scale(a: Any, b: Any, init: Any, axis: int, reverse: bool, compute: DType) -> Any:
    return scan_scale(init, [a, b], axis, LINEAR, 0.0, reverse, False, compute)


declare(
    "linear_recurrence",
    "LREC",
    "a: T[*s], b: T[*s], init?: T[*r] -> h: T[*s]",
    {"T": FLOATS},
    family="structured",
    doc=(
        "h[t] = a[t] · h[t-1] + b[t] along an axis, from init (a's shape without the axis) or 0 on: the recurrence of"
        " state space models in diagonal form (S4D, Gu 2022; Mamba, Gu and Dao 2023) and of gated linear RNNs. With"
        " `reverse`, from the end. h is carried in the compute type."
    ),
    reference=_recurrence,
    tolerance=Tolerance(1, _recurrence_scale),
    attrs=attrs("LRE1", integer("axis", -1), flag("reverse", False, "from the end")),
    shapes=_recurrence_shapes,
    normal_form=as_given,
    decompose=lambda e, i, v, o: e("scan", i[2] if len(i) > 2 else None, i[0], i[1], body=LINEAR, **v),
    flops=lambda i, o: 2.0 * o[0].numel,
    domains={"a": "unit"},
    samples=lambda: [
        *(
            Sample({"a": s, "b": s}, {"axis": axis, "reverse": axis == 0})
            for s, axis in [((5,), -1), ((3, 37), 1), ((33, 5), 0), ((4, 0), 1), ((0, 4), 1)]
        ),
        Sample({"a": (2, 9, 4), "b": (2, 9, 4), "init": (2, 4)}, {"axis": 1}),
        Sample({"a": (100, 257), "b": (100, 257)}, size="wide"),
        *(Sample({"a": (n, n), "b": (n, n)}, size=size) for size, n in [("medium", 512), ("large", 2048)]),
    ],
    errors=[
        ErrorCase({"a": (3, 4), "b": (3, 4)}, InvalidArgument, {"axis": 2}),
        ErrorCase({"a": (), "b": ()}, InvalidArgument),
        ErrorCase({"a": (3, 4), "b": (3, 5)}, BadTensorShape),
        ErrorCase({"a": (3, 4), "b": (3, 4), "init": (4,)}, BadTensorShape),
    ],
)


# Mamba
def _selective_scan(
    u: Any,
    delta: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    z: Any,
    bias: Any,
    init: Any,
    delta_softplus: bool,
    out: Sequence[TensorDesc],
) -> tuple[Any, Any]:
    compute, y = out[0].dtype.compute, np.zeros(u.shape)
    steps = delta if bias is None else delta + bias[:, None]
    steps = np.logaddexp(steps, 0) if delta_softplus else steps
    state = np.zeros((*u.shape[:2], a.shape[1])) if init is None else init
    for t in range(u.shape[2]):
        step = steps[:, :, t, None]
        term = step * b[:, None, :, t] * u[:, :, t, None]
        state = carry(carry(np.exp(step * a), compute) * state + term, compute)
        y[:, :, t] = (state * c[:, None, :, t]).sum(-1)
    y = y if d is None else y + d[:, None] * u
    return (y if z is None else y * z / (1 + np.exp(-z))), state


def _pick(found: Range, place: Any) -> Range:
    return Range(*(end[place] for end in (found.value, found.low, found.high)))


def _selective_scale(
    u: Any,
    delta: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    z: Any,
    bias: Any,
    init: Any,
    delta_softplus: bool,
    compute: DType,
) -> tuple[Any, Any]:
    """Return the rounding errors of the decomposition's expressions, carried from each to the next."""

    def apply(body: str, *xs: Any) -> Range:
        return bounds(parse(body), {f"x{i}": x for i, x in enumerate(xs)}, compute)

    def call(name: str, x: Any) -> Range:
        expression = find(name).expression
        assert expression is not None
        return bounds(expression, {"x": x}, compute)

    steps = exactly(delta) if bias is None else apply("x0 + x1", delta, bias[:, None])
    steps = call("softplus", steps) if delta_softplus else steps
    state = exactly(np.zeros((*u.shape[:2], a.shape[1])) if init is None else init)
    found = Range(*(np.zeros(u.shape) for _ in range(3)))
    for t in range(u.shape[2]):
        step = _pick(steps, (..., t, None))
        factor, term = apply(_FACTOR, step, a), apply(_TERM, step, b[:, None, :, t], u[:, :, t, None])
        state = apply(LINEAR, factor, term, state)
        products = apply("x0 * x1", state, c[:, None, :, t])
        off = EPS * growth(products.value, (2,), 0.0)
        found.value[:, :, t] = products.value.sum(-1)
        found.low[:, :, t], found.high[:, :, t] = products.low.sum(-1) - off, products.high.sum(-1) + off
    found = found if d is None else apply("x0 + x1 * x2", found, d[:, None], u)
    found = found if z is None else apply("x0 * x1", found, call("silu", z))
    return distance(found), distance(state)


_FACTOR, _TERM = "exp(x0 * x1)", "x0 * x1 * x2"


def _selective(
    e: Emitter[V], inputs: Sequence[V | None], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, V]:
    given: list[V | None] = [*inputs, *[None] * (9 - len(inputs))]
    u, delta, a, b, c, d, z, bias, init = given
    assert u is not None and delta is not None and a is not None and b is not None and c is not None
    element = outputs[0].dtype
    wide, length = element.compute, u.spec.shape[2]
    start = None if init is None else e.cast(init, wide)
    if length == 0:
        rest = e.fill(outputs[1].shape, 0.0, element) if init is None else e("copy", init)
        return e.fill(outputs[0].shape, 0.0, element), rest
    steps = e.cast(delta, wide)
    steps = steps if bias is None else e.loop("bdl,d->bdl", "x0 + x1", steps, bias)
    steps = e("softplus", steps) if values["delta_softplus"] else steps
    factors = e.loop("bdl,dn->bdnl", _FACTOR, steps, a)
    states = e("scan", start, factors, e.loop("bdl,bnl,bdl->bdnl", _TERM, steps, b, u), body=LINEAR)
    y = e.loop("bdnl,bnl->bdl", "x0 * x1", states, c, combine="sum")
    y = y if d is None else e.loop("bdl,d,bdl->bdl", "x0 + x1 * x2", y, d, u)
    y = y if z is None else e.loop("bdl,bdl->bdl", "x0 * x1", y, e("silu", e.cast(z, wide)))
    last = e("slice", states, starts=(length - 1,), ends=(length,), axes=(3,))
    return e.cast(y, element), e.cast(e.collapse(last, (1, 1, 2)), element)


def _selective_sample(batch: int, dim: int, length: int, state: int, given: str = "", **fields: Any) -> Sample:
    """Return a sample with the optional inputs whose names are given."""
    wide, pair = (batch, dim, length), (batch, state, length)
    shapes = {"u": wide, "delta": wide, "a": (dim, state), "b": pair, "c": pair}
    others = {"d": (dim,), "z": wide, "bias": (dim,), "init": (batch, dim, state)}
    shapes |= {name: others[name] for name in given.split()}
    return Sample(shapes, {"delta_softplus": "bias" in shapes}, **fields)


_INPUTS = {"u": (2, 3, 4), "delta": (2, 3, 4), "a": (3, 5), "b": (2, 5, 4), "c": (2, 5, 4)}

declare(
    "selective_scan",
    "SSCN",
    (
        "u: T[batch, dim, length], delta: T[batch, dim, length], a: T[dim, state], b: T[batch, state, length],"
        " c: T[batch, state, length], d?: T[dim], z?: T[batch, dim, length], bias?: T[dim],"
        " init?: T[batch, dim, state] -> y: T[batch, dim, length], last: T[batch, dim, state]"
    ),
    {"T": FLOATS},
    family="structured",
    doc=(
        "The selective state space model of Mamba (Gu and Dao 2023): with steps s = delta + bias, or softplus of that"
        " with `delta_softplus`, h[t] = e^(s[t] a) · h[t-1] + s[t] b[t] u[t] for each of the `state` numbers of a"
        " channel, from init or 0 on; y[t] = Σ c[t] h[t] + d u[t], times silu(z[t]) where z is given. last is h after"
        " the last step. b and c are shared by all channels of a sequence."
    ),
    reference=_selective_scan,
    tolerance=Tolerance(2, _selective_scale),
    attrs=attrs("SSC1", flag("delta_softplus", False, "steps are softplus(delta + bias)")),
    normal_form=as_given,
    decompose=_selective,
    flops=lambda i, o: 9.0 * o[0].numel * o[1].shape[2],
    domains=dict.fromkeys(("a", "delta", "bias"), "unit"),
    samples=lambda: [
        _selective_sample(2, 3, 33, 4),
        _selective_sample(1, 5, 17, 3, "d z bias init"),
        _selective_sample(3, 2, 1, 16, "d init"),
        _selective_sample(1, 1, 5, 1, "z bias"),
        *(_selective_sample(*dims, "init") for dims in [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)]),
        _selective_sample(2, 3, 0, 4),
        _selective_sample(2, 40, 32, 16, "d z bias", size="wide"),
        _selective_sample(1, 64, 256, 16, "d z bias", size="medium"),
        _selective_sample(1, 1024, 512, 16, "d z bias", size="large"),
    ],
    errors=[
        ErrorCase({**_INPUTS, "u": (3, 4)}, BadTensorShape),
        ErrorCase({**_INPUTS, "delta": (2, 3, 5)}, BadTensorShape),
        ErrorCase({**_INPUTS, "a": (4, 5)}, BadTensorShape),
        ErrorCase({**_INPUTS, "b": (2, 4, 4)}, BadTensorShape),
        ErrorCase({**_INPUTS, "init": (2, 3, 4)}, BadTensorShape),
    ],
)
