"""Test what is this backend's own: kernels in C, and what is made of them."""

import numpy as np
import pytest

import isokern

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


def test_it_computes() -> None:
    x = isokern.tensor(X, device="acme:0")
    assert np.array_equal(isokern.add(x, isokern.neg(x)).numpy(), np.zeros_like(X))
    assert np.array_equal(isokern.transpose(x, axes=(1, 0)).numpy(), X.T)


def test_an_operator_without_a_kernel_is_made_of_those_that_have_one() -> None:
    x = isokern.tensor(X, device="acme:0")
    powers = np.exp(X - X.max(-1, keepdims=True))
    assert np.allclose(isokern.softmax(x).numpy(), powers / powers.sum(-1, keepdims=True), rtol=1e-6)
    assert "generic" in isokern.create("softmax", [x.desc], device="acme:0").made_of
    with pytest.raises(isokern.NotImplementedOnDevice, match="acme:0 has no kernel for softmax; on_missing='lower'"):
        isokern.softmax(x, on_missing="error")


def test_a_replay_computes_with_new_contents() -> None:
    device = isokern.device("acme:0")
    x = isokern.tensor(np.ones(3, np.float32), device=device)
    y = isokern.empty((3,), device=device)
    with device.default_stream.capture() as recording:
        isokern.neg(x, out=y)
    x.copy_from(np.full(3, 7, np.float32))
    recording.replay()
    assert np.array_equal(y.numpy(), np.full(3, -7))
