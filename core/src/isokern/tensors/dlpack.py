"""DLPack in and out of host memory, through NumPy.

What NumPy's exchange refuses, such as BF16, travels as relabelled unsigned integers. The layout of DLTensor and its two
managed forms is that of the DLPack specification (dlpack.h, versions 0.8 and 1.0).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..backend import BufferView
from ..dtypes import ALL, DType
from ..status import BadTensorDtype, InvalidArgument

CPU = 1
_UINT = 1
# Offset of DLTensor in the managed struct a capsule points to, and of its data type (code, bits, lanes) in DLTensor
_MANAGED = {b"dltensor": 0, b"dltensor_versioned": 32}
_DTYPE = 20

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def _type_field(capsule: Any) -> ctypes.Array[ctypes.c_uint8]:
    """Return (code, bits) of the tensor in a capsule, writable."""
    for name, start in _MANAGED.items():
        if _is_valid(capsule, name):
            return (ctypes.c_uint8 * 2).from_address(_pointer(capsule, name) + start + _DTYPE)
    raise InvalidArgument("dlpack", f"{capsule!r} is no unused DLPack capsule")


def device_of(tensor: BufferView) -> tuple[int, int]:
    """Return DLPack's device of a tensor in host memory."""
    if tensor.buffer.view is None:
        raise InvalidArgument("dlpack", f"{tensor!r} is not in host memory", hint="move it first: tensor.to_device(…)")
    return CPU, 0


def export(tensor: BufferView, array: np.ndarray[Any, Any], *, stream: Any = None, **options: Any) -> Any:
    """Return a capsule over the memory of a tensor, which `array` shows."""
    device_of(tensor)
    if stream is not None:
        raise InvalidArgument("dlpack", f"stream={stream!r} for host memory", allowed="None")
    return export_array(array, tensor.dtype, **options)


def export_array(array: np.ndarray[Any, Any], element: DType, **options: Any) -> Any:
    """Return a capsule over an array of an element type."""
    if not element.is_foreign:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{element.itemsize}").__dlpack__(**options)
    _type_field(capsule)[0] = element.dlpack
    return capsule


class _Relabelled:
    """A producer whose capsule of a type that NumPy refuses is labelled as unsigned integers, which NumPy takes."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.given: DType | None = None

    def __dlpack_device__(self) -> Any:
        return self._source.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self._source.__dlpack__(**options)
        except TypeError:  # a producer from before DLPack 1.0 takes no options
            capsule = self._source.__dlpack__()
        field = _type_field(capsule)
        given = tuple(field)
        self.given = next((d for d in ALL if d.is_foreign and (d.dlpack, 8 * d.itemsize) == given), None)
        if self.given is not None:
            field[0] = _UINT
        return capsule


def source_device(source: Any) -> tuple[int, int]:
    """Return DLPack's device of a producer."""
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise InvalidArgument(
            "from_dlpack", f"a {type(source).__name__}", allowed="an object with __dlpack__ and __dlpack_device__"
        )
    try:
        device = source.__dlpack_device__()
    except (BufferError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        given, hint = f"a {type(source).__name__} without memory: {error}", "create it on a device that has memory"
        raise InvalidArgument("from_dlpack", given, allowed="memory of a device of DLPack", hint=hint) from None
    if not isinstance(device, tuple) or len(device) != 2 or not all(hasattr(d, "__index__") for d in device):
        raise InvalidArgument("from_dlpack", f"__dlpack_device__ gives {device!r}", allowed="(device type, index)")
    return int(device[0]), int(device[1])


def to_numpy(source: Any) -> np.ndarray[Any, Any]:
    """Return the memory of any producer in host memory, as an array."""
    kind, index = source_device(source)
    if kind != CPU:
        raise InvalidArgument(
            "from_dlpack",
            f"memory of DLPack device ({int(kind)}, {index})",
            allowed="host memory (1, 0)",
            hint="move it to the host first",
        )
    relabelled = _Relabelled(source)
    try:
        array = np.from_dlpack(relabelled)
    except (BufferError, RuntimeError) as error:
        raise BadTensorDtype("from_dlpack", str(error)) from None
    return array if relabelled.given is None else array.view(relabelled.given.numpy)
