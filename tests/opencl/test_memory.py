"""Test memory: the host's in place or the device's own, too much of it, and buffers dropped while in use."""

import gc
import weakref

import numpy as np
import pytest

import isokern
from isokern import BadTensorStrides, InvalidArgument, OutOfMemory


def test_nothing_is_copied_in_the_hosts_memory(device):
    memory = device.memory
    assert memory.wraps
    before = memory.copied
    x = np.linspace(0, 1, 1000, dtype=np.float32)
    y = np.zeros(1000, np.float32)
    isokern.exp(isokern.from_numpy(x, device=device), out=y)
    assert np.allclose(y, np.exp(x))
    buffer = memory.alloc(64)
    with buffer.map_for_cpu() as view:
        view[...] = 7
    assert (buffer.view == 7).all()
    assert memory.copied == before


@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_arrays_are_wrapped_at_any_element(device, first):
    """On PoCL a load of 16 floats crashes if the pointer promises more than an element's alignment."""
    room = np.arange(5000, dtype=np.float32)
    x, y = isokern.from_numpy(room[first : first + 2000], device=device), np.zeros(2001, np.float32)[1:]
    isokern.mul(x, x, out=y)
    assert (y == room[first : first + 2000] ** 2).all()
    w = np.ones(100, np.float32)
    rows = isokern.from_numpy(room[first : first + 2000].reshape(20, 100), device=device)
    expected = isokern.rms_norm(isokern.tensor(rows, device=device), w).numpy()
    assert (isokern.rms_norm(rows, w).numpy() == expected).all()
    odd = np.zeros(41, np.uint8)[1:].view(np.float32)
    with pytest.raises(BadTensorStrides, match="divide"):
        isokern.from_numpy(odd, device=device)


def test_two_wrapped_views_of_one_array_are_one_memory(device):
    array = np.arange(64, dtype=np.float32)
    x, y = (isokern.from_numpy(array, device=device) for _ in range(2))
    isokern.neg(x, out=y)
    device.synchronize()
    assert (array == -np.arange(64)).all()
    with pytest.raises(InvalidArgument, match="overlap"):
        isokern.neg(x[:32], out=y[16:48])


def test_a_read_only_array_is_read(device):
    array = np.ones(8, np.float32)
    array.flags.writeable = False
    x = isokern.from_numpy(array, device=device)
    assert (isokern.add(x, x).numpy() == 2).all()
    with pytest.raises(InvalidArgument, match="read-only"):
        isokern.neg([1.0] * 8, out=x)


def test_an_array_may_change_when_an_eager_call_has_returned(device):
    for _ in range(4):
        x = np.zeros(1 << 21, np.float64)
        y = isokern.exp(x, device=device)
        x[...] = 5
        assert (y.numpy() == 1).all()


