"""Memory of the host process, for devices that compute there, and arrays over memory that something else owns."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..dtypes import DType
from ..status import OutOfMemory
from .memory import Buffer, Bytes, Mapping, Memory


class Address(int):
    """The address of host memory, with the object that keeps the memory alive."""

    def __new__(cls, address: int, owner: Any) -> Address:
        """Return `address` as an integer that keeps `owner`, and so the memory, alive."""
        self = super().__new__(cls, address)
        self.owner = owner
        return self

    owner: Any


class _Memory:
    """The object that NumPy makes an array of, and keeps as long as there is an array over the same memory."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__, self.owner = interface, owner


def array_at(
    address: int,
    shape: tuple[int, ...],
    typestr: str = "|u1",
    *,
    owner: Any,
    strides: tuple[int, ...] | None = None,
    writable: bool = True,
) -> np.ndarray[Any, Any]:
    """Return an array over memory at an address; it and all its views keep `owner`, whose memory that is.

    `strides` are in bytes.
    """
    interface = {"data": (address, not writable), "shape": shape, "strides": strides, "typestr": typestr, "version": 3}
    return np.asarray(_Memory(interface, owner))


class HostBuffer(Buffer):
    """Memory of the host process, which `view` and every array over it keep alive."""

    view: Bytes

    def __init__(
        self, memory: Memory, view: Bytes, element: DType, kind: str = "default", address: int | None = None
    ) -> None:
        if address is None:
            address = view.__array_interface__["data"][0]
        writable = bool(view.flags.writeable)
        super().__init__(memory, view.size, element, kind, address, Address(address, view), writable)
        self.view = view

    @property
    def is_mapped(self) -> bool:
        """Whether the CPU may touch the memory: until it is closed, since the CPU is the device."""
        return self.alive

    def map_for_cpu(self) -> Mapping:
        """Return the memory itself, without a copy."""
        self._check("map_for_cpu")
        self.sync_device()
        return Mapping(self, self.view)

    def unmap_for_gpu(self) -> None:
        """Do nothing."""
        self._check("unmap_for_gpu")

    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        """Return a copy of a part of the memory."""
        taken: Bytes = self.view[offset : offset + nbytes].copy()
        return taken

    def write_bytes(self, offset: int, data: Bytes) -> None:
        """Copy `data` to `offset`."""
        self.view[offset : offset + data.size] = data

    def close(self) -> None:
        """Close the buffer; arrays over its memory keep the memory alive."""
        super().close()
        self.view = np.empty(0, np.uint8)


class HostMemory(Memory):
    """Memory of the host process, for devices that compute there; its buffers are of the class `buffer`."""

    wraps = True
    buffer: ClassVar[type[HostBuffer]] = HostBuffer

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        """Return memory of the process; raise OutOfMemory where it has not so much."""
        try:
            raw = (np.empty if empty else np.zeros)(nbytes + alignment, np.uint8)
        except (MemoryError, ValueError):
            raise OutOfMemory("alloc", f"{nbytes} bytes of host memory") from None
        address = raw.__array_interface__["data"][0]
        start = -address % alignment
        return self.buffer(self, raw[start : start + nbytes], element, kind, address + start)

    def wrap(self, array: np.ndarray[Any, Any], element: DType) -> Buffer:
        """Return a buffer over the smallest run of bytes that holds every element of `array`, without a copy."""
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
        if high == low:
            view = np.empty(0, np.uint8)
        else:
            view = array_at(low, (high - low,), owner=array, writable=array.flags.writeable)
        return self.buffer(self, view, element)
