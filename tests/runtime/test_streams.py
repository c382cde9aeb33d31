"""Test streams: capture and replay, the thread's current stream, events."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument
from isokern.backend import HostMemory, Recording
from isokern.backend.native import NativeDevice, NativeLibrary
from isokern.llm.kv_cache import KVCache


def test_capture_and_replay_see_new_contents(device):
    x = isokern.tensor(np.arange(8, dtype=np.float32), device=device)
    y, z = isokern.zeros((8,), device=device), isokern.zeros((8,), device=device)
    add = isokern.create("add", [x.desc, x.desc], device=device)
    double = add.bind([x, x], y)
    stream = device.default_stream
    with stream.capture() as recording:
        double()
        add.calculate([y, x], z)
        isokern.neg(z, out=z)
    assert len(recording) == 3
    assert not y.numpy().any()
    assert not z.numpy().any()
    recording.replay()
    assert (z.numpy() == -3 * np.arange(8)).all()
    x.copy_from(np.ones(8, np.float32))
    recording.replay()
    assert (z.numpy() == -3).all()


def test_recording_owns_what_it_names(device):
    y = isokern.zeros((4,), device=device)
    with device.default_stream.capture() as recording:
        isokern.add(isokern.tensor([1.0, 2, 3, 4], device=device), isokern.tensor([1.0, 1, 1, 1], device=device), out=y)
    gc.collect()
    garbage = [isokern.tensor(np.full(4, 99, np.float32), device=device) for _ in range(50)]
    recording.replay()
    assert (y.numpy() == [2, 3, 4, 5]).all()
    del garbage


def test_capture_does_not_nest(device):
    with (
        device.default_stream.capture(),
        pytest.raises(InvalidArgument, match="captures the stream"),
        device.default_stream.capture(),
    ):
        pass


def test_replay_comes_after_the_capture(device):
    with device.default_stream.capture() as recording, pytest.raises(InvalidArgument, match="still being captured"):
        recording.replay()


def in_another_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_a_capture_takes_the_calls_of_its_own_thread_alone(device):
    """Meanwhile another thread computes, allocates and waits on the captured stream, and captures it as well."""
    x, y, z = (isokern.tensor([v], "F32", device=device) for v in (1.0, 0.0, 0.0))
    neg = isokern.create("neg", [x.desc], device=device)
    bound, twice = neg.bind(x, y), isokern.create("add", [x.desc, x.desc], device=device)

    def elsewhere():
        assert device.default_stream.recording is None
        bound()
        assert y.numpy() == [-1]
        with device.default_stream.capture() as other:
            twice.calculate([x, x], z)
        y.copy_from([0.0])
        other.replay()
        assert z.numpy() == [2]
        return other

    with device.default_stream.capture() as recording:
        neg.calculate(x, z)
        other = in_another_thread(elsewhere)
        bound()
    assert (len(recording), len(other)) == (2, 1)
    assert (y.numpy(), z.numpy()) == ([0], [2])
    recording.replay()
    assert (y.numpy(), z.numpy()) == ([-1], [-1])


def test_a_capture_ends_in_its_own_thread(device):
    capture = device.default_stream.capture()
    capture.__enter__()
    with pytest.raises(InvalidArgument, match="different thread"):
        in_another_thread(lambda: capture.__exit__(None, None, None))
    assert isinstance(device.default_stream.recording, Recording)
    device.default_stream.end_capture(device.default_stream._of_thread.__dict__.pop("recording"))


def test_a_replay_inside_a_capture_is_recorded(device):
    x, y = isokern.tensor([3.0], device=device), isokern.zeros((1,), device=device)
    stream = device.stream()
    with stream.capture() as inner, stream:
        isokern.neg(x, out=y)
    with stream.capture() as outer, stream:
        inner.replay()
        inner.replay(stream)
        isokern.neg(y, out=y)
        assert not y.numpy().any()
    assert len(outer) == 3
    del inner
    gc.collect()
    outer.replay(stream)
    stream.synchronize()
    assert y.numpy() == [3]


def test_an_error_ends_the_capture(device):
    with pytest.raises(RuntimeError), device.default_stream.capture():
        raise RuntimeError
    isokern.add([1.0], [2.0], device=device)
    with device.default_stream.capture() as recording:
        pass
    assert len(recording) == 0
    recording.replay()


def test_current_stream(device):
    stream = device.stream()
    assert isokern.current_stream(device) is device.default_stream
    with stream:
        assert isokern.current_stream(device) is stream
        with device.default_stream:
            assert isokern.current_stream(device) is device.default_stream
        y = isokern.add([1.0], [2.0], device=device)
    assert isokern.current_stream(device) is device.default_stream
    event = stream.record()
    device.default_stream.wait(event)
    event.synchronize()
    assert event.query()
    stream.synchronize()
    assert y.numpy() == [3.0]


def test_replay_before_the_end(device):
    with device.default_stream.capture() as recording, pytest.raises(InvalidArgument, match="still being captured"):
        recording.replay()
    recording.replay()


def test_a_copy_is_enqueued_and_captured(device):
    x, y = (
        isokern.tensor(np.arange(24, dtype=np.float32).reshape(4, 6), device=device),
        isokern.zeros((4, 6), device=device),
    )
    part = isokern.zeros((4, 3), device=device)
    stream = device.stream()
    isokern.copy(x, out=y, stream=stream)
    isokern.copy(x[:, ::2], out=part, stream=stream)
    stream.synchronize()
    assert (y.numpy() == x.numpy()).all()
    assert (part.numpy() == x.numpy()[:, ::2]).all()
    with stream.capture() as recording:
        isokern.copy(x, out=y, stream=stream)
    x.copy_from(np.ones((4, 6), np.float32))
    assert (y.numpy() != 1).sum() > 20
    recording.replay(stream)
    stream.synchronize()
    assert (y.numpy() == 1).all()


def test_a_copy_to_what_is_no_tensor_is_refused(device):
    x = isokern.zeros((4,), device=device)
    before, stream = device.memory.allocations, device.stream()
    with stream.capture() as recording:
        for wrong in ([1.0] * 4, 0.0, "x", x.buffer, x.desc):
            with pytest.raises(InvalidArgument, match=r"copy: out is a .*; allowed: a tensor or an array"):
                isokern.copy(x, out=wrong, device=device, stream=stream)
    assert device.memory.allocations == before
    assert len(recording) == 0


def test_a_copy_of_tensors_of_another_device_is_refused(device):
    """The copy would have to run on a stream of the other device."""
    library = pytest.importorskip("isokern_cpu._native")
    native = NativeLibrary(library.ffi, library.lib)
    elsewhere = NativeDevice("elsewhere:0", {}, HostMemory(), native, lambda level: None)
    x = isokern.zeros((4,), device=elsewhere)
    with pytest.raises(InvalidArgument, match="allowed: a stream of elsewhere:0"):
        isokern.copy(x, out=isokern.zeros((4,), device=elsewhere), stream=device.stream())


@pytest.mark.parametrize("wrong", [None, 0, "event", object()], ids=["none", "number", "text", "object"])
def test_a_wait_for_what_is_no_event_is_refused(device, wrong):
    with pytest.raises(InvalidArgument, match=r"wait: event is a .*; allowed: an event"):
        device.stream().wait(wrong)


class Lookalike:
    """An object with a stream's attributes that is no stream."""

    def __init__(self, device):
        self.device = device
        self.recording = None
        self.handle = device.default_stream.handle


