"""Test DLPack in both directions with memory that the host cannot access.

The emulated GPU has a DLPack device type that no other library has.
"""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorStrides, DeviceNotAvailable, InvalidArgument
from isokern.tensors import dlpack_device
from isokern.tensors.dlpack_device import FORMS


@pytest.fixture
def device(opened, monkeypatch):
    device = opened()
    monkeypatch.setattr("isokern.tensors.dlpack_device.devices", lambda: [device])
    return device


@pytest.fixture
def x(device):
    return isokern.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4), device=device)


class Producer:
    """A tensor of another library."""

    def __init__(self, tensor, edit=None, old=False, where=None):
        self.tensor, self.edit, self.old, self.where, self.streams = tensor, edit, old, where, []

    def __dlpack_device__(self):
        return self.where or self.tensor.__dlpack_device__()

    def __dlpack__(self, **options):
        if self.old and "max_version" in options:
            raise TypeError("max_version")
        self.streams.append(options["stream"])
        capsule = self.tensor.__dlpack__(**options)
        if self.edit is not None:
            self.edit(dlpack_device.find_managed(capsule)[1])
        return capsule


@pytest.mark.parametrize("old", [False, True])
def test_memory_is_shared(device, old):
    x = isokern.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4), device=device)
    gone = weakref.ref(x.buffer)
    y = isokern.from_dlpack(Producer(x.T, old=old))
    assert (y.shape, y.strides, y.dtype, y.device) == (x.T.shape, x.T.strides, x.dtype, device)
    isokern.neg(x, out=x)
    assert np.array_equal(y.numpy(), -np.arange(24, dtype=np.float32).reshape(2, 3, 4).T)
    del x
    gc.collect()
    assert gone() is not None
    device.synchronize()
    del y
    gc.collect()
    assert gone() is None


def test_memory_of_others_in_a_cycle_is_kept_while_work_is_in_flight(device):
    x = isokern.zeros((4,), device=device)
    gone = weakref.ref(x.buffer)
    y = isokern.from_dlpack(Producer(x))
    isokern.neg(y)
    cycle = [y]
    cycle.append(cycle)
    del x, y, cycle
    gc.collect()
    assert gone() is not None
    device.synchronize()
    gc.collect()
    assert gone() is None


def test_the_memory_outlives_its_tensor(device, x):
    y = isokern.from_dlpack(Producer(x))
    del x
    gc.collect()
    isokern.zeros((24,), device=device)
    assert y.numpy().sum() == 276


@pytest.mark.parametrize(
    "name", ["F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL"]
)
def test_every_dtype(device, name):
    x = isokern.tensor(np.array([0, 1, 1]), name, device=device)
    y = isokern.from_dlpack(Producer(x))
    assert y.dtype == x.dtype
    assert np.array_equal(y.numpy(), x.numpy())


def test_a_view_that_is_not_aligned(device, x):
    part = isokern.from_dlpack(Producer(x[1:, 1:, 1:3]))
    assert np.array_equal(isokern.add(part, part).numpy(), 2 * x.numpy()[1:, 1:, 1:3])


def test_overlap_is_seen_through_two_capsules(device, x):
    a, b = isokern.from_dlpack(Producer(x)), isokern.from_dlpack(Producer(x))
    assert device.same_memory(a.buffer.handle, b.buffer.handle)
    with pytest.raises(InvalidArgument, match="overlap"):
        isokern.add(a[0, :2], a[0, :2], out=b[0, 1:])


def test_an_empty_tensor(device):
    y = isokern.from_dlpack(Producer(isokern.zeros((0, 3), device=device)))
    assert y.shape == (0, 3)


def test_a_capsule_that_nobody_takes_goes(device):
    x = isokern.zeros((4,), device=device)
    gone = weakref.ref(x.buffer)
    capsule = x.__dlpack__()
    x = None
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is None


def test_producers_are_told_of_the_current_stream(device, x):
    producer = Producer(x)
    with device.stream() as stream:
        isokern.from_dlpack(producer)
    assert producer.streams == [stream.handle]


def test_consumers_wait_on_the_device(device, x, monkeypatch):
    waits = []
    monkeypatch.setattr(device.driver, "wait", lambda stream, event: waits.append(stream))
    device.synchronize()
    theirs = device.driver.stream()
    x.__dlpack__(stream=theirs)
    assert waits == []  # no work is in flight
    isokern.neg(x, out=x)
    x.__dlpack__(stream=-1)
    assert waits == []
    x.__dlpack__(stream=theirs)
    x.__dlpack__()
    assert waits == [theirs, device.driver.legacy]


def test_read_only_memory(device, x):
    y = isokern.from_dlpack(Producer(x, edit=lambda m: setattr(m, "flags", 1)))
    with pytest.raises(InvalidArgument, match="read-only"):
        isokern.neg(x, out=y)
    with pytest.raises(BufferError, match="newer DLPack"):
        y.__dlpack__()
    assert not isokern.from_dlpack(Producer(y)).buffer.writable


@pytest.mark.parametrize(
    ("edit", "error", "told"),
    [
        (lambda m: setattr(m.tensor, "bits", 24), BadTensorDtype, r"\(2, 24, 1\)"),
        (lambda m: setattr(m.tensor, "lanes", 4), BadTensorDtype, r"\(2, 32, 4\)"),
        (lambda m: setattr(m.tensor, "byte_offset", 2), BadTensorStrides, "4 does not divide"),
        (lambda m: setattr(m.tensor, "device_id", 3), InvalidArgument, r"\(12, 3\)"),
        (lambda m: setattr(m.tensor, "ndim", 9), isokern.BadTensorShape, "9 dims"),
        (lambda m: setattr(m, "major", 2), InvalidArgument, "DLPack 2"),
    ],
)
def test_bad_capsules(x, edit, error, told):
    with pytest.raises(error, match=told):
        isokern.from_dlpack(Producer(x, edit=edit))


def test_a_device_that_is_not_there(x):
    with pytest.raises(DeviceNotAvailable, match=r"memory of DLPack device \(2, 5\)"):
        isokern.from_dlpack(Producer(x, where=(2, 5)))


def test_another_device_is_asked_for(x):
    with pytest.raises(InvalidArgument, match="take it where it is"):
        isokern.from_dlpack(Producer(x, where=(2, 0)), device=x.device)


def test_a_capsule_is_taken_once(device, x):
    capsule = x.__dlpack__(max_version=(1, 0))
    dlpack_device.Taken(capsule)
    with pytest.raises(InvalidArgument, match="no unused DLPack capsule"):
        dlpack_device.Taken(capsule)


def test_numpy_refuses_memory_that_it_cannot_see(x):
    with pytest.raises((BufferError, RuntimeError), match=r"[Dd]evice"):
        np.from_dlpack(x)


def test_the_layout_is_that_of_the_specification():
    assert [ctypes.sizeof(f) for f in FORMS.values()] == [64, 80]
    assert FORMS[b"dltensor_versioned"].tensor.offset == 32
