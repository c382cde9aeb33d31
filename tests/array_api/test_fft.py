"""Test the fft extension beside NumPy's, on every device."""

from __future__ import annotations

import math

import numpy as np
import pytest

import isokern
import isokern.array_api as xp
from isokern import BadTensorDtype, InvalidArgument
from isokern.array_api.transforms import find_radices, find_roots

LENGTHS = [1, 2, 3, 5, 12, 32, 33, 100, 127, 131, 262, 1009, 1024, 2187, 30030]
NORMS = ["backward", "ortho", "forward"]
random = np.random.default_rng(0)


def draw(*shape):
    return random.standard_normal(shape) + 1j * random.standard_normal(shape)


def near(place, name, x, **kwargs):
    """Compare with NumPy's in float64, in each dtype of the device; errors grow with the logarithm of the length."""
    expected = getattr(np.fft, name)(x, **kwargs)
    for eps, real, whole in ((2**-23, np.float32, np.complex64), (2**-52, np.float64, np.complex128)):
        if np.dtype(whole).name not in xp.__array_namespace_info__().dtypes(device=place):
            continue
        given = isokern.tensor(x.astype(whole if np.iscomplexobj(x) else real), device=place)
        found = getattr(xp.fft, name)(given, **kwargs)
        assert found.dtype.numpy == (whole if np.iscomplexobj(expected) else real)
        assert found.shape == expected.shape
        error, size = (np.linalg.norm(y) for y in (found.numpy() - expected, expected))
        assert error <= eps * (2 + math.log2(max(x.size, 2))) * size, (name, x.shape, error / size / eps)


@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.full) if n > 2000 else n for n in LENGTHS])
def test_lengths(place, n):
    z = draw(2, n)
    near(place, "fft", z)
    near(place, "ifft", z)
    near(place, "rfft", z.real)
    near(place, "irfft", z, n=n)


def test_axes_and_norms(place):
    z = draw(4, 6, 5)
    for norm in NORMS:
        near(place, "fft", z, n=7, axis=1, norm=norm)
        near(place, "ifft", z, n=4, axis=0, norm=norm)
        near(place, "hfft", z, norm=norm)
        near(place, "ihfft", z.real, n=8, norm=norm)
    near(place, "rfft", z.real, n=5, axis=-2)
    near(place, "irfft", z, n=9, axis=1)
    near(place, "fftn", z)
    near(place, "ifftn", z, s=(3, 8), axes=(2, 0), norm="ortho")
    near(place, "rfftn", z.real)
    near(place, "rfftn", z.real, s=(8, 3), axes=(0, 1))
    near(place, "irfftn", z, s=(4, 6, 9), axes=(0, 1, 2), norm="forward")
    near(place, "fft", np.zeros((0, 4), np.complex64))


def test_shifts_and_frequencies(place):
    z = isokern.tensor(draw(3, 4, 5), "C64", device=place)
    for name, axes in (("fftshift", None), ("ifftshift", None), ("fftshift", 1), ("ifftshift", (0, 2))):
        expected = getattr(np.fft, name)(z.numpy(), axes=axes)
        np.testing.assert_array_equal(getattr(xp.fft, name)(z, axes=axes).numpy(), expected)
    for n in (1, 2, 7, 8):
        for name in ("fftfreq", "rfftfreq"):
            found = getattr(xp.fft, name)(n, d=0.25, device=place)
            assert (found.dtype, found.device) == (isokern.F32, place)
            np.testing.assert_array_equal(found.numpy(), getattr(np.fft, name)(n, 0.25).astype(np.float32))


def test_an_impulse_and_a_wave_are_exact(place):
    """The twiddle factors of quarters of a circle are exact."""
    one = np.zeros(64, np.complex64)
    one[16] = 1
    found = xp.fft.fft(isokern.tensor(one, device=place)).numpy()
    np.testing.assert_array_equal(found, np.tile([1, -1j, -1, 1j], 16))


def test_roots_are_correctly_rounded_nearly():
    for n in (1, 3, 8, 12, 1000, 4099):
        c, s = find_roots(np.arange(-n, 2 * n), n)
        angle = 2 * np.longdouble(math.pi) / n * np.arange(-n, 2 * n)
        np.testing.assert_allclose(c + 1j * s, np.exp(1j * angle), atol=1e-14 if n < 4000 else 1e-13)
        np.testing.assert_allclose(c * c + s * s, 1, rtol=4e-16)
    assert [float(v) for v in find_roots(3, 12)] == [0.0, 1.0]


def test_radices():
    for n in range(1, 3000):
        found = find_radices(n)
        assert math.prod(found) == n
        assert all(r <= 64 or all(r % p for p in range(2, r)) for r in found)
    assert find_radices(2**20) == [32, 32, 32, 32]
    assert find_radices(1000) == [40, 25]


def test_what_is_refused(place):
    z = isokern.zeros((4, 4), "C64", device=place)
    for call, error in [
        (lambda: xp.fft.fft(z.astype("BOOL")), BadTensorDtype),
        (lambda: xp.fft.rfft(z), BadTensorDtype),
        (lambda: xp.fft.fft(z, norm="half"), InvalidArgument),
        (lambda: xp.fft.hfft(z, norm="half"), InvalidArgument),
        (lambda: xp.fft.fft(z, n=0), InvalidArgument),
        (lambda: xp.fft.fft(z, axis=2), InvalidArgument),
        (lambda: xp.fft.fftn(z, s=(1, 2), axes=(0,)), InvalidArgument),
        (lambda: xp.fft.fftfreq(0), InvalidArgument),
        (lambda: xp.fft.fftfreq(4, dtype="I32"), BadTensorDtype),
    ]:
        with pytest.raises(error):
            call()
