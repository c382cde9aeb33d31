"""Statistical and utility functions of the array API standard: reductions and running totals."""

from __future__ import annotations

from typing import Any

from ..arguments import is_integer
from ..dtypes import I64, U64, DType, dtype as dtype_of
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor
from .dtypes import astype
from .operands import as_array, axes_of, axis_of, flatten, together
from .operators import function


def _check(where: str, x: Any, kinds: str, allowed: str) -> Tensor:
    held = as_array(where, x)
    if held.dtype.kind not in (*kinds,):
        raise BadTensorDtype(where, f"an array of {held.dtype}", allowed=allowed, hint="tensor.astype(…)")
    return held


def _reduce(name: str, x: Tensor, axis: Any, keepdims: bool, **attrs: Any) -> Tensor:
    """Return a reduction along axes; the operators take no axes as all, so those of `axis=()` are added as a dim."""
    axes = axes_of(name.removeprefix("reduce_"), axis, x.ndim)
    if axes or x.ndim == 0:
        made: Tensor = function(name)(x, axes=axes, keepdims=keepdims, **attrs)
        return made
    each: Tensor = function(name)(x[..., None], axes=(x.ndim,), keepdims=False, **attrs)
    return each


def _total_dtype(x: Tensor, dtype: Any) -> DType:
    """Return the dtype of a total: integers are widened to 64 bits, so that small ones do not overflow."""
    if dtype is not None:
        return dtype_of(dtype)
    return {"i": I64, "u": U64}.get(x.dtype.kind, x.dtype)


def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum along axes, of integers in 64 bits."""
    held = _check("sum", x, "iufc", "numbers")
    return _reduce("reduce_sum", astype(held, _total_dtype(held, dtype), copy=False), axis, keepdims)


def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product along axes, of integers in 64 bits."""
    held = _check("prod", x, "iufc", "numbers")
    return _reduce("reduce_prod", astype(held, _total_dtype(held, dtype), copy=False), axis, keepdims)


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the largest element along axes; NaN if there is one."""
    return _reduce("reduce_max", _check_filled("max", x, axis), axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element along axes; NaN if there is one."""
    return _reduce("reduce_min", _check_filled("min", x, axis), axis, keepdims)


def _check_filled(where: str, x: Any, axis: Any) -> Tensor:
    held = _check(where, x, "iuf", "real numbers")
    if 0 in [held.shape[a] for a in axes_of(where, axis, held.ndim)]:
        raise BadTensorShape(where, f"{held.desc} along axis={quote(axis)}", allowed="one element or more")
    return held


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the mean along axes."""
    return _reduce("reduce_mean", _check("mean", x, "fc", "floats and complex numbers"), axis, keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance along axes: squared distances from the mean, over their number less `correction`."""
    return _reduce("var", _check("var", x, "f", "floats"), axis, keepdims, correction=float(correction))


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation along axes, the root of `var`."""
    return _reduce("std", _check("std", x, "f", "floats"), axis, keepdims, correction=float(correction))


def _running(name: str, x: Any, axis: int | None, dtype: Any, initial: bool, first: float) -> Tensor:
    held = _check(name, x, "iufc", "numbers")
    if axis is None:
        if held.ndim > 1:
            raise InvalidArgument(name, f"axis=None of {held.desc}", allowed="an axis for rank 2 or more")
        held = flatten(held)
    at = axis_of(name, -1 if axis is None else axis, held.ndim)
    wide = astype(held, _total_dtype(held, dtype), copy=False)
    made: Tensor = function(name)(wide, axis=at)
    if not initial:
        return made
    shape = [1 if a == at else d for a, d in enumerate(held.shape)]
    start = function("fill")(value=first, shape=shape, dtype=wide.dtype, device=wide.device)
    joined: Tensor = function("concat")([start, made], axis=at)
    return joined


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return the running sums along an axis, behind a 0 where `include_initial`; integers in 64 bits."""
    return _running("cumsum", x, axis, dtype, include_initial, 0.0)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return the running products along an axis, behind a 1 where `include_initial`; integers in 64 bits."""
    return _running("cumprod", x, axis, dtype, include_initial, 1.0)


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements along axes are not zero."""
    return _reduce("reduce_all", as_array("all", x), axis, keepdims)


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return whether one element along axes is not zero."""
    return _reduce("reduce_any", as_array("any", x), axis, keepdims)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the differences of neighbours along an axis, n times over, with arrays joined before and behind."""
    if not is_integer(n) or n < 0:
        raise InvalidArgument("diff", f"n={quote(n)}", allowed="an integer from 0")
    parts = [p for p in (prepend, as_array("diff", x), append) if p is not None]
    held = together("diff", *parts)
    at = axis_of("diff", axis, held[0].ndim)
    joined: Tensor = held[0] if len(held) == 1 else function("concat")(held, axis=at)
    if joined.dtype.kind == "b":
        raise BadTensorDtype("diff", f"an array of {joined.dtype}", allowed="numbers", hint="tensor.astype(…)")
    for _ in range(n):
        later, earlier = ((slice(None),) * at + (part,) for part in (slice(1, None), slice(None, -1)))
        joined = function("sub")(joined[later], joined[earlier])
    return joined
