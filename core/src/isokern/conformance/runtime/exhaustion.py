"""What must hold when a device's memory is really full: OutOfMemory, and nothing lost.

The machine must not be full with it. Memory that comes out of the process is bounded by a limit on the process itself,
which the system enforces; a card is filled only if the device says how large it is.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from ...backend import Buffer, Device
from ...status import OutOfMemory
from ..environment import load_c_library, trim_heap
from .check import fail, lacks, runtime_check
from .work import Chain

ROOM = 1 << 27  # bytes that the process may grow by while a memory is filled
LARGEST, SMALLEST = 1 << 25, 1 << 22  # bytes of a piece, in a memory of that size: a quarter, and a 32nd of it
MARK = 4096  # bytes at both ends of a piece that are written, and read again
PERIOD = 251  # a prime, so that a mark of another piece never looks like this one's
MARKS = (np.arange(PERIOD + MARK) * 7 % PERIOD + 1).astype(np.uint8)
REFUSALS = 64  # requests that have to be refused between two fillings
STATUS = Path("/proc/self/status")


@contextmanager
def _limit_process() -> Iterator[bool]:
    """Let the process have `ROOM` bytes of memory more than now; gives whether the system can do that."""
    sanitized = hasattr(load_c_library(), "__asan_init")  # AddressSanitizer ends a process that has no memory left
    if sys.platform != "linux" or sanitized:
        yield False
        return
    import resource

    trim_heap()  # freed memory that the C library keeps would be available above the limit
    try:
        lines = STATUS.read_text().splitlines()
        used = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    except (OSError, StopIteration):
        yield False
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + ROOM
    if any(wanted > limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY):
        yield True  # it may have less than that as it is
        return
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield True
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _mark(piece: int, end: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the content of an end of a piece: a view, since there may be no memory left."""
    start = (piece * 31 + end * 101) % PERIOD
    return MARKS[start : start + MARK]


def _fill(device: Device, kind: str, size: int) -> tuple[list[Buffer], bool]:
    """Allocate until nothing is left of a memory of at least `size` bytes; returns whether that came to an end.

    It gives up at eight times the size.
    """
    kept: list[Buffer] = []
    piece, smallest, total = LARGEST * (size // ROOM), SMALLEST * (size // ROOM), 0
    while piece >= smallest:
        try:
            buffer = device.memory.alloc(piece, kind=kind, empty=True)
        except OutOfMemory:
            piece //= 2
            continue
        buffer.write(_mark(len(kept), 0))
        buffer.write(_mark(len(kept), 1), piece - MARK)
        kept.append(buffer)
        total += piece
        if total > 8 * size:
            return kept, False
    return kept, True


def _check_marks(kept: list[Buffer], kind: str) -> None:
    for i, buffer in enumerate(kept):
        for end, at in ((0, 0), (1, buffer.nbytes - MARK)):
            if (buffer.read(at, MARK) != _mark(i, end)).any():
                fail(f"with {kind} memory full, buffer {i} of {len(kept)} has lost what was written into it")


def _free(device: Device, kept: list[Buffer]) -> None:
    for buffer in kept:
        buffer.close()
    kept.clear()
    gc.collect()
    device.synchronize()


def _exhaust(device: Device, kind: str, size: int) -> bool:
    """Fill one kind of memory, ask for more, free it and fill it again; returns False if it does not get full."""
    memory = device.memory
    kept, full = _fill(device, kind, size)
    fitted = sum(b.nbytes for b in kept)
    try:
        if not full:
            return False
        for _ in range(REFUSALS):
            try:
                kept.append(memory.alloc(max(fitted, size), kind=kind, empty=True))
            except OutOfMemory:
                continue
            fail(f"with {kind} memory full, {max(fitted, size)} bytes more were allocated")
        _check_marks(kept, kind)
        _free(device, kept)
        for _ in range(REFUSALS):
            # There is room, and not enough. Memory that the process had free before may hold the first of the two
            for nbytes in (size + size // 4, fitted + size // 4):
                with suppress(OutOfMemory):
                    memory.alloc(nbytes, kind=kind, empty=True).close()
                    if nbytes > fitted:
                        fail(f"{nbytes} bytes of {kind} memory were allocated, where {fitted} filled it before")
        kept, _ = _fill(device, kind, size)
        again = sum(b.nbytes for b in kept)
        _check_marks(kept, kind)
    finally:
        _free(device, kept)
    if again < fitted - size // 8:
        fail(
            f"{fitted} bytes of {kind} memory fitted, and {again} after they were freed and {REFUSALS} requests failed"
        )
    return True


@runtime_check()
def loses_nothing_when_memory_is_full(device: Device) -> None:
    """Full memory raises OutOfMemory, what is in it stays, all of it can be freed and used again, and calls still work.

    The kinds after the first are tried if the limit of the process ends them.
    """
    chain = Chain(device, length=3)  # programs are built, and pools of threads started, before there is a limit
    chain.enqueue(device.default_stream)
    device.synchronize()
    gc.collect()
    memory = device.memory
    before = (memory.live, memory.allocations)
    stated = device.properties.get("memory_bytes")
    reason = ""
    for kind in memory.kinds:
        with _limit_process() as limited:
            ended = limited and _exhaust(device, kind, ROOM)
        if not ended and kind == memory.kinds[0]:
            if isinstance(stated, int) and stated >= ROOM:
                ended = _exhaust(device, kind, stated // ROOM * ROOM)
            if not ended:
                limit = "no limit on the process ends this memory" if limited else "this system limits no process"
                states = "the device's properties do not state memory_bytes" if stated is None else f"{stated} do not"
                reason = f"not tried: {limit}, and {states}"
    if (memory.live, memory.allocations) != before:
        fail(f"live is {memory.live - before[0]} bytes off its start after everything was freed")
    chain.clear()
    chain.enqueue(device.default_stream)
    if wrong := chain.differs(chain.last.numpy()):
        fail(f"after memory was full, {wrong}")
    if reason:
        lacks(reason)
