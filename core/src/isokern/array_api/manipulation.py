"""Functions of the array API standard that move elements: views where the memory allows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..arguments import is_integer
from ..status import BadTensorShape, BadTensorStrides, InvalidArgument, quote
from ..tensors import Tensor
from .dtypes import astype, result_type
from .operands import are_alike, as_array, axes_of, axis_of, change_shape, common_shape, flatten, takes_array
from .operators import function
from .searching import searchsorted


@takes_array
def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Return the view of x in a shape to which it broadcasts."""
    return x.broadcast_to(tuple(shape))


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return the views of arrays in the shape to which all broadcast."""
    shape = common_shape("broadcast_arrays", *arrays)
    return [x.broadcast_to(shape) for x in arrays]


def _alike(where: str, arrays: Any) -> list[Tensor]:
    if not isinstance(arrays, (tuple, list)) or not arrays:
        raise InvalidArgument(where, f"arrays={quote(arrays)}", allowed="a list of one array or more")
    if are_alike(arrays):
        return [*arrays]
    held = [as_array(where, x) for x in arrays]
    wanted = result_type(*held)
    return [astype(x, wanted, copy=False) for x in held]


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Return arrays joined along an axis, or as vectors where it is None."""
    held = _alike("concat", arrays)
    if axis is None:
        held, axis = [flatten(x) for x in held], 0
    made: Tensor = function("concat")(held, axis=axis_of("concat", axis, held[0].ndim))
    return made


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Return arrays of one shape joined along a new axis."""
    held = _alike("stack", arrays)
    made: Tensor = function("stack")(held, axis=axis_of("stack", axis, held[0].ndim + 1))
    return made


@takes_array
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the views along an axis."""
    at = axis_of("unstack", axis, x.ndim)
    return tuple(x.permute(at, *(a for a in range(x.ndim) if a != at)))


@takes_array
def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """Return the view with a dim of 1 at a place of the result."""
    return x.unsqueeze(axis_of("expand_dims", axis, x.ndim + 1))


@takes_array
def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """Return the view without dims of 1."""
    return x.squeeze(axes_of("squeeze", axis, x.ndim))


@takes_array
def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Return the view with its dims in another order."""
    found = axes_of("permute_dims", tuple(axes), x.ndim)
    if len(found) != x.ndim:
        raise InvalidArgument("permute_dims", f"axes={quote(axes)} of {x.desc}", allowed="each axis once")
    return x.permute(found)


@takes_array
def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Return the view with some axes at other places, the others in their order."""
    come, go = axes_of("moveaxis", source, x.ndim), axes_of("moveaxis", destination, x.ndim)
    if len(come) != len(go):
        raise InvalidArgument("moveaxis", f"{quote(source)} to {quote(destination)}", allowed="as many of each")
    rest = iter([a for a in range(x.ndim) if a not in come])
    place = dict(zip(go, come, strict=True))
    return x.permute(tuple(place[a] if a in place else next(rest) for a in range(x.ndim)))


@takes_array
def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """Return x in reverse along axes, all of them by default: a view."""
    axes = axes_of("flip", axis, x.ndim)
    return x[tuple(slice(None, None, -1) if a in axes else slice(None) for a in range(x.ndim))]


@takes_array
def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """Return x in another shape, one dim of which may be -1: a view where the strides have one, unless `copy`."""
    if copy is None and shape.__class__ is tuple:
        try:  # which takes less than `suppress`
            return x.reshape(shape)
        except (BadTensorShape, BadTensorStrides):  # no such shape, or no such view: what follows says why, or copies
            pass
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    if not all(hasattr(d, "__index__") for d in given):
        raise BadTensorShape("reshape", f"shape={quote(shape)}", allowed="integers")
    dims = [d.__index__() for d in given]
    if dims.count(-1) == 1:
        known = -math.prod(dims)
        if known < 1 or x.size % known:
            raise BadTensorShape("reshape", f"{x.desc} to {quote(shape)}", allowed="dims whose product is the size")
        dims[dims.index(-1)] = x.size // known
    wanted = tuple(dims)
    if copy is False:
        return x.reshape(wanted)
    made = change_shape(x, wanted)
    copied: Tensor = function("copy")(made) if copy and made.buffer is x.buffer else made
    return copied


@takes_array
def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Return the elements moved along axes, round the end, or along the flat array where `axis` is None."""
    if axis is None:
        rolled = function("roll")(flatten(x), shifts=(shift,), axes=(0,))
        return change_shape(rolled, x.shape)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise InvalidArgument("roll", f"shift={quote(shift)}, axis={quote(axis)}", allowed="as many of each")
    total: dict[int, int] = {}
    for a, n in zip(axes, shifts, strict=True):
        at = axis_of("roll", a, x.ndim)
        total[at] = total.get(at, 0) + n
    made: Tensor = function("roll")(x, shifts=tuple(total.values()), axes=tuple(total))
    return made


@takes_array
def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Return x repeated along each axis."""
    counts = tuple(repetitions)
    counts = (1,) * (x.ndim - len(counts)) + counts
    lifted = x[(None,) * (len(counts) - x.ndim) + (...,)]
    made: Tensor = function("tile")(lifted, repeats=counts) if counts else function("copy")(lifted)
    return made


@takes_array
def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Return each element along an axis, or of the flat array, so often as `repeats` says, a number or a vector."""
    held, at = (flatten(x), 0) if axis is None else (x, axis_of("repeat", axis, x.ndim))
    if is_integer(repeats):
        made: Tensor = function("repeat_interleave")(held, repeats=repeats, axis=at)
        return made
    counts = as_array("repeat", repeats, x.device)
    n = held.shape[at]
    if counts.ndim > 1 or (counts.ndim == 1 and counts.shape[0] not in (1, n)):
        raise BadTensorShape("repeat", f"repeats {counts.desc} along {n}", allowed=f"one number, or {n}")
    ends = function("cumsum")(astype(counts, "I64").broadcast_to(n), axis=0)
    total = int(ends[-1].item()) if n else 0
    if n and function("reduce_min")(counts).item() < 0:
        raise InvalidArgument("repeat", f"repeats {counts.desc} with a number below 0", allowed="numbers from 0")
    place = function("iota")(shape=(total,), axis=0, dtype="I64", device=x.device)
    gathered: Tensor = function("gather")(held, searchsorted(ends, place, side="right"), axis=at)
    return gathered
