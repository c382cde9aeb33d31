"""Test elementwise functions of complex numbers: errors, values at infinities, NaN and zeros, and large numbers."""

from __future__ import annotations

import cmath
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import isokern
import isokern.array_api as xp

# The CPU in quick runs; the others compile each of some eighty bodies
DEVICES = [d.name for d in isokern.devices()]
NUMPY = {n: n.replace("a", "arc", 1) for n in ("acos", "acosh", "asin", "asinh", "atan", "atanh")}
FUNCTIONS = [*NUMPY, "cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2"]
FUNCTIONS += ["abs", "reciprocal", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh"]
# Errors in units of the last place, relative to the magnitude: three roundings' worth, and those of real functions
BOUND = 6
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, math.inf, -math.inf, math.nan]
NAN = math.nan


@pytest.fixture(params=[n if n.startswith("cpu") else pytest.param(n, marks=pytest.mark.full) for n in DEVICES])
def place(request):
    """Return each device."""
    return isokern.device(request.param)


def log1p(z):
    """Return ln(1 + z), which NumPy's loses digits of where z is small."""
    x, y = z.real, z.imag
    return np.log1p(x * (2 + x) + y * y) / 2 + 1j * np.arctan2(y, 1 + x)


def numpy_function(name):
    return log1p if name == "log1p" else getattr(np, NUMPY.get(name, name))


def draw(name, dtype):
    """Return numbers of all sizes, where a function neither overflows nor takes more digits of π than F64 has."""
    random = np.random.default_rng(len(name))
    parts = []
    for _ in range(2):
        wide = 10.0 ** random.uniform(-6, 6, 3000) * random.choice([-1, 1], 3000)
        parts.append(np.where(random.random(3000) < 0.5, wide, random.standard_normal(3000)))
    x, y = parts
    if name in ("sin", "cos"):
        x, y = np.clip(x, -1e4, 1e4), np.clip(y, -85, 85)
    elif name in ("exp", "expm1", "sinh", "cosh"):
        x, y = np.clip(x, -85, 85), np.clip(y, -1e4, 1e4)
    elif name in ("tan", "tanh"):
        x, y = np.clip(x, -1e4, 1e4), np.clip(y, -1e4, 1e4)
    return (x + 1j * y).astype(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_a_few_roundings(place, name):
    known = xp.__array_namespace_info__().dtypes(device=place)
    for dtype in (np.complex64, np.complex128):
        if np.dtype(dtype).name not in known:
            continue
        z = draw(name, dtype)
        wide = np.clongdouble if dtype is np.complex128 and np.finfo(np.longdouble).eps < 1e-18 else np.complex128
        with np.errstate(all="ignore"):
            expected = numpy_function(name)(z.astype(wide))
        found = getattr(xp, name)(isokern.tensor(z, device=place)).numpy()
        error = np.abs(found - expected) / np.maximum(np.abs(expected), np.finfo(dtype).tiny)
        assert error.max() <= BOUND * np.finfo(dtype).eps, (name, z[error.argmax()])


def expected_value(name, z):
    """Return a function's value by Python, which has those of C99; by NumPy where Python raises or has no function.

    The standard has numbers where these have NaN: from C17, or the limit.
    """
    x, y = z.real, z.imag
    own = {
        ("acosh", x == 0 and y != y): complex(NAN, math.pi / 2),
        ("atan", abs(x) == math.inf and y != y): complex(math.copysign(math.pi / 2, x), 0),
        ("tan", x != x and y == 0): complex(NAN, y),
        ("tan", abs(y) == math.inf and abs(x) == math.inf): complex(0, math.copysign(1, y)),
        ("tanh", x == 0 and y != y): complex(x, NAN),
        ("tanh", abs(x) == math.inf): complex(math.copysign(1, x), math.copysign(0, y)),
        ("tan", abs(y) == math.inf): complex(math.copysign(0, x), math.copysign(1, y)),
        ("expm1", x == math.inf and (y == 0 or y - y != 0)): complex(math.inf, y if y == 0 else NAN),
        ("expm1", x == -math.inf and y - y != 0): complex(-1, 0),
        ("expm1", x != x and y == 0): complex(NAN, y),
        ("expm1", x == 0 and y == 0): complex(0, y),
    }
    if (name, True) in own:
        return own[name, True]
    with np.errstate(all="ignore"):
        try:
            return getattr(cmath, name)(z)
        except (AttributeError, ValueError, OverflowError):
            return complex(getattr(np, NUMPY.get(name, name))(np.complex128(z)))


def agree(found, expected, signed):
    if math.isnan(found) or math.isnan(expected):
        return math.isnan(found) and math.isnan(expected)
    if not signed:
        found, expected = abs(found), abs(expected)
    if math.isinf(expected) or expected == 0:
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-7)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("abs", "reciprocal", "sign", "square")])
def test_special_values_are_the_standards(place, name):
    values = [complex(x, y) for x, y in product(SPECIAL, SPECIAL)]
    found = getattr(xp, name)(isokern.tensor(np.array(values, np.complex64), device=place)).numpy()
    for z, y in zip(values, found.tolist(), strict=True):
        expected = expected_value(name, z)
        signed = not cmath.isnan(expected)  # beside NaN the sign is not said
        near = agree(y.real, expected.real, signed) and agree(y.imag, expected.imag, signed)
        assert near, f"{name}({z}) = {y}, not {expected}"


