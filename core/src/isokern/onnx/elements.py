"""ONNX's element types: their names, our dtypes, and the arrays that initialisers hold.

Integers of 4 and 2 bits lie in I8 and U8, floats of 4 bits and those of 8 without infinities in F32, one number an
element; the type that the file says is kept beside a value, so that casts, quantisation and results follow it.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..layout import MAX_RANK
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .library import proto

Array = np.ndarray[Any, Any]
MAX_ELEMENTS = 1 << 33  # of a tensor: models that say more are wrong or hostile

OURS: dict[str, DType] = {
    "FLOAT": dtypes.F32,
    "FLOAT16": dtypes.F16,
    "BFLOAT16": dtypes.BF16,
    "DOUBLE": dtypes.F64,
    "INT8": dtypes.I8,
    "INT16": dtypes.I16,
    "INT32": dtypes.I32,
    "INT64": dtypes.I64,
    "UINT8": dtypes.U8,
    "UINT16": dtypes.U16,
    "UINT32": dtypes.U32,
    "UINT64": dtypes.U64,
    "BOOL": dtypes.BOOL,
    "FLOAT8E4M3FN": dtypes.F8E4M3FN,
    "FLOAT8E5M2": dtypes.F8E5M2,
}
# Types that have no dtype here: NumPy's type, the dtype in which their numbers lie, least and largest number
NARROW: dict[str, tuple[np.dtype[Any], DType, int, int]] = {
    "INT4": (np.dtype(ml_dtypes.int4), dtypes.I8, -8, 7),
    "UINT4": (np.dtype(ml_dtypes.uint4), dtypes.U8, 0, 15),
    "INT2": (np.dtype(ml_dtypes.int2), dtypes.I8, -2, 1),
    "UINT2": (np.dtype(ml_dtypes.uint2), dtypes.U8, 0, 3),
    "FLOAT4E2M1": (np.dtype(ml_dtypes.float4_e2m1fn), dtypes.F32, -6, 6),
    "FLOAT8E4M3FNUZ": (np.dtype(ml_dtypes.float8_e4m3fnuz), dtypes.F32, -240, 240),
    "FLOAT8E5M2FNUZ": (np.dtype(ml_dtypes.float8_e5m2fnuz), dtypes.F32, -57344, 57344),
}
ALLOWED = ", ".join([*OURS, *NARROW])
_NAMES: dict[int, str] = {number: name for name, number in proto.TensorProto.DataType.items()}


def element_name(where: str, number: int) -> str:
    """Return the name of an element type that can be held here, and BadTensorDtype for any other."""
    name = _NAMES.get(number, f"number {number}")
    if name not in OURS and name not in NARROW:
        raise BadTensorDtype(where, f"elements of type {name}", allowed=ALLOWED)
    return name


def our_dtype(name: str) -> DType:
    """Return the dtype in which elements of that type lie."""
    return OURS[name] if name in OURS else NARROW[name][1]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type of the elements that a run takes and gives."""
    if name in NARROW:
        return NARROW[name][0]
    found = OURS[name].numpy
    assert found is not None
    return found


def bits_of(name: str) -> int:
    """Return the bits of an element in a file, where narrow ones are packed."""
    kind, told = numpy_dtype(name), ml_dtypes.iinfo if "INT" in name else ml_dtypes.finfo
    return int(told(kind).bits) if name in NARROW else kind.itemsize * 8


def name_of(dtype: DType) -> str:
    """Return ONNX's name of a dtype of ours."""
    return next(name for name, ours in OURS.items() if ours is dtype)


def widen(array: Array) -> Array:
    """Return numbers of a narrow type in the dtype that holds them, and any other array as it is."""
    if array.dtype.isbuiltin == 1:  # as nearly all are
        return array
    for kind, held, _low, _high in NARROW.values():
        if array.dtype == kind:
            return array.astype(held.numpy)
    return array


def narrow_name(array: Array) -> str | None:
    """Return the name of an array's type where that is a narrow one."""
    if array.dtype.isbuiltin == 1:  # as nearly all are
        return None
    return next((name for name, (kind, *_rest) in NARROW.items() if array.dtype == kind), None)


def dims_of_tensor(where: str, tensor: Any) -> tuple[int, ...]:
    """Return the dims of a TensorProto; BadTensorShape where no tensor here can have them."""
    dims = tuple(tensor.dims)
    if len(dims) > MAX_RANK:
        raise BadTensorShape(where, f"{len(dims)} dims", allowed=f"0 to {MAX_RANK}")
    if any(d < 0 for d in dims):
        raise BadTensorShape(where, f"dims {list(dims)}", allowed="none below 0")
    if math.prod(max(d, 1) for d in dims) >= MAX_ELEMENTS:  # a dim of 0 does not hide what NumPy has no strides for
        raise BadTensorShape(where, f"dims {list(dims)}", allowed=f"fewer than {MAX_ELEMENTS} elements")
    return dims


def is_external(tensor: Any) -> bool:
    """Return whether a TensorProto names a file that has its elements."""
    return bool(tensor.data_location == proto.TensorProto.EXTERNAL)


def array_of(where: str, tensor: Any, content: Array | None = None) -> Array:
    """Return the elements of a TensorProto that the message itself holds, read-only; typed errors for a wrong one.

    `content` are its bytes where they were taken out of the message.
    """
    if is_external(tensor):  # the library would open any file that it names
        raise InvalidArgument(where, "a tensor in a file", allowed="initialisers of the model's graph")
    name = element_name(where, tensor.data_type)
    dims = dims_of_tensor(where, tensor)
    kind = numpy_dtype(name)
    if name in OURS and (content is not None or tensor.HasField("raw_data")):
        given: Any = tensor.raw_data if content is None else content  # asked once: each time it is a copy
        wanted = math.prod(dims) * kind.itemsize
        if len(given) != wanted:
            raise InvalidArgument(where, f"{len(given)} bytes for dims {list(dims)}", allowed=f"{wanted}")
        return (np.frombuffer(given, kind) if content is None else content.view(kind)).reshape(dims)
    if content is not None:
        tensor.raw_data = content.tobytes()
    try:
        return np.asarray(proto.numpy_helper.to_array(tensor)).astype(kind, copy=False).reshape(dims)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:  # the library's words for wrong content
        raise InvalidArgument(where, f"its elements cannot be read: {error}") from None
