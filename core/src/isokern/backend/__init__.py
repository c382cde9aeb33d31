"""The interface of a backend: devices, memory, streams, kernel variants, and the hook that registers them.

A backend's author needs this import, `isokern.status` for errors, and `isokern.simt` for devices of work-groups and
items.
"""

from ..cabi.plan import Plan
from ..process.forks import own_lock, renew_in_child, tell_in_child
from .buffer_view import BufferView
from .device import Device, Unavailable
from .hooks import hookimpl
from .host_memory import Address, HostBuffer, HostMemory, array_at
from .host_recording import RecordedCalls
from .kernels import Declined, Kernel, KernelVariant, PackedLayout
from .limits import Limit, Peer, Timer
from .memory import ALIGNMENT, BASE_ALIGNMENT, Buffer, Mapping, Memory, Place, Workspace
from .register import HOOK_VERSION, Register, check_fingerprints
from .streams import Event, Recording, Scratch, Stream, check_stream, current_stream, running_stream

__all__ = [
    "ALIGNMENT",
    "BASE_ALIGNMENT",
    "HOOK_VERSION",
    "Address",
    "Buffer",
    "BufferView",
    "Declined",
    "Device",
    "Event",
    "HostBuffer",
    "HostMemory",
    "Kernel",
    "KernelVariant",
    "Limit",
    "Mapping",
    "Memory",
    "PackedLayout",
    "Peer",
    "Place",
    "Plan",
    "RecordedCalls",
    "Recording",
    "Register",
    "Scratch",
    "Stream",
    "Timer",
    "Unavailable",
    "Workspace",
    "array_at",
    "check_fingerprints",
    "check_stream",
    "current_stream",
    "hookimpl",
    "own_lock",
    "renew_in_child",
    "running_stream",
    "tell_in_child",
]
