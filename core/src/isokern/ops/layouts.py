"""Operators that order, repeat or choose elements, bit for bit: made of views, concat, gather, pad and where."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, declare
from ..declare.attributes import Attr, attrs, integer, integers
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given, axis_of, pointwise
from ..declare.operator import Decompose, Shapes
from ..dtypes import BOOL, I64, PLAIN
from ..layout import MAX_RANK, TensorDesc, broadcast_shapes
from ..status import BadTensorShape, InvalidArgument
from .rearrange import broadcast

Shape = tuple[int, ...]
START = -(2**63)  # an end of a slice with a negative step: past the first element


def _move(
    name: str,
    kind: str,
    shapes: Shapes,
    decompose: Decompose,
    reference: Callable[..., Any],
    fields: Sequence[Attr],
    samples: Sequence[tuple[Any, ...]],
    errors: Sequence[ErrorCase],
    *,
    doc: str,
    signature: str = "x: T[*s] -> y: T[*d]",
    types: Any = None,
    **more: Any,
) -> Operator:
    """Declare an operator of one tensor `x`, whose samples are shapes and attributes, the last of them wide."""
    return declare(
        name,
        kind,
        signature,
        types or {"T": PLAIN},
        family="movement",
        doc=doc,
        reference=reference,
        attrs=attrs("L" + kind[:3], *fields),
        shapes=shapes,
        normal_form=more.pop("normal_form", as_given),
        decompose=decompose,
        samples=lambda: [
            Sample({"x": shape}, values, size="wide" if i == len(samples) - 1 else "small")
            for i, (shape, values) in enumerate(samples)
        ],
        errors=errors,
        exact=True,
        **more,
    )


def _around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return how many elements lie before, along and behind an axis."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _distinct(where: str, axes: Sequence[int], rank: int) -> list[int]:
    """Return axes from the front, each of which may be named once."""
    found = [axis_of(where, a, rank) for a in axes]
    if len(set(found)) < len(found):
        raise InvalidArgument(where, f"axes {list(axes)} name one twice", allowed="each once")
    return found


# Orders


def _flip_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    _distinct("flip", values["axes"], len(inputs[0]))
    return [inputs[0]]


def _flip(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,) = inputs
    axes = tuple(values["axes"] or range(x.spec.ndim))
    n = len(axes)
    return e("slice", x, starts=(-1,) * n, ends=(START,) * n, axes=axes, steps=(-1,) * n)


_move(
    "flip",
    "FLIP",
    _flip_shapes,
    _flip,
    lambda x, axes: np.flip(x, tuple(axes) or None),
    [integers("axes", (), "all where empty")],
    [
        ((), {}),
        ((7,), {}),
        ((3, 5), {"axes": (1,)}),
        ((2, 3, 4), {"axes": (0, -1)}),
        ((3, 0), {}),
        ((2, 1, 2, 1, 3, 1, 2, 2), {}),
        ((2, 1025), {"axes": (1,)}),
        ((801, 803), {}),
    ],
    [
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (2,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (0, -2)}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4, 3)}),
    ],
    doc="x in the reverse order along axes (NumPy and PyTorch's flip).",
)


def _roll_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    shifts, axes = values["shifts"], values["axes"]
    _distinct("roll", axes, len(inputs[0]))
    if len(shifts) != (len(axes) if axes else 1):
        raise InvalidArgument("roll", f"{len(shifts)} shifts for {len(axes)} axes", allowed="one each, or one for all")
    return [inputs[0]]


def _roll(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), axes = inputs, values["axes"] or (0,)
    y = x if values["axes"] else e.reshape(x, (x.spec.numel,))
    for shift, axis in zip(values["shifts"], axes, strict=True):
        size = y.spec.shape[axis]
        cut = -shift % max(1, size)
        if cut:
            parts = [e("slice", y, starts=(a,), ends=(b,), axes=(axis,)) for a, b in ((cut, size), (0, cut))]
            y = e("concat", *parts, axis=axis)
    return e.reshape(y, x.spec.shape)


_move(
    "roll",
    "ROLL",
    _roll_shapes,
    _roll,
    lambda x, shifts, axes: np.roll(x, shifts if axes else shifts[0], axes or None),
    [
        integers("shifts", doc="places towards the end, one an axis"),
        integers("axes", (), "the flat tensor where empty"),
    ],
    [
        ((), {"shifts": (1,)}),
        ((7,), {"shifts": (2,), "axes": (0,)}),
        ((3, 5), {"shifts": (-1, 7), "axes": (0, 1)}),
        ((3, 5), {"shifts": (4,)}),
        ((2, 3, 4), {"shifts": (0,), "axes": (1,)}),
        ((3, 0), {"shifts": (2,), "axes": (1,)}),
        ((2, 1025), {"shifts": (-3,), "axes": (-1,)}),
        ((801, 803), {"shifts": (5, -9), "axes": (0, 1)}),
    ],
    [
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"shifts": (1,), "axes": (2,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"shifts": (1, 2)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"shifts": (1, 2), "axes": (0, 0)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {}),
    ],
    doc="Elements moved along axes, those past the end put at the front (NumPy and PyTorch's roll).",
)


# Repetition


def _tile_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, repeats = inputs[0], values["repeats"]
    rank = max(len(x), len(repeats))
    sizes = [1] * (rank - len(x)) + list(x)
    times = [1] * (rank - len(repeats)) + list(repeats)
    return [tuple([d * r for d, r in zip(sizes, times, strict=True)])]


def _tile(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit x with a dim of 1 before each that repeats, those broadcast, and the dims merged: the last three at a time.

    So the broadcast has at most seven dims.
    """
    (x,), y = inputs, outputs[0]
    shape = [1] * (y.ndim - x.spec.ndim) + list(x.spec.shape)
    times = [1] * (y.ndim - len(values["repeats"])) + list(values["repeats"])
    repeated = [axis for axis in range(y.ndim) if times[axis] != 1]
    while repeated:
        axes, repeated = repeated[-3:], repeated[:-3]
        single, wide = [math.prod(shape[: axes[0]])], [math.prod(shape[: axes[0]])]
        for axis, end in zip(axes, [*axes[1:], y.ndim], strict=True):
            run = math.prod(shape[axis:end])
            single += [1, run]
            wide += [times[axis], run]
            shape[axis] *= times[axis]
        x = e("broadcast_to", e.reshape(x, single), shape=wide)
    return e.reshape(x, y.shape)


