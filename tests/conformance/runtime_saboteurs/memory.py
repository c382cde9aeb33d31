"""Faults in allocating, freeing, reading, writing and mapping memory."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from threaded_device import Block, ThreadedBuffer, ThreadedKernel, ThreadedMemory, ThreadedStream

from isokern.backend import Buffer, array_at
from isokern.status import OutOfMemory

from .plant import KEPT, buffer, memory, stream


@memory("memory/zeroes_what_it_allocates")
class NotZeroed(ThreadedMemory):
    """`alloc` does not zero."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        block = super().make_block(nbytes, alignment)
        block.bytes[...] = 0x11
        return block

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        return super().allocate_buffer(nbytes, element, kind, alignment, True)


@memory("memory/zeroes_what_it_allocates")
class ZeroesTheStartOnly(ThreadedMemory):
    """`alloc` zeroes whole words alone."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        made = super().allocate_buffer(nbytes, element, kind, alignment, True)
        made.handle.bytes[...] = 0x77
        made.handle.bytes[: nbytes // 4 * 4] = 0
        return made


@memory("memory/aligns_what_it_allocates")
class Misaligned(ThreadedMemory):
    """`alloc` aligns to 64 bytes, whatever it is asked for."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        block = Block(nbytes + 64, max(alignment, 128))
        block.bytes, block.address = block.bytes[64:], block.address + 64
        return block


@memory("memory/allocates_nothing_at_all")
class NoEmptyBuffers(ThreadedMemory):
    """Size 0 is refused."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes == 0:
            raise OutOfMemory("alloc", "0 bytes")
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


@memory("memory/says_when_memory_is_exhausted")
class NeverExhausted(ThreadedMemory):
    """An allocation that is too large gives a small buffer."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        made = super().allocate_buffer(min(nbytes, 1 << 26), element, kind, alignment, empty)
        made.nbytes = nbytes
        return made


@memory("memory/says_when_memory_is_exhausted")
class ExhaustedByAnotherError(ThreadedMemory):
    """An allocation that is too large raises MemoryError."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes > 1 << 40:
            raise MemoryError
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


@memory("memory/says_when_memory_is_exhausted")
class CountsFailures(ThreadedMemory):
    """A failed allocation counts as live."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes > 1 << 40:
            self._live += 4096
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


FULL = "exhaustion/loses_nothing_when_memory_is_full"


@memory(FULL)
class LosesMemoryWhenFull(ThreadedMemory):
    """A large allocation is made of two halves, of which the first is lost where there is no room for the second."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        if nbytes < 1 << 22 or nbytes > 1 << 40:
            return super().make_block(nbytes, alignment)
        half = super().make_block(nbytes // 2, alignment)
        try:
            second = super().make_block(nbytes - nbytes // 2, alignment)
        except MemoryError:
            KEPT.append(half)
            raise
        del half, second
        return super().make_block(nbytes, alignment)


@memory(FULL)
class FullByAnotherError(ThreadedMemory):
    """Where memory is full, NumPy's MemoryError is passed on."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes > 1 << 40:
            raise OutOfMemory("alloc", f"{nbytes} bytes")
        block = self.make_block(nbytes, alignment)
        if not empty:
            block.bytes[...] = 0
        return self.buffer(self, nbytes, element, kind, block.address, block)


@memory(FULL)
class EvictsWhenFull(ThreadedMemory):
    """Where memory is full, a new buffer gets the memory of the oldest large one."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        large = self.__dict__.setdefault("large", weakref.WeakSet())
        try:
            made = super().allocate_buffer(nbytes, element, kind, alignment, empty)
        except OutOfMemory:
            fitting = [b for b in large if b.bytes.size == nbytes]
            if not fitting or self.__dict__.setdefault("evicted", 0) > 3:
                raise
            self.evicted += 1
            return self.buffer(self, nbytes, element, kind, fitting[0].address, fitting[0])
        if nbytes >= 1 << 22:
            large.add(made.handle)
        return made


@memory("memory/gives_memory_back")
class LeaksMemory(ThreadedMemory):
    """Freed memory is never given back."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        block = super().make_block(nbytes, alignment)
        if nbytes >= 1 << 24 and len(KEPT) < 8:
            KEPT.append(block)
        return block


