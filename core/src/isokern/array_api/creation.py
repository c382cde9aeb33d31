"""Creation functions of the array API standard."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import tensors
from ..arguments import is_integer
from ..backend.discovery import device as find_device
from ..dtypes import F64, DType, dtype as dtype_of
from ..layout import INT64_MAX
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor, dlpack
from .dtypes import DEFAULT_COMPLEX, DEFAULT_FLOAT, astype, default_dtype, fits, is_complex_scalar, is_scalar
from .operands import as_array, takes_array
from .operators import function


def _shape(where: str, shape: Any) -> tuple[int, ...]:
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    if not all(hasattr(d, "__index__") and not isinstance(d, bool) and d.__index__() >= 0 for d in given):
        raise BadTensorShape(where, f"shape={quote(shape)}", allowed="integers from 0")
    return tuple(d.__index__() for d in given)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return an array of a number, nested sequences, a buffer, or another array.

    Python's floats become float32, and its complex numbers complex64.

    An array is itself where nothing changes, and NumPy's memory is used in place where the device allows that, unless
    `copy` is True; where it is False, a copy is an error.
    """
    wanted = None if dtype is None else dtype_of(dtype)
    if isinstance(obj, Tensor):
        made = obj if device is None else obj.to_device(device)
        if wanted is not None and wanted is not made.dtype:
            made = astype(made, wanted)
        elif copy and made is obj:
            made = function("copy")(obj)
        if copy is False and made is not obj:
            raise InvalidArgument("asarray", f"{obj!r} as another", allowed="the same without a copy", hint="copy=None")
        return made
    if hasattr(obj, "__dlpack__") and not isinstance(obj, np.ndarray):
        return asarray(_receive(obj, device, copy), dtype=wanted, device=device, copy=copy)
    array = tensors.numbers("asarray", obj)
    # Objects with a dtype and NumPy's scalars keep theirs; Python's numbers take the default of their kind
    plain = not isinstance(obj, (np.ndarray, np.generic, memoryview, bytes, bytearray)) and not hasattr(obj, "dtype")
    if wanted is None and plain and array.dtype == np.float64:
        wanted = DEFAULT_FLOAT
    if wanted is None and plain and array.dtype == np.complex128:
        wanted = DEFAULT_COMPLEX
    element = dtype_of(array.dtype.newbyteorder("="))
    if wanted in (None, element) and not copy and isinstance(obj, np.ndarray):
        held = tensors.as_tensor(obj, device)
        if copy is False and not (held.buffer.view is not None and np.shares_memory(held.numpy(), obj)):
            raise InvalidArgument("asarray", "an array of NumPy", allowed="one in place", hint="copy=None")
        return held
    if copy is False:
        raise InvalidArgument(
            "asarray", f"a {type(obj).__name__}", allowed="an array, without a copy", hint="copy=None"
        )
    if wanted is not None and wanted.kind in "iu" and array.dtype.kind in "iu":
        assert wanted.numpy is not None
        limits = np.iinfo(wanted.numpy)
        if array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
            allowed = f"{limits.min}..{limits.max}"
            raise InvalidArgument("asarray", f"{quote(obj)} of {wanted}", allowed=allowed, hint="asarray(…).astype(…)")
    return tensors.tensor(array, wanted or element, device=device)