_move(
    "tile",
    "TILE",
    _tile_shapes,
    _tile,
    lambda x, repeats: np.tile(x, repeats),
    [integers("repeats", doc="for the last dims; more than x has become its first", minimum=0)],
    [
        ((), {"repeats": (3,)}),
        ((7,), {"repeats": (2,)}),
        ((3, 5), {"repeats": (2, 3)}),
        ((3, 5), {"repeats": (2,)}),
        ((4,), {"repeats": (2, 1, 3)}),
        ((2, 3, 4), {"repeats": (1, 0, 1)}),
        ((0, 3), {"repeats": (2, 2)}),
        ((2, 1, 2, 1, 3, 1, 2, 2), {"repeats": (1, 2, 1, 1, 2, 1, 1, 1)}),
        ((2, 1025), {"repeats": (1, 2)}),
        ((301, 403), {"repeats": (2, 3)}),
    ],
    [
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"repeats": (-1,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"repeats": (2,)}, outputs={"y": (6, 4)}),
    ],
    doc="x repeated as a whole along each dim (NumPy's tile, PyTorch's repeat).",
)


def _interleave_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    axis = axis_of("repeat_interleave", values["axis"], len(x))
    return [(*x[:axis], x[axis] * values["repeats"], *x[axis + 1 :])]


