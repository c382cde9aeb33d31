"""Test that a buffer keeps what it wraps, and that exports keep the buffer.

Each kind of import is tried with each kind of export, in every order of deletion.
"""

import weakref
from itertools import permutations

import numpy as np
import pytest
from foreign import Foreign

import isokern

SHAPE = (3, 64)


class Owner(np.ndarray):
    """An array class of its own, so that tests can tell when an instance is gone."""


def owned(shape=SHAPE, dtype=np.float32):
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape).view(Owner)
    assert array.base is not None
    return array


def wrapped(device):
    array = owned()
    return isokern.from_numpy(array, device=device), array


def reversed_(device):
    array = owned()
    return isokern.from_numpy(array[::-1, ::2], device=device), array


def read_only(device):
    array = owned()
    array.flags.writeable = False
    return isokern.from_numpy(array, device=device), array


def eager(device):
    array = owned()
    if device.asynchronous:
        pytest.skip(f"{device.name} copies the arrays of eager calls")
    return isokern.tensors.as_tensor(array, device), array


def of_blocks(device):
    array = owned((3, 36), np.uint8)
    return isokern.from_blocks(array, "Q4_0", device=device).raw, array


def of_dlpack(device):
    array = owned()
    return isokern.from_dlpack(Foreign(array), device=device), array


WAYS_IN = [wrapped, reversed_, read_only, eager, of_blocks, of_dlpack]
WAYS_OUT = {
    "numpy": lambda t: t.numpy(),
    "asarray": lambda t: np.asarray(t),
    "slice": lambda t: t[1:].numpy(),
    "transposed": lambda t: t.T.numpy(),
    "raw": lambda t: t.raw.numpy(),
    "dlpack": lambda t: np.from_dlpack(t),
    "buffer": lambda t: t.buffer.view,
    "mapping": lambda t: t.buffer.map_for_cpu().bytes,
}


@pytest.fixture
def wraps(device):
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not wrap host memory")
    return device


@pytest.mark.parametrize("way_out", WAYS_OUT)
@pytest.mark.parametrize("way_in", WAYS_IN, ids=lambda way: way.__name__)
def test_a_view_holds_what_it_views_and_no_longer(wraps, way_in, way_out):
    if way_in is read_only and way_out == "dlpack":
        pytest.skip("NumPy exports no read-only memory before DLPack 1.0")
    for order in permutations(("tensor", "array", "buffer")):
        tensor, array = way_in(wraps)
        there = weakref.ref(array)
        held = {"tensor": tensor, "array": array, "buffer": tensor.buffer}
        view = WAYS_OUT[way_out](tensor)
        expected = view.tobytes()
        del tensor, array
        for name in order:
            del held[name]
            assert there() is not None, f"{name} was deleted, and with it the memory"
            assert view.tobytes() == expected
        del view
        wraps.synchronize()
        assert there() is None, "nobody has it any more"


@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_what_was_allocated_outlives_its_tensor(device, way_out):
    tensor = isokern.tensor(np.arange(300_000, dtype=np.float32).reshape(300, 1000), device=device)
    try:
        view = WAYS_OUT[way_out](tensor)
    except (BufferError, RuntimeError, isokern.IsokernError) as error:  # NumPy imports no device memory by DLPack
        pytest.skip(str(error))
    if view is None:
        pytest.skip(f"memory of {device.name} is not the host's")
    expected = view.tobytes()
    del tensor
    others = [isokern.tensor(np.full((300, 1000), 7, np.float32), device=device) for _ in range(8)]
    device.synchronize()
    assert view.tobytes() == expected
    del others
