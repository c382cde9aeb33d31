"""DLPack in and out of memory that the host cannot see.

Capsules are read field by field; for export NumPy writes the capsule, and the device is put in. The layout of DLTensor
and its two managed forms, and the rules for streams, are those of the DLPack specification (dlpack.h, version 1.0) and
of Python's array API standard.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ..backend import BASE_ALIGNMENT, Buffer, BufferView, Device, array_at
from ..backend.discovery import devices
from ..dtypes import ALL, DType
from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorDtype, BadTensorShape, BadTensorStrides, DeviceNotAvailable, InvalidArgument

READ_ONLY = 1
_Delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("delete", _Delete))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("delete", _Delete),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


FORMS = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}

_python = ctypes.pythonapi
_pointer = _python.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_valid = _python.PyCapsule_IsValid
_valid.restype, _valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_rename = _python.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def find_managed(capsule: Any) -> tuple[bytes, Any]:
    """Return (name, structure) of an unused capsule."""
    for name, form in FORMS.items():
        if _valid(capsule, name):
            return name, form.from_address(_pointer(capsule, name))
    raise InvalidArgument("from_dlpack", f"{capsule!r} is no unused DLPack capsule")


def device_of(device: Device) -> tuple[int, int]:
    """Return DLPack's (device type, index)."""
    found = device.dlpack_device
    if found is None:
        raise InvalidArgument(
            "dlpack", f"memory of {device.name}", hint="move it first: tensor.to_device(…), tensor.numpy()"
        )
    return found


def export(
    tensor: BufferView,
    device: Device,
    *,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a capsule over the tensor's memory.

    Its work is done before what `stream` runs next (None: the device's default; -1: no wait).
    """
    kind, index = device_of(device)
    if copy or (dl_device is not None and tuple(dl_device) != (kind, index)):
        raise BufferError(f"{tensor!r} is given in place, on device {(kind, index)}")
    dtype = tensor.dtype
    if dtype.block > 1:
        raise BadTensorDtype("dlpack", f"{dtype} has no DLPack type", hint="give the raw blocks")
    device.hand_over(stream, tensor.buffer)
    # NumPy makes the capsule without reading the memory
    array = array_at(
        tensor.buffer.address + tensor.desc.offset * dtype.itemsize,
        tensor.shape,
        f"|{'u' if dtype.is_foreign else dtype.kind}{dtype.itemsize}",
        owner=tensor,
        strides=tuple(n * dtype.itemsize for n in tensor.strides),
        writable=tensor.buffer.writable,
    )
    try:
        capsule = array.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy 2.0
        capsule = array.__dlpack__()
    _, made = find_managed(capsule)
    made.tensor.device_type, made.tensor.device_id = kind, index
    made.tensor.code = dtype.dlpack
    return capsule


class Taken:
    """A producer's capsule; its memory stays valid until `release`, which is called once."""

    def __init__(self, capsule: Any) -> None:
        name, self.managed = find_managed(capsule)
        major = getattr(self.managed, "major", 1)
        if major != 1:  # the fields that follow lie elsewhere; the capsule stays the producer's
            raise InvalidArgument("from_dlpack", f"a capsule of DLPack {major}", allowed="1 and before")
        self.tensor: _DLTensor = self.managed.tensor
        self.writable = not getattr(self.managed, "flags", 0) & READ_ONLY
        _rename(capsule, USED[name])
        self.address = ctypes.addressof(self.managed)

    def release(self) -> None:
        """Give the memory back to the producer."""
        if self.managed.delete:
            self.managed.delete(self.address)

    @property
    def dtype(self) -> DType:
        """The element type of the memory."""
        t = self.tensor
        given = (t.code, t.bits, t.lanes)
        for d in ALL:
            if (d.dlpack, 8 * d.itemsize, 1) == given:
                return d
        raise BadTensorDtype("from_dlpack", f"DLPack type (code, bits, lanes) = {given}")


def take(source: Any, device: Device) -> tuple[TensorDesc, Buffer]:
    """Return (layout, buffer) over the memory of a producer on `device`, ready for the thread's current stream."""
    stream = device.foreign_stream
    try:
        capsule = source.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # a producer from before DLPack 1.0
        capsule = source.__dlpack__(stream=stream)
    taken = Taken(capsule)
    try:
        return _adopt_capsule(taken, source, device)
    except BaseException:
        taken.release()
        raise


def _adopt_capsule(taken: Taken, source: Any, device: Device) -> tuple[TensorDesc, Buffer]:
    t = taken.tensor
    if (t.device_type, t.device_id) != device.dlpack_device:
        raise InvalidArgument("from_dlpack", f"a capsule of device {(t.device_type, t.device_id)}, of {device.name}")
    if t.ndim > MAX_RANK:
        raise BadTensorShape("from_dlpack", f"{t.ndim} dims", allowed=f"up to {MAX_RANK}")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
    desc = TensorDesc(taken.dtype, shape, strides)
    return adopt(device, source, t.data + t.byte_offset, desc, taken, taken.writable, taken.release)


def adopt(
    device: Device,
    source: Any,
    first: int,
    desc: TensorDesc,
    owner: Any,
    writable: bool,
    release: Callable[[], None] | None = None,
) -> tuple[TensorDesc, Buffer]:
    """Return (layout, buffer) over the memory of `source` whose first element is at the address `first`.

    The other arguments are as for `Memory.adopt`.
    """
    dtype = desc.dtype
    low, high = desc.extent if desc.numel else (0, 0)
    start = first + low * dtype.itemsize
    base = start // BASE_ALIGNMENT * BASE_ALIGNMENT
    if (first - base) % dtype.itemsize:
        raise BadTensorStrides("from_dlpack", f"{dtype} at address {first:#x}, which {dtype.itemsize} does not divide")
    placed = TensorDesc(dtype, desc.shape, desc.strides, (first - base) // dtype.itemsize)
    end = max(start, first + high * dtype.itemsize)
    buffer = device.memory.adopt(base, end - base, dtype, owner, writable, release)
    buffer.library = type(source).__module__.partition(".")[0]
    return placed, buffer


def find_device(kind: int, index: int) -> Device:
    """Return the open device that has this memory."""
    found = next((d for d in devices() if d.dlpack_device == (kind, index)), None)
    if found is None:
        raise DeviceNotAvailable(
            "from_dlpack",
            f"memory of DLPack device {(kind, index)}",
            hint="`isokern devices` shows what is there; or move it to the host first",
        )
    return found