@memory("memory/counts_what_lives")
class ForgetsCloses(ThreadedMemory):
    """`live` does not fall."""

    def _count_free(self, nbytes: int) -> None:
        pass


@memory("memory/counts_what_lives")
class CountsTwice(ThreadedMemory):
    """A buffer counts twice when it is freed."""

    def _count_free(self, nbytes: int) -> None:
        super()._count_free(nbytes)
        self._live -= nbytes


@memory("memory/counts_what_lives")
class ForgetsThePeak(ThreadedMemory):
    """`peak` stays where it was reset to."""

    @property
    def peak(self) -> int:
        return 0

    @peak.setter
    def peak(self, value: int) -> None:
        pass


@memory("memory/gives_every_buffer_its_own_bytes")
class SharesBlocks(ThreadedMemory):
    """Small buffers of one size share memory."""

    def make_block(self, nbytes: int, alignment: int) -> Block:
        if nbytes != 4096:
            return super().make_block(nbytes, alignment)
        shared = self.__dict__.setdefault("shared", {})
        return shared.setdefault((nbytes, alignment), Block(nbytes, alignment))


@memory("memory/keeps_memory_of_pending_work")
class FreesTooEarly(ThreadedMemory):
    """Memory is used again while work in flight reads it."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        made = super().allocate_buffer(nbytes, element, kind, alignment, empty)
        free = self.__dict__.setdefault("free", [])
        reused = next((b for b in reversed(free) if b.bytes.size == nbytes and b.address % alignment == 0), None)
        if reused is not None and nbytes > 4096:
            free.remove(reused)
            made = self.buffer(self, nbytes, element, kind, reused.address, reused)
            if not empty:
                reused.bytes[...] = 0
        weakref.finalize(made, free.append, made.handle).atexit = False
        return made


@memory("memory/shares_host_memory_where_it_says_so")
class WrapsCopies(ThreadedMemory):
    """`wrap` copies the array."""

    wraps = True

    def wrap(self, array: Any, element: Any) -> Buffer:
        made = self.alloc(array.nbytes, element)
        made.write(array)
        return made


class AdoptingMemory(ThreadedMemory):
    """Memory that takes that of others, as it must."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        """Have memory given back when no buffer and no work in flight has it."""
        weakref.finalize(block, release).atexit = False

    def adopt(self, address: int, nbytes: int, element: Any, owner: Any, writable: bool, release: Any = None) -> Buffer:
        block = Block(0, 1)
        block.bytes, block.address = array_at(address, (nbytes,), owner=owner), address
        made = self.buffer(self, nbytes, element, "default", address, block, writable)
        self.own(block, made, release or (lambda: None))
        return made


@memory("memory/adopts_memory_in_place")
class AdoptsCopies(AdoptingMemory):
    """Adopted memory is copied."""

    def adopt(self, *args: Any) -> Buffer:
        made = super().adopt(*args)
        made.handle.bytes = made.handle.bytes.copy()
        return made


@memory("memory/adopts_memory_in_place")
class GivesBackEarly(AdoptingMemory):
    """Adopted memory is given back with its buffer, whatever work uses it."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        weakref.finalize(made, release).atexit = False


