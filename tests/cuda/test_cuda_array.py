"""Test import and export by the CUDA array interface, on the emulated GPU as DLPack's device type of CUDA."""

from types import SimpleNamespace

import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorShape, BadTensorStrides, InvalidArgument


@pytest.fixture
def device(opened, monkeypatch):
    device = opened()
    monkeypatch.setattr(type(device.driver), "dlpack_device", (2, 0))
    monkeypatch.setattr("isokern.tensors.cuda_array.devices", lambda: [device])
    return device


@pytest.fixture
def x(device):
    return isokern.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4), device=device)


def given(tensor, **changes):
    """Return an object that has only the CUDA array interface, of a tensor's memory."""
    interface = {k: v for k, v in {**tensor.__cuda_array_interface__, **changes}.items() if v != "absent"}
    return SimpleNamespace(__cuda_array_interface__=interface, kept=tensor)


def test_a_view_goes_there_and_back(device, x):
    view = x[1, :, 1:3]
    y = isokern.from_dlpack(given(view))
    assert (y.shape, y.strides, y.dtype, y.device) == (view.shape, view.strides, view.dtype, device)
    isokern.neg(view, out=view)
    assert np.array_equal(y.numpy(), -np.arange(24, dtype=np.float32).reshape(2, 3, 4)[1, :, 1:3])


@pytest.mark.parametrize("name", ["F64", "F32", "F16", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL"])
def test_every_dtype(device, name):
    x = isokern.tensor(np.array([0, 1, 1]), name, device=device)
    y = isokern.from_dlpack(given(x))
    assert y.dtype == x.dtype
    assert np.array_equal(y.numpy(), x.numpy())


def test_what_it_has_no_word_for_has_no_such_attribute(device):
    assert not hasattr(isokern.zeros((3,), "BF16", device=device), "__cuda_array_interface__")
    pinned = isokern.Tensor(isokern.TensorDesc("F32", (4,)), device.memory.alloc(16, "F32", kind="pinned"))
    assert not hasattr(pinned, "__cuda_array_interface__")


def test_memory_of_other_devices_has_no_such_attribute(opened):
    assert not hasattr(isokern.zeros((3,), device=opened()), "__cuda_array_interface__")


def test_an_empty_tensor_has_no_address(device):
    x = isokern.zeros((0, 3), device=device)
    assert x.__cuda_array_interface__["data"][0] == 0
    assert isokern.from_dlpack(given(x)).shape == (0, 3)


def test_strides_are_told_where_it_is_not_dense(x):
    assert x.__cuda_array_interface__["strides"] is None
    assert x.T.__cuda_array_interface__["strides"] == (4, 16, 48)


def test_the_current_stream_waits_for_the_others(device, x, monkeypatch):
    """The current stream waits for all others, since the consumer waits only for the current stream."""
    device.synchronize()
    waits = []
    monkeypatch.setattr(device.driver, "wait", lambda stream, event: waits.append(stream))
    other = device.stream()
    with other:
        isokern.neg(x)
    with device.stream() as current:
        assert x.__cuda_array_interface__["stream"] == current.handle
    assert waits == [current.handle]


def test_the_producers_stream_is_waited_for(device, x, monkeypatch):
    theirs, waits = device.driver.stream(), []
    source = given(x, stream=theirs)
    recorded = []
    monkeypatch.setattr(
        device.driver,
        "record",
        lambda stream, *timed, plain=device.driver.record: recorded.append(stream) or plain(stream, *timed),
    )
    monkeypatch.setattr(device.driver, "wait", lambda stream, event: waits.append(stream))
    with device.stream() as current:
        isokern.from_dlpack(source)
    assert (recorded, waits) == ([theirs], [current.handle])
    with device.stream() as current:
        isokern.from_dlpack(given(x, stream=None))  # None is Numba's value for its default stream
        isokern.from_dlpack(given(x, stream="absent"))
    assert (recorded[1:], waits[1:]) == ([1, 1], [current.handle] * 2)


def test_read_only_memory_is_not_written_to(x):
    y = isokern.from_dlpack(given(x, data=(x.__cuda_array_interface__["data"][0], True)))
    with pytest.raises(InvalidArgument, match="read-only"):
        isokern.neg(x, out=y)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"typestr": "<M8[s]"}, BadTensorDtype, "M8"),
        ({"mask": 1}, InvalidArgument, "masked"),
        ({"shape": (1,) * 9}, BadTensorShape, "9 dims"),
        ({"strides": (49, 16, 4)}, BadTensorStrides, "multiples of 4"),
        ({"data": (1026, False)}, BadTensorStrides, "does not divide"),
    ],
)
def test_what_cannot_be_taken_is_said(x, changes, error, says):
    with pytest.raises(error, match=says):
        isokern.from_dlpack(given(x, **changes))


def test_of_several_devices_one_has_to_be_named(device, x, opened, monkeypatch):
    other = opened()
    monkeypatch.setattr("isokern.tensors.cuda_array.devices", lambda: [device, other])
    with pytest.raises(InvalidArgument, match="name it"):
        isokern.from_dlpack(given(x))
    assert isokern.from_dlpack(given(x), device=device).device is device
