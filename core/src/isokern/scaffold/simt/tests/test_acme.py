"""Test what is this backend's own: compiling, launching, and the errors that kernels report."""

import numpy as np
import pytest

import isokern


def test_it_computes() -> None:
    x = np.linspace(-3, 3, 80, dtype=np.float32).reshape(2, 40)
    y = isokern.rms_norm(isokern.tensor(x, device="acme:0"), eps=1e-6).numpy()
    assert np.allclose(y, x / np.sqrt(np.mean(x.astype(np.float64) ** 2, -1, keepdims=True) + 1e-6), rtol=1e-5)


def test_an_error_that_a_kernel_reports_is_raised_under_the_name_of_its_operator() -> None:
    x = isokern.tensor(np.arange(4, dtype=np.float32), device="acme:0")
    indices = isokern.tensor(np.array([2, 9]), device="acme:0")
    with pytest.raises(isokern.InvalidArgument, match="gather"):
        isokern.gather(x, indices)


def test_a_replay_computes_with_new_contents() -> None:
    device = isokern.device("acme:0")
    x = isokern.tensor(np.ones(3, np.float32), device=device)
    y = isokern.empty((3,), device=device)
    with device.default_stream.capture() as recording:
        isokern.neg(x, out=y)
    x.copy_from(np.full(3, 7, np.float32))
    recording.replay()
    assert np.array_equal(y.numpy(), np.full(3, -7))


def test_every_primitive_has_a_kernel() -> None:
    device = isokern.device("acme:0")
    primitives = [op for op in isokern.ops.all_operators() if op.decompose is None]
    assert [op.name for op in primitives if not device.variants(op.stem)] == []
