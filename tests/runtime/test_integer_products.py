"""Test that products of bytes are exact on every device, where F32 no longer is, and wrap where I32 ends."""

import numpy as np
import pytest

import isokern


@pytest.mark.parametrize(("dtype", "least"), [("int8", -128), ("uint8", 255)])
def test_sums_beyond_the_integers_of_f32_are_exact(devices, dtype, least):
    a, b = np.full((2, 2999), least, dtype), np.full((2999, 3), least, dtype)
    a[:, 0], b[0] = 1, [1, 3, 5]
    expected = a.astype(np.int64) @ b.astype(np.int64)
    assert (expected > 1 << 24).all()
    assert (expected % 2 == 1).all()
    for device in devices:
        found = isokern.matmul_integer(*(isokern.tensor(x, device=device) for x in (a, b))).numpy()
        np.testing.assert_array_equal(found, expected, err_msg=device.name)


@pytest.mark.parametrize("zero", [None, 3])
def test_sums_wrap(devices, zero):
    a, b = np.full((1, 70_001), 255, np.uint8), np.full((70_001, 2), 255, np.uint8)
    total = 70_001 * (255 - (zero or 0)) ** 2
    expected = np.full((1, 2), total, np.int64).astype(np.int32)
    assert total > 1 << 32
    zeros = () if zero is None else (np.array(zero, np.uint8), np.array([zero, zero], np.uint8))
    for device in devices:
        found = isokern.matmul_integer(*(isokern.tensor(x, device=device) for x in (a, b, *zeros))).numpy()
        np.testing.assert_array_equal(found, expected, err_msg=device.name)


def test_zero_points_of_rows_belong_to_every_matrix_of_a_batch(devices):
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 256, (3, 4, 50), np.uint8), rng.integers(-128, 128, (50, 37), np.int8)
    zero = np.array([0, 7, 128, 255], np.uint8)
    expected = (a.astype(np.int32) - zero[:, None]) @ b.astype(np.int32)
    for device in devices:
        found = isokern.matmul_integer(*(isokern.tensor(x, device=device) for x in (a, b, zero))).numpy()
        np.testing.assert_array_equal(found, expected, err_msg=device.name)
