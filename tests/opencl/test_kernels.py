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


FENCED = """
import ctypes, mmap, isokern, numpy as np
device = isokern.device("opencl:0")
x, w = isokern.zeros((1, {c}, 1, 4000), device=device), isokern.zeros(({c}, {c} // {groups}, 1, 40), device=device)
conv = isokern.create("conv2d", [x.desc, w.desc], device=device, dilation=(1, 100), groups={groups})
assert conv.variant == "cpu"
pages = -(-conv.workspace_size // mmap.PAGESIZE) * mmap.PAGESIZE
room = mmap.mmap(-1, pages + (1 << 20))
array = np.frombuffer(room, np.uint8)
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(array.ctypes.data + pages), ctypes.c_size_t(1 << 20), 0) == 0
space = device.memory.wrap(array[(pages - conv.workspace_size) // 64 * 64 : pages], isokern.dtypes.U8)
conv.calculate([x, w], isokern.zeros((1, {c}, 1, 100), device=device), workspace=space)
device.synchronize()
"""


@pytest.mark.parametrize("groups", [1, 3], ids=["tiles", "depthwise"])
def test_nothing_is_read_behind_the_workspace(run, groups):
    """Taps far apart, whose strips go on beyond the last plane."""
    status, text = run(FENCED.format(c=3, groups=groups))
    assert status == 0, text
