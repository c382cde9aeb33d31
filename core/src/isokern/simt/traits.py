"""What launch blocks may know of a device, and the folders of kernel files that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Traits:
    """What launch blocks may know of a device.

    `kind` is cpu, gpu or accelerator; `group` the most items of a work-group that uses barriers (a power of two); `items` the work-group of
    kernels without any; `units` its compute units; `fp64` whether it has double; `features` the names of what a
    backend's own kernels may need.
    """

    kind: str = "gpu"
    group: int = 256
    items: int = 256
    units: int = 1
    fp64: bool = True
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Folder:
    """Kernel files that are one variant of their stems."""

    name: str
    priority: int
    path: Path
