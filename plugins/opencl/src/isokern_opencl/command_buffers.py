"""Recorded lists of launches as one object of the driver, a command buffer.

Uses the extension cl_khr_command_buffer through its function pointers. Names and numbers are those of its specification
(provisional version 0.9).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

EXTENSION = "cl_khr_command_buffer"
CAPABILITIES = 0x12A9  # CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR
SIMULTANEOUS = 0x4  # CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR
FLAGS, SIMULTANEOUS_USE = 0x1293, 0x1  # CL_COMMAND_BUFFER_FLAGS_KHR, CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR

_int, _uint, _pointer, _size = ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "clCreateCommandBufferKHR": (_pointer, _uint, _pointer, _pointer, _pointer),
    "clCommandNDRangeKernelKHR": (
        _int, _pointer, _pointer, _pointer, _pointer, _uint, _size, _size, _size, _uint, _pointer, _pointer, _pointer,
    ),
    "clFinalizeCommandBufferKHR": (_int, _pointer),
    "clEnqueueCommandBufferKHR": (_int, _uint, _pointer, _pointer, _uint, _pointer, _pointer),
    "clReleaseCommandBufferKHR": (_int, _pointer),
}  # fmt: skip


def command_buffers(device: cl.Device) -> dict[str, Any] | None:
    """Return the functions of the extension, where the device has them and gains by them.

    The device must let a buffer be enqueued again while it runs. A processor does not gain: there an enqueue is little
    more than a call (Intel's runtime, 100 adds of 8 elements: 2.3 us each by a command buffer, 1.5 us by the list).
    """
    return None if device.type & cl.device_type.CPU else functions_of(device)


def functions_of(device: cl.Device) -> dict[str, Any] | None:
    """Return the functions of the extension, where the device lets a buffer be enqueued again while it runs."""
    if EXTENSION not in device.extensions.split():
        return None
    loader, value = ctypes.CDLL(cl._cl.__file__), ctypes.c_uint64()  # the OpenCL library is found through it
    query, address = loader.clGetDeviceInfo, loader.clGetExtensionFunctionAddressForPlatform
    query.argtypes = [_pointer, _uint, ctypes.c_size_t, _pointer, _pointer]
    address.restype, address.argtypes = _pointer, [_pointer, ctypes.c_char_p]
    if query(device.int_ptr, CAPABILITIES, 8, ctypes.byref(value), None) or not value.value & SIMULTANEOUS:
        return None
    functions = {}
    for name, (result, *arguments) in _SIGNATURES.items():
        found = address(device.platform.int_ptr, name.encode())
        if not found:
            return None
        functions[name] = ctypes.CFUNCTYPE(result, *arguments)(found)
    return functions


class CommandBuffer:
    """Launches (kernel, size, local) in order, finalised for one queue.

    `error` is not 0 where the driver refused.
    """

    def __init__(self, functions: dict[str, Any], queue: cl.CommandQueue, launches: Sequence[Any]) -> None:
        self._enqueue = functions["clEnqueueCommandBufferKHR"]
        self.queues = (_pointer * 1)(queue.int_ptr)
        properties, code = (ctypes.c_uint64 * 3)(FLAGS, SIMULTANEOUS_USE, 0), _int()
        self.handle = functions["clCreateCommandBufferKHR"](1, self.queues, properties, ctypes.byref(code))
        self.error = code.value
        if self.error:
            return
        weakref.finalize(self, functions["clReleaseCommandBufferKHR"], self.handle).atexit = False
        one = ctypes.c_size_t * 1
        for kernel, (size,), (local,) in launches:
            self.error = self.error or functions["clCommandNDRangeKernelKHR"](
                self.handle, None, None, kernel.int_ptr, 1, None, one(size), one(local), 0, None, None, None
            )
        self.error = self.error or functions["clFinalizeCommandBufferKHR"](self.handle)

    def enqueue(self) -> int:
        """Run the command buffer on its queue, and return OpenCL's status."""
        return int(self._enqueue(1, self.queues, self.handle, 0, None, None))
