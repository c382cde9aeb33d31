"""The requirements on memory: zeroed, aligned, partial and whole transfers, counts, exhaustion, release."""

from __future__ import annotations

import gc

import numpy as np

from ... import tensors
from ...backend import Buffer, Device
from ...call.descriptor import Descriptor
from ...dtypes import F32
from ...layout import TensorDesc
from ...ops import find
from ...status import InvalidArgument, OutOfMemory
from ...tensors import Tensor
from .check import fail, lacks, runtime_check
from .growth import measure_growth
from .work import ATTEMPTS, choose_unary, make_long_chain

SIZES = (1, 63, 64, 4096, 4097, 1 << 20)
LARGE = 1 << 25  # bytes of the buffers that are allocated and freed in turn
TURNS = 40


def _pattern(nbytes: int, seed: int = 1) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return bytes of which no two adjacent ones and no two patterns are alike."""
    return ((np.arange(nbytes, dtype=np.int64) * 37 + seed * 101) % 251 + 1).astype(np.uint8)


def _expect(buffer: Buffer, wanted: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], what: str) -> None:
    got = buffer.read()
    if got.size != wanted.size or (got != wanted).any():
        at = int(np.argmax(got != wanted)) if got.size == wanted.size else min(got.size, wanted.size)
        fail(f"{what}: byte {at} of {wanted.size} is not what it must be")


@runtime_check()
def zeroes_what_it_allocates(device: Device) -> None:
    """`memory.alloc` gives zeroes unless `empty` is true, also where freed memory is used again."""
    for nbytes in SIZES:
        dirty = device.memory.alloc(nbytes, empty=True)
        dirty.write(np.full(nbytes, 0xA5, np.uint8))
        dirty.close()
        del dirty
        _expect(device.memory.alloc(nbytes), np.zeros(nbytes, np.uint8), f"a new buffer of {nbytes} bytes")


@runtime_check()
def aligns_what_it_allocates(device: Device) -> None:
    """`memory.alloc(alignment=…)` gives an address that is a multiple of the alignment, in every kind of memory."""
    for kind in device.memory.kinds:
        for alignment in (1, 64, 256, 4096):
            kept = [device.memory.alloc(n, kind=kind, alignment=alignment, empty=True) for n in (1, 65, 1000)]
            for buffer in kept:
                if buffer.address % alignment:
                    fail(f"address {buffer.address:#x} of {kind} memory is not a multiple of {alignment}")


@runtime_check()
def gives_every_buffer_its_own_bytes(device: Device) -> None:
    """Buffers that are alive at the same time do not overlap."""
    for nbytes in SIZES:
        kept = [device.memory.alloc(nbytes, empty=turn % 2 == 0) for turn in range(6)]
        for seed, buffer in enumerate(kept):
            buffer.write(_pattern(nbytes, seed))
        for seed, buffer in enumerate(kept):
            _expect(buffer, _pattern(nbytes, seed), f"one of six buffers of {nbytes} bytes, after all were written")


@runtime_check()
def allocates_nothing_at_all(device: Device) -> None:
    """A buffer of size 0 can be allocated, read, written and closed."""
    first, second = device.memory.alloc(0), device.memory.alloc(0)
    first.write(b"")
    if first.read().size or second.nbytes:
        fail("a buffer of size 0 has bytes")
    first.close()
    second.close()


@runtime_check()
def reads_and_writes_parts(device: Device) -> None:
    """`write(data, offset)` changes these bytes alone, and `read(offset, nbytes)` returns these bytes alone."""
    wanted = _pattern(5000)
    buffer = device.memory.alloc(wanted.size)
    buffer.write(wanted)
    for offset, nbytes in ((0, 1), (1, 7), (63, 130), (4095, 2), (4999, 1), (5000, 0)):
        part = _pattern(nbytes, seed=offset + 2)
        buffer.write(part, offset)
        wanted[offset : offset + nbytes] = part
        _expect(buffer, wanted, f"after a write of {nbytes} bytes at {offset}")
        if (buffer.read(offset, nbytes) != part).any():
            fail(f"a read of {nbytes} bytes at {offset} returned others")


@runtime_check()
def reads_copies(device: Device) -> None:
    """`read` returns a copy: neither a later write nor a change of the copy affects the other."""
    old, new = _pattern(3000), _pattern(3000, seed=9)
    buffer = device.memory.alloc(old.size)
    buffer.write(old)
    got = buffer.read()
    buffer.write(new)
    if (got != old).any():
        fail("what was read changed with a later write")
    if got.flags.writeable:
        got[...] = 0
    _expect(buffer, new, "after a change of what was read before")


@runtime_check()
def writes_copies(device: Device) -> None:
    """`write` is done with the caller's memory when it returns."""
    source = _pattern(1 << 18)
    wanted = source.copy()
    buffer = device.memory.alloc(source.size)
    buffer.write(source)
    source[...] = 0
    _expect(buffer, wanted, "after a change of the array that was written")


