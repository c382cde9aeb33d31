"""Faults in packing constants; and a kernel that packs as it must."""

from __future__ import annotations

import time
import weakref
from typing import Any, ClassVar

from threaded_device import Block, ThreadedKernel

from isokern.backend import PackedLayout, Stream

from .plant import KEPT, kernel


class PackingKernel(ThreadedKernel):
    """A kernel whose packed layout inverts the bytes of a constant, as it may."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        descs = {at: self.plan.table[at] for at in self.plan.constants}
        self.packed_layouts = {
            at: PackedLayout("inverted", d.byte_range[1]) for at, d in descs.items() if d is not None and d.numel
        }

    def pack(self, position: int, source: Block, target: Block, stream: Stream) -> None:
        nbytes = self.packed_layouts[position].nbytes
        stream.enqueue(lambda: self.invert(source, target, nbytes))  # type: ignore[attr-defined]  # such a stream

    def invert(self, source: Block, target: Block, nbytes: int) -> None:
        target.bytes[:nbytes] = ~source.bytes[:nbytes]

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        plain = list(handles)
        for at, layout in self.packed_layouts.items():
            plain[at] = Block(layout.nbytes, 64)
            plain[at].bytes[...] = ~handles[at].bytes[: layout.nbytes]
        super().compute(plain, workspace, nbytes)


@kernel("prepacking/prepacks_after_earlier_work")
class PacksAtOnce(PackingKernel):
    """A constant is packed before the work that makes it."""

    def pack(self, position: int, source: Block, target: Block, stream: Stream) -> None:
        self.invert(source, target, self.packed_layouts[position].nbytes)


@kernel("prepacking/prepacks_once")
class ReadsTheUnpacked(PackingKernel):
    """A call reads the source of the constant."""

    sources: ClassVar[weakref.WeakKeyDictionary[Block, Block]] = weakref.WeakKeyDictionary()

    def invert(self, source: Block, target: Block, nbytes: int) -> None:
        super().invert(source, target, nbytes)
        self.sources[target] = source

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        for at in self.packed_layouts:
            super().invert(self.sources[handles[at]], handles[at], self.packed_layouts[at].nbytes)
        super().compute(handles, workspace, nbytes)


@kernel("prepacking/prepacks_once")
class KeepsPacked(PackingKernel):
    """Prepacked constants are never freed."""

    def pack(self, position: int, source: Block, target: Block, stream: Stream) -> None:
        super().pack(position, source, target, stream)
        KEPT.append(self.device.memory.alloc(self.packed_layouts[position].nbytes))


@kernel("prepacking/shares_by_layout")
class NamesTwoLayoutsAlike(PackingKernel):
    """The layout of a transposed constant has the name of the other, and its bytes are in reverse order."""

    def invert(self, source: Block, target: Block, nbytes: int) -> None:
        super().invert(source, target, nbytes)
        if self.plan.operator.name == "linear":
            target.bytes[:nbytes] = target.bytes[:nbytes][::-1].copy()

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        plain = list(handles)
        for at, layout in self.packed_layouts.items():
            plain[at] = Block(layout.nbytes, 64)
            self.invert(handles[at], plain[at], layout.nbytes)
        ThreadedKernel.compute(self, plain, workspace, nbytes)


@kernel("prepacking/prepacks_in_threads")
class UnpacksIntoOneBuffer(PackingKernel):
    """All calls unpack their constants into one buffer, which no lock guards."""

    shared = Block(1 << 20, 64)

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        plain = list(handles)
        for at, layout in self.packed_layouts.items():
            self.shared.bytes[: layout.nbytes] = ~handles[at].bytes[: layout.nbytes]
            plain[at] = self.shared
        time.sleep(0.001)
        ThreadedKernel.compute(self, plain, workspace, nbytes)
