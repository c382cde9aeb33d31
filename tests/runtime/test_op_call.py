"""Test op_call: the one entry point by kind, blob and stream handle."""

import gc
import weakref

import numpy as np
import pytest

import isokern
from isokern import BadAttrSchema, BadAttrSize, BadTensorDtype, BadTensorShape, InvalidArgument, op_call
from isokern.ops import find

SOFTMAX, ADD = find("softmax"), find("add")
X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


@pytest.fixture
def tensors(device):
    return isokern.tensor(X, device=device), isokern.zeros(X.shape, device=device)


def blob(**values):
    return SOFTMAX.attrs.schema_id, SOFTMAX.attrs.pack(SOFTMAX.attrs.check("softmax", values))


def test_a_blob_tells_the_attributes(tensors, device):
    x, y = tensors
    op_call(SOFTMAX.kind_id, [x], [y], *blob(axis=0), stream_handle=0)
    assert np.allclose(y.numpy().sum(0), 1)
    op_call(SOFTMAX.kind_id, [x], [y], *blob(axis=1), stream_handle=0)
    assert np.allclose(y.numpy().sum(1), 1)


def test_no_blob_means_defaults(tensors):
    x, y = tensors
    op_call(SOFTMAX.kind_id, [x], [y], stream_handle=0)
    assert np.array_equal(y.numpy(), isokern.softmax(x).numpy())


def test_handle_0_is_the_current_stream(tensors, device):
    x, y = tensors
    stream = device.stream()
    with stream, stream.capture() as recording:
        op_call(ADD.kind_id, [x, x], [y], stream_handle=0)
    assert not y.numpy().any()
    recording.replay(stream)
    assert np.array_equal(y.numpy(), 2 * X)


def test_the_handle_of_a_stream_names_it(tensors, device):
    x, y = tensors
    streams = [device.default_stream, device.stream(), device.stream()]
    handles = [s.handle for s in streams]
    assert all(isinstance(h, int) and h > 0 for h in handles)
    assert len(set(handles)) == 3
    assert [device.stream_of(h) for h in handles] == streams
    for stream, handle in zip(streams, handles, strict=True):
        with stream.capture() as recording:
            op_call(ADD.kind_id, [x, x], [y], stream_handle=handle)
        assert len(recording) == 1
        assert not y.numpy().any()
        op_call(ADD.kind_id, [x, x], [y], stream_handle=handle)
        assert np.array_equal(y.numpy(), 2 * X)
        y.copy_from(np.zeros_like(X))


def test_a_handle_keeps_no_stream(device):
    stream = device.stream()
    handle, gone = stream.handle, weakref.ref(stream)
    assert device.stream_of(handle) is stream
    del stream
    gc.collect()
    assert gone() is None
    assert handle not in device._by_handle


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"stream_handle": None}, InvalidArgument, "stream_handle is missing"),
        ({"stream_handle": 12345}, InvalidArgument, "12345"),
        ({"stream_handle": -1}, InvalidArgument, "handle -1"),
        ({"stream_handle": True}, InvalidArgument, "handle True"),
        ({"stream_handle": 1.0}, InvalidArgument, r"handle 1\.0"),
        ({"stream_handle": "default"}, InvalidArgument, "handle 'default'"),
        ({"kind": 1}, InvalidArgument, "no operator has kind 0x1"),
        ({"schema_id": 77}, BadAttrSchema, "SOFT|schema"),
        ({"attrs": b"123"}, BadAttrSize, "3 bytes"),
        ({"inputs": []}, InvalidArgument, "input"),
        ({"inputs": X}, InvalidArgument, "a list of tensors"),
        ({"outputs": []}, InvalidArgument, "0 outputs"),
        ({"outputs": [None]}, InvalidArgument, "outputs"),
    ],
)
def test_bad_calls(tensors, change, error, told):
    x, y = tensors
    schema, attrs = blob(axis=0)
    call = {
        "kind": SOFTMAX.kind_id,
        "inputs": [x],
        "outputs": [y],
        "schema_id": schema,
        "attrs": attrs,
        "stream_handle": 0,
    }
    with pytest.raises(error, match=told):
        op_call(**{**call, **change})


def test_shapes_and_dtypes_are_checked(tensors, device):
    x, _y = tensors
    with pytest.raises(BadTensorShape):
        op_call(SOFTMAX.kind_id, [x], [isokern.zeros((3, 4), device=device)], stream_handle=0)
    with pytest.raises(BadTensorDtype):
        op_call(SOFTMAX.kind_id, [x], [isokern.zeros((3, 5), "F16", device=device)], stream_handle=0)
