"""Test functions of arrays that are repeated: loops over complex parts as one call, vectors, numbers and arrays."""

from __future__ import annotations

import numpy as np
import pytest

import isokern
import isokern.array_api as xp
from isokern import InvalidArgument, IsokernError
from isokern.eager import repeated

Z = np.array([[1 + 2j, -3j], [0.5, 4 - 1j]], np.complex64)


CALLS = [
    (lambda z, row: z + z, Z + Z),
    (lambda z, row: z * row, Z * Z[0]),
    (lambda z, row: row / (z + 1), Z[0] / (Z + 1)),
    (lambda z, row: z.T * z[::-1], Z.T * Z[::-1]),
    (lambda z, row: z == z.T, Z == Z.T),
    (lambda z, row: xp.conj(z), Z.conj()),
    (lambda z, row: xp.exp(row), np.exp(Z[0])),
    (lambda z, row: z[:0] + z[:0], Z[:0] + Z[:0]),
    (lambda z, row: xp.isfinite(z), np.isfinite(Z)),
]


def test_complex_functions_give_the_same_when_repeated(place):
    z, row = isokern.tensor(Z, device=place), isokern.tensor(Z[0], device=place)
    for call, wanted in CALLS:
        for _ in range(3):
            made = call(z, row)
            assert made.dtype.numpy == wanted.dtype
            np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-5)
    with pytest.raises(isokern.BadTensorShape):
        z + isokern.tensor(Z[0, [0, 0, 0]], device=place)


def test_complex_calls_are_forgotten_when_there_are_many(device, monkeypatch):
    monkeypatch.setattr(repeated, "KNOWN", 8)
    z = isokern.tensor(np.arange(20, dtype=np.complex64), device=device)
    for n in range(20):
        np.testing.assert_array_equal(xp.conj(z[:n]).numpy(), np.arange(n))
    assert 0 < len(repeated.calls_of("complex")) <= sum(map(len, repeated._known.values())) <= 8


def test_complex_calls_in_streams_and_of_closed_buffers(device):
    z = isokern.tensor(Z, device=device)
    z + z, z + z  # it is known
    stream = device.stream()
    with stream, stream.capture() as recording:
        made = z + z
    z.copy_from(10 * Z)
    recording.replay(stream)
    stream.synchronize()
    np.testing.assert_array_equal(made.numpy(), 20 * Z)
    z.buffer.close()
    with pytest.raises(IsokernError, match="closed"):
        z + z


def test_products_of_vectors_give_the_same_when_repeated(device_group):
    a, v = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, -1, 2], np.float32)
    for device in device_group:
        x, y = isokern.tensor(a, device=device), isokern.tensor(v, device=device)
        for _ in range(3):
            assert (x @ y).numpy().tolist() == (a @ v).tolist()
            assert (y @ x.T).numpy().tolist() == (v @ a.T).tolist()
            assert float(y @ y) == 6 and (y @ y).shape == ()
            assert (x[None] @ y).shape == (1, 2)
            assert (x[:0] @ y).shape == (0,) and (x[:, :0] @ y[:0]).numpy().tolist() == [0, 0]
            with pytest.raises(IsokernError):
                x @ x
            with pytest.raises(IsokernError):
                y @ x


def test_numbers_and_arrays_beside_tensors_are_told_apart(device):
    x = isokern.tensor([1.0, -2.0], device=device)
    whole = isokern.tensor(np.array([1, 0]), device=device)
    for _ in range(3):
        assert isokern.add(x, 1).numpy().tolist() == [2, -1]
        assert isokern.mul(x, 0.0).numpy().tolist() == isokern.mul(x, -0.0).numpy().tolist()
        assert np.signbit(isokern.copysign(x, -0.0).numpy()).all()
        assert not np.signbit(isokern.copysign(x, 0.0).numpy()).any()
        assert (x + 1).numpy().tolist() == (1 + x).numpy().tolist() == [2, -1]
        assert isokern.add(whole, True).numpy().tolist() == [2, 1]
        assert isokern.add(x, np.float32([1, 2])).numpy().tolist() == [2, 0]
        assert isokern.add(np.float32([1, 2]), [3, 4], device=device).numpy().tolist() == [4, 6]
        assert isokern.leaky_relu(np.float32([-2]), alpha=0.5, device=device).numpy().tolist() == [-1]
        with pytest.raises(InvalidArgument):
            isokern.add(whole, 0.5)
        with pytest.raises(isokern.BadTensorDtype):
            whole + 0.5


def test_a_tensor_of_another_device_is_refused_each_time(devices):
    if len(devices) < 2:
        pytest.skip("one device")
    x = isokern.tensor([1.0], device=devices[0])
    for _ in range(3):
        isokern.add(x, np.float32([1]))
        with pytest.raises(IsokernError):
            isokern.add(x, np.float32([1]), device=devices[1])


@pytest.mark.parametrize("element", [np.float32, np.float16])
def test_floats_divided_and_rounded_down(place, element):
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.1, 3.0, 6e4, -7.25]
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    x, y = (isokern.tensor(v.astype(element), device=place) for v in (a, b))
    made, quotient = (x // y).numpy(), (x / y).numpy()
    finite = np.isfinite(x.numpy()) & np.isfinite(y.numpy()) & (y.numpy() != 0) & np.isfinite(quotient)
    with np.errstate(all="ignore"):
        wanted = np.floor_divide(x.numpy(), y.numpy())
    assert np.array_equal(made[finite & (abs(quotient) < 1000)], wanted[finite & (abs(quotient) < 1000)])
    assert np.array_equal(np.isnan(made), np.isnan(quotient))


def test_quotients_of_other_shapes_are_refused_by_name(device):
    x, y = isokern.zeros((3, 2), device=device), isokern.zeros((4, 2), device=device)
    with pytest.raises(isokern.BadTensorShape, match=r"floor_divide: shapes \(3, 2\), \(4, 2\)"):
        x // y


def test_shapes_that_do_not_fit_are_refused_as_they_were_given(device):
    x = isokern.zeros((3, 2), device=device)
    for shape, words in (
        ((2.0, 3), r"reshape: shape=\(2\.0, 3\);"),
        (((6,),), r"reshape: shape=\(\(6,\),\);"),
        ((4, -1), r"reshape: F32\[3, 2\] to \(4, -1\);"),
        ((4, 2), r"reshape: F32\[3, 2\] to "),
    ):
        for copy in (None, False, True):
            with pytest.raises(isokern.BadTensorShape, match=words):
                xp.reshape(x, shape, copy=copy)
