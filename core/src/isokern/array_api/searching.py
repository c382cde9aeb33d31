"""Searching, sorting and set functions of the array API standard."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..status import BadTensorShape, InvalidArgument
from ..tensors import Tensor
from .complex_parts import check_real, view_parts
from .dtypes import is_scalar
from .operands import as_array, as_scalar, axes_of, axis_of, flatten, takes_array, together
from .operators import function


def _extreme(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    check_real(name, x)
    held = flatten(x) if axis is None else x
    at = 0 if axis is None else axis_of(name, axis, x.ndim)
    made: Tensor = function(name)(held, axis=at, keepdims=keepdims)
    return made.reshape((1,) * x.ndim) if axis is None and keepdims else made


@takes_array
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first largest element along an axis, or of the flat array."""
    return _extreme("argmax", x, axis, keepdims)


@takes_array
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first smallest element along an axis, or of the flat array."""
    return _extreme("argmin", x, axis, keepdims)


@takes_array
def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the number of elements that are not zero, along axes or of all."""
    axes = axes_of("count_nonzero", axis, x.ndim)
    if not axes:
        made: Tensor = function("cast")(function("not_equal")(x, function("sub")(x, x)), dtype="I64")
        return made
    counted: Tensor = function("count_nonzero")(x, axes=axes, keepdims=keepdims)
    return counted


@takes_array
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the indices of the elements that are not zero, a vector for each axis; the host waits for their number."""
    if x.ndim == 0:
        raise BadTensorShape("nonzero", f"{x.desc}", allowed="rank 1 or more")
    places, count = function("nonzero")(x)
    return tuple(places[a, : int(count.item())] for a in range(x.ndim))


@takes_array
def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Return x1 where the condition is true, else x2; all three broadcast."""
    a, b = together("where", x1, x2) if not (is_scalar(x1) and is_scalar(x2)) else _numbers(condition, x1, x2)
    made: Tensor = function("where")(condition, a, b)
    return made


def _numbers(condition: Tensor, x1: Any, x2: Any) -> list[Tensor]:
    from .dtypes import default_dtype

    kinds = [default_dtype(v) for v in (x1, x2)]
    wanted = max(kinds, key=lambda d: "bifc".index(d.kind))
    return [as_scalar("where", v, wanted, condition.device) for v in (x1, x2)]


@takes_array
def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return where each element of x2 belongs in the sorted vector x1: before ("left") or behind its equals.

    A bisection of all elements at once, one step for each bit of the vector's length; where it has ended before, a
    further step changes nothing.
    """
    if side not in ("left", "right"):
        raise InvalidArgument("searchsorted", f"side={side!r}", allowed="'left' or 'right'")
    if x1.ndim != 1:
        raise BadTensorShape("searchsorted", f"x1 is {x1.desc}", allowed="a vector")
    row, wanted = together("searchsorted", x1, x2)
    call = function
    if sorter is not None:
        row = call("gather")(row, sorter, axis=0)
    n = row.shape[0]
    low: Tensor = call("fill")(shape=wanted.shape, dtype="I64", device=row.device)
    if not n or not wanted.desc.numel:
        return low
    high: Tensor = call("fill")(value=n, shape=wanted.shape, dtype="I64", device=row.device)
    for _ in range(n.bit_length()):
        middle = call("minimum")(call("right_shift")(call("add")(low, high), 1), n - 1)
        found = call("gather")(row, middle, axis=0)
        below = call("less" if side == "left" else "less_equal")(found, wanted)
        if row.dtype.kind == "f":  # NaN is larger than all
            lost = call("isnan")(wanted)
            below = call("logical_or")(below, call("logical_and")(lost, call("logical_not")(call("isnan")(found))))
            if side == "right":
                below = call("logical_or")(below, lost)
        low, high = call("where")(below, call("add")(middle, 1), low), call("where")(below, high, middle)
    return low


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the elements along an axis in order; NaN counts as largest."""
    held = as_array("sort", x)
    made: Tensor = function("sort")(held, axis=axis_of("sort", axis, held.ndim), descending=descending)[0]
    return made


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices that sort along an axis; equal elements keep their order."""
    held = as_array("argsort", x)
    made: Tensor = function("sort")(held, axis=axis_of("argsort", axis, held.ndim), descending=descending)[1]
    return made


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the distinct elements in rising order, where each occurs first, which one each is, and how often.

    Each NaN is distinct, as the standard says, which the operator `unique` does not; so it is made of a stable sort.
    The host waits for the number of values.
    """
    call = function
    flat = flatten(as_array("unique_all", x))
    n = flat.shape[0]
    ordered, places = call("sort")(flat, axis=0) if flat.dtype.kind != "c" else _sort_complex(flat)
    fresh = call("fill")(value=1.0, shape=(n,), dtype="BOOL", device=flat.device)
    if n > 1:
        call("not_equal")(ordered[1:], ordered[:-1], out=fresh[1:])
    found, count = call("nonzero")(fresh)
    total = int(count.item())
    starts = found[0, :total]
    values = call("gather")(ordered, starts, axis=0)
    indices = call("gather")(places, starts, axis=0)
    end = call("fill")(value=n, shape=(1,), dtype="I64", device=flat.device)
    bounds = call("concat")([starts, end], axis=0)
    counts = call("sub")(bounds[1:], bounds[:-1])
    owner = call("sub")(call("cumsum")(call("cast")(fresh, dtype="I64"), axis=0), 1)
    inverse = call("scatter")(owner, places, owner, axis=0)  # each place of the flat array is written once
    return UniqueAll(values, indices, inverse.reshape(x.shape), counts)


def _sort_complex(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return complex numbers sorted by their real parts, then by their imaginary parts, and where they stood."""
    call = function
    real, imag = view_parts(x)
    first = call("sort")(imag, axis=0)[1]
    places = call("gather")(first, call("sort")(call("gather")(real, first, axis=0), axis=0)[1], axis=0)
    ordered: Tensor = call("gather")(x, places, axis=0)
    return ordered, places


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct elements in rising order, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct elements in rising order, and for each element which of them it is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct elements in rising order."""
    return unique_all(x).values