def _interleave(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y = inputs, outputs[0]
    lead, size, rest = _around(x.spec.shape, values["axis"] % y.ndim)
    flat = e.reshape(x, (lead * size, 1, rest))
    return e.reshape(e.repeat(flat, (lead * size, values["repeats"], rest)), y.shape)


_move(
    "repeat_interleave",
    "RPIL",
    _interleave_shapes,
    _interleave,
    lambda x, repeats, axis: np.repeat(x, repeats, axis),
    [integer("repeats", doc="of each element", minimum=0), integer("axis", -1, "the axis that grows")],
    [
        ((7,), {"repeats": 2}),
        ((3, 5), {"repeats": 3, "axis": 0}),
        ((2, 3, 4), {"repeats": 1, "axis": 1}),
        ((2, 3, 4), {"repeats": 0, "axis": 1}),
        ((0, 3), {"repeats": 2, "axis": 0}),
        ((2, 1, 2, 1, 3, 1, 2, 2), {"repeats": 2, "axis": 4}),
        ((2, 1025), {"repeats": 2}),
        ((301, 403), {"repeats": 5, "axis": 0}),
    ],
    [
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"repeats": 2, "axis": 2}),
        ErrorCase({"x": ()}, InvalidArgument, {"repeats": 2}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"repeats": -1}),
    ],
    doc="Each element along `axis` repeated in place (PyTorch's repeat_interleave, NumPy's repeat).",
)


def _broadcast_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,), shape = inputs, tuple(values["shape"])
    if broadcast_shapes(x, shape) != shape:
        raise BadTensorShape("broadcast_to", f"x is {list(x)}", allowed=f"what broadcasts to {list(shape)}")
    return [shape]


_move(
    "broadcast_to",
    "BRTO",
    _broadcast_shapes,
    broadcast,
    lambda x, shape: np.broadcast_to(x, shape),
    [integers("shape", doc="of y", minimum=0)],
    [
        ((), {"shape": ()}),
        ((), {"shape": (2, 3)}),
        ((1,), {"shape": (0,)}),
        ((3, 1), {"shape": (3, 5)}),
        ((4,), {"shape": (2, 3, 4)}),
        ((2, 3), {"shape": (2, 3)}),
        ((2, 1, 1), {"shape": (3, 2, 4, 1)}),
        ((1, 1, 2, 1, 3, 1, 2, 2), {"shape": (2, 1, 2, 2, 3, 1, 2, 2)}),
        ((1, 1025), {"shape": (2, 1025)}),
        ((801, 1), {"shape": (801, 803)}),
    ],
    [
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"shape": (3, 5)}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"shape": (4,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"shape": (-1, 4)}),
    ],
    doc="x with its dims of 1 repeated, and new dims in front, as `shape` says (NumPy's broadcast_to).",
    stem="rearrange",
    normal_form=pointwise,
)


# Shapes


def _reshape_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,), shape = inputs, list(values["shape"])
    count, holes = math.prod(x), len([d for d in shape if d == -1])
    known = math.prod([d for d in shape if d != -1])
    if holes == 1 and known != 0 and count % known == 0:
        return [tuple([count // known if d == -1 else d for d in shape])]
    if holes != 0 or known != count:
        allowed = f"dims whose product is {count}, at most one of them -1"
        raise BadTensorShape("reshape", f"x is {list(x)}, shape {shape}", allowed=allowed)
    return [tuple(shape)]


_move(
    "reshape",
    "RSHP",
    _reshape_shapes,
    lambda e, inputs, values, outputs: e.reshape(inputs[0], outputs[0].shape),
    lambda x, shape: x.reshape(shape),
    [integers("shape", doc="of y; one dim may be -1, which takes the rest", minimum=-1)],
    [
        ((), {"shape": ()}),
        ((), {"shape": (1, 1)}),
        ((1, 1), {"shape": ()}),
        ((7,), {"shape": (7, 1)}),
        ((3, 4), {"shape": (2, -1)}),
        ((2, 3, 4), {"shape": (-1,)}),
        ((0, 3), {"shape": (3, 0, 2)}),
        ((2, 1, 2, 1, 3, 1, 2, 2), {"shape": (4, 3, 4)}),
        ((2, 1025), {"shape": (1025, 2)}),
        ((801, 803), {"shape": (803, 801)}),
    ],
    [
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"shape": (5, 2)}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"shape": (5, -1)}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"shape": (-1, -1)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"shape": (-2,)}),
    ],
    doc="x's elements in row-major order, in another shape (NumPy's reshape).",
)


