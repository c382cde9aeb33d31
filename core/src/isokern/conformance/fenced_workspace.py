"""A poisoned workspace of exact size, between fences that detect writes outside it."""

from __future__ import annotations

import numpy as np

from ..backend import Buffer, Memory, Workspace
from ..dtypes import U8
from ..oracle.layouts import Array

FENCE = 0xB7
FENCE_BYTES = 256


class FencedWorkspace:
    """A workspace for one call, in `buffer`.

    If a device uses host memory in place, it is exactly `need.size` bytes with fences on both sides. Otherwise it is
    a buffer of that size, with a fence behind it if `roomy`.
    """

    def __init__(self, memory: Memory, need: Workspace, poison: int, roomy: bool) -> None:
        self.size = need.size
        self.whole: Array | None = None
        if memory.wraps and need.kind == memory.kinds[0]:
            self.whole = np.full(need.size + 2 * FENCE_BYTES + need.alignment, FENCE, np.uint8)
            address: int = self.whole.__array_interface__["data"][0]
            self.start = FENCE_BYTES + -(address + FENCE_BYTES) % need.alignment
            inner = self.whole[self.start : self.start + need.size]
            inner[...] = poison
            self.buffer: Buffer = memory.wrap(inner, U8)
        else:
            content = np.full(need.size + (FENCE_BYTES if roomy else 0), FENCE, np.uint8)
            content[: need.size] = poison
            self.buffer = memory.alloc(content.size, kind=need.kind, alignment=need.alignment, empty=True)
            self.buffer.write(content)

    def count_overrun(self) -> int:
        """Return how many bytes of the fences were overwritten."""
        if self.whole is None:
            return int((self.buffer.read()[self.size :] != FENCE).sum())
        return int((self.whole[: self.start] != FENCE).sum() + (self.whole[self.start + self.size :] != FENCE).sum())
