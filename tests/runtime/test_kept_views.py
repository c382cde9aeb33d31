"""Test views that are found by what was asked for before: that they are those, and that what is no view stays none."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import isokern
from isokern import IsokernError
from isokern.backend import buffer_view


@pytest.fixture
def x(device):
    return isokern.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4), device=device)


VIEWS = [
    lambda a: a[1],
    lambda a: a[-1],
    lambda a: a[1, 2],
    lambda a: a[1:, None, ..., ::-1],
    lambda a: a[:, 2:0:-1],
    lambda a: a[...],
    lambda a: a[np.int64(1)],
    lambda a: a.T,
    lambda a: a.T.T,
    lambda a: a.reshape(6, 4),
    lambda a: a.reshape((4, -1)),
    lambda a: a.reshape([24]),
    lambda a: a[1][2][3],
]


def test_a_view_is_the_same_each_time(x):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in VIEWS:
        for _ in range(3):
            made = view(x)
            assert np.array_equal(made.numpy(), view(array))
            assert made.buffer is x.buffer
            checked = isokern.Tensor(made.desc, made.buffer)  # which computes everything
            assert (made.facts, made.span) == (checked.facts, checked.span)
    for _ in range(3):
        assert np.array_equal(x.permute(2, 0, 1).numpy(), array.transpose(2, 0, 1))
        assert np.array_equal(x.permute([1, 0, 2]).numpy(), array.transpose(1, 0, 2))
        assert np.array_equal(x[0].broadcast_to(5, 3, 4).numpy(), np.broadcast_to(array[0], (5, 3, 4)))


def test_what_only_compares_equal_is_no_view_that_was_made(x):
    x[1], x[0:2], x.reshape(6, 4), x.reshape(np.int64(6), 4), x.permute(0, 1, 2), x[1, 0]  # they are kept
    for wrong in (
        lambda: x[1.0],
        lambda: x[0.0:2],
        lambda: x[1.0, 0],
        lambda: x.reshape(6.0, 4),
        lambda: x.reshape((6.0, 4)),
        lambda: x.reshape(np.int64(6).view(np.float64), 4),  # of the same bytes
        lambda: x.permute(0.0, 1, 2),
        lambda: x[2],
        lambda: x[0, 0, 0, 0],
        lambda: x[((0, 2, None),)],
        lambda: x.reshape(5, 5),
    ):
        for _ in range(2):
            with pytest.raises(IsokernError):
                wrong()
    assert x[True].shape == (1, 2, 3, 4)
    assert x[[1]].shape == (1, 3, 4)
    x[1] = 5
    assert (x.numpy()[1] == 5).all() and x.numpy()[0, 0, 1] == 1


def test_many_views_are_forgotten(device, monkeypatch):
    monkeypatch.setattr(buffer_view, "VIEWS", 100)
    cube = isokern.tensor(np.arange(1000, dtype=np.float32).reshape(10, 10, 10), device=device)
    for _ in range(2):
        made = [cube[i][j][k] for i in range(10) for j in range(10) for k in range(10)]
        assert [float(x) for x in made[::99]] == list(range(0, 1000, 99))
    gc.collect()
    assert 0 < sum(len(f.views) for f in gc.get_objects() if type(f) is buffer_view.Facts) <= 100
    assert not buffer_view._NONE


def test_float64_is_quantised(device):
    x = np.linspace(-1, 1, 64)  # whose dtype NumPy takes None for
    assert isokern.tensor(x, "Q8_0", device=device).raw.shape == (68,)


def test_an_array_over_a_tensor_is_its_memory(device):
    for element in ("F32", "F64", "I8", "BF16", "F8E5M2", "BOOL", "C64"):
        if element not in ("F32", "I8", "BOOL") and device.name.startswith("kunlun"):
            continue
        x = isokern.zeros((2, 3), element, device=device)
        assert x.numpy().dtype == x.dtype.numpy
        assert x.T[::-1].numpy().shape == (3, 2)
        if x.buffer.view is not None:
            x.T.numpy()[2, 1] = 1
            assert x.numpy()[1, 2] == 1 and np.shares_memory(x.numpy(), x.T.numpy())
    if device.memory.wraps:
        fixed = np.zeros(3, np.float32)
        fixed.flags.writeable = False
        assert not isokern.from_numpy(fixed, device=device).numpy().flags.writeable
