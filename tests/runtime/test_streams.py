"""Streams: capture and replay, the thread's current stream, events."""

import gc
import threading

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument


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
        pytest.raises(InvalidArgument, match="capturing"),
        device.default_stream.capture(),
    ):
        pass


def test_replay_comes_after_the_capture(device):
    with device.default_stream.capture() as recording, pytest.raises(InvalidArgument, match="still being captured"):
        recording.replay()


def test_a_capture_takes_the_calls_of_its_own_thread_alone(device):
    x, y = isokern.tensor([1.0], device=device), isokern.zeros((1,), device=device)
    neg, refused = isokern.create("neg", [x.desc], device=device), []
    bound = neg.bind(x, y)

    def elsewhere():
        for call in (bound, lambda: neg.calculate(x, y)):
            try:
                call()
            except InvalidArgument as error:
                refused.append(str(error))

    with device.default_stream.capture() as recording:
        bound()
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    assert len(recording) == 1
    assert len(refused) == 2
    assert all("another thread is capturing" in text for text in refused)


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
    stream.copy(y, x)
    stream.copy(part, x[:, ::2])
    stream.synchronize()
    assert (y.numpy() == x.numpy()).all()
    assert (part.numpy() == x.numpy()[:, ::2]).all()
    with stream.capture() as recording:
        stream.copy(y, x)
    x.copy_from(np.ones((4, 6), np.float32))
    assert (y.numpy() != 1).sum() > 20
    recording.replay(stream)
    stream.synchronize()
    assert (y.numpy() == 1).all()


def test_a_copy_of_another_shape_or_dtype_is_refused(device):
    x = isokern.zeros((4, 6), device=device)
    for wrong in (isokern.zeros((6, 4), device=device), isokern.zeros((4, 6), "I32", device=device)):
        with pytest.raises(isokern.IsokernError):
            device.stream().copy(wrong, x)
