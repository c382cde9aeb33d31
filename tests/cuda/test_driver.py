"""Test the host side of the backend: streams, memory, capture and errors.

The driver records what it is asked for, and fails where a test tells it to.
"""

import gc
import shutil
import threading

import numpy as np
import pytest

import isokern
from isokern import DeviceNotAvailable, InternalError, InvalidArgument, OutOfMemory, op_call
from isokern.backend import Workspace
from isokern.ops import find

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
ADD = find("add").kind_id
NOTED = [
    *("alloc", "free", "copy", "enqueue_copy", "zero", "launch"),
    *("stream", "end_stream", "check_stream", "synchronize"),
    *("record", "wait", "has_passed", "synchronize_event", "end_event"),
    *("begin_capture", "end_capture", "replay", "end_graph"),
]


@pytest.fixture(scope="module")
def noted(tmp_path_factory):
    """Return the class of that driver: `asked` lists (call, arguments), and `failing` maps a call to its error."""
    from isokern_cuda.driver import CudaError
    from isokern_cuda.sim import SimDriver

    class Noted(SimDriver):
        def __init__(self):
            self.asked, self.failing, self.foreign, self.of_library = [], {}, 0, {"": 0}
            super().__init__("g++", 0)

        def current(self, libraries):
            return self.foreign if not libraries else self.of_library[max(libraries)]

    def noting(name):
        plain = getattr(SimDriver, name)

        def method(self, *arguments):
            self.asked.append((name, arguments))
            if name in self.failing:
                raise CudaError(self.failing[name], f"error {self.failing[name]}")
            return plain(self, *arguments)

        return method

    for name in NOTED:
        setattr(Noted, name, noting(name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISOKERN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ISOKERN_SIMT_SELFTEST", "0")
        isokern.backends()  # declares the plug-in's settings
        yield Noted


@pytest.fixture
def device(noted):
    from isokern_cuda.devices import CudaDevice

    return CudaDevice("cuda:0", noted())


@pytest.fixture
def add(device):
    """Return (stream, call, a, y), where the call computes a + a → y on the stream."""
    a, y = isokern.tensor(np.arange(4, dtype=np.float32), device=device), isokern.zeros((4,), device=device)
    stream = device.stream()
    return stream, isokern.create("add", [a.desc, a.desc], device=device).bind([a, a], y, stream=stream), a, y


def fails(device, **errors):
    device.driver.failing = errors


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_bound_call_is_one_launch_on_its_stream(device, add):
    stream, call, _a, y = add
    device.driver.asked.clear()
    call()
    ((name, (_, blocks, threads, _, on)),) = device.driver.asked
    assert (name, blocks, threads, on) == ("launch", 1, device.traits.items, stream.handle)
    assert (y.numpy() == [0, 2, 4, 6]).all()


def test_streams_do_not_wait_for_each_other(device, add):
    _stream, call, _, _ = add
    other = device.stream()
    call()
    device.driver.asked.clear()
    other.synchronize()
    assert device.driver.asked == [("synchronize", (other.handle,))]


def test_events_order_streams_on_the_device(device, add):
    stream, call, _, _ = add
    other = device.stream()
    call()
    event = stream.record()
    device.driver.asked.clear()
    other.wait(event)
    assert device.driver.asked == [("wait", (other.handle, event.raw))]
    assert event.query()
    event.synchronize()
    raw = event.raw
    del event
    gc.collect()
    assert ("end_event", (raw,)) in device.driver.asked


def test_a_copy_of_dense_tensors_is_one_call_on_its_stream(device):
    pinned = isokern.Tensor(isokern.TensorDesc("F32", (4,)), device.memory.alloc(16, "F32", kind="pinned"))
    pinned.numpy()[:] = 1, 2, 3, 4
    x, stream = isokern.zeros((4,), device=device), device.stream()
    device.synchronize()
    device.driver.asked.clear()
    isokern.copy(pinned, out=x, stream=stream)
    address = x.buffer.address
    x_is_busy = bool(device.deferred.pending)
    assert device.driver.asked == [
        ("enqueue_copy", (address, pinned.buffer.address, 16, stream.handle)),
        ("launch", device.driver.asked[1][1]),
    ]
    assert x_is_busy
    assert (x.numpy() == [1, 2, 3, 4]).all()
    isokern.copy(x[2:], out=x[:2], stream=stream)  # within one buffer, copied by a kernel
    assert [n for n, _ in device.driver.asked].count("enqueue_copy") == 1
    x.buffer.close()
    with pytest.raises(InvalidArgument, match="closed"):
        isokern.copy(pinned, out=x, stream=stream)


def test_a_stream_that_goes_is_waited_for_and_ended(device):
    stream = device.stream()
    raw = stream.handle
    device.driver.asked.clear()
    del stream
    gc.collect()
    assert [c for c in device.driver.asked if c[0] in ("synchronize", "end_stream")] == [
        ("synchronize", (raw,)),
        ("end_stream", (raw,)),
    ]


def test_a_stream_of_another_library_is_used_and_not_ended(device, add):
    _, _, a, y = add
    raw = device.driver.stream()  # a stream of another library
    op_call(ADD, [a, a], [y], stream_handle=raw)
    assert [x[-1] for n, x in device.driver.asked if n == "launch"] == [raw]
    assert device.stream_of(raw) is device.stream_of(raw)
    device._foreign.clear()
    gc.collect()
    assert ("end_stream", (raw,)) not in device.driver.asked


def test_a_stream_that_another_library_ends_is_forgotten_once_waited_for(device, add):
    _, _, a, y = add
    raw = device.driver.stream()
    op_call(ADD, [a, a], [y], stream_handle=raw)
    device.synchronize()
    gc.collect()
    device.driver.end_stream(raw)
    assert (y.numpy() == [0, 2, 4, 6]).all()  # waits for every stream


def test_a_stream_of_another_library_is_kept_again_for_new_work(device, add):
    _, _, a, y = add
    raw = device.driver.stream()
    stream = device.stream_of(raw)
    device.synchronize()  # no work on it is left to wait for, so it may be forgotten
    op_call(ADD, [a, a], [y], stream_handle=raw)
    del stream
    gc.collect()
    assert raw in [s.raw for s in device.live_streams()]
    device.synchronize()
    gc.collect()
    assert raw not in [s.raw for s in device.live_streams()]


def test_handle_0_is_the_stream_that_other_libraries_use(device, add):
    _, _, _a, _y = add
    device.driver.foreign = raw = device.driver.stream()
    assert device.stream_of(0).handle == raw
    with device.stream() as ours:
        assert device.stream_of(0) is ours  # a `with` block takes precedence
    device.driver.foreign = 0
    assert device.stream_of(0) is device.default_stream


def test_handle_0_is_the_stream_of_the_library_whose_memory_it_is(device, add):
    _, _, a, y = add
    theirs = device.driver.stream()
    device.driver.of_library["torch"] = theirs
    y.buffer.library = "torch"
    op_call(ADD, [a, a], [y], stream_handle=0)
    assert [x[-1] for n, x in device.driver.asked if n == "launch"] == [theirs]


@pytest.mark.parametrize("handle", [99_999, -1, "one"])
def test_a_handle_of_no_stream_is_refused(device, add, handle):
    _, _, a, y = add
    with pytest.raises(InvalidArgument):
        op_call(ADD, [a, a], [y], stream_handle=handle)


def test_a_stream_that_was_destroyed_elsewhere(device, add):
    stream, call, _, _ = add
    device.driver.end_stream(stream.handle)
    with pytest.raises(InvalidArgument, match="no longer there"):
        call()


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_that_work_in_flight_uses_is_kept(device, add):
    stream, call, a, _y = add
    call()
    address = a.buffer.address
    gone = isokern.zeros((4,), device=device)
    lost = gone.buffer.address
    device.driver.asked.clear()
    del gone
    gc.collect()
    assert ("free", (lost, False)) not in device.driver.asked
    stream.synchronize()
    device.synchronize()
    assert ("free", (lost, False)) in device.driver.asked
    assert ("free", (address, False)) not in device.driver.asked


def test_memory_is_counted_and_freed(device):
    live = device.memory.live
    x = isokern.zeros((1000,), device=device)
    assert device.memory.live - live == 4000
    address = x.buffer.address
    del x
    gc.collect()
    assert device.memory.live == live
    assert ("free", (address, False)) in device.driver.asked


def test_copies_are_counted(device):
    x = isokern.zeros((1000,), device=device)
    copied = device.memory.copied
    x.copy_from(np.ones(1000, np.float32))
    x.numpy()
    assert device.memory.copied - copied == 8000


def test_pinned_memory_is_the_hosts_and_the_devices(device):
    buffer = device.memory.alloc(16, "F32", kind="pinned")
    with buffer.map_for_cpu() as view:
        view.view(np.float32)[:] = 3
    copied = device.memory.copied
    address = buffer.address
    assert device.memory.copied == copied
    assert ("alloc", (16, True)) in device.driver.asked
    buffer.close()
    device.synchronize()
    del view
    gc.collect()
    assert ("free", (address, True)) in device.driver.asked


def test_no_room(device):
    fails(device, alloc=2)
    with pytest.raises(OutOfMemory, match="cuda:0: error 2"):
        isokern.zeros((4,), device=device)
    fails(device)
    isokern.zeros((4,), device=device)
    with pytest.raises(OutOfMemory, match="allowed"):
        device.memory.alloc(device.driver.limit + 1)


def test_a_mapping_goes_back(device):
    x = isokern.tensor([1.0, 2.0], "F32", device=device)
    with x.buffer.map_for_cpu() as view:
        view.view(np.float32)[:] = 7
    assert (x.numpy() == 7).all()


def test_gpus_copy_to_each_other_without_the_host(noted, device):
    from isokern_cuda.devices import CudaDevice

    other = CudaDevice("cuda:1", noted())
    x = isokern.tensor(np.arange(8, dtype=np.float32), device=other)
    copied = device.memory.copied, other.memory.copied
    y = x.to_device(device)
    assert (device.memory.copied, other.memory.copied) == copied
    assert (y.numpy() == np.arange(8)).all()
    with pytest.raises(InvalidArgument, match="cuda:1"):
        isokern.create("neg", [x.desc], device=device).calculate([x], [y])


# --- capture ----------------------------------------------------------------------------------------------------------


def test_a_capture_asks_for_nothing_but_launches(device, add):
    stream, call, a, y = add
    device.driver.asked.clear()
    with stream.capture() as recording:
        for _ in range(3):
            call()
        assert device.driver.asked == []
        isokern.zeros((4,), device=device)  # allocation works, since CUDA itself is not capturing
    captured = [n for n, _ in device.driver.asked]
    captured = captured[captured.index("begin_capture") :]
    assert captured == ["begin_capture", "launch", "launch", "launch", "end_capture", "end_stream"]
    assert stream.handle not in [x[-1] for n, x in device.driver.asked if n == "launch"]
    device.driver.asked.clear()
    recording.replay()
    assert next(n for n, _ in device.driver.asked) == "replay"
    assert (y.numpy() == [0, 2, 4, 6]).all()
    a.copy_from(np.ones(4, np.float32))
    recording.replay()
    assert (y.numpy() == 2).all()


def test_what_another_thread_launches_meanwhile_is_not_in_the_graph(device, add, monkeypatch):
    stream, call, _, y = add
    z = isokern.zeros((4,), device=device)
    theirs = isokern.create("neg", [y.desc], device=device).bind([y], z, stream=stream)
    plain = device.driver.begin_capture

    def begin(raw):
        plain(raw)
        thread = threading.Thread(target=theirs)
        thread.start()
        thread.join()

    monkeypatch.setattr(device.driver, "begin_capture", begin)
    y.copy_from(np.full(4, 7, np.float32))
    with stream.capture() as recording:
        call()
    monkeypatch.undo()
    assert (z.numpy() == -7).all()
    recording.replay()
    assert (z.numpy() == -7).all()
    assert (y.numpy() == [0, 2, 4, 6]).all()


def test_a_capture_that_fails_raises_its_own_error(device, add):
    stream, call, _, _ = add
    with stream.capture() as recording:
        call()
    fails(device, launch=98)
    with pytest.raises(isokern.InternalError, match="error 98"):
        recording.close()
    fails(device)
    ended = [n for n, _ in device.driver.asked][-3:]
    assert ended == ["end_capture", "end_graph", "end_stream"]


def test_a_graph_is_forgotten_with_its_recording(device, add):
    stream, call, _, _ = add
    with stream.capture() as recording:
        call()
    graph = recording.graph
    del recording
    gc.collect()
    assert ("end_graph", (graph,)) in device.driver.asked


def test_a_capture_of_lists(device, add):
    stream, call, _a, y = add
    with stream.capture() as inner:
        call()
        call()
    with device.default_stream.capture() as outer:
        inner.replay()
        inner.replay()
    assert len(outer) == 4
    outer.replay()
    assert (y.numpy() == [0, 2, 4, 6]).all()


def test_calls_on_a_stream_that_another_library_captures(device, add):
    _, _, a, y = add
    raw = device.driver.stream()
    device.driver.begin_capture(raw)
    op_call(ADD, [a, a], [y], stream_handle=raw)
    graph = device.driver.end_capture(raw)
    assert not y.numpy().any()
    device.driver.replay(graph, raw)
    assert (y.numpy() == [0, 2, 4, 6]).all()


def test_what_a_graph_of_another_library_writes_to_is_kept(device, monkeypatch):
    """Workspace and error words are never freed, since nobody reports the end of another library's graph."""
    x = isokern.tensor(np.arange(5000, dtype=np.float32), device=device)
    out = isokern.zeros((), "I64", device=device)
    call = isokern.create("argmax", [x.desc], [out.desc], device=device, axis=0, keepdims=False)
    index = isokern.tensor(np.array([0, 1]), "I64", device=device)
    gather = isokern.create("gather", [x.desc, index.desc], device=device, axis=0)
    picked = isokern.zeros((2,), device=device)
    space = device.memory.alloc(max(256, call.workspace.size))
    raw = device.driver.stream()
    stream = device.stream_of(raw)
    assert stream.words  # allocated before, since CUDA forbids allocation during a capture
    device.driver.begin_capture(raw)
    call.calculate([x], [out], workspace=space if call.workspace.size else None, stream=stream)
    gather.calculate([x, index], [picked], stream=stream)
    device.driver.end_capture(raw)
    addresses = [stream.words.address] + ([space.address] if call.workspace.size else [])
    device.driver.asked.clear()
    del stream, space, call, gather
    gc.collect()
    device.synchronize()
    freed = [a[0] for n, a in device.driver.asked if n == "free"]
    assert not set(addresses) & set(freed)


def test_a_graph_of_another_library_keeps_its_scratch_memory_to_itself(device):
    """A capture allocates nothing; later calls get other scratch memory, as the graph may be replayed at any time."""
    raw, need = device.driver.stream(), Workspace(64)
    stream = device.stream_of(raw)
    before = stream.scratch(need)
    device.driver.begin_capture(raw)
    device.driver.asked.clear()
    assert stream.scratch(need) is before
    assert device.driver.asked == []
    device.driver.end_capture(raw)
    after = stream.scratch(need)
    assert after.address != before.address
    assert stream.scratch(need) is after


def test_the_per_thread_stream_is_refused(device):
    with pytest.raises(InvalidArgument, match="per-thread"):
        device.stream_of(2)


def test_memory_that_another_library_was_handed_waits_for_its_stream(device):
    x = isokern.zeros((4,), device=device)
    theirs = device.driver.stream()
    capsule = x.__dlpack__(stream=theirs)
    address = x.buffer.address
    device.synchronize()
    device.driver.asked.clear()
    del x, capsule
    gc.collect()
    assert ("free", (address, False)) not in device.driver.asked  # the other library's work may be in flight
    device.synchronize()
    gc.collect()
    order = [(n, a[0]) for n, a in device.driver.asked if n in ("synchronize", "free")]
    assert order.index(("synchronize", theirs)) < order.index(("free", address))


def test_an_allocation_that_fails_is_tried_again_when_what_is_retired_has_gone(device, add):
    _, call, _, _ = add
    retired = isokern.zeros((64,), device=device)
    call()
    address = retired.buffer.address
    del retired
    plain = device.driver.alloc
    failed = []

    def alloc(nbytes, pinned=False):
        if not failed:
            failed.append(nbytes)
            fails(device, alloc=2)
        else:
            fails(device)
        return plain(nbytes, pinned)

    device.driver.asked.clear()
    device.driver.alloc = alloc
    assert isokern.zeros((8,), device=device).numpy().sum() == 0
    assert failed
    assert ("free", (address, False)) in device.driver.asked


def test_memory_in_a_cycle_is_kept_too(device, add):
    """A garbage collection finalizes all that it finds, even what the finalizer of another object keeps alive."""
    _, call, _, _ = add
    x = isokern.zeros((4,), device=device)
    address, cycle = x.buffer.address, [x]
    cycle.append(cycle)
    call()
    device.driver.asked.clear()
    del x, cycle
    gc.collect()
    assert ("free", (address, False)) not in device.driver.asked
    device.synchronize()
    assert ("free", (address, False)) in device.driver.asked


def test_what_a_capture_of_another_library_forbids_is_named(device, add):
    _, _, _, y = add
    device.driver.begin_capture(device.driver.stream())
    with pytest.raises(InvalidArgument, match="not allowed while a stream captures"):
        y.numpy()


def test_errors_of_the_data_come_with_a_replay(device):
    x = isokern.tensor(np.arange(6, dtype=np.float32).reshape(3, 2), device=device)
    indices = isokern.tensor(np.array([0, 9]), device=device)
    y = isokern.zeros((2, 2), device=device)
    call = isokern.create("gather", [x.desc, indices.desc], device=device, axis=0).bind([x, indices], y)
    with device.default_stream.capture() as recording:
        call()
    device.synchronize()
    other = device.stream()
    recording.replay(other)
    with pytest.raises(InvalidArgument, match="9"):
        other.synchronize()
    other.synchronize()  # the error is reported only once


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [700, 719, 702, 214])
def test_after_a_sticky_error_cuda_is_not_asked_again(device, add, code):
    stream, call, _a, y = add
    fails(device, synchronize=code)
    with pytest.raises(DeviceNotAvailable, match=f"cuda:0 is lost: error {code}; start the process again"):
        stream.synchronize()
    fails(device)
    device.driver.asked.clear()
    for use in (call, stream.synchronize, y.numpy, lambda: isokern.zeros((4,), device=device), stream.record):
        with pytest.raises(DeviceNotAvailable, match=f"is lost: error {code}"):
            use()
    assert device.driver.asked == []


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        (1, InternalError, "error 1"),
        (2, OutOfMemory, "error 2"),
        (400, InvalidArgument, "no longer there"),
        (900, InvalidArgument, "while a stream captures"),
        (906, InvalidArgument, "legacy stream"),
    ],
)
def test_errors_are_typed(device, add, code, error, told):
    _, call, _, _ = add
    fails(device, launch=code)
    with pytest.raises(error, match=told):
        call()
    fails(device)
    call()  # none of these errors is permanent


def test_threads_at_once(device):
    x = isokern.tensor(np.arange(64, dtype=np.float32), device=device)
    wrong = []

    def work(k):
        with device.stream() as stream:
            y = isokern.zeros((64,), device=device)
            for _ in range(20):
                isokern.mul(x, np.float32(k), out=y)
            stream.synchronize()
            if not np.array_equal(y.numpy(), np.arange(64) * np.float32(k)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
