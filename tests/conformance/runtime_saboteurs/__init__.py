"""Devices with one fault each in their runtime, which the runtime's checks must find.

Each is the device of `threaded_device.py` with one part replaced. A file has those that the requirements of one group
find: `runtime/memory/…` those of `memory.py`.
"""

from . import capture, claims, memory, prepacking, streams, threads, workspaces
from .claims import answer_with, build_with
from .memory import AdoptingMemory, WritesFarBeforeKernel, WritesFarBehindKernel
from .plant import KEPT, SABOTEURS
from .prepacking import PackingKernel

__all__ = [
    "KEPT",
    "SABOTEURS",
    "AdoptingMemory",
    "PackingKernel",
    "WritesFarBeforeKernel",
    "WritesFarBehindKernel",
    "answer_with",
    "build_with",
    "capture",
    "claims",
    "memory",
    "prepacking",
    "streams",
    "threads",
    "workspaces",
]
