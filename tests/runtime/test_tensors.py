"""Test tensors: views, and NumPy and DLPack both ways without a copy."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorShape, BadTensorStrides, InvalidArgument


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        np.arange(24, dtype=np.float16).reshape(4, 6).T,
        np.arange(24, dtype=np.int64)[::-2],
        np.arange(24, dtype=np.uint8).reshape(4, 6)[1:3, ::-1],
        np.arange(6).astype(ml_dtypes.bfloat16),
        np.array(3.5),
        np.zeros((0, 3), np.int8),
        np.array([True, False]),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_from_numpy_is_the_same_memory(device, array):
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not wrap host memory")
    t = isokern.from_numpy(array, device=device)
    back = t.numpy()
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert (back == array).all()
    if array.size:
        assert np.shares_memory(back, array)
        assert back.__array_interface__["data"][0] == array.__array_interface__["data"][0]


def test_views_follow_numpy(device):
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    t = isokern.tensor(array, device=device)
    for index in (
        0,
        (1, -1),
        slice(None, None, 2),
        (..., 1),
        (None, 1, ..., None),
        (slice(2, 0, -1), slice(1)),
        (0, slice(5, 2), 1),
    ):
        assert (t[index].numpy() == array[index]).all()
        assert t[index].shape == array[index].shape
    assert (t.permute(3, 1, 0, 2).numpy() == array.transpose(3, 1, 0, 2)).all()
    assert (t.T.numpy() == array.T).all()
    assert (t[:, :1].broadcast_to(2, 3, 4, 5).numpy() == np.broadcast_to(array[:, :1], array.shape)).all()
    assert (t.reshape(6, -1).numpy() == array.reshape(6, -1)).all()


def test_wrong_views(device):
    t = isokern.zeros((2, 3), device=device)
    with pytest.raises(InvalidArgument):
        t[2]
    with pytest.raises(BadTensorShape):
        t[0, 0, 0]
    with pytest.raises(InvalidArgument):
        t["a"]
    with pytest.raises(BadTensorStrides, match="copy"):
        t.T.reshape(6)
    with pytest.raises(BadTensorShape):
        t.reshape(5)
    with pytest.raises(BadTensorShape):
        t.permute(0, 0)


def test_misaligned_and_foreign_arrays(device):
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not wrap host memory")
    raw = np.zeros(17, np.uint8)[1:]
    with pytest.raises(BadTensorStrides, match="divide"):
        isokern.from_numpy(raw.view(np.float32), device=device)
    assert isokern.add(raw.view(np.float32), 1.0, device=device).numpy().tolist() == [1.0] * 4  # eager calls copy it
    with pytest.raises(InvalidArgument, match="byte order"):
        isokern.from_numpy(np.zeros(3, ">f4"), device=device)
    with pytest.raises(BadTensorDtype):
        isokern.from_numpy(np.zeros(3, "M8[s]"), device=device)
    records = np.zeros(4, [("a", np.float32), ("b", np.int8)])
    with pytest.raises(BadTensorStrides, match="multiples"):
        isokern.from_numpy(records["a"], device=device)


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "I8", "I64", "U16", "BOOL"])
def test_dlpack_both_ways(device, dtype):
    t = isokern.tensor(np.arange(6).reshape(2, 3), dtype, device=device)
    if t.buffer.view is None:
        pytest.skip(f"{device.name} is not host memory")
    back = isokern.from_dlpack(t, device=device)
    assert back.dtype is t.dtype
    assert np.shares_memory(back.numpy().view(np.uint8), t.numpy().view(np.uint8))
    if dtype != "BF16":
        assert np.shares_memory(np.from_dlpack(t), t.numpy())
    assert (isokern.from_dlpack(t.T, device=device).numpy() == t.numpy().T).all()


def test_dlpack_refuses(device):
    with pytest.raises(InvalidArgument, match="__dlpack__"):
        isokern.from_dlpack([1, 2], device=device)
    elsewhere = type("Elsewhere", (), {"__dlpack_device__": lambda self: (2, 1), "__dlpack__": lambda self: None})()
    with pytest.raises(InvalidArgument, match=r"\(2, 1\)"):
        isokern.from_dlpack(elsewhere, device=device)


def test_copy_from_converts_as_cast_does(device):
    t = isokern.zeros((4,), "I8", device=device)
    t.copy_from(np.array([1.9, -300.0, np.nan, 200.0]))
    assert t.numpy().tolist() == [1, -128, 0, 127]
    gapped = isokern.zeros((6,), device=device)
    gapped[::2].copy_from(np.ones(3, np.float32))
    assert gapped.numpy().tolist() == [1, 0, 1, 0, 1, 0]
    with pytest.raises(BadTensorShape):
        t.copy_from(np.zeros(3))


def test_tensor_over_too_little_memory(device):
    with pytest.raises(BadTensorStrides, match="byte 16"):
        isokern.Tensor(isokern.TensorDesc("F32", (4,)), device.memory.alloc(15))


def test_defaults_of_tensor(device):
    assert isokern.tensor([1.5, 2], device=device).dtype is isokern.F32
    assert isokern.tensor([1, 2], device=device).dtype is isokern.I64
    assert isokern.tensor(True, device=device).dtype is isokern.BOOL
    assert isokern.tensor(np.float64([1]), device=device).dtype is isokern.F64
    assert isokern.zeros((2,), device=device).to_device(device).device is device


def test_iteration_goes_along_the_first_dim(device):
    x = isokern.tensor(np.arange(6.0).reshape(3, 2), device=device)
    assert [row.numpy().tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    assert isokern.concat(x, axis=0).numpy().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(TypeError):
        iter(x[0, 0])


def test_wrong_views_and_data_are_typed(device):
    t = isokern.zeros((2, 3), device=device)
    for index in (slice("a"), slice(None, None, 0), 1.0, "x"):
        with pytest.raises(InvalidArgument, match="index"):
            t[index]
    for view in (lambda: t.reshape(None), lambda: t.reshape("a"), lambda: t.permute("ab"), lambda: t.broadcast_to(2.0)):
        with pytest.raises(BadTensorShape, match="integers"):
            view()
    assert t.reshape((3, 2)).shape == t.permute([1, 0]).shape == (3, 2)
    assert t.broadcast_to((4, 2, 3)).shape == (4, 2, 3)
    assert t[:: 2**62].shape == (1, 3)
    assert [row.shape for row in t] == [(3,), (3,)]
    for data in (["1"], "1", None, 1j, [[1], [2, 3]], {1: 2}, np.zeros(1, "M8[s]"), [2**70]):
        with pytest.raises((BadTensorDtype, InvalidArgument), match="numbers"):
            isokern.tensor(data, "F32", device=device)
    for data in (None, [1.0], 1.0):
        with pytest.raises(InvalidArgument, match="from_numpy"):
            isokern.from_numpy(data, device=device)
    with pytest.raises(InvalidArgument, match="Buffer"):
        isokern.Tensor(t.desc, None)


def test_copies_and_pickles(device):
    t = isokern.tensor(np.arange(6).reshape(2, 3), "BF16", device=device).T
    assert copy.copy(t) is t
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert other.buffer is not t.buffer
        assert (other.dtype, other.device) == (t.dtype, t.device)
        assert (other.numpy() == t.numpy()).all()


def test_producers_that_lie_about_their_device(device):
    for given in (None, "ab", (1,), 1):
        liar = type("Liar", (), {"__dlpack_device__": lambda self, g=given: g, "__dlpack__": lambda self: None})()
        with pytest.raises(InvalidArgument, match="__dlpack_device__ gives"):
            isokern.from_dlpack(liar, device=device)


EMPTY = [(0,), (4, 0), (0, 4), (3, 0, 5), (4, 1, 0)]
ALONG = [np.s_[1:], np.s_[::-1], np.s_[3:1:-1], np.s_[::2], np.s_[-1:], np.s_[100:]]


@pytest.mark.parametrize("dtype", ["F32", "F64", "U8"])
@pytest.mark.parametrize("shape", EMPTY, ids=str)
def test_views_of_what_is_empty_follow_numpy(device, shape, dtype):
    x = isokern.zeros(shape, dtype, device=device)
    a = np.zeros(shape, x.dtype.numpy)
    rank = len(shape)
    views = [lambda t, i=i: t[i] for i in (*ALONG, None, (..., None))]
    views += [lambda t, d=d, i=i: t[(slice(None),) * d + (i,)] for d in range(rank) for i in ALONG]
    views += [lambda t, d=d: t[(slice(None),) * d + (-1,)] for d in range(rank) if shape[d]]
    views += [lambda t: t[1:][:, :0] if t.ndim > 1 else t[:0][1:]]
    views += [lambda t: t.T, lambda t: t.T[1:], lambda t: t[1:].T, lambda t: t.reshape(-1), lambda t: t.reshape(7, 0)]
    views += [lambda t: t.reshape(0, 3, 2)[..., 1], lambda t: t.reshape(-1, 5)[:, 4], lambda t: t.reshape(0, -1, 3)]
    views += [lambda t: broadcast(t, (2, *shape))[1:], lambda t: broadcast(t[..., None], (*shape, 6))[..., 5]]
    for view in views:
        try:
            wanted = view(a)
        except ValueError:
            with pytest.raises(BadTensorShape):
                view(x)
            continue
        found = view(x)
        assert found.shape == wanted.shape
        assert found.numpy().shape == wanted.shape
        if dtype != "U8":
            assert isokern.exp(found).shape == wanted.shape
        assert found[...].raw.shape == (*wanted.shape, x.dtype.itemsize)
        found.copy_from(np.zeros(wanted.shape, x.dtype.numpy))
        assert np.asarray(found.to_device(device)).shape == wanted.shape
    assert [t.shape for t in x] == [t.shape for t in a]


def broadcast(t, shape):
    return t.broadcast_to(shape) if isinstance(t, isokern.Tensor) else np.broadcast_to(t, shape)


def test_views_of_nothing_seen_through_arrays_and_parts(device):
    assert isokern.tensor(np.zeros((4, 0), np.float32)[1:], device=device)[1:].shape == (2, 0)
    x = isokern.zeros((4, 5), device=device)
    assert x[:, 2:2][1:, :].T[:, ::-1].shape == (0, 3)
    assert x[3:][1:][..., 4].shape == (0,)
    blocks = isokern.zeros((4, 0), "Q4_0", device=device)
    assert blocks[1:].shape == (3, 0)
    if device.memory.wraps:
        held = isokern.from_numpy(np.zeros((4, 0), np.float32), device=device)
        assert held[1:][::-1].shape == (3, 0)
    with pytest.raises(InvalidArgument, match="0 along axis 0"):
        isokern.zeros((0, 4), device=device)[0]


def test_empty_tensors_of_impossible_dims_are_refused():
    with pytest.raises(BadTensorShape, match=r"2\^63 bytes"):
        isokern.TensorDesc("F32", (0, 1 << 62, 1 << 62))
    assert isokern.TensorDesc("F32", (0, 1 << 60)).numel == 0