def test_an_array_that_is_named_as_output_is_filled_when_the_call_returns(device):
    x, y = np.zeros(1 << 22, np.float64), np.zeros(1 << 22, np.float64)
    isokern.exp(x, out=y, device=device)
    assert (y[:: y.size // 64] == 1).all()


def test_memory_that_is_dropped_in_flight_outlives_the_work(device):
    """Arrays and tensors are kept while work uses them, and released afterwards."""
    device.synchronize()
    size, gone = 1 << 20, []
    y = isokern.zeros((size,), device=device)
    for _ in range(20):
        array = np.full(size, 2, np.float32)
        x = isokern.from_numpy(array, device=device)
        t = isokern.mul(x, x)
        isokern.add(y, t, out=y)
        gone.append(weakref.ref(array))
        del array, x, t
        np.full(size, 99, np.float32)  # would reuse memory that was freed too early
    assert (y.numpy() == 80).all()
    device.synchronize()
    gc.collect()
    assert [r() for r in gone] == [None] * len(gone)
    assert device.deferred.retired == []


@pytest.mark.parametrize(("size", "bound"), [(1 << 16, 6), (8, 260)])
def test_retired_memory_is_bounded(device, monkeypatch, size, bound):
    from isokern.simt import deferred_release

    monkeypatch.setattr(deferred_release, "RETIRED", 1 << 20)
    x, most = isokern.zeros((size,), device=device), 0
    for _ in range(600):
        isokern.exp(x)
        most = max(most, len(device.deferred.retired))
    assert most <= bound
    device.synchronize()


def test_a_device_that_is_never_idle_lets_go_of_memory(device):
    """Whenever one stream was waited for, the other has work, as with threads that wait in turns."""
    x, most = isokern.zeros((8,), device=device), 0
    streams = [device.stream(), device.stream()]
    isokern.exp(x, stream=streams[1])
    for n in range(400):
        isokern.exp(x, stream=streams[n % 2])
        streams[1 - n % 2].synchronize()
        most = max(most, len(device.deferred.retired))
    assert most < 20
    device.synchronize()
    assert device.deferred.retired == []


def test_an_array_outlives_its_tensor(device):
    array = isokern.exp(np.zeros(100_000, np.float32), device=device).numpy()
    gc.collect()
    garbage = [isokern.tensor(np.full(100_000, 9, np.float32), device=device) for _ in range(4)]
    assert (array == 1).all()
    del garbage


def test_too_much(device):
    memory = device.memory
    live = memory.live
    with pytest.raises(OutOfMemory, match=r"allowed: up to \d+ a buffer"):
        memory.alloc(memory.room.largest + 1)
    assert memory.live == live


LIMITED = """
import isokern, numpy as np
memory = isokern.device("opencl:0").memory
kept = []
try:
    while len(kept) < 100:
        kept.append(memory.alloc(memory.room.largest // 2, empty=True))
except isokern.OutOfMemory as error:
    print(error)
assert 1 <= len(kept) < 100, len(kept)
kept.pop()
kept.append(memory.alloc(memory.room.largest // 2, empty=True))
"""


def test_more_than_there_is_in_all(run):
    status, text = run(LIMITED, POCL_MEMORY_LIMIT="1")
    assert status == 0, text
    assert "in all" in text


OWN = """
import isokern, numpy as np
device = isokern.device("opencl:0")
memory = device.memory
assert not memory.wraps
x = isokern.tensor(np.arange(100, dtype=np.float32), device=device)
before = memory.copied
with x.buffer.map_for_cpu() as view:
    assert x.buffer.is_mapped
    view.view(np.float32)[:] *= 2
assert not x.buffer.is_mapped
assert memory.copied - before == COPIES * 400, memory.copied - before
assert (x.numpy() == 2 * np.arange(100)).all()
y = isokern.add(x, x)
assert (y.numpy() == 4 * np.arange(100)).all()
mapping = x.buffer.map_for_cpu()
x.buffer.close()
for call in (x.buffer.read, lambda: isokern.from_numpy(np.ones(3, np.float32), device=device)):
    try:
        call()
        raise SystemExit("not refused")
    except isokern.InvalidArgument:
        pass
empty = memory.alloc(0)
with empty.map_for_cpu() as view:
    assert view.size == 0
assert empty.read().size == 0
print("done")
"""


def test_memory_of_its_own(run):
    """Oclgrind has its own memory: a mapping copies both ways, and the copies are counted."""
    status, text = run(OWN.replace("COPIES", "2"), ISOKERN_OPENCL_DEVICES="oclgrind")
    if "no device is called oclgrind" in text:
        pytest.skip("Oclgrind is not installed")
    assert text.strip() == "done", text
    assert status == 0


def test_memory_that_is_mapped_in_place(run):
    """As on a GPU that shares the host's memory, buffers are the driver's, and a mapping copies nothing."""
    code = "from isokern_opencl import devices; devices.computes_in_host_memory = lambda *a: False\n"
    status, text = run(code + OWN.replace("COPIES", "0"))
    assert text.strip() == "done", text
    assert status == 0
