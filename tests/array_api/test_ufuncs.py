"""Test universal functions of NumPy and SciPy on tensors, compared with what they give of NumPy's arrays."""

from __future__ import annotations

import numpy as np
import pytest

import isokern
from isokern.array_api import ufuncs

X = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)
N = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
UNARY = """absolute arccos arcsinh conjugate cos exp floor isfinite log1p negative positive rint sign signbit sqrt
    square tanh trunc"""
BINARY = "add arctan2 copysign divide equal hypot less logaddexp maximum multiply power subtract"
INTEGERS = "bitwise_and floor_divide left_shift remainder right_shift true_divide"


def same(found, wanted, place):
    assert isinstance(found, isokern.Tensor) and found.device is place
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_functions_of_numpy_compute_on_the_device(place):
    x, n = isokern.tensor(X, device=place), isokern.tensor(N, device=place)
    for name in f"{UNARY} {BINARY} {INTEGERS}".split():
        ufunc = getattr(np, name)
        assert ufuncs._counterpart(ufunc) is not None, name
        of = (n, N) if name in INTEGERS.split() else (x, X)
        same(ufunc(*[of[0]] * ufunc.nin), ufunc(*[of[1]] * ufunc.nin), place)
    same(np.matmul(x, x.T), X @ X.T, place)
    assert (n / n).dtype is np.true_divide(n, 2).dtype is isokern.F32


def test_scalars_and_arrays_on_either_side(place):
    x = isokern.tensor(X, device=place)
    for other in (2, 0.5, np.float32(2), X):
        same(np.subtract(other, x), np.subtract(other, X), place)
        same(np.subtract(x, other), np.subtract(X, other), place)
        same(other - x, other - X, place)


def test_results_into_memory_that_is_given(place):
    x, y, array = isokern.tensor(X, device=place), isokern.tensor(X, device=place), X.copy()
    assert np.multiply(x, 3, out=y) is y
    same(y, X * 3, place)
    array += x
    assert type(array) is np.ndarray
    np.testing.assert_allclose(array, X + X)


def test_functions_that_the_device_lacks_compute_on_the_host(place):
    x = isokern.tensor(X, device=place)
    assert ufuncs._counterpart(np.cbrt) is None
    same(np.cbrt(x), np.cbrt(X), place)
    whole, rest = np.divmod(x, np.float32(0.25))
    same(whole, X // np.float32(0.25), place)
    same(rest, X % np.float32(0.25), place)
    same(np.add(x, x, where=x > 0.5, out=isokern.tensor(np.zeros_like(X), device=place)), 2 * X * (X > 0.5), place)


def test_functions_of_scipy(place):
    special = pytest.importorskip("scipy.special", reason="SciPy is not installed: pip install scipy")
    x = isokern.tensor(X, device=place)
    same(special.jv(0, x), special.jv(0, X), place)
    same(special.expit(x, out=isokern.tensor(X, device=place)), special.expit(X), place)
