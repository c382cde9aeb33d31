"""BLAS level 1 beyond `linear_algebra.py`: plane rotations, the place of the largest magnitude, and swapped tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.decomposition import LETTERS, Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import BOOL, FLOATS, I32, I64, PLAIN
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

_SHAPES = [((), "small"), ((7,), "small"), ((3, 5), "small"), ((2, 1, 2, 1, 3, 1, 2, 2), "small"), ((0, 3), "small")]
_SHAPES += [((2, 1025), "small"), ((201, 1025), "wide")]


def _rotation(
    name: str, kind: str, others: Mapping[str, tuple[int, ...]], decompose: Any, reference: Any, scale: Any, doc: str
) -> Operator:
    """Declare a rotation of pairs; `others` are the shapes of the inputs after x and y."""
    more = ", ".join(f"{n}: T[{', '.join(map(str, s))}]" for n, s in others.items())
    return declare(
        name,
        kind,
        f"x: T[*d], y: T[*d], {more} -> u: T[*d], v: T[*d]",
        {"T": FLOATS},
        family="contraction",
        doc=doc,
        reference=reference,
        tolerance=Tolerance(1, scale),
        normal_form=as_given,
        decompose=decompose,
        samples=lambda: [Sample({"x": s, "y": s, **others}, size=size) for s, size in _SHAPES],
        errors=[
            ErrorCase({"x": (3,), "y": (4,), **others}, BadTensorShape),
            ErrorCase({"x": (3,), "y": (3,), **others, next(iter(others)): (2,)}, BadTensorShape),
            ErrorCase({"x": (3,), "y": (3,)}, InvalidArgument),
            ErrorCase({"x": (3,), "y": (3,), **others}, BadTensorDtype, dtypes={"T": I32}),
        ],
    )


def _rot(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    loops = LETTERS[: inputs[0].spec.ndim]
    maps = f"{loops},{loops},,->{loops}"
    return e.loop(maps, "x2 * x0 + x3 * x1", *inputs), e.loop(maps, "x2 * x1 - x3 * x0", *inputs)


_rotation(
    "rot",
    "ROT_",
    {"c": (), "s": ()},
    _rot,
    lambda x, y, c, s: (c * x + s * y, c * y - s * x),
    lambda x, y, c, s: tuple(2 * (np.abs(c * a) + np.abs(s * b)) for a, b in ((x, y), (y, x))),
    "u = c · x + s · y and v = c · y - s · x (BLAS rot); `rotg` makes c and s.",
)


def _entries(param: Any) -> tuple[Any, Any, Any, Any]:
    """Return h11, h12, h21 and h22 of rotm's parameters, some of which the flag makes 1, -1 or 0."""
    flag, h11, h21, h12, h22 = (param[i] for i in range(5))
    one, none = np.ones(()), np.zeros(())
    return (
        np.where(flag == -2, one, np.where(flag == 0, one, h11)),
        np.where(flag == -2, none, np.where(flag == 1, one, h12)),
        np.where(flag == -2, none, np.where(flag == 1, -one, h21)),
        np.where(flag == -2, one, np.where(flag == 0, one, h22)),
    )


