"""What memory and streams know of the XPU that they belong to."""

from __future__ import annotations

from abc import abstractmethod

from isokern.backend.native import NativeDevice

from .runtime import Runtime


class XpuPlace(NativeDevice):
    """A device of the runtime, by its index."""

    runtime: Runtime
    index: int

    @abstractmethod
    def drain(self) -> None:
        """Wait for every stream and free what was retired; errors are left for `synchronize` to raise."""
