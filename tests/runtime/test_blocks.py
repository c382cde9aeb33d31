"""Test block-quantised tensors on a device: raw blocks in and out, views, casts, products and tables of weights."""

import pickle

import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorShape, BadTensorStrides, InvalidArgument, TensorDesc, blocks
from isokern.dtypes import BLOCKS, STORED_BLOCKS

RNG = np.random.default_rng(3)
EACH = pytest.mark.parametrize("dtype", BLOCKS, ids=str)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@EACH
def test_raw_blocks_go_in_and_come_out(device, dtype):
    x = floats(3, 2, 64)
    raw = blocks.quantize(x, dtype)
    held = isokern.tensor(x, dtype, device=device)
    assert (held.shape, held.dtype) == ((3, 2, 64), dtype)
    np.testing.assert_array_equal(held.numpy(), raw)
    assert held.desc.nbytes == raw.nbytes == held.raw.desc.nbytes
    other = isokern.empty((3, 2, 64), dtype, device=device)
    other.raw.copy_from(raw)
    np.testing.assert_array_equal(other.numpy(), raw)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(held)).numpy(), raw)
    np.testing.assert_array_equal(isokern.tensor(held, device=device).numpy(), raw)
    np.testing.assert_array_equal(isokern.tensor(held, "F32", device=device).numpy(), blocks.dequantize(raw, dtype))


@EACH
def test_arrays_of_blocks_are_used_in_place_where_memory_allows(device, dtype):
    raw = blocks.quantize(floats(4, 96), dtype)
    if not device.memory.wraps:
        return
    held = isokern.from_blocks(raw, dtype, device=device)
    assert np.shares_memory(held.numpy(), raw) and held.shape == (4, 96)


@pytest.mark.parametrize("dtype", [*BLOCKS, *STORED_BLOCKS], ids=str)
def test_the_advice_of_devices_without_host_memory_works(devices, dtype):
    raw = RNG.integers(0, 256, (3, 4, 2 * dtype.itemsize)).astype(np.uint8)
    shape = (3, 4, 2 * dtype.block)
    for device in (d for d in devices if not d.memory.wraps):
        with pytest.raises(InvalidArgument) as refused:
            isokern.from_blocks(raw, dtype, device=device)
        copy = f'x = empty({shape}, "{dtype}", device=…); x.raw.copy_from(array)'
        assert str(refused.value) == f"wrap: {device.name} cannot use host memory in place; copy: {copy}"
        names = {"empty": isokern.empty, "array": raw}
        exec(copy.replace("…", repr(device.name)), names)
        assert names["x"].shape == shape
        np.testing.assert_array_equal(names["x"].numpy(), raw)


def test_the_advice_on_arrays_of_numbers_works(devices):
    array = RNG.standard_normal((2, 3)).astype(np.float32)
    for device in (d for d in devices if not d.memory.wraps):
        with pytest.raises(InvalidArgument, match="cannot use host memory in place; copy: ") as refused:
            isokern.from_numpy(array, device=device)
        names = {"tensor": isokern.tensor, "array": array}
        copied = eval(refused.value.hint.removeprefix("copy: ").replace("…", repr(device.name)), names)
        np.testing.assert_array_equal(copied.numpy(), array)


def test_arrays_that_are_no_blocks(device):
    for wrong, error in [
        (np.zeros((2, 19), np.uint8), BadTensorShape),
        (np.zeros((2, 18), np.int8), InvalidArgument),
        (np.zeros((4, 36), np.uint8)[:, :18], InvalidArgument),
        ([0] * 18, InvalidArgument),
    ]:
        with pytest.raises(error, match="from_blocks"):
            isokern.from_blocks(wrong, "Q4_0", device=device)
    with pytest.raises(BadTensorDtype, match="from_blocks") as refused:
        isokern.from_blocks(np.zeros(18, np.uint8), "F32", device=device)
    listed = str(refused.value).partition("allowed: ")[2].partition(";")[0].split(", ")
    assert listed == [d.name for d in (*BLOCKS, *STORED_BLOCKS)]


