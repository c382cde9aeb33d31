"""CUDA's errors as Isokern's typed ones."""

from __future__ import annotations

from isokern.status import DeviceNotAvailable, InternalError, InvalidArgument, IsokernError, OutOfMemory

from .driver import CudaError

MEMORY = 2
HANDLE = 400
# After these every call of the process fails: an illegal address, a launch that failed, one that took too long, an
# assertion, ECC, and the like
STICKY = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999}
CAPTURE = {
    900: "the operation is not allowed while a stream captures",
    901: "the capture was made invalid by an earlier error",
    902: "two captures were merged",
    903: "the capture was not begun on this stream",
    904: "streams joined the capture and did not return to it",
    905: "the capture would depend on work outside of it",
    906: "the legacy stream would be drawn into the capture",
    907: "an event of a capture is used outside of it",
    908: "the capture was begun by another thread",
}


def fork_error(where: str, device: str) -> DeviceNotAvailable:
    """Return the error to raise in a child of the process that opened the device."""
    return DeviceNotAvailable(
        where,
        f"{device}: CUDA does not live on in a forked process",
        hint="start processes by multiprocessing's spawn or forkserver",
    )


def device_lost(where: str, device: str, text: str) -> DeviceNotAvailable:
    """Return the error of every call after a sticky one."""
    return DeviceNotAvailable(where, f"{device} is lost: {text}", hint="start the process again")


def typed_error(where: str, device: str, error: CudaError) -> IsokernError:
    """Return the error to raise for one that a CUDA call on `device` raised."""
    if error.code in STICKY:
        return device_lost(where, device, str(error))
    if error.code == MEMORY:
        return OutOfMemory(where, f"{device}: {error}")
    if error.code in CAPTURE:
        return InvalidArgument(where, f"{device}: {CAPTURE[error.code]} ({error})", hint="end the capture first")
    if error.code == HANDLE:
        return InvalidArgument(where, f"{device}: a stream or an event is no longer there, or another GPU's ({error})")
    return InternalError(where, f"{device}: {error}")
