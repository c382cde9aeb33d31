"""The recurrences of RNN, GRU and LSTM over time, on inputs that are projected already; the kernel stem `recurrence`.

Normal form: the signature's dims, time first. The table is y, y_h (y_c of lstm), x, r, bias, initial_h, lengths
(initial_c, peepholes of lstm).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import Record, attrs, choice, flag
from ..declare.error_bound import EPS, Range, bounds, distance, exactly
from ..declare.normal_form import as_given
from ..declare.registry import find
from ..dtypes import F16, F32, F64, FLOATS, I32, INDICES, DType
from ..expr.tree import parse
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .scan import carry

DIRECTIONS = ("forward", "reverse", "bidirectional")
DIRECTION = choice("direction", DIRECTIONS, "forward", "from the first step, from the last, or a direction each")
RNN = attrs("RNR1", DIRECTION, choice("activation", ("tanh", "relu"), "tanh", "the function of the new state"))
GRU = attrs("GRR1", DIRECTION, flag("linear_before_reset", False, "reset the product with h, not h (PyTorch's GRU)"))
LSTM = attrs("LSR1", DIRECTION)
Step = Callable[..., tuple[Range, ...]]


def check_directions(where: str, given: int, direction: str) -> None:
    """Raise BadTensorShape where dim n is not the number of directions."""
    count = 2 if direction == "bidirectional" else 1
    if given != count:
        raise BadTensorShape(where, f"dim n is {given} with direction={direction}", allowed=f"{count}")


def _shapes(where: str) -> Callable[..., list[tuple[int, ...]]]:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        t, b, n = inputs[0][:3]
        h = inputs[1][2]
        check_directions(where, n, values["direction"])
        last = (n, b, h)
        return [(t, n, b, h), last, last] if where == "lstm_recurrence" else [(t, n, b, h), last]

    return shapes


def keeps_gates(types: Mapping[str, DType]) -> bool:
    """Return whether x has the compute type of the other tensors."""
    return types["U"] is types["T"].compute


# The reference: ranges of values (see declare/error_bound.py), for which `apply` rounds as a kernel may
def _apply(body: str, *xs: Any, compute: DType) -> Range:
    return bounds(parse(body), {f"x{i}": x for i, x in enumerate(xs)}, compute)


def _call(name: str, x: Range, compute: DType) -> Range:
    expression = find(name).expression
    assert expression is not None
    return bounds(expression, {"x": x}, compute)


def _multiply(state: Range, r: Any) -> Range:
    """Return state @ rᵀ, whose terms are added in any order."""
    value, size = state.value @ r.T, np.maximum(np.abs(state.low), np.abs(state.high))
    off = np.maximum(state.high - state.value, state.value - state.low) @ np.abs(r.T)
    off = off + EPS * (2 + np.sqrt(r.shape[-1])) * (size @ np.abs(r.T))
    return Range(value, value - off, value + off)


def _part(given: Range, gates: int, i: int) -> Range:
    """Return the columns of gate i."""
    return Range(*(np.split(end, gates, -1)[i] for end in (given.value, given.low, given.high)))


def _step_rnn(x: Any, r: Any, bias: Any, states: Sequence[Range], values: Mapping[str, Any], compute: DType) -> Any:
    total = _apply("x0 + (x1 + x2)", x, _multiply(states[0], r), bias, compute=compute)
    return (_call(values["activation"], total, compute),)


def _step_gru(x: Any, r: Any, bias: Any, states: Sequence[Range], values: Mapping[str, Any], compute: DType) -> Any:
    (h,) = states
    width = r.shape[-1]
    first = _apply("x0 + (x1 + x2)", x, _multiply(h, r), bias, compute=compute)
    update, reset = (_call("sigmoid", _part(first, 3, i), compute) for i in (0, 1))
    given, own, constant = _part(x, 3, 2), r[2 * width :], bias[2 * width :]
    if values["linear_before_reset"]:
        new = _apply("x0 + x3 * (x1 + x2)", given, _multiply(h, own), constant, reset, compute=compute)
    else:
        kept = _apply("x0 * x1", reset, h, compute=compute)
        new = _apply("x0 + (x1 + x2)", given, _multiply(kept, own), constant, compute=compute)
    return (_apply("(1 - x0) * x1 + x0 * x2", update, _call("tanh", new, compute), h, compute=compute),)


def _step_lstm(x: Any, r: Any, bias: Any, states: Sequence[Range], values: Mapping[str, Any], compute: DType) -> Any:
    h, c = states
    first = _apply("x0 + (x1 + x2)", x, _multiply(h, r), bias, compute=compute)
    entry, out, forget, new = (_part(first, 4, i) for i in range(4))
    p = np.split(values["peepholes"][values["d"]], 3)  # of i, o, f
    entry, forget = (_apply("x0 + x1 * x2", g, w, c, compute=compute) for g, w in ((entry, p[0]), (forget, p[2])))
    entry, forget = _call("sigmoid", entry, compute), _call("sigmoid", forget, compute)
    c = _apply("x0 * x1 + x2 * x3", forget, c, entry, _call("tanh", new, compute), compute=compute)
    out = _call("sigmoid", _apply("x0 + x1 * x2", out, p[1], c, compute=compute), compute)
    return _apply("x0 * x1", out, _call("tanh", c, compute), compute=compute), c


def stack(given: Range) -> Any:
    """Return value, low and high of a range along a new first dim."""
    return np.stack(np.broadcast_arrays(given.value, given.low, given.high))


def run_recurrence(cell: str, x: Any, tensors: Sequence[Any], values: Mapping[str, Any], compute: DType) -> list[Any]:
    """Return y and the states at the end, each as a stack of value, low and high; so is x. `tensors` are the others.

    A length out of range counts as 0.
    """
    r, bias, initial_h, lengths, *rest = tensors
    (t, b, n), h = x.shape[1:4], r.shape[2]
    bias = np.zeros(r.shape[:2]) if bias is None else bias
    lengths = np.full(b, t) if lengths is None else np.where((lengths >= 0) & (lengths <= t), lengths, 0)
    initial, own = [initial_h, *rest[:1]], dict(values)
    if cell == "lstm":
        own["peepholes"] = np.zeros((n, 3 * h)) if rest[1] is None else rest[1]
    y, states = np.zeros((3, t, n, b, h)), [np.zeros((3, n, b, h)) for _ in initial]
    with np.errstate(all="ignore"):
        for d in range(n):
            for state, start in zip(states, initial, strict=True):
                state[:, d] = 0 if start is None else start[d]
            for i in range(t):
                live = np.nonzero(i < lengths)[0]
                place = lengths[live] - 1 - i if values["direction"] == "reverse" or d == 1 else np.full(len(live), i)
                before = [Range(*state[:, d, live]) for state in states]
                made = STEPS[cell](Range(*x[:, place, live, d]), r[d], bias[d], before, {**own, "d": d}, compute)
                for state, new in zip(states, made, strict=True):
                    state[:, d, live] = carry(stack(new), compute)
                y[:, place, d, live] = states[0][:, d, live]
    return [y, *states]


GATES = {"rnn": 1, "gru": 3, "lstm": 4}
STEPS: dict[str, Step] = {"rnn": _step_rnn, "gru": _step_gru, "lstm": _step_lstm}


def _reference(cell: str) -> Callable[..., Any]:
    def reference(x: Any, *tensors: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
        found = run_recurrence(cell, stack(exactly(x)), tensors, values, out[0].dtype.compute)
        return tuple(v[0] for v in found)

    return reference


def _scale(cell: str) -> Callable[..., Any]:
    def scale(x: Any, *tensors: Any, compute: DType, **values: Any) -> Any:
        return tuple(distance(Range(*v)) for v in run_recurrence(cell, stack(exactly(x)), tensors, values, compute))

    return scale


# The declarations
LETTERS = {"bias": "b", "initial_h": "h", "lengths": "l", "initial_c": "c", "peepholes": "p"}


def _sample(cell: str, t: int, b: int, h: int, given: str = "", size: str = "small", **values: Any) -> Sample:
    """Return a sample; `given` has the letters of optional inputs."""
    gates, n = GATES[cell], 2 if values.get("direction") == "bidirectional" else 1
    shapes: dict[str, Any] = {"x": (t, b, n, gates * h), "r": (n, gates * h, h)}
    own = {"bias": (n, gates * h), "lengths": (b,), "peepholes": (n, 3 * h)}
    shapes |= {name: own.get(name, (n, b, h)) for name, letter in LETTERS.items() if letter in given}
    return Sample(shapes, values, {"lengths": f"length:{t}"}, size=size)


def _samples(cell: str, more: str, flags: Mapping[str, Any]) -> Callable[[], list[Sample]]:
    """Return the samples of a cell; `more` has the letters of the inputs that it alone has, `flags` its attribute."""
    return lambda: [
        _sample(cell, 3, 2, 32),
        _sample(cell, 5, 3, 7, f"bhl{more}", direction="reverse", **flags),
        _sample(cell, 4, 5, 17, f"bl{more[:1]}", direction="bidirectional"),
        _sample(cell, 6, 1, 33, f"h{more[1:]}", direction="bidirectional", **flags),
        _sample(cell, 2, 9, 1, "b", **flags),
        _sample(cell, 3, 1, 300, f"bh{more}"),  # one sequence, whose units several groups of items may share
        _sample(cell, 0, 2, 4, "h"),
        _sample(cell, 3, 0, 4, "l"),
        _sample(cell, 3, 2, 0, "b", **flags),
        _sample(cell, 4, 40, 80, f"bl{more}", "wide", direction="bidirectional", **flags),
        _sample(cell, 32, 8, 128, "b", "medium"),
        _sample(cell, 128, 32, 512, "b", "large"),
    ]


def _errors(cell: str) -> list[ErrorCase]:
    plain = dict(_sample(cell, 5, 3, 4, "bhl").shapes)
    x, r = plain["x"], plain["r"]
    outputs = {"y": (5, 1, 3, 4), "y_h": (1, 3, 4), **({"y_c": (1, 3, 4)} if cell == "lstm" else {})}
    return [
        ErrorCase({**plain, "x": x[1:]}, BadTensorShape),
        ErrorCase({**plain, "x": (*x[:3], x[3] + 1)}, BadTensorShape),
        ErrorCase({**plain, "r": (1, r[1] + 1, 4)}, BadTensorShape),
        ErrorCase({**plain, "r": (2, *r[1:])}, BadTensorShape),
        ErrorCase(plain, BadTensorShape, {"direction": "bidirectional"}),
        ErrorCase(plain, InvalidArgument, {"direction": "backward"}),
        ErrorCase({**plain, "bias": (1, 4 * r[1])}, BadTensorShape),
        ErrorCase({**plain, "initial_h": (1, 3, 5)}, BadTensorShape),
        ErrorCase({**plain, "lengths": (4,)}, BadTensorShape),
        ErrorCase(plain, BadTensorDtype, dtypes={"lengths": F32}),
        ErrorCase(plain, BadTensorDtype, dtypes={"T": F32, "U": F16}),
        ErrorCase(plain, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase(plain, BadTensorShape, outputs={**outputs, "y": (5, 3, 1, 4)}),
    ]


def _declare(name: str, kind: str, record: Record, doc: str, more: str = "", flags: Mapping[str, Any] = {}) -> Operator:
    cell = name.removesuffix("_recurrence")
    gates = GATES[cell]
    own = ("initial_c?: T[n, b, h], peepholes?: T[n, 3 * h]", ", y_c: T[n, b, h]") if cell == "lstm" else ("", "")
    width = f"{gates} * h" if gates > 1 else "h"
    return declare(
        name,
        kind,
        f"x: U[t, b, n, {width}], r: T[n, {width}, h], bias?: T[n, {width}], initial_h?: T[n, b, h], lengths?: I[b]"
        f"{', ' if own[0] else ''}{own[0]} -> y: T[t, n, b, h], y_h: T[n, b, h]{own[1]}",
        {"T": FLOATS, "U": (F32, F64), "I": INDICES},
        combinations=keeps_gates,
        family="recurrent",
        stem="recurrence",
        doc=f"{doc} {_DOC}",
        reference=_reference(cell),
        tolerance=Tolerance(1, _scale(cell)),
        attrs=record,
        shapes=_shapes(name),
        normal_form=as_given,
        flops=lambda i, o: 2.0 * gates * o[0].numel * o[0].shape[3],
        domains={"x": "unit", "r": "small", "bias": "unit", "initial_h": "unit", "initial_c": "unit"},
        samples=_samples(cell, more, flags),
        errors=_errors(cell),
        device_error="lengths[{at}] is {value}, out of range for the steps",
    )


_DOC = (
    "x is the projected input, with its biases, in the compute type; n is 1 direction, or 2 of which the second goes"
    " from the last step on. y has h of every step, y_h that of the last one in its direction; h begins with initial_h"
    " or 0, and is carried in the compute type. lengths is how many steps each sequence has, where not all t: a"
    " reversed one begins at its own last step, and y is 0 behind it. A length out of range counts as 0 and raises"
    " InvalidArgument at the call on a synchronous device, else at the next synchronise."
)

rnn_recurrence = _declare(
    "rnn_recurrence",
    "RNNR",
    RNN,
    "h ← tanh(x + r h + bias), or relu of it: the recurrence of Elman's network (1990).",
    flags={"activation": "relu"},
)
gru_recurrence = _declare(
    "gru_recurrence",
    "GRUR",
    GRU,
    "With gates z, r, n of x, r and bias: z = σ(x + r h + bias), likewise r, n = tanh(x + r (r ⊙ h) + bias), or with"
    " `linear_before_reset` tanh(x + r ⊙ (r h + bias)), and h ← (1 - z) ⊙ n + z ⊙ h (Cho et al. 2014; ONNX GRU).",
    flags={"linear_before_reset": True},
)
lstm_recurrence = _declare(
    "lstm_recurrence",
    "LSTR",
    LSTM,
    "With gates i, o, f, g of x, r and bias: i = σ(x + r h + bias), likewise o and f, g = tanh(x + r h + bias),"
    " c ← f ⊙ c + i ⊙ g and h ← o ⊙ tanh(c) (Hochreiter and Schmidhuber 1997; ONNX LSTM). peepholes, of i, o, f, add"
    " their product with c to the gates (Gers and Schmidhuber 2000). y_c is c after the last step.",
    "cp",
)
