"""rnn, gru and lstm: recurrent layers, made of one product that projects the inputs of all steps, and a recurrence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import Record
from ..declare.decomposition import Emitter, V
from ..declare.error_bound import EPS, Range, distance
from ..declare.normal_form import as_given
from ..dtypes import F32, FLOATS, I32, INDICES, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .gemm import accumulated_magnitude
from .recurrence import GATES, GRU, LETTERS, LSTM, RNN, check_directions, run_recurrence


def _shapes(where: str) -> Callable[..., list[tuple[int, ...]]]:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        t, b = inputs[0][:2]
        n = inputs[1][0]
        h = inputs[2][2]
        check_directions(where, n, values["direction"])
        last = (n, b, h)
        return [(t, n, b, h), last, last] if where == "lstm" else [(t, n, b, h), last]

    return shapes


def _layer(cell: str) -> Callable[..., Any]:
    def emit(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
        given: list[V | None] = [*inputs, *[None] * (8 - len(inputs))]
        x, w, r, bias, lengths, initial_h, initial_c, peepholes = given
        assert x is not None and w is not None and r is not None
        (t, b, width), (n, gates) = x.spec.shape, w.spec.shape[:2]
        rows, columns, compute = (
            e.reshape(x, (t * b, width)),
            e.reshape(w, (n * gates, width)),
            outputs[0].dtype.compute,
        )
        parts: list[V | None] = [None, None]
        if bias is not None:
            parts = [e("slice", bias, starts=(i * gates,), ends=((i + 1) * gates,), axes=(1,)) for i in (0, 1)]
        own = None if parts[0] is None else e.reshape(parts[0], (n * gates,))
        if compute is x.spec.dtype:
            product = e("linear", rows, columns, *([] if own is None else [own]))
        else:
            product = e.loop("ak,bk->ab", "x0 * x1", rows, columns, combine="sum", dtype=compute)
            product = product if own is None else e.loop("ab,b->ab", "x0 + x1", product, own)
        projected = e.reshape(product, (t, b, n, gates))
        others = [parts[1], initial_h, lengths, *([initial_c, peepholes] if cell == "lstm" else [])]
        while others and others[-1] is None:
            others.pop()
        return tuple(e.all(f"{cell}_recurrence", projected, r, *others, **values))

    return emit


def _run(cell: str, tensors: Sequence[Any], values: Mapping[str, Any], compute: DType) -> list[Any]:
    """Return what the recurrence returns for the range of the projection."""
    x, w, r, bias, lengths, initial_h, *rest = tensors
    n, gates, width = w.shape
    rows, columns = x.reshape(x.shape[0] * x.shape[1], width), w.reshape(n * gates, width)
    first, second = (None, None) if bias is None else (bias[:, :gates].reshape(-1), bias[:, gates:])
    with np.errstate(all="ignore"):
        product, off = rows @ columns.T, accumulated_magnitude(rows, columns.T)
        if first is not None:
            product, off = product + first, off + np.abs(first)
        ends = np.stack([product, product - EPS * off, product + EPS * off])
    projected = ends.reshape(3, *x.shape[:2], n, gates)
    return run_recurrence(cell, projected, [r, second, initial_h, lengths, *rest], values, compute)


def _reference(cell: str) -> Callable[..., Any]:
    def reference(*tensors: Any, out: Sequence[TensorDesc], **values: Any) -> Any:
        return tuple(v[0] for v in _run(cell, tensors, values, out[0].dtype.compute))

    return reference


def _scale(cell: str) -> Callable[..., Any]:
    def scale(*tensors: Any, compute: DType, **values: Any) -> Any:
        return tuple(distance(Range(*v)) for v in _run(cell, tensors, values, compute))

    return scale


def _flops(cell: str) -> Callable[..., float]:
    def flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
        x = inputs[0]
        assert x is not None
        return 2.0 * GATES[cell] * outputs[0].numel * (x.shape[2] + outputs[0].shape[3])

    return flops


def _sample(cell: str, t: int, b: int, i: int, h: int, given: str = "", size: str = "small", **values: Any) -> Sample:
    """Return a sample; `given` has the letters of optional inputs."""
    gates, n = GATES[cell] * h, 2 if values.get("direction") == "bidirectional" else 1
    shapes: dict[str, Any] = {"x": (t, b, i), "w": (n, gates, i), "r": (n, gates, h)}
    own = {"bias": (n, 2 * gates), "lengths": (b,), "peepholes": (n, 3 * h)}
    shapes |= {name: own.get(name, (n, b, h)) for name, letter in LETTERS.items() if letter in given}
    return Sample(shapes, values, {"lengths": f"length:{t}"}, size=size)


def _samples(cell: str, more: str, flags: Mapping[str, Any]) -> Callable[[], list[Sample]]:
    return lambda: [
        _sample(cell, 3, 2, 32, 32),
        _sample(cell, 5, 3, 9, 7, f"bhl{more}", direction="reverse", **flags),
        _sample(cell, 4, 5, 1, 17, f"bl{more[:1]}", direction="bidirectional"),
        _sample(cell, 2, 1, 33, 5, f"h{more[1:]}", direction="bidirectional", **flags),
        _sample(cell, 0, 2, 3, 4, "bh"),
        _sample(cell, 3, 0, 3, 4, "l"),
        _sample(cell, 3, 2, 0, 4, "b"),
        _sample(cell, 3, 2, 3, 0, "b"),
        _sample(cell, 3, 32, 40, 64, "b", "wide", direction="bidirectional", **flags),
        _sample(cell, 32, 8, 128, 128, "b", "medium"),
        _sample(cell, 128, 32, 512, 512, "b", "large"),
    ]


def _errors(cell: str) -> list[ErrorCase]:
    plain = dict(_sample(cell, 5, 3, 6, 4, "bhl").shapes)
    w, r = plain["w"], plain["r"]
    outputs = {"y": (5, 1, 3, 4), "y_h": (1, 3, 4), **({"y_c": (1, 3, 4)} if cell == "lstm" else {})}
    return [
        ErrorCase({**plain, "x": (5, 3, 7)}, BadTensorShape),
        ErrorCase({**plain, "x": (3, 6)}, BadTensorShape),
        ErrorCase({**plain, "w": (1, w[1] + 1, 6)}, BadTensorShape),
        ErrorCase({**plain, "r": (1, r[1] + 1, 4)}, BadTensorShape),
        ErrorCase({**plain, "w": (2, *w[1:])}, BadTensorShape),
        ErrorCase(plain, BadTensorShape, {"direction": "bidirectional"}),
        ErrorCase(plain, InvalidArgument, {"direction": "backward"}),
        ErrorCase({**plain, "bias": (1, r[1])}, BadTensorShape),
        ErrorCase({**plain, "lengths": (4,)}, BadTensorShape),
        ErrorCase(plain, BadTensorDtype, dtypes={"lengths": F32}),
        ErrorCase(plain, BadTensorDtype, dtypes={"T": I32}),
        ErrorCase(plain, BadTensorShape, outputs={**outputs, "y": (5, 3, 1, 4)}),
    ]


def _declare(cell: str, kind: str, record: Record, doc: str, more: str, flags: Mapping[str, Any]) -> Operator:
    gates = GATES[cell]
    width, twice = f"{gates} * h" if gates > 1 else "h", f"{2 * gates} * h"
    own, out = (", initial_c?: T[n, b, h], peepholes?: T[n, 3 * h]", ", y_c: T[n, b, h]") if more else ("", "")
    return declare(
        cell,
        kind,
        f"x: T[t, b, i], w: T[n, {width}, i], r: T[n, {width}, h], bias?: T[n, {twice}], lengths?: I[b],"
        f" initial_h?: T[n, b, h]{own} -> y: T[t, n, b, h], y_h: T[n, b, h]{out}",
        {"T": FLOATS, "I": INDICES},
        family="recurrent",
        doc=f"{doc} {_DOC}",
        reference=_reference(cell),
        tolerance=Tolerance(1, _scale(cell)),
        attrs=record,
        shapes=_shapes(cell),
        normal_form=as_given,
        decompose=_layer(cell),
        flops=_flops(cell),
        domains={"x": "unit", "w": "small", "r": "small", "bias": "unit", "initial_h": "unit", "initial_c": "unit"},
        samples=_samples(cell, more, flags),
        errors=_errors(cell),
        device_error="lengths[{at}] is {value}, out of range for the steps",
    )


_DOC = (
    "x is a sequence of t inputs; w projects them, r is the matrix of the recurrence, and bias has both of these'"
    " biases, of w first; n is 1 direction, or 2 with direction=bidirectional. y has h of every step, y_h that of the"
    " last one in its direction; a state begins with the initial one or 0. lengths (ONNX sequence_lens) is how many"
    " steps each sequence has, where not all t; y is 0 behind them. A length out of range counts as 0 and raises"
    " InvalidArgument at the call on a synchronous device, else at the next synchronise."
)

rnn = _declare("rnn", "RNN_", RNN, "h ← tanh(w x + r h + bias), or relu of it (ONNX RNN).", "", {"activation": "relu"})
gru = _declare(
    "gru",
    "GRU_",
    GRU,
    "The gated recurrent unit (Cho et al. 2014; ONNX GRU), with gates z, r, n in the rows of w and r: see"
    " `gru_recurrence`.",
    "",
    {"linear_before_reset": True},
)
lstm = _declare(
    "lstm",
    "LSTM",
    LSTM,
    "Long short-term memory (Hochreiter and Schmidhuber 1997; ONNX LSTM), with gates i, o, f, g in the rows of w and r:"
    " see `lstm_recurrence`. y_c is the cell's state after the last step.",
    "cp",
    {},
)