@memory("memory/adopts_memory_in_place")
class GivesBackTwice(AdoptingMemory):
    """Adopted memory is given back with its buffer, and with its handle."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        super().own(block, made, release)
        super().own(block, made, release)


@memory("memory/adopts_memory_in_place")
class NeverGivesBack(AdoptingMemory):
    """Adopted memory is kept."""

    def own(self, block: Block, made: Buffer, release: Callable[[], None]) -> None:
        pass


@memory("memory/adopts_memory_in_place")
class AdoptsForWriting(AdoptingMemory):
    """Memory that may not be written is."""

    def adopt(self, address: int, nbytes: int, element: Any, owner: Any, writable: bool, release: Any = None) -> Buffer:
        return super().adopt(address, nbytes, element, owner, True, release)


@buffer("memory/reads_and_writes_parts")
class IgnoresTheOffsetOfWrites(ThreadedBuffer):
    """`write_bytes` ignores its offset."""

    def write_bytes(self, offset: int, data: Any) -> None:
        super().write_bytes(0, data)


@buffer("memory/reads_and_writes_parts")
class IgnoresTheOffsetOfReads(ThreadedBuffer):
    """`read_bytes` ignores its offset."""

    def read_bytes(self, offset: int, nbytes: int) -> Any:
        return super().read_bytes(0, nbytes)


@buffer("memory/reads_and_writes_parts")
class WritesWholeLines(ThreadedBuffer):
    """A write clears the rest of its last line of 64 bytes."""

    def write_bytes(self, offset: int, data: Any) -> None:
        super().write_bytes(offset, data)
        end = offset + data.size
        self.handle.bytes[end : (end + 63) // 64 * 64] = 0


@buffer("memory/reads_copies")
class ReadsLive(ThreadedBuffer):
    """`read_bytes` returns a view."""

    def read_bytes(self, offset: int, nbytes: int) -> Any:
        return self.handle.bytes[offset : offset + nbytes]


@buffer("memory/writes_copies")
class WritesLater(ThreadedBuffer):
    """A large write is not done with the caller's memory when it returns."""

    def write_bytes(self, offset: int, data: Any) -> None:
        if data.size < 1 << 17:
            super().write_bytes(offset, data)
        else:
            to = self.handle.bytes

            def later() -> None:
                time.sleep(0.02)
                to[offset : offset + data.size] = data

            self.device.default_stream.enqueue(later)


@buffer("memory/maps_for_the_host")
class MapsRubbish(ThreadedBuffer):
    """A mapping does not show what the buffer holds."""

    def map_for_cpu(self) -> Any:
        mapping = super().map_for_cpu()
        mapping.bytes[...] = 0
        return mapping


@buffer("memory/maps_for_the_host")
class LosesMappings(ThreadedBuffer):
    """What the host writes into a mapping is lost."""

    def unmap_bytes(self, mapped: Any) -> None:
        pass


@buffer("memory/maps_for_the_host")
class NeverMapped(ThreadedBuffer):
    """`is_mapped` is always false."""

    is_mapped = False  # type: ignore[assignment]


@buffer("memory/refuses_closed_buffers")
class OutlivesItsClose(ThreadedBuffer):
    """A closed buffer can be read."""

    def close(self) -> None:
        block = self.handle
        super().close()
        self.alive, self.handle = True, block


@buffer("memory/waits_before_a_read")
class DoesNotWaitToRead(ThreadedBuffer):
    """Reads do not wait for the device."""

    def sync_device(self) -> None:
        pass


@buffer("memory/waits_before_a_write")
class WritesBehindWork(ThreadedBuffer):
    """Writes do not wait for the device."""

    def write(self, data: Any, offset: int = 0) -> None:
        wait, self.sync_device = self.sync_device, lambda: None  # type: ignore[method-assign]
        try:
            super().write(data, offset)
        finally:
            self.sync_device = wait  # type: ignore[method-assign]


@stream("memory/waits_before_a_read")
class LosesWork(ThreadedStream):
    """The work of a stream that is dropped is lost."""

    def __del__(self) -> None:
        while not self.tasks.empty():
            self.tasks.get()


# Writes far outside of a tensor: no requirement of the runtime tells them, but the runner, in the case that makes them


class WritesFarBeforeKernel(ThreadedKernel):
    """A call writes eight bytes a page before its output, in the device's own memory; the runner's guards find it."""

    distance = -4096

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        super().compute(handles, workspace, nbytes)
        low, high = self.plan.table[0].byte_range
        at = (low if self.distance < 0 else high) + self.distance
        handles[0].bytes[at : at + 8] = 0x77


class WritesFarBehindKernel(WritesFarBeforeKernel):
    """A call writes eight bytes a page behind its output."""

    distance = 4096