def _squeeze_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    axes = _distinct("squeeze", values["axes"], len(x)) or [i for i, d in enumerate(x) if d == 1]
    for a in axes:
        if x[a] != 1:
            raise BadTensorShape("squeeze", f"dim {a} of x is {x[a]}", allowed="1")
    return [tuple([d for i, d in enumerate(x) if i not in axes])]


_move(
    "squeeze",
    "SQEZ",
    _squeeze_shapes,
    lambda e, inputs, values, outputs: e.reshape(inputs[0], outputs[0].shape),
    lambda x, axes: np.squeeze(x, tuple(axes) or None),
    [integers("axes", (), "all of 1 where empty")],
    [
        ((), {}),
        ((1, 1), {}),
        ((3, 5), {}),
        ((1, 3, 1), {"axes": (-1,)}),
        ((1, 0, 1), {}),
        ((2, 1, 2, 1, 3, 1, 2, 2), {"axes": (1, 5)}),
        ((1, 1, 1025), {}),
        ((801, 1, 803), {}),
    ],
    [
        ErrorCase({"x": (3, 1)}, BadTensorShape, {"axes": (0,)}),
        ErrorCase({"x": (3, 1)}, InvalidArgument, {"axes": (2,)}),
        ErrorCase({"x": (1, 1)}, InvalidArgument, {"axes": (1, -1)}),
    ],
    doc="x without its dims of 1, or those of `axes` (ONNX Squeeze, NumPy's squeeze).",
)


def _unsqueeze_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    rest = list(inputs[0])
    rank = len(rest) + len(values["axes"])
    if rank > MAX_RANK:
        raise InvalidArgument("unsqueeze", f"rank {rank}", allowed=f"up to {MAX_RANK}")
    axes = _distinct("unsqueeze", values["axes"], rank)
    made: list[int] = []
    for i in range(rank):
        made.append(1 if i in axes else rest[len(made) - len([a for a in axes if a < i])])
    return [tuple(made)]


_move(
    "unsqueeze",
    "USQZ",
    _unsqueeze_shapes,
    lambda e, inputs, values, outputs: e.reshape(inputs[0], outputs[0].shape),
    lambda x, axes: np.expand_dims(x, tuple(axes)),
    [integers("axes", doc="places of y where a dim of 1 comes")],
    [
        ((), {"axes": (0,)}),
        ((), {"axes": ()}),
        ((7,), {"axes": (0, 2)}),
        ((3, 5), {"axes": (1,)}),
        ((2, 3, 4), {"axes": (-1, 0)}),
        ((0, 3), {"axes": (1,)}),
        ((2, 1025), {"axes": (1,)}),
        ((801, 803), {"axes": (2,)}),
    ],
    [
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (3,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"axes": (0, 0)}),
        ErrorCase({"x": (1, 1, 1, 1, 1, 1, 1, 1)}, InvalidArgument, {"axes": (0,)}),
    ],
    doc="x with dims of 1 put in (ONNX Unsqueeze, NumPy's expand_dims).",
)


# Matrices


def _triangle(upper: bool) -> Decompose:
    """Return the decomposition: x where the difference of column and row is on the right side of k, else 0."""

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        (x,), (m, n) = inputs, outputs[0].shape[-2:]
        sign = ">=" if upper else "<="
        body = f"x1 - x0 {sign} {max(-m - 1, min(values['k'], n + 1))}"
        mask = e.loop("a,b->ab", body, e.iota(m, I64), e.iota(n, I64), dtype=BOOL)
        return e("where", mask, x, e.fill((), 0.0, outputs[0].dtype))

    return decompose


