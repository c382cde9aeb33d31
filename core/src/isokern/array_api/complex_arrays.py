"""Functions of complex arrays in place of operators that move elements, reduce, or multiply matrices.

What moves elements does so with the floats, whose further last dim no attribute names; a few need the parts first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..dtypes import BOOL, dtype as dtype_of
from ..eager.functions import function
from ..layout import TensorDesc, broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape
from ..tensors import Tensor
from .complex_functions import FUNCTIONS
from .complex_parts import (
    PART,
    evaluate_parts,
    fill_complex,
    is_complex,
    join_parts,
    make_empty,
    meet,
    to_complex,
    view_complex,
    view_floats,
    view_parts,
    view_planes,
)


def _floats_of(value: Any) -> Any:
    """Return the floats of a complex tensor, or of each in a list, and anything else as it is."""
    if isinstance(value, (list, tuple)):
        return [_floats_of(v) for v in value]
    return view_floats(value) if is_complex(value) else value


def _move(name: str) -> Callable[..., Tensor]:
    """Return an operator on the floats; axes are counted from the front, so they name the same dims."""

    def apply(*args: Any, out: Tensor | None = None, **attrs: Any) -> Tensor:
        moved = function(name)(
            *map(_floats_of, args), **attrs, **({"out": view_floats(out)} if out is not None else {})
        )
        return view_complex(moved) if out is None else out

    return apply


def _change_planes(name: str) -> Callable[..., Tensor]:
    """Return an operator that keeps the shape and works on the last dims."""

    def apply(x: Tensor, **attrs: Any) -> Tensor:
        made = make_empty(x, x.shape)
        function(name)(view_planes(x), **attrs, out=view_planes(made))
        return made

    return apply


def _with_pairs(name: str, attribute: str) -> Callable[..., Tensor]:
    """Return an operator with an attribute for each dim, which is `last` for that of the parts."""
    last = {"shape": 2, "repeats": 1}[attribute]

    def apply(x: Tensor, **attrs: Any) -> Tensor:
        return view_complex(function(name)(view_floats(x), **{attribute: (*attrs[attribute], last)}))

    return apply


def _where(condition: Tensor, a: Any, b: Any) -> Tensor:
    a, b = meet(a, b)
    return view_complex(function("where")(condition[..., None], view_floats(a), view_floats(b)))


def _gather_elements(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    wide = indices[..., None].broadcast_to((*indices.shape, 2))
    return view_complex(function("gather_elements")(view_floats(x), wide, axis=axis))


def _diagonal(x: Tensor, *, offset: int = 0) -> Tensor:
    return join_parts(*(function("diagonal")(part, offset=offset) for part in view_parts(x)))


def _cast(x: Tensor, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """Return a complex tensor in another complex dtype, or whether its elements are not 0."""
    if out is not None:
        function("cast")(view_floats(x), out=view_floats(out))
        return out
    wanted = dtype_of(dtype)
    if wanted is BOOL:
        return FUNCTIONS["not_equal"](x, 0)
    if wanted.kind != "c":
        hint = "real(x), imag(x) or abs(x)"
        raise BadTensorDtype("astype", f"{x.dtype} to {wanted}", allowed="complex dtypes and BOOL", hint=hint)
    return to_complex(x, wanted)


# Reductions


def _reduce(name: str) -> Callable[..., Tensor]:
    """Return a reduction of each part for itself; the operators take no axes as all of them."""

    def apply(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = False) -> Tensor:
        if not x.ndim:
            return _move("copy")(x)
        return view_complex(function(name)(view_floats(x), axes=tuple(axes) or tuple(range(x.ndim)), keepdims=keepdims))

    return apply


def _reduce_truth(name: str) -> Callable[..., Any]:
    """Return an operator of whether elements are not 0."""
    return lambda x, **attrs: function(name)(FUNCTIONS["not_equal"](x, 0), **attrs)


def _reduce_magnitudes(name: str) -> Callable[..., Tensor]:
    return lambda x, **attrs: function(name)(FUNCTIONS["abs"](x), **attrs)


def _flatten_last(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Return a view or a copy of x with some axes as one, the last."""
    rest = [a for a in range(x.ndim) if a not in axes]
    moved = x.permute((*rest, *axes))
    shape = (*(x.shape[a] for a in rest), math.prod(x.shape[a] for a in axes))
    return moved.reshape(shape) if moved.desc.reshape(shape) is not None else ARRAYS["reshape"](moved, shape=shape)