def _rotm(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    x, y, param = inputs
    loops = LETTERS[: x.spec.ndim]
    maps = f"{loops},{loops},,->{loops}"
    flag, h11, h21, h12, h22 = (
        e.reshape(e("slice", param, starts=(i,), ends=(i + 1,), axes=(0,), steps=(1,)), ()) for i in range(5)
    )
    rows = []
    for (diagonal, other), sign in (((h11, h12), "1"), ((h22, h21), "-1")):
        a = e.loop(",->", "1 if x1 == -2 or x1 == 0 else x0", diagonal, flag)
        b = e.loop(",->", f"0 if x1 == -2 else {sign} if x1 == 1 else x0", other, flag)
        rows.append((a, b))
    (a, b), (d, c) = rows
    body = "x2 * x0 + x3 * x1"
    return e.loop(maps, body, x, y, a, b), e.loop(maps, body, x, y, c, d)


def _rotm_reference(x: Any, y: Any, param: Any) -> Any:
    h11, h12, h21, h22 = _entries(param)
    return h11 * x + h12 * y, h21 * x + h22 * y


def _rotm_scale(x: Any, y: Any, param: Any) -> Any:
    h11, h12, h21, h22 = map(np.abs, _entries(param))
    return 2 * (h11 * np.abs(x) + h12 * np.abs(y)), 2 * (h21 * np.abs(x) + h22 * np.abs(y))


def _rotg(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    """Emit r by shares of the larger magnitude, which neither overflow nor vanish."""
    wide, loops = outputs[0].dtype.compute, LETTERS[: outputs[0].ndim]
    pairs = f"{loops},{loops}->{loops}"
    a, b = (e.cast(x, wide) for x in inputs)
    most = "maximum(abs(x0), abs(x1))"
    size = f"{most} * sqrt(x0 / {most} * (x0 / {most}) + x1 / {most} * (x1 / {most}))"
    r = e.loop(pairs, f"0 if {most} == 0 else copysign({size}, x0 if abs(x0) > abs(x1) else x1)", a, b)
    c = e.loop(pairs, "1 if x1 == 0 else x0 / x1", a, r)
    s = e.loop(pairs, "0 if x1 == 0 else x0 / x1", b, r)
    z = e.loop(
        f"{loops},{loops},{pairs}",
        "0 if x0 == 0 and x1 == 0 else x3 if abs(x0) > abs(x1) else 1 / x2 if x2 != 0 else 1",
        a,
        b,
        c,
        s,
    )
    return tuple(e.cast(y, o.dtype) for y, o in zip((r, z, c, s), outputs, strict=True))


def _rotg_reference(a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        most = np.maximum(np.abs(a), np.abs(b))
        size = most * np.sqrt(np.square(a / most) + np.square(b / most))
        first, none = np.abs(a) > np.abs(b), most == 0
        r = np.where(none, 0, np.copysign(size, np.where(first, a, b)))
        c, s = np.where(r == 0, 1, a / r), np.where(r == 0, 0, b / r)
        z = np.where(none, 0, np.where(first, s, np.where(c != 0, 1 / c, 1)))
    return r, z, c, s


_rotation(
    "rotm",
    "ROTM",
    {"param": (5,)},
    _rotm,
    _rotm_reference,
    _rotm_scale,
    "u = h11 · x + h12 · y and v = h21 · x + h22 · y, where param is [flag, h11, h21, h12, h22] (BLAS rotm). By the"
    " flag they are: -2 the identity, 0 with h11 = h22 = 1, 1 with h12 = 1 and h21 = -1, any other all as given.",
)
declare(
    "rotg",
    "ROTG",
    "a: T[*d], b: T[*d] -> r: T[*d], z: T[*d], c: T[*d], s: T[*d]",
    {"T": FLOATS},
    family="contraction",
    doc=(
        "The rotations with c · a + s · b = r and c · b - s · a = 0, and z, from which c and s can be made again (BLAS"
        " rotg). r has the sign of the larger of a and b; of zeros, c = 1 and s = r = z = 0."
    ),
    reference=_rotg_reference,
    tolerance=Tolerance(12),
    normal_form=as_given,
    decompose=_rotg,
    samples=lambda: [
        Sample({"a": shape, "b": shape}, values=dict.fromkeys("ab", values), size=size)
        for shape, values, size in [
            ((), "any", "small"),
            ((7,), "tiny", "small"),
            ((3, 5), "moderate", "small"),
            ((2, 3, 33), "any", "small"),
            ((0, 4), "any", "small"),
            ((601, 1025), "any", "wide"),
        ]
    ],
    errors=[
        ErrorCase({"a": (2,), "b": (3,)}, BadTensorShape),
        ErrorCase({"a": ()}, InvalidArgument),
        ErrorCase({"a": (), "b": ()}, BadTensorDtype, dtypes={"T": I32}),
    ],
)


def _place(name: str, kind: str, pick: Callable[[Any], Any], sign: str, word: str) -> None:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        if 0 in inputs[0]:
            raise BadTensorShape(name, f"x is {list(inputs[0])}", allowed="at least one element")
        return [()]

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        sizes = e.pointwise(f"{sign}abs(x0)", inputs[0])
        found = e("argmax", e.reshape(sizes, (sizes.spec.numel,)), axis=0)
        return e.cast(found, I64)

    declare(
        name,
        kind,
        "x: T[*d] -> y: I64[]",
        {"T": FLOATS},
        family="reduction",
        doc=f"The index, from 0, of the first element of {word} magnitude in row-major order, or of the first NaN (BLAS"
        f" {name}, which counts from 1).",
        reference=pick,
        exact=True,
        shapes=shapes,
        normal_form=as_given,
        decompose=decompose,
        samples=lambda: [Sample({"x": s}, size=size) for s, size in _SHAPES if 0 not in s],
        errors=[
            ErrorCase({"x": (0, 3)}, BadTensorShape),
            ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (1,)}),
            ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": I32}),
        ],
    )


def _find(x: Any, key: Callable[[Any], Any]) -> Any:
    flat = x.astype(np.float64).reshape(-1)
    return np.asarray(key(np.abs(flat)), np.int64)


_place("iamax", "IAMX", lambda x: _find(x, np.argmax), "", "the largest")
_place("iamin", "IAMN", lambda x: _find(x, np.argmin), "-", "the smallest")


def _swap(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> Any:
    order = tuple(range(inputs[0].spec.ndim))
    return tuple(e("transpose", x, axes=order) for x in reversed(inputs))


declare(
    "swap",
    "SWAP",
    "x: T[*d], y: T[*d] -> u: T[*d], v: T[*d]",
    {"T": PLAIN},
    family="movement",
    doc="u = y and v = x (BLAS swap, into tensors of their own).",
    reference=lambda x, y: (y, x),
    exact=True,
    normal_form=as_given,
    decompose=_swap,
    samples=lambda: [Sample({"x": s, "y": s}, size=size) for s, size in _SHAPES],
    errors=[
        ErrorCase({"x": (3,), "y": (4,)}, BadTensorShape),
        ErrorCase({"x": (3,)}, InvalidArgument),
        ErrorCase({"x": (3,), "y": (3,)}, BadTensorDtype, dtypes={"x": BOOL, "y": I32}),
    ],
)