def _triangle_reference(upper: bool) -> Callable[..., Any]:
    def reference(x: Any, k: int) -> Any:
        right = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]  # of the main diagonal
        return np.where(right >= k if upper else right <= k, x, np.zeros((), x.dtype))

    return reference


def _same(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    return [inputs[0]]


for _name, _kind, _upper in (("tril", "TRIL", False), ("triu", "TRIU", True)):
    _move(
        _name,
        _kind,
        _same,
        _triangle(_upper),
        _triangle_reference(_upper),
        [integer("k", 0, "the last diagonal kept: above the main one where positive")],
        [
            ((3, 5), {}),
            ((5, 3), {"k": 1}),
            ((2, 4, 4), {"k": -1}),
            ((3, 3), {"k": -9}),
            ((3, 3), {"k": 1 << 40}),
            ((3, 0), {}),
            ((2, 1, 2, 1, 3, 1, 2, 2), {}),
            ((2, 1025), {"k": 3}),
            ((801, 803), {"k": 5}),
        ],
        [
            ErrorCase({"x": (3,)}, BadTensorShape),
            ErrorCase({"x": (3, 4)}, InvalidArgument, {"k": 0.5}),
            ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4, 3)}),
        ],
        doc=f"The {'upper' if _upper else 'lower'} triangle of each matrix, 0 elsewhere (NumPy's {_name}).",
        signature="x: T[*b, m, n] -> y: T[*b, m, n]",
    )


def _diagonal_run(where: str, x: Sequence[int], offset: int) -> tuple[int, int]:
    """Return where the diagonal begins in the flat matrix, and its length."""
    m, n = x[len(x) - 2], x[len(x) - 1]
    length = max(0, min(m, n - offset) if offset >= 0 else min(m + offset, n))
    return (offset if offset >= 0 else -offset * n), length


def _diagonal_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    return [(*x[: len(x) - 2], _diagonal_run("diagonal", x, values["offset"])[1])]


def _diagonal(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y = inputs, outputs[0]
    (m, n), (start, length) = x.spec.shape[-2:], _diagonal_run("", x.spec.shape, values["offset"])
    flat = e.reshape(x, (math.prod(y.shape[:-1]), m * n))
    end = start + (length - 1) * (n + 1) + 1 if length else 0
    start = start if length else 0
    return e.reshape(e("slice", flat, starts=(start,), ends=(end,), axes=(1,), steps=(n + 1,)), y.shape)


_move(
    "diagonal",
    "DIAG",
    _diagonal_shapes,
    _diagonal,
    lambda x, offset: np.diagonal(x, offset, -2, -1),
    [integer("offset", 0, "of the diagonal: above the main one where positive")],
    [
        ((3, 5), {}),
        ((5, 3), {"offset": 1}),
        ((2, 4, 4), {"offset": -1}),
        ((3, 3), {"offset": 3}),
        ((3, 3), {"offset": -7}),
        ((3, 0), {}),
        ((0, 2, 2), {}),
        ((2, 1, 2, 1, 3, 1, 2, 2), {}),
        ((1030, 1025), {}),
        ((2, 801, 803), {"offset": 2}),
    ],
    [
        ErrorCase({"x": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"offset": 0.5}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (4,)}),
    ],
    doc="A diagonal of each matrix (NumPy's diagonal of the last two dims).",
    signature="x: T[*b, m, n] -> y: T[*b, k]",
)


def _embed_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    n = x[len(x) - 1] + abs(values["offset"])
    if len(x) == MAX_RANK:
        raise BadTensorShape("diag_embed", f"x has rank {len(x)}", allowed=f"up to {MAX_RANK - 1}")
    return [(*x[: len(x) - 1], n, n)]


