"""What launch blocks may know of a device, and the folders of kernel files that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Traits:
    """The properties of a device that launch blocks may use.

    `kind` is cpu, gpu or accelerator; `group` the most items of a work-group that uses barriers (a power of two);
    `items` the work-group size of kernels without barriers; `units` its number of compute units; `fp64` whether it
    supports double; `features` the names of features that a backend's own kernels may need.
    """

    kind: str = "gpu"
    group: int = 256
    items: int = 256
    units: int = 1
    fp64: bool = True
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Folder:
    """A folder of kernel files, which are one variant of their stems."""

    name: str
    priority: int
    path: Path
