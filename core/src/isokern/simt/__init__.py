"""Portable SIMT kernels: written once in the common part of OpenCL C and CUDA C++, run by any backend that has a prelude and a launcher.

`kernels/` holds the kernels and README.md the subset of C that they keep to; `SimtDevice` is what a backend subclasses.
"""

from .device import Folder, SimtDevice, Traits
from .kernel import GroupTooLarge, Launch, SimtKernel
from .store import Store

__all__ = ["Folder", "GroupTooLarge", "Launch", "SimtDevice", "SimtKernel", "Store", "Traits"]