def test_quotients_and_tests_of_special_values(place):
    z = isokern.tensor(np.array([complex(x, y) for x, y in product(SPECIAL, SPECIAL)], np.complex64), device=place)
    array = z.numpy()
    for name in ("isnan", "isinf", "isfinite"):
        np.testing.assert_array_equal(getattr(xp, name)(z).numpy(), getattr(np, name)(array))
    for inverse in (1 / z, xp.reciprocal(z)):
        found = inverse.numpy()
        assert not np.any(found[np.isinf(array) & ~np.isnan(array)])
        assert np.all(np.isinf(found[array == 0]))
    assert xp.sign(z).numpy()[array == 0].tolist() == [0] * 4
    assert (z**0).tolist() == xp.pow(z, xp.zeros_like(z)).tolist() == [1] * len(array)
    assert xp.pow(xp.zeros_like(z), 2.5).tolist() == [0] * len(array)


def test_where_formulas_change(place):
    """Near the unit circle and the pole of atanh, and where one part of a result is finite and the other is not."""
    z = (1 + np.outer([1e-3, 1e-5, -1e-6], [1, 1j, 1 - 1j])).astype(np.complex64).ravel()
    for name in ("log", "log2", "log10"):
        found, expected = (
            getattr(xp, name)(isokern.tensor(z, device=place)).numpy(),
            getattr(np, name)(z.astype(complex)),
        )
        assert np.all(np.abs(found - expected) <= 1e-6 * np.abs(expected)), name
    pole = np.array([1 + 1e-20j, -1 - 1e-30j], np.complex64)
    found = xp.atanh(isokern.tensor(pole, device=place)).numpy()
    np.testing.assert_allclose(found, np.arctanh(pole.astype(complex)), rtol=1e-6)
    large = isokern.tensor(np.array([89 + 1e-3j, -89 + 1e-3j], np.complex64), device=place)
    assert math.isclose(xp.imag(xp.exp(large))[0].item(), math.exp(89) * math.sin(1e-3), rel_tol=1e-5)
    for name in ("sinh", "cosh"):
        found = xp.imag(getattr(xp, name)(large)).numpy()
        assert math.isclose(abs(float(found[1])), 0.5 * math.exp(89) * math.sin(1e-3), rel_tol=1e-5)


# Subnormal numbers become 0: Hypothesis would draw again, too often for its own health check
PARTS = st.floats(width=32, allow_nan=False, allow_infinity=False).map(
    lambda x: x if abs(x) >= float(np.finfo(np.float32).tiny) else 0.0
)
LISTS = st.lists(st.builds(complex, PARTS, PARTS), min_size=8, max_size=8)


@settings(max_examples=60, deadline=None)
@given(LISTS, LISTS)
def test_nothing_overflows_whose_result_does_not(left, right):
    """In F32, whose numbers, and their squares, float64 has."""
    z, w = np.array(left), np.array(right)
    a, b = (isokern.tensor(x, "C64", device="cpu") for x in (z, w))
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    names = ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "log", "log10", "log1p", "sign", "sqrt")
    with np.errstate(all="ignore"):
        pairs = [(getattr(xp, name)(a), numpy_function(name)(z)) for name in names]
        pairs += [(a / b, z / w), (xp.reciprocal(a), 1 / z)]
    for at, (found, expected) in enumerate(pairs):
        y, size = found.numpy(), np.abs(expected)
        with np.errstate(invalid="ignore"):
            bad = (size < most / 2) & (size > 2 * least) & ~(np.abs(y - expected) <= 2e-6 * size + 8 * least)
        assert not bad.any(), (at, z[bad], w[bad], y[bad], expected[bad])


def test_powers(place):
    random = np.random.default_rng(1)
    z, w = ((random.uniform(-3, 3, 500) + 1j * random.uniform(-3, 3, 500)).astype(np.complex64) for _ in range(2))
    found = xp.pow(isokern.tensor(z, device=place), isokern.tensor(w, device=place)).numpy()
    expected = np.power(z.astype(np.complex128), w)
    # The exponent w log z has a rounding error that is relative to it, and is that of the result
    size = np.abs(w * np.log(z.astype(np.complex128))) + 2
    assert np.all(np.abs(found - expected) <= 4 * 2**-23 * size * np.abs(expected))
    for n in (-5, 1, 3, 10):
        cubes = (isokern.tensor(z[:50], device=place) ** n).numpy()
        np.testing.assert_allclose(cubes, z[:50].astype(np.complex128) ** n, rtol=3e-6)