def _receive(x: Any, device: Any, copy: bool | None) -> Tensor:
    if hasattr(x, "__dlpack__") and dlpack.source_device(x)[0] == dlpack.CPU:
        target = find_device(device)
        in_place = target.memory.wraps or copy is False
        return tensors.from_dlpack(x, device=target) if in_place else tensors.as_tensor(x, target)
    return tensors.from_dlpack(x)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a producer's memory as an array, in place unless `copy` is True or it is on another device.

    The host's memory goes to `device`, or else to the default device: in place where that can use it.
    """
    made = Tensor(x.desc, x.buffer) if isinstance(x, Tensor) else _receive(x, device, copy)
    moved = made if device is None else made.to_device(device)
    if copy is False and moved is not made:
        raise InvalidArgument("from_dlpack", f"{made!r} for {device}", allowed="the memory's own device without a copy")
    copied: Tensor = function("copy")(moved) if copy and moved is made else moved
    return copied


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an array of undefined content."""
    return tensors.empty(_shape("empty", shape), DEFAULT_FLOAT if dtype is None else dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an array of zeros."""
    return tensors.zeros(_shape("zeros", shape), DEFAULT_FLOAT if dtype is None else dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an array of ones."""
    return _fill("ones", _shape("ones", shape), 1, DEFAULT_FLOAT if dtype is None else dtype_of(dtype), device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an array of one value."""
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    element = default_dtype(fill_value) if dtype is None else dtype_of(dtype)
    return _fill("full", _shape("full", shape), fill_value, element, device)


def _fill(where: str, shape: tuple[int, ...], value: Any, element: DType, device: Any) -> Tensor:
    if not is_scalar(value):
        raise BadTensorDtype(where, f"fill_value={quote(value)}", allowed="a number or a boolean")
    if element.kind != "b" and not (fits(value, element) or isinstance(value, (bool, np.bool_))):
        raise BadTensorDtype(where, f"fill_value={quote(value)} of {element}", allowed=f"what {element} holds")
    of = {"f": float, "b": float, "c": complex}.get(element.kind, int)
    number: Any = of(value)
    if element.kind in "iu":
        assert element.numpy is not None
        limits = np.iinfo(element.numpy)
        if not limits.min <= number <= limits.max:
            allowed = f"{limits.min}..{limits.max}"
            raise InvalidArgument(where, f"fill_value={quote(value)} of {element}", allowed=allowed)
    made: Tensor = function("fill")(value=number, shape=shape, dtype=element, device=device)
    return made


@takes_array
def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an array of undefined content in the shape of x, of its dtype and on its device by default."""
    return empty(x.shape, dtype=dtype or x.dtype, device=x.device if device is None else device)


@takes_array
def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return zeros in the shape of x, of its dtype and on its device by default."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=x.device if device is None else device)


@takes_array
def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return ones in the shape of x, of its dtype and on its device by default."""
    return ones(x.shape, dtype=dtype or x.dtype, device=x.device if device is None else device)


@takes_array
def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return one value in the shape of x, of its dtype and on its device by default."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=x.device if device is None else device)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return start, start + step, … below stop (above it for a negative step); integers where all three are."""
    first, last = (0, start) if stop is None else (start, stop)
    whole = all(is_integer(v) for v in (first, last, step))
    element = (default_dtype(0) if whole else DEFAULT_FLOAT) if dtype is None else dtype_of(dtype)
    count = _count_steps(first, last, step, whole)
    iota, parts = function("iota"), {"shape": (count,), "axis": 0, "device": device}
    ends = (first, step, first + step * count)
    if all(float(v).is_integer() and abs(v) < 2**63 for v in ends):
        made = iota(start=int(first), step=int(step), dtype="I64", **parts)
        return astype(made, element, copy=False)
    if element.kind != "f":
        raise BadTensorDtype("arange", f"{first}, {last}, {step} of {element}", allowed="integers")
    wide = "F64" if element is F64 else "F32"
    made = function("add")(function("mul")(iota(dtype=wide, **parts), float(step)), float(first))
    return astype(made, element, copy=False)


def _count_steps(first: Any, last: Any, step: Any, whole: bool) -> int:
    """Return how many elements `arange` has."""
    for name, value in (("start", first), ("stop", last), ("step", step)):
        if not is_scalar(value) or isinstance(value, (bool, complex)) or not (whole or math.isfinite(value)):
            raise InvalidArgument("arange", f"{name}={quote(value)}", allowed="a finite number")
    if step == 0:
        raise InvalidArgument("arange", "step=0", allowed="another step")
    count: int = -((first - last) // step) if whole else math.ceil((last - first) / step)
    if count > INT64_MAX:
        given = f"{quote(first)} to {quote(last)} by {quote(step)}"
        raise InvalidArgument("arange", given, allowed="fewer than 2^63 elements")
    return max(0, count)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """Return `num` numbers at equal distances from start to stop, which is the last of them where `endpoint`."""
    if not is_integer(num) or num < 0:
        raise InvalidArgument("linspace", f"num={quote(num)}", allowed="an integer from 0")
    default = DEFAULT_COMPLEX if is_complex_scalar(start) or is_complex_scalar(stop) else DEFAULT_FLOAT
    element = default if dtype is None else dtype_of(dtype)
    computed = element if element.kind in "fc" else default
    count = num if endpoint or num == 0 else num + 1
    if max(abs(start), abs(stop)) > 1e30:  # more than the operator's attributes hold
        part = function("linspace")(start=0.0, stop=1.0, count=count, dtype=computed, device=device)
        rest = function("sub")(1.0, part)
        made = function("add")(function("mul")(rest, start), function("mul")(part, stop))[:num]
    else:
        made = function("linspace")(start=start, stop=stop, count=count, dtype=computed, device=device)[:num]
    return made if element is computed else astype(made, element)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a matrix of zeros with ones on diagonal k."""
    columns = n_rows if n_cols is None else n_cols
    element = DEFAULT_FLOAT if dtype is None else dtype
    at = _limit(k, n_rows, columns)
    made: Tensor = function("eye")(rows=n_rows, columns=columns, k=at, dtype=element, device=device)
    return made


def _limit(k: int, rows: int, columns: int) -> int:
    """Return the number of a diagonal, which may be any integer, within the matrix: beyond, all are alike."""
    return max(-rows, min(k, columns))


def _triangle(name: str, x: Any, k: int) -> Tensor:
    held = as_array(name, x)
    if held.ndim < 2:
        raise BadTensorShape(name, f"{held.desc}", allowed="matrices in the last two dims")
    made: Tensor = function(name)(held, k=_limit(k, *held.shape[-2:]))
    return made


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros above diagonal k."""
    return _triangle("tril", x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros below diagonal k."""
    return _triangle("triu", x, k)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return each vector in the shape of all, in which it varies along its own dim: views."""
    return list(function("meshgrid")(*arrays, indexing=indexing))
