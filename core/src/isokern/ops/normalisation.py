"""Normalisations that are made of others: group, instance and mean-variance norms, unit vectors, softmax with sinks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer, integers, number
from ..declare.decomposition import LETTERS, Emitter, V, constant
from ..declare.normal_form import as_given, axis_of
from ..declare.registry import find
from ..dtypes import F32, FLOATS, DType
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .layer_norm import layer_norm
from .rms_norm import rms_norm, scale as rms_scale

Shape = tuple[int, ...]
EPS = number("eps", 1e-5, "added to the variance", minimum=0)


def _in_groups(x: Any, groups: int) -> Any:
    return x.reshape(x.shape[0], groups, -1)


def _by_channel(v: Any, x: Any) -> Any:
    return v.reshape(-1, *[1] * (x.ndim - 2))


def _group_norm(x: Any, w: Any, bias: Any, eps: float, groups: int) -> Any:
    with np.errstate(all="ignore"):
        y = layer_norm.reference(x.reshape(*_rows(x, groups)), None, None, eps).reshape(x.shape)
    y = y if w is None else y * _by_channel(w, x)
    return y if bias is None else y + _by_channel(bias, x)


def _rows(x: Any, groups: int) -> Shape:
    return x.shape[0] * groups, math.prod(x.shape[1:]) // max(1, groups)


def _group_scale(x: Any, w: Any, bias: Any, eps: float, groups: int) -> Any:
    assert layer_norm.tolerance.scale is not None
    size = layer_norm.tolerance.scale(x.reshape(*_rows(x, groups)), None, None, eps).reshape(x.shape)
    size = size if w is None else size * np.abs(_by_channel(w, x))
    return size if bias is None else size + np.abs(_by_channel(bias, x))


def _normalize(e: Emitter[V], x: V, w: V | None, bias: V | None, groups: int, eps: float, y: TensorDesc) -> V:
    """Emit layer_norm of each group in the compute type, and each channel's factor and bias."""
    wide = y.dtype.compute
    flat = e.reshape(x, (y.shape[0] * groups, math.prod(y.shape[1:]) // max(1, groups)))
    made = e.reshape(e("layer_norm", e.cast(flat, wide), eps=eps), y.shape)
    loops, body, given = LETTERS[: y.ndim], "x0", [made]
    for mark, operand in (("*", w), ("+", bias)):
        if operand is not None:
            body = f"{body} {mark} x{len(given)}"
            given.append(operand)
    if len(given) == 1:
        return e.cast(made, y.dtype)
    return e.loop(f"{loops}{f',{loops[1]}' * (len(given) - 1)}->{loops}", body, *given, dtype=y.dtype)


def _group_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x = inputs[0]
    if x[1] % values["groups"]:
        raise BadTensorShape("group_norm", f"x has {x[1]} channels", allowed=f"a multiple of {values['groups']}")
    return [x]


def _group_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w, bias = [*inputs, None, None][:3]
    assert x is not None
    return _normalize(e, x, w, bias, values["groups"], values["eps"], outputs[0])


def _instance_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w, bias = [*inputs, None, None][:3]
    assert x is not None
    return _normalize(e, x, w, bias, x.spec.shape[1], values["eps"], outputs[0])


CHANNELS = "x: T[n, c, *s], w?: T[c], bias?: T[c] -> y: T[n, c, *s]"
IMAGES: SampleTable = [
    ((2, 6), 2, {"groups": 2}, "small"),
    ((2, 6, 4), 2, {"groups": 3}, "small"),
    ((1, 4, 5, 7), 1, {"groups": 1, "eps": 1e-3}, "small"),
    ((2, 4, 3, 3), 0, {"groups": 4}, "small"),
    ((0, 4, 2), 2, {"groups": 2}, "small"),
    ((2, 4, 0), 2, {"groups": 2}, "small"),
    ((2, 2, 3, 1, 2, 1, 2, 2), 2, {"groups": 2}, "small"),
    ((1, 2, 1025), 2, {"groups": 1}, "small"),
    ((2, 32, 101, 99), 2, {"groups": 8}, "wide"),
]


def _image(x: Shape, given: int, values: Mapping[str, Any], size: str) -> Sample:
    shapes = {"x": x, **({"w": x[1:2]} if given > 0 else {}), **({"bias": x[1:2]} if given > 1 else {})}
    return Sample(shapes, values, size=size)


CHANNEL_ERRORS = [
    ErrorCase({"x": (2, 4), "w": (2,)}, BadTensorShape),
    ErrorCase({"x": (2, 4), "w": (4,), "bias": (2,)}, BadTensorShape),
    ErrorCase({"x": (4,)}, BadTensorShape),
    ErrorCase({"x": (2, 4)}, InvalidArgument, {"eps": -1}),
]

declare(
    "group_norm",
    "GRPN",
    CHANNELS,
    {"T": FLOATS},
    family="normalization",
    doc="(x - mean) / sqrt(variance + eps) · w + bias, by groups of channels of each item (Wu & He 2018).",
    reference=_group_norm,
    tolerance=Tolerance(16, _group_scale),
    attrs=attrs("GPN1", EPS, integer("groups", 1, "of channels, each normalised by itself", minimum=1)),
    shapes=_group_shapes,
    normal_form=as_given,
    decompose=_group_parts,
    samples=lambda: [_image(*row) for row in IMAGES],
    errors=[
        *CHANNEL_ERRORS,
        ErrorCase({"x": (2, 4)}, BadTensorShape, {"groups": 3}),
        ErrorCase({"x": (2, 4)}, InvalidArgument, {"groups": 0}),
    ],
)

declare(
    "instance_norm",
    "INSN",
    CHANNELS,
    {"T": FLOATS},
    family="normalization",
    stem="group_norm",
    doc="(x - mean) / sqrt(variance + eps) · w + bias, each channel of each item by itself (Ulyanov et al. 2016).",
    reference=lambda x, w, bias, eps: _group_norm(x, w, bias, eps, x.shape[1]),
    tolerance=Tolerance(16, lambda x, w, bias, eps: _group_scale(x, w, bias, eps, x.shape[1])),
    attrs=attrs("INN1", EPS),
    normal_form=as_given,
    decompose=_instance_parts,
    samples=lambda: [
        _image(x, n, {k: v for k, v in values.items() if k != "groups"}, size)
        for x, n, values, size in [*IMAGES[1:], ((2, 0, 3), 2, {}, "small")]
    ],
    errors=CHANNEL_ERRORS,
)


def _variance_axes(where: str, rank: int, values: Mapping[str, Any]) -> list[int]:
    axes = [axis_of(where, a, rank) for a in values["axes"]]
    if len(set(axes)) < len(axes):
        raise InvalidArgument(where, f"axes {values['axes']} name one twice", allowed="each once")
    return axes


def _variance_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    _variance_axes("mean_variance_normalize", len(inputs[0]), values)
    return [inputs[0]]


def _axes_last(x: Any, axes: Sequence[int]) -> tuple[Any, list[int]]:
    """Return rows of what the axes span, and the order of dims that they come from."""
    axes = [a % x.ndim for a in axes]
    order = [i for i in range(x.ndim) if i not in axes] + axes
    moved = x.transpose(order)
    rows = math.prod(moved.shape[: x.ndim - len(axes)])
    return moved.reshape(rows, math.prod(moved.shape[x.ndim - len(axes) :])), order


def _along(function: Any, x: Any, axes: Any, eps: float) -> Any:
    rows, order = _axes_last(x, axes)
    with np.errstate(all="ignore"):
        made = function(rows, None, None, eps).reshape([x.shape[i] for i in order])
    return made.transpose(np.argsort(order))


def _variance(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y = inputs, outputs[0]
    axes = [a % y.ndim for a in values["axes"]]
    order = [i for i in range(y.ndim) if i not in axes] + axes
    shape = [y.shape[i] for i in order]
    at = y.ndim - len(axes)
    moved = e("transpose", e.cast(x, y.dtype.compute), axes=tuple(order))
    made = e("layer_norm", e.reshape(moved, (math.prod(shape[:at]), math.prod(shape[at:]))), eps=values["eps"])
    back = e("transpose", e.reshape(made, shape), axes=tuple(order.index(i) for i in range(y.ndim)))
    return e.cast(back, y.dtype)


declare(
    "mean_variance_normalize",
    "MVNR",
    "x: T[*s] -> y: T[*s]",
    {"T": FLOATS},
    family="normalization",
    doc="(x - mean) / sqrt(variance + eps) over axes (ONNX MeanVarianceNormalization, eps under the root).",
    reference=lambda x, axes, eps: _along(layer_norm.reference, x, axes, eps),
    tolerance=Tolerance(16, lambda x, axes, eps: _along(layer_norm.tolerance.scale, x, axes, eps)),
    attrs=attrs("MVN1", integers("axes", (0, 2, 3), "over which the mean is taken"), EPS),
    shapes=_variance_shapes,
    normal_form=as_given,
    decompose=_variance,
    samples=lambda: [
        Sample({"x": x}, {"axes": axes}, size=size)
        for x, axes, size in [
            ((7,), (0,), "small"),
            ((3, 5), (0,), "small"),
            ((2, 3, 4, 5), (0, 2, 3), "small"),
            ((2, 3, 4), (-1, 0), "small"),
            ((2, 0, 3), (2,), "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), (0, 4, 7), "small"),
            ((2, 1025), (1,), "small"),
            ((4, 16, 61, 59), (0, 2, 3), "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (0, -2)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (0,), "eps": -1}),
    ],
)


def _add_layer_norm(x: Any, residual: Any, w: Any, bias: Any, eps: float, out: Sequence[TensorDesc]) -> Any:
    total = x + residual
    compute = out[1].dtype.compute
    held = total.astype(compute.numpy).astype(out[1].dtype.numpy).astype(np.float64)
    return layer_norm.reference(held, w, bias, eps), total


def _add_layer_scale(x: Any, residual: Any, w: Any, bias: Any, eps: float) -> Any:
    assert layer_norm.tolerance.scale is not None
    return layer_norm.tolerance.scale(x + residual, w, bias, eps), 0.0


def _add_layer_parts(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> Any:
    x, residual, *rest = inputs
    total = e("add", x, residual)
    return e("layer_norm", total, *rest, eps=values["eps"]), total


declare(
    "add_layer_norm",
    "ADLN",
    "x: T[*b, d], residual: T[*b, d], w?: T[d], bias?: T[d] -> y: T[*b, d], sum: T[*b, d]",
    {"T": FLOATS},
    family="normalization",
    doc="sum = x + residual, and y = layer_norm of sum as it was written.",
    reference=_add_layer_norm,
    tolerance=Tolerance(16, _add_layer_scale),
    attrs=attrs("ALN1", EPS),
    normal_form=as_given,
    decompose=_add_layer_parts,
    samples=lambda: [
        Sample({"x": s, "residual": s, **({"w": s[-1:]} if n > 0 else {}), **({"bias": s[-1:]} if n > 1 else {})},
            {"eps": eps}, size=size)
        for s, n, eps, size in [
            ((7,), 2, 1e-5, "small"),
            ((3, 5), 1, 1e-5, "small"),
            ((3, 5), 0, 0.1, "small"),
            ((2, 3, 4), 2, 1e-5, "small"),
            ((0, 3), 2, 1e-5, "small"),
            ((3, 0), 2, 1e-5, "small"),
            ((5, 1025), 2, 1e-5, "small"),
            ((601, 1025), 2, 1e-5, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4), "residual": (4,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "residual": (3, 4), "w": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "residual": (3, 4)}, InvalidArgument, {"eps": -1}),
    ],
)  # fmt: skip


def _offset_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    x, w = inputs
    wide = outputs[0].dtype.compute
    factor = e.loop("a->a", f"x0 + {constant(values['offset'])}", e.cast(w, wide))
    return e.cast(e("rms_norm", e.cast(x, wide), factor, eps=values["eps"]), outputs[0].dtype)


def _offset_scale(x: Any, w: Any, eps: float, offset: float, compute: DType) -> Any:
    """Return rms_norm's own, and what rounding w + offset adds."""
    with np.errstate(all="ignore"):
        plain = np.abs(rms_norm.reference(x, None, eps))
    return rms_scale(x, w + offset, eps, compute) + plain * (np.abs(w) + abs(offset))


declare(
    "rms_norm_offset",
    "RMSO",
    "x: T[*b, d], w: T[d] -> y: T[*b, d]",
    {"T": FLOATS},
    family="normalization",
    doc="x / sqrt(mean(x²) + eps) · (w + offset) over the last dim: rms_norm with Gemma's weights (Gemma Team 2024).",
    reference=lambda x, w, eps, offset: rms_norm.reference(x, w + offset, eps),
    tolerance=Tolerance(16, _offset_scale),
    attrs=attrs(
        "RMO1",
        number("eps", 1e-6, "added to the mean square", minimum=0),
        number("offset", 1.0, "added to each weight", minimum=-1e30, maximum=1e30),
    ),
    normal_form=as_given,
    decompose=_offset_parts,
    samples=lambda: [
        Sample({"x": s, "w": s[-1:]}, values, size=size)
        for s, values, size in [
            ((7,), {}, "small"),
            ((3, 5), {"eps": 0.1}, "small"),
            ((2, 3, 4), {"offset": 0.0}, "small"),
            ((0, 3), {}, "small"),
            ((3, 0), {}, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), {}, "small"),
            ((5, 1025), {}, "small"),
            ((601, 1025), {}, "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 4), "w": (3,)}, BadTensorShape),
        ErrorCase({"x": (), "w": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "w": (4,)}, InvalidArgument, {"eps": -1}),
    ],
)


def _axis_shapes(where: str) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        axis_of(where, values["axis"], len(inputs[0]))
        return [inputs[0]]

    return shapes


def _lp(x: Any, p: int, axis: int, eps: float) -> Any:
    norm = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt(np.square(x).sum(axis, keepdims=True))
    return x / np.maximum(norm, eps)


def _lp_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y, loops = inputs, outputs[0], LETTERS[: outputs[0].ndim]
    rows = loops.replace(loops[values["axis"]], "")
    wide = e.cast(x, y.dtype.compute)
    term, norm = ("abs(x0)", "x1") if values["p"] == 1 else ("x0 * x0", "sqrt(x1)")
    total = e.loop(f"{loops}->{rows}", term, wide, combine="sum")
    body = f"x0 / maximum({norm}, {constant(values['eps'])})"
    return e.loop(f"{loops},{rows}->{loops}", body, wide, total, dtype=y.dtype)


def _lp_scale(x: Any, p: int, axis: int, eps: float) -> Any:
    return (4 + math.sqrt(x.shape[axis])) * np.abs(_lp(x, p, axis, eps))


AXES: SampleTable = [
    ((7,), {}, "small"),
    ((3, 5), {"axis": 0}, "small"),
    ((2, 3, 4), {"axis": 1}, "small"),
    ((0, 3), {}, "small"),
    ((3, 0), {}, "small"),
    ((2, 1, 2, 1, 3, 1, 2, 2), {"axis": 4}, "small"),
    ((5, 1025), {}, "small"),
    ((601, 1025), {}, "wide"),
]
AXIS_ERRORS = [
    ErrorCase({"x": (3, 4)}, InvalidArgument, {"axis": 2}),
    ErrorCase({"x": ()}, InvalidArgument),
    ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4, 3)}),
]

declare(
    "lp_normalize",
    "LPNM",
    "x: T[*s] -> y: T[*s]",
    {"T": FLOATS},
    family="normalization",
    doc="x / max(norm, eps) along `axis`, the norm being Σ |x| or √ Σ x² (ONNX LpNormalization, PyTorch's normalize).",
    reference=_lp,
    tolerance=Tolerance(8, _lp_scale),
    attrs=attrs(
        "LPN1",
        integer("p", 2, "of the norm", minimum=1, maximum=2),
        integer("axis", -1, "the axis of each vector"),
        number("eps", 1e-12, "the least divisor", minimum=1e-30, maximum=1e30),
    ),
    shapes=_axis_shapes("lp_normalize"),
    normal_form=as_given,
    decompose=_lp_parts,
    samples=lambda: [
        *(Sample({"x": s}, values, size=size) for s, values, size in AXES),
        *(Sample({"x": s}, {**values, "p": 1}) for s, values, _ in AXES[:-1]),
    ],
    errors=[
        *AXIS_ERRORS,
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"p": 3}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"eps": 0}),
    ],
)


def _softmin_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    return e("softmax", e("neg", inputs[0]), axis=values["axis"])


declare(
    "softmin",
    "SFTM",
    "x: T[*s] -> y: T[*s]",
    {"T": FLOATS},
    family="normalization",
    doc="softmax of -x along `axis` (PyTorch's Softmin).",
    reference=lambda x, axis: find("softmax").reference(-x, axis),
    tolerance=Tolerance(16, lambda x, axis: _softmax_scale(-x, axis)),
    attrs=attrs("SFM1", integer("axis", -1, "the axis that sums to one")),
    shapes=_axis_shapes("softmin"),
    normal_form=as_given,
    decompose=_softmin_parts,
    samples=lambda: [Sample({"x": s}, values, size=size) for s, values, size in AXES],
    errors=AXIS_ERRORS,
)


def _softmax_scale(x: Any, axis: int) -> Any:
    scale = find("softmax").tolerance.scale
    assert scale is not None
    return scale(x, axis)


def _hardmax_parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y, loops = inputs, outputs[0], LETTERS[: outputs[0].ndim]
    axis = values["axis"] % y.ndim
    rows = loops.replace(loops[axis], "")
    first = e("argmax", x, axis=axis)
    exact, body = y.dtype.compute, "1 if x0 == x1 else 0"
    if exact is F32 and y.shape[axis] > 1 << 24:  # more numbers than F32 has
        numbers = e.iota(y.shape[axis], first.spec.dtype)
        return e.cast(e.loop(f"{rows},{loops[axis]}->{loops}", body, first, numbers), y.dtype)
    numbers = e.iota(y.shape[axis], exact)
    return e.loop(f"{rows},{loops[axis]}->{loops}", body, e.cast(first, exact), numbers, dtype=y.dtype)


def _hardmax_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    if x[axis_of("hardmax", values["axis"], len(x))] == 0:
        raise BadTensorShape("hardmax", f"x is {list(x)}", allowed="at least one element along the axis")
    return [x]


def _hardmax(x: Any, axis: int) -> Any:
    if x.size == 0:
        return x
    at = np.arange(x.shape[axis]).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return (at == np.argmax(x, axis, keepdims=True)).astype(x.dtype)


declare(
    "hardmax",
    "HRDM",
    "x: T[*s] -> y: T[*s]",
    {"T": FLOATS},
    family="normalization",
    doc="1 at the first largest element along `axis`, the first NaN counting as largest, 0 elsewhere (ONNX Hardmax).",
    reference=_hardmax,
    attrs=attrs("HDM1", integer("axis", -1, "the axis searched")),
    shapes=_hardmax_shapes,
    normal_form=as_given,
    decompose=_hardmax_parts,
    samples=lambda: [Sample({"x": s}, values, size=size) for s, values, size in AXES if s != (3, 0)],
    errors=[*AXIS_ERRORS, ErrorCase({"x": (3, 0)}, BadTensorShape)],
    exact=True,
)


def _with_sink(x: Any, sinks: Any) -> Any:
    column = np.broadcast_to(sinks[:, None, None], (*x.shape[:-1], 1))
    return np.concatenate([x, column], -1)


def _sinks(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    rows, head = loops[:-1], loops[-3]
    x, sinks = (e.cast(v, y.dtype.compute) for v in inputs)
    top = e.loop(f"{loops}->{rows}", "x0", x, combine="maximum")
    top = e.loop(f"{rows},{head}->{rows}", "maximum(x0, x1)", top, sinks)
    powers = e.loop(f"{loops},{rows}->{loops}", "exp(x0 - x1)", x, top)
    total = e.loop(f"{loops}->{rows}", "x0", powers, combine="sum")
    total = e.loop(f"{rows},{rows},{head}->{rows}", "x0 + exp(x2 - x1)", total, top, sinks)
    return e.loop(f"{loops},{rows}->{loops}", "x0 / x1", powers, total, dtype=y.dtype)


declare(
    "softmax_sinks",
    "SMSK",
    "x: T[*b, h, m, s], sinks: T[h] -> y: T[*b, h, m, s]",
    {"T": FLOATS},
    family="normalization",
    doc=(
        "softmax over the last dim, where each head has a sink that takes part in the maximum and the sum, and is"
        " dropped (gpt-oss; Xiao et al. 2024)."
    ),
    reference=lambda x, sinks: find("softmax").reference(_with_sink(x, sinks), -1)[..., :-1],
    tolerance=Tolerance(16, lambda x, sinks: _softmax_scale(_with_sink(x, sinks), -1)[..., :-1]),
    normal_form=as_given,
    decompose=_sinks,
    samples=lambda: [
        Sample({"x": s, "sinks": s[-3:-2]}, size=size)
        for s, size in [
            ((1, 1, 1), "small"),
            ((3, 2, 5), "small"),
            ((2, 3, 4, 7), "small"),
            ((2, 0, 4), "small"),
            ((2, 3, 0), "small"),
            ((2, 1, 2, 1, 3, 2, 2, 2), "small"),
            ((2, 1, 1025), "small"),
            ((1, 4, 150, 1025), "wide"),
        ]
    ],
    errors=[
        ErrorCase({"x": (3, 2, 4), "sinks": (2,)}, BadTensorShape),
        ErrorCase({"x": (3, 4), "sinks": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 2, 4)}, InvalidArgument),
    ],
)


def _response(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit means of squares over windows of channels: x as images of [channels, the rest]."""
    (x,), y, size = inputs, outputs[0], values["size"]
    n, c, *rest = y.shape
    if 0 in y.shape:
        return e.fill(y.shape, 0.0, y.dtype)
    flat = e.reshape(e.cast(x, y.dtype.compute), (n, 1, c, math.prod(rest)))
    squares = e.loop("abcd->abcd", "x0 * x0", flat)
    before, after = min(c - 1, (size - 1) // 2), min(c - 1, size // 2)  # a window may be wider than all channels
    window: dict[str, Any] = {"kernel": (before + 1 + after, 1), "stride": (1, 1), "padding": (before, 0, after, 0)}
    mean = e("avg_pool2d", squares, count_include_pad=True, **window)
    share = constant(values["alpha"] / size * (before + 1 + after))
    body = f"x0 / pow({constant(values['bias'])} + {share} * x1, {constant(values['beta'])})"
    return e.reshape(e.loop("abcd,abcd->abcd", body, flat, mean, dtype=y.dtype), y.shape)


def _window_sums(x: Any, size: int) -> Any:
    before = (size - 1) // 2
    widths = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    padded = np.pad(np.square(x), widths)
    return sum(padded[:, i : i + x.shape[1]] for i in range(size))


def _response_reference(x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    return x / np.power(bias + alpha / size * _window_sums(x, size), beta)


def _response_scale(x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    """Return what a sum of `size` terms may be off by, beta times as much after the power."""
    return (8 + beta * (4 + size)) * np.abs(_response_reference(x, size, alpha, beta, bias))


RESPONSES: SampleTable = [
    ((2, 3), {"size": 3}, "small"),
    ((2, 5, 4), {"size": 2, "alpha": 0.5}, "small"),
    ((1, 7, 3, 4), {"size": 5, "beta": 0.5, "bias": 2.0}, "small"),
    ((1, 2, 3), {"size": 9}, "small"),
    ((0, 3, 2), {"size": 3}, "small"),
    ((2, 0, 2), {"size": 3}, "small"),
    ((1, 4, 1025), {"size": 3}, "small"),
    ((2, 32, 61, 59), {"size": 5}, "wide"),
]

declare(
    "local_response_norm",
    "LRNM",
    "x: T[n, c, *s] -> y: T[n, c, *s]",
    {"T": FLOATS},
    family="normalization",
    doc=(
        "x / (bias + alpha / size · Σ x²)^beta, the sum over `size` channels around each (ONNX LRN, Krizhevsky 2012):"
        " of an even number one more behind it than before it, in PyTorch the other way round."
    ),
    reference=_response_reference,
    tolerance=Tolerance(16, _response_scale),
    attrs=attrs(
        "LRN1",
        integer("size", doc="channels in a window", minimum=1),
        number("alpha", 1e-4, "factor of the mean square", minimum=0, maximum=1e6),
        number("beta", 0.75, "the power", minimum=0, maximum=16),
        number("bias", 1.0, "added to it", minimum=1e-6, maximum=1e6),
    ),
    normal_form=as_given,
    decompose=_response,
    samples=lambda: [
        Sample({"x": s}, values, size=size) for s, values, size in RESPONSES
    ],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, {"size": 3}),
        ErrorCase({"x": (2, 3)}, InvalidArgument),
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"size": 0}),
        ErrorCase({"x": (2, 3)}, InvalidArgument, {"size": 3, "bias": 0}),
    ],
)  # fmt: skip