@EACH
def test_views_are_of_whole_blocks(device, dtype):
    x = floats(4, 3, 96)
    held, worth = isokern.tensor(x, dtype, device=device), blocks.dequantize(blocks.quantize(x, dtype), dtype)
    for view, wanted in [
        (held[1:3], worth[1:3]),
        (held[::-2, 1], worth[::-2, 1]),
        (held[..., 32:96], worth[..., 32:96]),
        (held.permute(1, 0, 2), worth.transpose(1, 0, 2)),
        (held.reshape(12, 96), worth.reshape(12, 96)),
        (held[:1].broadcast_to(5, 3, 96), np.broadcast_to(worth[:1], (5, 3, 96))),
    ]:
        np.testing.assert_array_equal(isokern.cast(view, dtype="F32").numpy(), wanted)
    for wrong, error in [
        (lambda: held[..., 5:37], BadTensorStrides),
        (lambda: held[..., :33], BadTensorShape),
        (lambda: held[..., ::2], BadTensorShape),
        (lambda: held.permute(0, 2, 1), (BadTensorShape, BadTensorStrides)),
        (lambda: held[..., 0], (BadTensorShape, BadTensorStrides)),
    ]:
        with pytest.raises(error):
            wrong()


@EACH
def test_cast_quantises_and_dequantises(device, dtype):
    x = floats(5, 64)
    held = isokern.cast(isokern.tensor(x, device=device), dtype=dtype)
    np.testing.assert_array_equal(held.numpy(), blocks.quantize(x, dtype))
    back = isokern.cast(held, dtype="F16")
    np.testing.assert_array_equal(back.numpy(), blocks.dequantize(held.numpy(), dtype).astype(np.float16))
    into = isokern.empty((5, 64), dtype, device=device)
    isokern.cast(isokern.tensor(x, device=device), out=into)
    np.testing.assert_array_equal(into.numpy(), held.numpy())
    with pytest.raises(BadTensorShape, match="multiple of 32"):
        isokern.quantize(isokern.tensor(floats(5, 65), device=device), dtype=dtype)


@EACH
def test_products_with_parts_of_a_weight(device, dtype):
    x, w = floats(3, 96), floats(20, 96)
    held = isokern.tensor(w, dtype, device=device)
    worth = blocks.dequantize(blocks.quantize(w, dtype), dtype)
    given = isokern.tensor(x, device=device)
    np.testing.assert_allclose(isokern.matmul_transposed(given, held).numpy(), x @ worth.T, rtol=1e-4, atol=1e-4)
    part = isokern.matmul_slice(isokern.tensor(x[:, 32:], device=device), held, (4, 11), (32, 96))
    np.testing.assert_allclose(part.numpy(), x[:, 32:] @ worth[4:11, 32:].T, rtol=1e-4, atol=1e-4)
    turned = isokern.tensor(floats(3, 20), device=device)
    np.testing.assert_allclose(isokern.matmul(turned, held).numpy(), turned.numpy() @ worth, rtol=1e-4, atol=1e-4)
    for rows, columns in [((4, 21), None), ((5, 4), None), ((0, 4), (0, 128))]:
        with pytest.raises(InvalidArgument, match="matmul_slice"):
            isokern.matmul_slice(given, held, rows, columns)
    with pytest.raises(BadTensorStrides):
        isokern.matmul_slice(given, held, (0, 4), (16, 48))


@EACH
def test_rows_of_a_quantised_table(device, dtype):
    w = floats(7, 64)
    held = isokern.tensor(w, dtype, device=device)
    wanted = blocks.dequantize(blocks.quantize(w, dtype), dtype)[[3, 0, -1]]
    np.testing.assert_array_equal(isokern.gather(held, isokern.tensor([3, 0, -1], device=device)).numpy(), wanted)
    with pytest.raises(InvalidArgument, match="gather"):
        isokern.gather(held, isokern.tensor([0], device=device), axis=1)


def test_rope_in_place(device):
    x = floats(3, 2, 8)
    held = isokern.tensor(x, device=device)
    assert isokern.rope_inplace(held, 5, 500.0) is held
    np.testing.assert_allclose(held.numpy(), isokern.rope(x, start_pos=5, theta=500.0, device=device).numpy(), atol=0)


def test_overlap_of_blocks_is_judged_by_bytes(device):
    held = isokern.zeros((4, 64), "Q4_0", device=device)
    make = isokern.create("dequantize", [TensorDesc("Q4_0", (4, 32), (64, 1))], dtypes={"T": "F32"}, device=device)
    make.calculate([held[:, :32]], [isokern.empty((4, 32), device=device)])
    other = isokern.create(
        "quantize", [TensorDesc("F32", (4, 32))], [TensorDesc("Q4_0", (4, 32), (64, 1), 32)], device=device
    )
    other.calculate([isokern.tensor(floats(4, 32), device=device)], [held[:, 32:]])
    assert not held.numpy()[:, :18].any() and held.numpy()[:, 18:].any()