@runtime_check()
def maps_for_the_host(device: Device) -> None:
    """A mapping shows what the buffer holds, and what the host writes into it is there after `unmap_for_gpu`."""
    old, new = _pattern(1000), _pattern(1000, seed=5)
    buffer = device.memory.alloc(old.size)
    buffer.write(old)
    for _ in range(2):
        with buffer.map_for_cpu() as view:
            if not buffer.is_mapped:
                fail("is_mapped is false inside a mapping")
            if view.size != old.size or (view != old).any():
                fail("a mapping does not show what was written")
            view[...] = new
        _expect(buffer, new, "after a mapping was written and given back")
        old, new = new, old


@runtime_check()
def counts_what_lives(device: Device) -> None:
    """`live`, `peak` and `allocations` follow every allocation, close and loss of the last reference."""
    memory = device.memory
    gc.collect()
    before = (memory.live, memory.allocations)
    memory.reset_peak()
    closed, dropped = memory.alloc(1000), memory.alloc(3000)
    if (memory.live - before[0], memory.allocations - before[1]) != (4000, 2):
        fail(f"two buffers of 4000 bytes count as {memory.live - before[0]} bytes in {memory.allocations - before[1]}")
    closed.close()
    closed.close()
    del dropped
    gc.collect()
    if (memory.live, memory.allocations) != before:
        fail(f"live is {memory.live - before[0]} bytes off its start after everything was freed")
    if memory.peak - before[0] < 4000:
        fail(f"peak is {memory.peak - before[0]} bytes above the start, where 4000 were live at once")


@runtime_check()
def refuses_closed_buffers(device: Device) -> None:
    """A closed buffer refuses to be read, written and mapped."""
    buffer = device.memory.alloc(64)
    buffer.close()
    for what, use in (
        ("read", buffer.read),
        ("write", lambda: buffer.write(b"12")),
        ("map_for_cpu", buffer.map_for_cpu),
    ):
        try:
            use()
        except InvalidArgument:
            continue
        fail(f"{what} of a closed buffer raised no InvalidArgument")


@runtime_check()
def says_when_memory_is_exhausted(device: Device) -> None:
    """An allocation that cannot be made raises OutOfMemory, and nothing is lost by it."""
    memory = device.memory
    kept = memory.alloc(4096)
    kept.write(_pattern(4096))
    before = (memory.live, memory.allocations)
    for kind in memory.kinds:
        for nbytes in (1 << 62, 1 << 50):
            try:
                memory.alloc(nbytes, kind=kind, empty=True)
            except OutOfMemory:
                continue
            fail(f"{nbytes} bytes of {kind} memory were allocated, or seem to be")
    if (memory.live, memory.allocations) != before:
        fail(f"a failed allocation left {memory.live - before[0]} bytes counted")
    _expect(kept, _pattern(4096), "after a failed allocation, an older buffer")
    _expect(memory.alloc(4096), np.zeros(4096, np.uint8), "after a failed allocation, a new buffer")


@runtime_check()
def gives_memory_back(device: Device) -> None:
    """Memory of closed and collected buffers is used again: the process does not grow with their number."""

    def allocate(turn: int) -> None:
        buffer = device.memory.alloc(LARGE, empty=True)
        buffer.write(np.full(LARGE, turn & 255, np.uint8))
        if turn % 2:
            buffer.close()

    grown = measure_growth(allocate, warm=3, turns=TURNS)
    if grown > 4 * LARGE:
        fail(f"the process grew by {grown >> 20} MiB while {TURNS} buffers of {LARGE >> 20} MiB were made and freed")