def _reduce_prod(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = False) -> Tensor:
    """Return products, of halves with halves: as many steps as the length has bits."""
    taken = tuple(axes) or tuple(range(x.ndim))
    row = _flatten_last(x, taken)
    if not row.shape[-1]:
        row = fill_complex(1, (*row.shape[:-1], 1), x.dtype, x.device)
    while (n := row.shape[-1]) > 1:
        half = n // 2
        folded = FUNCTIONS["mul"](row[..., :half], row[..., half : 2 * half])
        row = _move("concat")([folded, row[..., 2 * half :]], axis=row.ndim - 1) if n % 2 else folded
    shape = [1 if a in taken else d for a, d in enumerate(x.shape) if keepdims or a not in taken]
    return row.reshape(*shape) if shape else row[..., 0]


def _cumprod(x: Tensor, *, axis: int) -> Tensor:
    """Return running products, of runs that double with each step (Hillis & Steele 1986)."""
    made, step = _move("copy")(x), 1
    while step < x.shape[axis]:
        places = [(slice(None),) * axis + (part,) for part in (slice(step), slice(step, None), slice(-step))]
        first, rest, before = (made[place] for place in places)
        made = _move("concat")([first, FUNCTIONS["mul"](rest, before)], axis=axis)
        step *= 2
    return made


# Products


def _expand(x: Tensor) -> Tensor:
    """Return matrices k × n as real ones 2k × 2n, by which rows of k pairs are multiplied: [[a, b], [-b, a]]."""
    shape = (*x.shape[:-2], 2 * x.shape[-2], 2 * x.shape[-1])
    made = function("fill")(shape=shape, dtype=PART[x.dtype], device=x.device)
    if made.desc.numel:
        real, imag = view_parts(x)
        function("copy")(real, out=made[..., 0::2, 0::2])
        function("copy")(imag, out=made[..., 0::2, 1::2])
        function("neg")(imag, out=made[..., 1::2, 0::2])
        function("copy")(real, out=made[..., 1::2, 1::2])
    expanded: Tensor = made
    return expanded


def _view_rows(x: Tensor) -> Tensor:
    """Return the view of contiguous rows as rows of floats, twice as long."""
    desc = x.desc
    strides = [2 * s for s in desc.strides[:-1]]
    return Tensor(
        TensorDesc(PART[desc.dtype], (*desc.shape[:-1], 2 * desc.shape[-1]), [*strides, 1], 2 * desc.offset), x.buffer
    )


