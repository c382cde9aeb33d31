"""Data types of the array API standard: names, kinds, promotion, limits and conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..dtypes import (
    BF16,
    BOOL,
    C64,
    C128,
    COMPLEX,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    NUMBERS,
    U8,
    U16,
    U32,
    U64,
    DType,
    dtype as dtype_of,
)
from ..status import BadTensorDtype, InvalidArgument, quote
from ..tensors import Tensor
from .complex_parts import PART, to_complex
from .operators import function

# The standard's names
DTYPES = {
    "bool": BOOL,
    "int8": I8,
    "int16": I16,
    "int32": I32,
    "int64": I64,
    "uint8": U8,
    "uint16": U16,
    "uint32": U32,
    "uint64": U64,
    "float32": F32,
    "float64": F64,
    "complex64": C64,
    "complex128": C128,
}
EXTRA = {"float16": F16, "bfloat16": BF16}  # not in the standard: every function takes them, as other libraries do
DEFAULT_FLOAT, DEFAULT_INTEGER, DEFAULT_COMPLEX = F32, I64, C64

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}
_BY_SIZE = {(d.kind, d.itemsize): d for d in (I8, I16, I32, I64, U8, U16, U32, U64)}


def promote(where: str, a: DType, b: DType) -> DType:
    """Return the dtype in which two meet, by the standard's tables; BadTensorDtype where these have none.

    Kinds do not mix, but signed and unsigned integers do where a signed type holds both, and floats and complex numbers
    in the complex type whose parts hold both. F16 and BF16 meet in F32.
    """
    if a is b:
        return a
    kinds = {a.kind, b.kind}
    if a in NUMBERS and b in NUMBERS and kinds <= {"i", "u"}:
        if len(kinds) == 1:
            return a if a.itemsize > b.itemsize else b
        signed, unsigned = (a, b) if a.kind == "i" else (b, a)
        if unsigned.itemsize < 8:
            return _BY_SIZE["i", max(signed.itemsize, 2 * unsigned.itemsize)]
    if a in NUMBERS and b in NUMBERS and kinds == {"f"}:
        return F32 if a.itemsize == b.itemsize else a if a.itemsize > b.itemsize else b
    if "c" in kinds and kinds <= {"f", "c"} and {a, b} <= {*FLOATS, *COMPLEX}:
        return C128 if F64 in (PART.get(a, a), PART.get(b, b)) else C64
    raise BadTensorDtype(
        where, f"{a} and {b} have no dtype in common", allowed="dtypes of one kind", hint="cast one: tensor.astype(…)"
    )


def fits(scalar: Any, dtype: DType) -> bool:
    """Return whether a Python number may stand beside an array of a dtype: its kind is that of the dtype or below."""
    if isinstance(scalar, (bool, np.bool_)):
        return dtype.kind == "b"
    if isinstance(scalar, (int, np.integer)):
        return dtype.kind in "iufc"
    if is_complex_scalar(scalar):
        return dtype.kind == "c"
    return isinstance(scalar, (float, np.floating)) and dtype.kind in "fc"


def is_complex_scalar(value: Any) -> bool:
    """Return whether a value is a complex number of Python or NumPy."""
    return isinstance(value, (complex, np.complexfloating))


def meet_scalar(scalar: Any, dtype: DType) -> DType:
    """Return the dtype in which a number meets an array's: the complex one of a float's for a complex number."""
    if is_complex_scalar(scalar) and dtype in FLOATS:
        return C128 if dtype is F64 else C64
    return dtype


def is_scalar(value: Any) -> bool:
    """Return whether a value is a Python or NumPy number."""
    return isinstance(value, (bool, int, float, complex, np.generic))


def default_dtype(value: Any) -> DType:
    """Return the dtype of an array of a Python number: BOOL, I64, F32 or C64."""
    if isinstance(value, (bool, np.bool_)):
        return BOOL
    if isinstance(value, (int, np.integer)):
        return DEFAULT_INTEGER
    if isinstance(value, (float, np.floating)):
        return DEFAULT_FLOAT
    if is_complex_scalar(value):
        return DEFAULT_COMPLEX
    raise BadTensorDtype("dtype", f"{quote(value)} is a {type(value).__name__}", allowed="numbers and booleans")


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype in which arrays, dtypes and Python numbers meet; numbers take that of the others."""
    scalars = [v for v in arrays_and_dtypes if is_scalar(v)]
    dtypes = [getattr(v, "dtype", v) for v in arrays_and_dtypes if not is_scalar(v)]
    if not dtypes:
        if not scalars:
            raise InvalidArgument("result_type", "nothing is given", allowed="arrays and dtypes")
        raise InvalidArgument("result_type", f"only numbers: {quote(scalars)}", allowed="an array or dtype beside them")
    found = dtype_of(dtypes[0])
    for other in dtypes[1:]:
        found = promote("result_type", found, dtype_of(other))
    for scalar in scalars:
        found = meet_scalar(scalar, found)
    for scalar in scalars:
        check_scalar("result_type", scalar, found)
    return found


def check_scalar(where: str, scalar: Any, dtype: DType) -> None:
    """Raise BadTensorDtype for a number that may not stand beside an array of a dtype."""
    if not fits(scalar, dtype):
        raise BadTensorDtype(
            where,
            f"{quote(scalar)} beside an array of {dtype}",
            allowed=f"numbers of the kind of {dtype}",
            hint="cast the array: tensor.astype(…)",
        )


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether promotion takes a dtype, or that of an array, to another."""
    try:
        return result_type(from_, to) is dtype_of(to)
    except BadTensorDtype:
        return False


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is another one, or of a kind such as "integral", or of one in a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return dtype_of(dtype).kind in (*_KINDS[kind],)
    if isinstance(kind, str):
        raise InvalidArgument("isdtype", f"kind={kind!r}", allowed=", ".join(_KINDS))
    return dtype_of(dtype) is dtype_of(kind)


@dataclass(frozen=True)
class FloatLimits:
    """What `finfo` returns: the machine limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` returns: the machine limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """Return the limits of a floating-point dtype, or of that of an array; of the parts of complex numbers."""
    given = dtype_of(getattr(type, "dtype", type))
    dtype = PART.get(given, given)
    if dtype.kind != "f" or dtype.numpy is None:
        raise BadTensorDtype("finfo", f"{dtype}", allowed="floating-point dtypes", hint="iinfo")
    found: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    eps, most, least, normal = (float(v) for v in (found.eps, found.max, found.min, found.smallest_normal))
    return FloatLimits(8 * dtype.itemsize, eps, most, least, normal, dtype)


def iinfo(type: Any, /) -> IntegerLimits:
    """Return the limits of an integer dtype, or of that of an array."""
    dtype = dtype_of(getattr(type, "dtype", type))
    if dtype.kind not in "iu" or dtype.numpy is None:
        raise BadTensorDtype("iinfo", f"{dtype}", allowed="integer dtypes", hint="finfo")
    found = np.iinfo(dtype.numpy)
    return IntegerLimits(8 * dtype.itemsize, int(found.max), int(found.min), dtype)


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """Return the elements of x in another dtype: a copy, or x where nothing changes and `copy` is False.

    Complex numbers become complex ones, or booleans: whether they are not 0.
    """
    wanted = dtype_of(dtype)
    moved = x if device is None else x.to_device(device)
    if wanted is moved.dtype:
        held: Tensor = function("copy")(moved) if copy and moved is x else moved
        return held
    if wanted.kind == "c":
        return to_complex(moved, wanted)
    cast: Tensor = function("cast")(moved, dtype=wanted)
    return cast