def _embed(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Pad each element to a row of n + 1, so that the rows together are the square with n more elements."""
    (x,), y, offset = inputs, outputs[0], values["offset"]
    lead, n = math.prod(x.spec.shape[:-1]), x.spec.shape[-1]
    rows = e("pad", e.reshape(x, (lead, n, 1)), low=(0, 0, 0), high=(0, 0, n))
    flat = e("slice", e.reshape(rows, (lead, n * (n + 1))), starts=(0,), ends=(n * n,), axes=(1,))
    down, right = max(0, -offset), max(0, offset)
    square = e.reshape(flat, (lead, n, n))
    return e.reshape(e("pad", square, low=(0, down, right), high=(0, right, down)), y.shape)


_move(
    "diag_embed",
    "DGEM",
    _embed_shapes,
    _embed,
    lambda x, offset: _embed_reference(x, offset),
    [integer("offset", 0, "of the diagonal: above the main one where positive")],
    [
        ((1,), {}),
        ((7,), {}),
        ((5,), {"offset": 2}),
        ((2, 3), {"offset": -1}),
        ((2, 3, 4), {}),
        ((3, 0), {}),
        ((3, 0), {"offset": 1}),
        ((0, 3), {}),
        ((1, 257), {}),
        ((2, 601), {"offset": 1}),
    ],
    [
        ErrorCase({"x": ()}, BadTensorShape),
        ErrorCase({"x": (1,) * 8}, BadTensorShape),
        ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (3, 4)}),
    ],
    doc="Square matrices with x's last dim on a diagonal, 0 elsewhere (PyTorch's diag_embed; NumPy's diag of vectors).",
    signature="x: T[*b, n] -> y: T[*b, p, q]",
)


def _embed_reference(x: Any, offset: int) -> Any:
    n = x.shape[-1]
    y = np.zeros((*x.shape[:-1], n + abs(offset), n + abs(offset)), x.dtype)
    at = np.arange(n)
    y[..., at + max(0, -offset), at + max(0, offset)] = x
    return y


def _crop_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,), shape = inputs, tuple(values["shape"])
    if len(shape) != len(x):
        raise InvalidArgument("center_crop_pad", f"shape {list(shape)}", allowed=f"{len(x)} dims, as x")
    return [shape]


def _crop(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), shape = inputs, outputs[0].shape
    starts = tuple(max(0, d - n) // 2 for d, n in zip(x.spec.shape, shape, strict=True))
    ends = tuple(s + min(d, n) for s, d, n in zip(starts, x.spec.shape, shape, strict=True))
    low = tuple(max(0, n - d) // 2 for d, n in zip(x.spec.shape, shape, strict=True))
    part = e("slice", x, starts=starts, ends=ends)
    high = tuple(n - a - d for n, a, d in zip(shape, low, part.spec.shape, strict=True))
    return e("pad", part, low=low, high=high)


def _crop_reference(x: Any, shape: Any) -> Any:
    y = np.zeros(shape, x.dtype)
    pairs = list(zip(x.shape, shape, strict=True))
    inner = tuple(slice(max(0, n - d) // 2, max(0, n - d) // 2 + min(d, n)) for d, n in pairs)
    y[inner] = x[tuple(slice(max(0, d - n) // 2, max(0, d - n) // 2 + min(d, n)) for d, n in pairs)]
    return y


_move(
    "center_crop_pad",
    "CCPD",
    _crop_shapes,
    _crop,
    _crop_reference,
    [integers("shape", doc="of y", minimum=0)],
    [
        ((), {"shape": ()}),
        ((7,), {"shape": (4,)}),
        ((3, 5), {"shape": (6, 2)}),
        ((2, 3, 4), {"shape": (2, 3, 4)}),
        ((2, 3, 4), {"shape": (5, 0, 1)}),
        ((0, 3), {"shape": (2, 2)}),
        ((2, 1025), {"shape": (1, 1030)}),
        ((801, 803), {"shape": (700, 901)}),
    ],
    [
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"shape": (3,)}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"shape": (3, -1)}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"shape": (3, 5)}, outputs={"y": (3, 4)}),
    ],
    doc="The middle of x in another shape, 0 around it where that is larger (ONNX CenterCropPad of all axes).",
)


# Borders of x's own elements

BORDERS: dict[str, tuple[str, str, str, str]] = {  # kind, NumPy's mode, index of element x0 - low, doc
    "pad_reflect": ("PDRF", "reflect", "{last} - abs({last} - abs({at}))", "mirrored at its first and last elements"),
    "pad_replicate": ("PDRP", "edge", "minimum(maximum({at}, 0), {last})", "repeating its first and last elements"),
    "pad_circular": ("PDCR", "wrap", "{at} - ({last} + 1) * (quotient({at} + {turns}, {last} + 1) - {cycles})",
        "repeating it as a whole"),
}  # fmt: skip


def _border_shapes(where: str) -> Any:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
        (x,), low, high = inputs, values["low"], values["high"]
        if len(low) != len(x) or len(high) != len(x):
            given = f"{len(low)} low and {len(high)} high widths"
            raise InvalidArgument(where, given, allowed=f"{len(x)} of each, one a dim of x")
        for a, d, b in zip(low, x, high, strict=True):
            most = d - 1 if where == "pad_reflect" else d
            if max(a, b) > max(most, 0) and not (where == "pad_replicate" and d > 0):
                raise BadTensorShape(where, f"widths {a} and {b} of a dim of {d}", allowed=f"up to {max(most, 0)}")
        return [tuple([a + d + b for a, d, b in zip(low, x, high, strict=True)])]

    return shapes


def _border(index: str) -> Decompose:
    """Return the decomposition: along each padded axis the elements of that index."""

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        (y,) = inputs
        for axis, (low, high) in enumerate(zip(values["low"], values["high"], strict=True)):
            size = y.spec.shape[axis]
            if low or high:
                at = f"(x0 - {low})"
                body = index.format(at=at, last=f"{size - 1}", turns=f"{size}", cycles="1")
                picked = e.loop("a->a", body, e.iota(low + size + high, I64))
                y = e("gather", y, picked, axis=axis)
        return y if outputs[0].ndim and y is not inputs[0] else e.reshape(y, outputs[0].shape)

    return decompose


def _border_reference(mode: Any) -> Callable[..., Any]:
    def reference(x: Any, low: Any, high: Any) -> Any:
        return np.pad(x, list(zip(low, high, strict=True)), mode) if x.ndim else x

    return reference


for _name, (_kind, _mode, _index, _text) in BORDERS.items():
    _move(
        _name,
        _kind,
        _border_shapes(_name),
        _border(_index),
        _border_reference(_mode),
        [
            integers("low", doc="widths before, one a dim", minimum=0),
            integers("high", doc="widths after, one a dim", minimum=0),
        ],
        [
            ((), {"low": (), "high": ()}),
            ((7,), {"low": (2,), "high": (3,)}),
            ((3, 5), {"low": (2, 0), "high": (1, 4)}),
            ((2, 3, 4), {"low": (1, 2, 3), "high": (1, 2, 3)}),
            ((1, 4), {"low": (0, 3), "high": (0, 0)}),
            ((0, 3), {"low": (0, 1), "high": (0, 1)}),
            ((2, 1025), {"low": (1, 4), "high": (0, 1)}),
            ((601, 803), {"low": (5, 9), "high": (4, 7)}),
        ],
        [
            ErrorCase({"x": (3,)}, InvalidArgument, {"low": (1, 1), "high": (1,)}),
            ErrorCase({"x": (0,)}, BadTensorShape, {"low": (1,), "high": (0,)}),
            ErrorCase({"x": (3,)}, InvalidArgument, {"low": (-1,), "high": (0,)}),
            *([] if _mode == "edge" else [ErrorCase({"x": (3,)}, BadTensorShape, {"low": (4,), "high": (0,)})]),
        ],
        doc=f"x with a border of its own elements, {_text} (NumPy's pad, mode {_mode}).",
    )
