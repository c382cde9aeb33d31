"""Portable SIMT kernels for any backend that has a prelude and a launcher.

`kernels/` holds the kernels, written once in the common part of OpenCL C and CUDA C++, and README.md the subset of C
that they keep to; `SimtDevice` is what a backend subclasses.
"""

from .deferred_release import DeferredRelease
from .device import SimtDevice
from .kernel import GroupTooLarge, Launch, SimtKernel
from .programs import Programs, Unusable
from .queued import QueuedDevice
from .traits import Folder, Traits

__all__ = [
    "DeferredRelease",
    "Folder",
    "GroupTooLarge",
    "Launch",
    "Programs",
    "QueuedDevice",
    "SimtDevice",
    "SimtKernel",
    "Traits",
    "Unusable",
]
