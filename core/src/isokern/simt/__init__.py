"""Portable SIMT kernels for any backend that has a prelude and a launcher.

`kernels/` holds the kernels, written once in the common part of OpenCL C and CUDA C++, and README.md the subset of C
that they keep to; `SimtDevice` is what a backend subclasses.
"""

from ..disk_cache import DiskCache, user_cache
from .deferred_release import DeferredRelease
from .device import SimtDevice
from .kernel import GroupTooLarge, Launch, SimtKernel
from .programs import Programs, Unusable
from .queued import QueuedDevice
from .source import list_include_folders
from .traits import Folder, Traits

__all__ = [
    "DeferredRelease",
    "DiskCache",
    "Folder",
    "GroupTooLarge",
    "Launch",
    "Programs",
    "QueuedDevice",
    "SimtDevice",
    "SimtKernel",
    "Traits",
    "Unusable",
    "list_include_folders",
    "user_cache",
]
