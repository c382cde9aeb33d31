"""OpenCL's errors as Isokern's typed ones."""

from __future__ import annotations

import pyopencl as cl

from isokern.status import DeviceNotAvailable, InternalError, IsokernError, OutOfMemory

_status = cl.status_code
FULL = {
    _status.MEM_OBJECT_ALLOCATION_FAILURE,
    _status.OUT_OF_RESOURCES,
    _status.OUT_OF_HOST_MEMORY,
    _status.INVALID_BUFFER_SIZE,
}
# Queues and contexts are ours and were valid: one that is no longer valid was lost with its device
LOST = {
    _status.DEVICE_NOT_AVAILABLE,
    _status.INVALID_DEVICE,
    _status.INVALID_CONTEXT,
    _status.INVALID_COMMAND_QUEUE,
}


def fork_error(where: str, device: str) -> DeviceNotAvailable:
    """Return the error to raise in a child of the process that opened the device."""
    return DeviceNotAvailable(
        where,
        f"{device}: OpenCL does not live on in a forked process",
        hint="start processes by multiprocessing's spawn or forkserver",
    )


def typed_error(where: str, device: str, error: Exception) -> IsokernError:
    """Return the error to raise for one that an OpenCL call on `device` raised."""
    if not isinstance(error, cl.Error):  # the queue was taken away
        return fork_error(where, device)
    code = getattr(error, "code", None)
    if code in LOST:
        return DeviceNotAvailable(where, f"{device} is lost: {error}", hint="start the process again")
    if code in FULL:
        return OutOfMemory(where, f"{device}: {error}")
    return InternalError(where, f"{device}: {error}")
