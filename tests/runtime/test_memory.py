"""Test buffers and memory: accounting, ranges, mapping, and what is refused."""

import gc
import weakref

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument, OutOfMemory


@pytest.fixture
def memory(device):
    gc.collect()
    return device.memory


def test_live_and_peak_are_true(memory):
    live, count = memory.live, memory.allocations
    memory.reset_peak()
    a = memory.alloc(1000)
    b = memory.alloc(500, "F32", alignment=256)
    assert memory.live == live + 1500
    assert memory.allocations == count + 2
    assert b.address % 256 == 0
    b.close()
    assert memory.live == live + 1000
    b.close()  # closing twice is harmless
    del a
    gc.collect()
    assert memory.live == live
    assert memory.peak == live + 1500


def test_zeroed_unless_empty(memory):
    assert not memory.alloc(4096).read().any()
    assert memory.alloc(16, empty=True).nbytes == 16


def test_read_and_write_of_byte_ranges(memory):
    buffer = memory.alloc(16, "F32")
    buffer.write(np.arange(2, dtype=np.float32), 8)
    assert (buffer.read(8, 8).view(np.float32) == [0, 1]).all()
    assert buffer.read().size == 16
    for offset, size in ((-1, 4), (13, 4), (0, 17)):
        with pytest.raises(InvalidArgument, match=r"allowed: 0\.\.16"):
            buffer.read(offset, size)
    with pytest.raises(InvalidArgument):
        buffer.write(b"12345", 12)


def test_mapping(memory):
    buffer = memory.alloc(8)
    with buffer.map_for_cpu() as view:
        view[:] = 3
    assert (buffer.read() == 3).all()
    buffer.sync_device()


def test_copies_are_counted(device, memory):
    buffer = memory.alloc(16)
    before = memory.copied
    buffer.write(b"12345678", 4)
    assert memory.copied == before + 8
    buffer.read(2, 3)
    assert memory.copied == before + 11
    with pytest.raises(InvalidArgument):
        buffer.read(15, 2)
    assert memory.copied == before + 11
    with buffer.map_for_cpu() as view:
        view[0] = 1
    if buffer.view is not None:
        x = isokern.from_numpy(np.ones(4, np.float32), device=device)
        isokern.neg(x, out=x).numpy()
        assert memory.copied == before + 11


def test_closed_buffer(memory):
    buffer = memory.alloc(8)
    buffer.close()
    for use in (buffer.read, lambda: buffer.write(b"1"), buffer.map_for_cpu):
        with pytest.raises(InvalidArgument, match="closed"):
            use()


@pytest.mark.parametrize(
    "options",
    [
        {"nbytes": -1},
        {"nbytes": 1.5},
        {"nbytes": 8, "kind": "gold"},
        {"nbytes": 8, "alignment": 3},
        {"nbytes": 8, "alignment": "a"},
        {"nbytes": 8, "alignment": 2.0},
        {"nbytes": np.array([1, 2])},
        {"nbytes": True},
    ],
)
def test_alloc_refuses(memory, options):
    with pytest.raises(InvalidArgument):
        memory.alloc(**options)


def test_out_of_memory(memory):
    live = memory.live
    with pytest.raises(OutOfMemory):
        memory.alloc(1 << 62)
    assert memory.live == live


def test_nothing_leaks_from_descriptors(device, memory):
    x = isokern.zeros((64, 64), device=device)
    y = isokern.zeros((64, 64), device=device)
    live = memory.live
    for _ in range(200):
        d = isokern.create("add", [x.desc, x.desc], device=device)
        d.bind([x, x], y)()
        d.close()
    gc.collect()
    assert memory.live == live


def test_close_frees(memory):
    pages = memory.alloc(1 << 20)
    view = pages.view
    if view is None:
        pytest.skip("not host memory")
    last = weakref.ref(view.base if view.base is not None else view)
    del view
    memory.device.synchronize()  # work in flight keeps what it uses
    pages.close()
    assert last() is None


@pytest.mark.parametrize("how", ["bound", "recorded"])
def test_a_call_keeps_the_memory_of_a_closed_buffer(device, how):
    """This includes wrapped arrays, whose memory is not the library's."""
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not wrap host memory")
    x = isokern.zeros((1 << 21,), device=device)
    array = np.empty(1 << 21, np.float32)
    y, alive = isokern.from_numpy(array, device=device), weakref.ref(array)
    bound = isokern.create("cos", [x.desc], device=device).bind(x, y)
    with device.default_stream.capture() as recording:
        isokern.cos(x, out=y)
    call = {"bound": bound, "recorded": recording.replay}[how]
    del bound, recording, array
    x.buffer.close()
    y.buffer.close()
    gc.collect()
    call()
    device.synchronize()
    assert (alive()[:5] == 1).all()
    del call
    gc.collect()
    assert alive() is None


def test_ranges_and_data_of_another_kind(memory):
    buffer = memory.alloc(8)
    for wrong in (lambda: buffer.read("a"), lambda: buffer.read(1.0, 2.0), lambda: buffer.write(b"1", "x")):
        with pytest.raises(InvalidArgument, match="integers"):
            wrong()
    for data in (None, "ab", [object()], {1: 2}):
        with pytest.raises(InvalidArgument, match="bytes or an array"):
            buffer.write(data)
    buffer.write(memoryview(b"12345678")[::2])
    assert bytes(buffer.read(0, 4)) == b"1357"


def test_constants_lie_together_and_are_freed_together(memory):
    before = memory.live
    first, second = memory.alloc_lasting(1000), memory.alloc_lasting(100)
    assert memory.live == before + 1100 and memory.allocations >= 2
    assert first.address % 64 == second.address % 64 == 0
    low, high = sorted((first, second), key=lambda b: b.address)
    assert low.address + low.nbytes <= high.address
    first.write(np.full(1000, 7, np.uint8))
    second.write(np.zeros(100, np.uint8))
    assert (first.read() == 7).all() and not second.read().any()
    first.close()
    assert memory.live == before + 100
    second.write(np.ones(100, np.uint8))  # whose allocation stays
    assert second.read().all()
    del first, second, low, high
    gc.collect()
    assert memory.live == before
