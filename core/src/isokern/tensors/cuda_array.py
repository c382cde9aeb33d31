"""The CUDA array interface, version 3 (Numba's specification).

It serves libraries that speak no DLPack, and those that ask for an address.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend import Buffer, BufferView, Device, current_stream
from ..backend.discovery import devices
from ..dtypes import dtype
from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorShape, BadTensorStrides, InvalidArgument
from . import dlpack_device

CUDA = 2  # DLPack's device type
LEGACY = 1  # the stream that libraries use by default


def export(tensor: BufferView, device: Device) -> dict[str, Any]:
    """Return the interface's dict.

    Raises AttributeError for memory that is no CUDA device's, and for types that are not NumPy's own, such
    as BF16, which the interface has no type for. The stream that it names is the thread's current one, made to wait for
    all work so far.
    """
    if (device.dlpack_device or (0, 0))[0] != CUDA or tensor.buffer.kind != "default":
        raise AttributeError(f"{tensor!r} is not in the memory of a CUDA device")
    if tensor.dtype.numpy is None or tensor.dtype.is_foreign:
        raise AttributeError(f"the CUDA array interface has no {tensor.dtype}; __dlpack__ may have it")
    device.hand_over(device.foreign_stream, tensor.buffer)
    size = tensor.dtype.itemsize
    return {
        "shape": tensor.shape,
        "typestr": np.dtype(tensor.dtype.numpy).str,
        "data": (
            tensor.buffer.address + tensor.desc.offset * size if tensor.desc.numel else 0,
            not tensor.buffer.writable,
        ),
        "strides": None if tensor.desc.is_contiguous else tuple(n * size for n in tensor.strides),
        "stream": device.foreign_stream,
        "version": 3,
    }


def take(source: Any, device: Device) -> tuple[TensorDesc, Buffer]:
    """Return (layout, buffer) over the memory of a producer on `device`, ready for the thread's current stream."""
    given = source.__cuda_array_interface__
    if given.get("mask") is not None:
        raise InvalidArgument("from_dlpack", "a masked array", allowed="arrays without a mask")
    if len(given["shape"]) > MAX_RANK:
        raise BadTensorShape("from_dlpack", f"{len(given['shape'])} dims", allowed=f"up to {MAX_RANK}")
    numpy = np.dtype(given["typestr"])
    steps = given.get("strides")
    if steps is not None and any(s % numpy.itemsize for s in steps):
        raise BadTensorStrides("from_dlpack", f"strides of {steps} bytes", allowed=f"multiples of {numpy.itemsize}")
    strides = None if steps is None else tuple(s // numpy.itemsize for s in steps)
    address, read_only = given["data"]
    stream = given.get("stream")  # some libraries name no stream where they mean their default one
    current_stream(device).wait(device.stream_of(LEGACY if stream is None else stream).record())
    desc = TensorDesc(dtype(numpy), tuple(given["shape"]), strides)
    return dlpack_device.adopt(device, source, address, desc, source, not read_only)


def find_device() -> Device:
    """Return the one open CUDA device: the interface does not say which of several an array is on."""
    found = [d for d in devices() if (d.dlpack_device or (0, 0))[0] == CUDA]
    if len(found) != 1:
        names = ", ".join(d.name for d in found) or "none is open"
        raise InvalidArgument("from_dlpack", "an array of some CUDA device", allowed=f"name it: device= of {names}")
    return found[0]
