"""Kernels for processors, at sizes and addresses that the samples of the operators do not have."""

import numpy as np
import pytest

import isokern


def taken_by(device, op, *given, **attrs):
    """The variant that a call gets."""
    return isokern.create(op, [t.desc for t in given], device=device, **attrs).variant


@pytest.mark.parametrize("shape", [(64, 5, 300), (130, 3, 200), (20, 3, 5, 300)])
def test_turned_dims_of_many_blocks(device, shape):
    """A block of a transposition has 128 rows."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    turned = isokern.tensor(x, device=device).T
    assert taken_by(device, "copy", turned) == "cpu"
    assert np.array_equal(isokern.copy(turned).numpy(), x.T)


@pytest.mark.parametrize("skip", [0, 1, 8, 15])
@pytest.mark.parametrize("op", ["copy", "neg", "softmax", "layer_norm"])
def test_large_outputs_anywhere(device, op, skip):
    """Stores past the caches take whole cache lines; a wrapped array begins anywhere."""
    n = 1024
    x = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    room = np.zeros(n * n + 32, np.float32)
    first = -room.ctypes.data % 64 // 4 + skip
    y = room[first:][: n * n].reshape(n, n)
    given = isokern.tensor(x, device=device)
    given = given.T if op == "copy" else given
    assert taken_by(device, op, given) == "cpu"
    getattr(isokern, op)(given, out=isokern.from_numpy(y, device=device))
    device.synchronize()
    expected = getattr(isokern, op)(given).numpy()
    assert np.array_equal(y, expected)
    assert not room[:first].any()
    assert not room[first + n * n :].any()
