"""Test what is this backend's own: that the host goes on, and that errors of the device come when it is waited for."""

import numpy as np
import pytest

import isokern


def test_it_computes() -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    y = isokern.softmax(isokern.neg(isokern.tensor(x, device="acme:0"))).numpy()
    wanted = np.exp(-x) / np.exp(-x).sum(-1, keepdims=True)
    assert np.allclose(y, wanted, rtol=1e-6)


def test_an_error_of_the_device_is_raised_once_when_its_stream_is_waited_for() -> None:
    device = isokern.device("acme:0")
    x = isokern.tensor(np.arange(4, dtype=np.float32), device=device)
    indices = isokern.tensor(np.array([2, 9]), device=device)
    y = isokern.gather(x, indices)  # returns, since nobody has waited for it
    with pytest.raises(isokern.InvalidArgument, match="gather"):
        device.synchronize()
    assert np.array_equal(y.numpy(), [2, 0])


def test_a_stream_waits_for_an_event_of_another_one() -> None:
    device = isokern.device("acme:0")
    first, second = device.stream(), device.stream()
    x = isokern.tensor(np.ones(1 << 16, np.float32), device=device)
    y, z = isokern.empty(x.shape, device=device), isokern.empty(x.shape, device=device)
    for _ in range(20):
        isokern.exp(x, out=y, stream=first)
    second.wait(first.record())
    isokern.neg(y, out=z, stream=second)
    second.synchronize()
    assert np.allclose(z.numpy(), -np.e)


def test_a_replay_computes_with_new_contents() -> None:
    device = isokern.device("acme:0")
    x = isokern.tensor(np.ones(3, np.float32), device=device)
    y = isokern.empty((3,), device=device)
    with device.default_stream.capture() as recording:
        isokern.neg(x, out=y)
    x.copy_from(np.full(3, 7, np.float32))
    recording.replay()
    assert np.array_equal(y.numpy(), np.full(3, -7))


def test_the_host_reaches_the_memory_by_copies_alone() -> None:
    buffer = isokern.zeros((8,), device="acme:0").buffer
    assert buffer.view is None
    copied = buffer.memory.copied
    buffer.read()
    assert buffer.memory.copied == copied + 32