def _matmul(a: Any, b: Any) -> Tensor:
    """Return the product of matrices as one of real matrices: the floats of a by those of b, expanded."""
    a, b = meet(a, b)
    if a.ndim == 1:
        return _matmul(a[None], b)[..., 0, :] if b.ndim > 1 else _matmul(a[None], b[:, None])[0, 0]
    if b.ndim == 1:
        return _matmul(a, b[:, None])[..., 0]
    if a.shape[-1] != b.shape[-2] or broadcast_shapes(a.shape[:-2], b.shape[:-2]) is None:
        raise BadTensorShape(
            "matmul", f"{a.desc} by {b.desc}", allowed="as many columns as rows, and leads that broadcast"
        )
    rows = a if a.desc.strides[-1] == 1 and a.desc.numel else _move("copy")(a)
    product = function("matmul")(_view_rows(rows), _expand(b))
    desc = product.desc
    return Tensor(TensorDesc(a.dtype, (*desc.shape[:-1], desc.shape[-1] // 2), None, desc.offset // 2), product.buffer)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return FUNCTIONS["mul"](a[:, None], b[None, :])


def _vecdot(a: Tensor, b: Tensor) -> Tensor:
    """Return sums of conj(a) · b along the last dim."""
    u, v = meet(a, b)
    terms = evaluate_parts(("x * u + y * v", "x * v - y * u"), *view_parts(u), *view_parts(v))
    return _reduce("reduce_sum")(terms, axes=(terms.ndim - 1,))


def _double(x: Tensor) -> Tensor:
    """Return n × n matrices as real ones of 2n × 2n: [[a, -b], [b, a]], in blocks."""
    n = x.shape[-1]
    made = function("fill")(shape=(*x.shape[:-2], 2 * n, 2 * n), dtype=PART[x.dtype], device=x.device)
    if made.desc.numel:
        real, imag = view_parts(x)
        function("copy")(real, out=made[..., :n, :n])
        function("neg")(imag, out=made[..., :n, n:])
        function("copy")(imag, out=made[..., n:, :n])
        function("copy")(real, out=made[..., n:, n:])
    doubled: Tensor = made
    return doubled


def _solve(a: Tensor, b: Tensor) -> Tensor:
    """Return the solution of a · x = b by the real system of twice the size."""
    n = a.shape[-1]
    both = function("concat")([*view_parts(b)], axis=b.ndim - 2)
    found = function("solve")(_double(a), both)
    return join_parts(found[..., :n, :], found[..., n:, :])


def _inverse(x: Tensor) -> Tensor:
    n = x.shape[-1]
    one = function("eye")(rows=n, dtype=PART[x.dtype], device=x.device)
    unit = to_complex(one, x.dtype).broadcast_to(x.shape)
    return _solve(x, unit)


# Creation, by the dtype that is asked for


def _fill(*, value: Any = 0.0, shape: Sequence[int] = (), dtype: Any, device: Any = None) -> Tensor:
    return fill_complex(value, shape, dtype_of(dtype), device)


def _eye(*, dtype: Any, device: Any = None, **attrs: Any) -> Tensor:
    wanted = dtype_of(dtype)
    return to_complex(function("eye")(**attrs, dtype=PART[wanted], device=device), wanted)


def _linspace(*, start: Any, stop: Any, count: int, dtype: Any, device: Any = None) -> Tensor:
    wanted = dtype_of(dtype)
    first, last = complex(start), complex(stop)
    ends = ((first.real, last.real), (first.imag, last.imag))
    options = {"count": count, "dtype": PART[wanted], "device": device}
    return join_parts(*(function("linspace")(start=a, stop=b, **options) for a, b in ends))


CREATORS: dict[str, Callable[..., Tensor]] = {"eye": _eye, "fill": _fill, "linspace": _linspace}
ARRAYS: dict[str, Callable[..., Any]] = {
    **{name: _move(name) for name in ("concat", "copy", "cumsum", "gather", "gather_nd", "repeat_interleave", "roll")},
    **{name: _move(name) for name in ("scatter_nd", "stack")},
    **{name: _change_planes(name) for name in ("tril", "triu")},
    **{name: _reduce(name) for name in ("reduce_mean", "reduce_sum")},
    **{name: _reduce_truth(name) for name in ("count_nonzero", "nonzero", "reduce_all", "reduce_any")},
    "cast": _cast,
    "cumprod": _cumprod,
    "diagonal": _diagonal,
    "gather_elements": _gather_elements,
    "inverse": _inverse,
    "matmul": _matmul,
    "norm": _reduce_magnitudes("norm"),
    "outer": _outer,
    "reduce_prod": _reduce_prod,
    "reshape": _with_pairs("reshape", "shape"),
    "solve": _solve,
    "tile": _with_pairs("tile", "repeats"),
    "vecdot": _vecdot,
    "where": _where,
}