def test_whatever_takes_a_stream_takes_no_other_thing(device):
    x, y = isokern.zeros((2, 32), device=device), isokern.zeros((2, 32), device=device)
    w = isokern.zeros((4, 32), device=device)
    add = isokern.create("add", [x.desc, x.desc], device=device)
    product = isokern.create("matmul_transposed", [x.desc, w.desc], device=device, prepacked=["w"])
    with device.default_stream.capture() as recording:
        add.calculate([x, x], y)
    cache = KVCache(4, 2, 32, "F32", device=device)
    new = np.zeros((1, 1, 2, 32), np.float32)
    for wrong in (Lookalike(device), device, 0, "stream", x):
        for call in (
            lambda s: isokern.add(x, x, stream=s),
            lambda s: isokern.matmul(x, x.T, stream=s),
            lambda s: isokern.transpose(x, stream=s),
            lambda s: add.calculate([x, x], y, stream=s),
            lambda s: add.bind([x, x], y, stream=s),
            lambda s: product.prepack("w", w, stream=s),
            lambda s: recording.replay(s),
            lambda s: cache.update(new, new, stream=s),
            lambda s: cache.prune_prefix(0, stream=s),
        ):
            with pytest.raises(InvalidArgument, match=rf"the stream is a .*allowed: a stream of {device.name}"):
                call(wrong)
    assert cache.current_pos == 0


def test_a_copy_of_another_shape_or_dtype_is_refused(device):
    x = isokern.zeros((4, 6), device=device)
    for wrong in (isokern.zeros((6, 4), device=device), isokern.zeros((4, 6), "I32", device=device)):
        with pytest.raises(isokern.IsokernError):
            isokern.copy(x, out=wrong, stream=device.stream())