@runtime_check()
def keeps_memory_of_pending_work(device: Device) -> None:
    """Memory that enqueued work uses stays until the work is done, though its tensors are dropped before."""
    for _ in range(3):
        chain = make_long_chain(device)
        for _ in range(6):
            chain.enqueue(device.default_stream)
        last, elements = chain.last, chain.input.size
        del chain.tensors[:-1]
        gc.collect()
        rubbish = [device.memory.alloc(4 * elements) for _ in range(4)]  # zeroed, without a wait for the work
        if wrong := chain.differs(last.numpy()):
            fail(f"tensors were dropped behind enqueued work, others were made, and {wrong}")
        del rubbish


@runtime_check()
def waits_before_a_read(device: Device) -> None:
    """Reading a buffer waits for the work on every stream of the device."""
    chain = make_long_chain(device)
    for _ in range(ATTEMPTS):
        chain.clear()
        chain.enqueue(device.stream())
        if wrong := chain.differs(chain.last.numpy()):
            fail(wrong)


@runtime_check()
def waits_before_a_write(device: Device) -> None:
    """Writing a buffer waits for enqueued work that reads it."""
    chain = make_long_chain(device)
    for stream in (device.default_stream, device.stream()):
        chain.clear()
        for _ in range(6):  # the last of them reads the input long after this
            chain.enqueue(stream)
        chain.tensors[0].buffer.write(np.full(chain.input.shape, 7e7, np.float32))
        if wrong := chain.differs(chain.last.numpy()):
            fail(f"the input was written behind enqueued work, and {wrong}")


@runtime_check()
def adopts_memory_in_place(device: Device) -> None:
    """Memory that `memory.adopt` takes is used in place, not counted, and given back once, after the work with it."""
    memory, released = device.memory, list[int]()
    owner = memory.alloc(4096)
    owner.write(_pattern(4096))
    live = memory.live

    def adopt(writable: bool = True) -> Buffer:
        return memory.adopt(owner.address, 4096, F32, owner, writable, lambda: released.append(1))

    try:
        adopted = adopt()
    except InvalidArgument:
        lacks("the device takes no memory of other libraries")
    if memory.live != live:
        fail(f"adopted memory counts as {memory.live - live} bytes of the device's own")
    _expect(adopted, _pattern(4096), "adopted memory")
    adopted.write(_pattern(4096, seed=3))
    _expect(owner, _pattern(4096, seed=3), "after a write to adopted memory, its owner's buffer")
    adopted.close()
    adopted.close()
    del adopted
    gc.collect()
    device.synchronize()
    if len(released) != 1:
        fail(f"adopted memory was given back {len(released)} times after it was closed")
    try:
        adopt(writable=False).write(b"1")
    except InvalidArgument:
        pass
    else:
        fail("memory that was adopted as read-only was written")
    gc.collect()
    device.synchronize()
    chain, stream = make_long_chain(device), device.stream()
    name = choose_unary(device)
    desc = TensorDesc("F32", (1024,))
    call = Descriptor.of(find(name), [desc], device=device)
    out, workspace = tensors.zeros(desc.shape, device=device), call.alloc_workspace()
    for _ in range(ATTEMPTS):
        released.clear()
        chain.enqueue(stream)
        call.calculate(Tensor(desc, adopt()), out, workspace=workspace, stream=stream)
        event = stream.record()
        gc.collect()
        if released and not event.query():
            fail("adopted memory was given back while enqueued work was to read it")
        stream.synchronize()
        device.synchronize()
        gc.collect()
        if len(released) != 1:
            fail(f"adopted memory was given back {len(released)} times after the work that read it")


@runtime_check()
def shares_host_memory_where_it_says_so(device: Device) -> None:
    """Where `memory.wraps` is true, a wrapped array and its buffer are the same memory."""
    if not device.memory.wraps:
        lacks("the device does not use host memory in place")
    array = np.arange(256, dtype=np.float32)
    tensor = tensors.from_numpy(array, device=device)
    array[3] = 77
    if tensor.numpy()[3] != 77:
        fail("a change of the array is not seen through the tensor")
    tensor.copy_from(np.zeros(256, np.float32))
    if array.any():
        fail("a write to the tensor is not seen in the array")
