"""What functions are given as tensors of one dtype, on the device of the first; and how these are written in place."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ..dtypes import DType
from ..layout import broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, BadTensorStrides, InvalidArgument, quote
from ..tensors import Tensor, as_tensor, tensor
from ..tensors.views import IndexOutOfRange
from .complex_parts import to_complex
from .dtypes import astype, check_scalar, is_complex_scalar, is_scalar, meet_scalar, promote
from .operators import function

Function = TypeVar("Function", bound=Callable[..., Any])
KEPT = 1024  # numbers as arrays
_scalars: dict[Hashable, Tensor] = {}
atexit.register(_scalars.clear)  # device memory is freed while the backends' modules are whole


def as_array(where: str, value: Any, device: Any = None) -> Tensor:
    """Return a tensor as it is, and an array of NumPy on a device; a list or a number is refused."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return as_tensor(value, device)
    given = f"{quote(value)}, of type {type(value).__name__}"
    raise BadTensorDtype(where, given, allowed="an array", hint="isokern.array_api.asarray(…)")


def takes_array(function: Function) -> Function:
    """Let a function take arrays of NumPy as its first argument, and refuse what is no array with a typed error."""

    @wraps(function)
    def check(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function(x if x.__class__ is Tensor else as_array(function.__name__, x), *args, **kwargs)

    made: Any = check
    return made  # type: ignore[no-any-return]  # of the same signature


def as_scalar(where: str, value: Any, dtype: DType, device: Any) -> Tensor:
    """Return a number as an array of rank 0, which nobody writes; its kind has to fit the dtype, which has to hold it.

    The arrays of the numbers that a program uses are kept.
    """
    number = repr(value) if not value or is_complex_scalar(value) else value  # -0.0 equals 0.0
    key = number, value.__class__, dtype, device
    kept = _scalars.get(key)
    if kept is not None:
        return kept
    check_scalar(where, value, dtype)
    if dtype.kind in "iu":
        assert dtype.numpy is not None
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= value <= limits.max:
            allowed = f"{limits.min}..{limits.max}"
            raise InvalidArgument(where, f"{quote(value)} beside an array of {dtype}", allowed=allowed)
    with np.errstate(over="ignore"):
        held = np.asarray(value, np.float64 if dtype.kind == "f" else dtype.numpy)
    made = tensor(held, dtype, device=device)
    if len(_scalars) >= KEPT:
        _scalars.clear()
    _scalars[key] = made
    return made


def are_alike(values: Sequence[Any]) -> bool:
    """Return whether all are tensors of one dtype; its callers then need not look closer."""
    like = None
    for v in values:
        if v.__class__ is not Tensor or (like is not None and v.desc.dtype is not like):
            return False
        like = v.desc.dtype
    return like is not None


def together(where: str, *values: Any) -> list[Tensor]:
    """Return arrays and numbers as tensors of one dtype, that in which the arrays meet, on the first array's device."""
    if are_alike(values):
        return [*values]
    first = next((v for v in values if isinstance(v, Tensor)), None)
    device = None if first is None else first.device
    arrays = [None if is_scalar(v) else as_array(where, v, device) for v in values]
    dtype: DType | None = None
    for a in arrays:
        if a is not None:
            dtype = a.dtype if dtype is None else promote(where, dtype, a.dtype)
    if dtype is None:
        raise BadTensorDtype(where, f"only numbers: {quote(values)}", allowed="an array beside them")
    for v in values:
        dtype = meet_scalar(v, dtype) if is_complex_scalar(v) else dtype
    if device is None:
        device = next(a.device for a in arrays if a is not None)
    return [
        as_scalar(where, v, dtype, device) if a is None else a if a.dtype is dtype else astype(a, dtype)
        for v, a in zip(values, arrays, strict=True)
    ]


def axes_of(where: str, axis: Any, rank: int) -> tuple[int, ...]:
    """Return the axes that None (all), an integer or a tuple names, counted from the front, each once."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = []
    for a in given:
        if isinstance(a, bool) or not hasattr(a, "__index__") or not -rank <= a.__index__() < rank:
            allowed = f"{-rank}..{rank - 1}" if rank else "arrays of rank 1 or more"
            raise IndexOutOfRange(where, f"axis={quote(axis)} of rank {rank}", allowed=allowed)
        found.append(a.__index__() % rank)
    if len(set(found)) != len(found):
        raise InvalidArgument(where, f"axis={quote(axis)}", allowed="each axis once")
    return tuple(found)


def axis_of(where: str, axis: Any, rank: int) -> int:
    """Return an axis counted from the front."""
    if axis.__class__ is int and -rank <= axis < rank:
        return int(axis % rank)
    return axes_of(where, (axis,), rank)[0]


def flatten(x: Tensor) -> Tensor:
    """Return the elements in row-major order: a view where the strides have one, else a copy."""
    return change_shape(x, (x.desc.numel,))


def change_shape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return x in another shape: a view where the strides have one, else a copy."""
    try:
        return x.reshape(shape)
    except BadTensorStrides:  # it has no such view
        pass
    copied: Tensor = function("reshape")(x, shape=shape)
    return copied


def common_shape(where: str, *arrays: Tensor) -> tuple[int, ...]:
    """Return the shape to which all broadcast."""
    shape: tuple[int, ...] | None = arrays[0].shape if arrays else ()
    for a in arrays[1:]:
        if shape is not None and shape != a.desc.shape:
            shape = broadcast_shapes(shape, a.desc.shape)
    if shape is None:
        given = ", ".join(str(a.shape) for a in arrays)
        raise BadTensorShape(where, f"shapes {given}", allowed="dims that are equal or 1")
    return shape


def write(target: Tensor, value: Any, where: str = "assign") -> None:
    """Write an array or a number into all elements of `target`, as if all were read before one is written."""
    if is_scalar(value):
        source = as_scalar(where, value, target.dtype, target.device)
    else:
        source = as_array(where, value, target.device)
        if source.dtype is not target.dtype and promote(where, source.dtype, target.dtype) is not target.dtype:
            given = f"an array of {source.dtype} into one of {target.dtype}"
            raise BadTensorDtype(where, given, allowed=f"dtypes that {target.dtype} holds", hint="tensor.astype(…)")
    if source.buffer is target.buffer and source.desc == target.desc:
        return  # x[1:] += 1 ends with the assignment of a view to itself
    if source.desc.shape != target.shape:
        if common_shape(where, source, target) != target.shape:
            raise BadTensorShape(where, f"{source.desc} into {target.desc}", allowed="what broadcasts to it")
        source = source.broadcast_to(target.shape)
    if not target.desc.numel:
        return
    if target.dtype.kind == "c":
        source = to_complex(source, target.dtype)
    if shares_memory(source, target):
        source = function("copy")(source)
    function("copy" if source.dtype is target.dtype else "cast")(source, out=target)


def shares_memory(a: Tensor, b: Tensor) -> bool:
    """Return whether the ranges of two tensors' memory overlap."""
    return a.buffer.memory is b.buffer.memory and a.span[0] < b.span[1] and b.span[0] < a.span[1]
