"""Test complex arrays beside NumPy's on every device: memory, dtypes, operators, moves, reductions and products."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import isokern
import isokern.array_api as xp
from isokern import BadTensorDtype, BadTensorShape, InvalidArgument, Tensor

rng = np.random.default_rng(0)
Z = (rng.standard_normal((3, 4, 2)) + 1j * rng.standard_normal((3, 4, 2))).astype(np.complex64)
W = (rng.standard_normal((4, 2)) + 1j * rng.standard_normal((4, 2))).astype(np.complex64)


def on(place, value):
    return xp.asarray(value, device=place, copy=True) if isinstance(value, np.ndarray) else value


def same(found, expected, rtol=0.0):
    """Compare dtype, shape and values; a tolerance is relative to the largest magnitude."""
    assert isinstance(found, Tensor)
    expected = np.asarray(expected)
    assert (found.dtype.numpy, found.shape) == (expected.dtype, expected.shape)
    scale = float(np.max(np.abs(expected), initial=0, where=np.isfinite(expected)))
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=rtol * scale)


def test_every_device_computes(every_place):
    """One of each kind of function; the tests below have them all."""
    x, w = (xp.asarray(a, device=every_place, copy=True) for a in (Z, W))
    same(x * w + 1j, Z * W + 1j, 1e-6)
    xp.imag(x)[:, 0] = 0
    expected = Z.copy()
    expected[:, 0].imag = 0
    same(x, expected)
    same(xp.sqrt(w), np.sqrt(W), 1e-6)
    same(xp.sum(x, axis=1), expected.sum(axis=1), 1e-6)
    same(x @ w.T, expected @ W.T, 1e-6)
    same(x[:, [2, 0]], expected[:, [2, 0]])
    same(xp.fft.fft(w, axis=0), np.fft.fft(W, axis=0), 1e-6)


def test_memory_is_numpys(place):
    x = isokern.tensor(Z, device=place)
    same(x, Z)
    same(x[1, ::-2].mT, Z[1, ::-2].T)
    assert (x.dtype, x.dtype.code, x.dtype.dlpack, x.dtype.itemsize) == (isokern.C64, 17, 5, 8)
    assert complex(x[0, 1, 1]) == x[0, 1, 1].item() == complex(Z[0, 1, 1])
    assert x.tolist() == Z.tolist()
    assert bool(x[0, 0, 0])
    assert "C64[3, 4, 2]" in repr(x)
    same(pickle.loads(pickle.dumps(x)), Z)
    same(copy.deepcopy(x), Z)
    same(x.to_device("cpu"), Z)
    same(isokern.tensor(Z.astype(np.complex128), "C64", device=place), Z)
    same(isokern.tensor([1, 2.5j], device=place), np.array([1, 2.5j], np.complex64))
    same(isokern.tensor(Z[:0], device=place), Z[:0])
    for call in (lambda: float(x[0, 0, 0]), lambda: int(x[0, 0, 0])):
        with pytest.raises(TypeError):
            call()


def test_memory_is_shared(devices):
    array = Z.copy()
    x = isokern.from_dlpack(array)
    assert np.shares_memory(x.numpy(), array)
    assert np.shares_memory(np.from_dlpack(x), array)
    same(isokern.from_dlpack(x[:, ::2]), Z[:, ::2])
    odd = np.zeros(33, np.float32)[1:].view(np.complex64)  # aligned as a part is, which is what NumPy asks for
    odd[:] = np.arange(16) + 1j
    y = isokern.from_numpy(odd)
    assert np.shares_memory(y.numpy(), odd)
    same(y + 1, odd + 1)
    double = isokern.from_dlpack(Z.astype(np.complex128))
    assert (double.dtype, double.dtype.alignment) == (isokern.C128, 8)


def test_parts_are_views(place):
    x = on(place, Z)
    same(xp.real(x), Z.real)
    same(xp.imag(x[:, ::-1]), Z[:, ::-1].imag)
    xp.imag(x)[...] = 2
    xp.real(x[0])[...] = xp.asarray(Z[0].imag.copy(), device=place)
    expected = Z.copy()
    expected.imag = 2
    expected[0].real = Z[0].imag
    same(x, expected)
    same(xp.conj(x), expected.conj())
    same(xp.imag(x[:0]), Z[:0].imag)
    same(xp.imag(on(place, Z.real.copy())), np.zeros(Z.shape, np.float32))


def test_dtypes_meet():
    f, d, c, z = xp.float32, xp.float64, xp.complex64, xp.complex128
    table = {(f, c): c, (d, c): z, (f, z): z, (c, z): z, (c, c): c, (xp.float16, c): c, (xp.bfloat16, z): z}
    for (a, b), wanted in table.items():
        assert xp.result_type(a, b) is xp.result_type(b, a) is wanted
    assert xp.result_type(f, 1j) is c
    assert xp.result_type(d, 1, 2.0, 1j) is z
    assert xp.result_type(c, 1.5) is c
    for other in (xp.int32, xp.bool):
        with pytest.raises(BadTensorDtype):
            xp.result_type(c, other)
    with pytest.raises(BadTensorDtype):
        xp.result_type(xp.int32, 1j)
    assert xp.can_cast(f, c)
    assert xp.can_cast(c, z)
    assert not xp.can_cast(c, f)
    assert not xp.can_cast(d, c)
    kinds = ("complex floating", "numeric", c, (f, c))
    assert [xp.isdtype(c, k) for k in kinds] == [True] * 4
    assert [xp.isdtype(c, k) for k in ("real floating", "integral", z)] == [False] * 3
    assert (xp.finfo(c).bits, xp.finfo(z).dtype, xp.finfo(c).eps) == (32, d, xp.finfo(f).eps)
    assert xp.__array_namespace_info__().default_dtypes()["complex floating"] is c


def test_astype(place):
    x = on(place, Z)
    same(on(place, Z.real.copy()).astype("C64"), Z.real.astype(np.complex64))
    same(on(place, np.int32([3, -4])).astype("C64"), np.complex64([3, -4]))
    same(xp.astype(x, "BOOL"), Z != 0)
    same(on(place, np.complex64([0, 1j, -0.0])).astype("BOOL"), np.array([False, True, False]))
    assert xp.astype(x, "C64", copy=False) is x
    assert xp.astype(x, "C64").buffer is not x.buffer
    if "complex128" in xp.__array_namespace_info__().dtypes(device=place):
        same(x.astype("C128"), Z.astype(np.complex128))
        same(x.astype("C128").astype("C64"), Z)
        same(x + on(place, W.real.astype(np.float64)), Z + W.real.astype(np.float64), 1e-15)


def test_operators(place):
    x, w = on(place, Z), on(place, W)
    real, mixed = on(place, W.real.copy()), W.real
    for function in (
        lambda a, b, r: a + b,
        lambda a, b, r: a - b,
        lambda a, b, r: a * b,
        lambda a, b, r: a / b,
        lambda a, b, r: r * a,
        lambda a, b, r: a / r,
        lambda a, b, r: 2 - a,
        lambda a, b, r: (1.5 - 2j) * a,
        lambda a, b, r: 1j / a,
        lambda a, b, r: r + 1j,
        lambda a, b, r: -a,
        lambda a, b, r: abs(a),
        lambda a, b, r: a**2,
        lambda a, b, r: a**-3,
        lambda a, b, r: a**0,
        lambda a, b, r: a**0.5,
        lambda a, b, r: 2**a,
        lambda a, b, r: a**b,
        lambda a, b, r: a == b,
        lambda a, b, r: a != a,
        lambda a, b, r: a == (a[0, 0, 0].item() if a.ndim else a),
    ):
        same(function(x, w, real), function(Z, W, mixed), 1e-6)
    y = on(place, Z)
    y += w
    y *= 2j
    y[:, 1] -= y[:, 2]
    y[1:] /= 1 + 1j
    expected = (Z + W) * 2j
    expected[:, 1] -= expected[:, 2]
    expected[1:] /= np.complex64(1 + 1j)
    same(y, expected.astype(np.complex64), 1e-6)
    with pytest.raises(BadTensorDtype, match="C64 into an array of F32"):
        real *= 1j
    for sign in (1.0, -1.0):  # the arrays of numbers are kept, and these are equal
        chosen = xp.where(x == 0, x, complex(1, sign * 0.0))
        assert xp.all(xp.signbit(xp.imag(chosen))) == (sign < 0)
    assert xp.all(xp.signbit(xp.imag(xp.full(2, complex(1, -0.0), device=place))))


def test_creation(place):
    same(xp.asarray([[1, 2j], [3.5, 1j]], device=place), np.array([[1, 2j], [3.5, 1j]], np.complex64))
    same(xp.full((2, 3), 1 - 2j, device=place), np.full((2, 3), 1 - 2j, np.complex64))
    same(xp.full(2, 3, dtype="C64", device=place), np.full(2, 3, np.complex64))
    same(xp.zeros(3, dtype=xp.complex64, device=place), np.zeros(3, np.complex64))
    same(xp.ones_like(on(place, W)), np.ones_like(W))
    same(xp.full_like(on(place, W.real.copy()), 1j, dtype="C64"), np.full_like(W, 1j))
    same(xp.eye(3, 4, k=1, dtype="C64", device=place), np.eye(3, 4, 1, np.complex64))
    same(xp.linspace(1 + 2j, 3 - 1j, 5, device=place), np.linspace(1 + 2j, 3 - 1j, 5, dtype=np.complex64), 1e-6)
    same(xp.linspace(0, 1j, 4, endpoint=False, device=place), np.linspace(0, 1j, 4, False, dtype=np.complex64), 1e-6)
    same(xp.tril(on(place, Z), k=-1), np.tril(Z, -1))
    same(xp.meshgrid(on(place, W[0]), on(place, W[:, 0]))[1], np.meshgrid(W[0], W[:, 0])[1])
    with pytest.raises(BadTensorDtype):
        xp.full(2, 1j, dtype="F32", device=place)


def test_what_moves_elements(place):
    x, w = on(place, Z), on(place, W)
    for name, args, kwargs in [
        ("concat", [[Z, Z[:1]]], {"axis": 0}),
        ("concat", [[Z, W]], {"axis": None}),
        ("stack", [[W, W]], {"axis": 2}),
        ("flip", [Z], {"axis": 1}),
        ("roll", [Z, 5], {}),
        ("roll", [Z, (1, -2)], {"axis": (0, 2)}),
        ("tile", [W, (2, 1, 3)], {}),
        ("repeat", [Z, 2], {"axis": 1}),
        ("reshape", [np.swapaxes(Z, 0, 2), (6, 4)], {}),
        ("permute_dims", [Z, (2, 0, 1)], {}),
        ("take", [Z, np.int64([3, 0, 0])], {"axis": 1}),
        ("take_along_axis", [Z, np.int64([[[1, 0], [0, 0], [1, 1], [0, 1]]])], {"axis": 2}),
        ("where", [Z.real > 0, Z, W], {}),
        ("where", [Z.real > 0, Z.real, W], {}),
        ("diff", [Z], {"axis": 1}),
        ("broadcast_to", [W, (2, 4, 2)], {}),
    ]:
        found = getattr(xp, name)(
            *([on(place, a) for a in v] if isinstance(v, list) else on(place, v) for v in args), **kwargs
        )
        same(found, getattr(np, name)(*args, **kwargs))
    same(xp.where(on(place, W.real > 0), w, 0), np.where(W.real > 0, W, 0))
    same(xp.unstack(x, axis=1)[2], Z[:, 2])
    same(x[:, [1, 0, 1], 1], Z[:, [1, 0, 1], 1])
    same(x[on(place, Z.imag > 0)], Z[Z.imag > 0])
    same(x[on(place, Z[:, :, 0].imag > 0)], Z[Z[:, :, 0].imag > 0])
    expected = Z.copy()
    x[0, 1:] = 3j
    x[:, :, 0] = w[:, 1]
    x[1, [0, 2]] = xp.real(w)[:2]
    x[on(place, Z.real > 1)] = 2
    x[1:] = x[:-1]
    expected[0, 1:] = 3j
    expected[:, :, 0] = W[:, 1]
    expected[1, [0, 2]] = W.real[:2]
    expected[Z.real > 1] = 2
    expected[1:] = expected[:-1].copy()
    same(x, expected)
    with pytest.raises(BadTensorDtype, match="C64 into one of F32"):
        xp.real(w)[...] = w


def test_reductions(place):
    for axis in (None, 1, (0, 2), ()):
        for name in ("sum", "mean", "prod"):
            for keepdims in (False, True):
                expected = getattr(np, name)(Z, axis=axis, keepdims=keepdims)
                same(getattr(xp, name)(on(place, Z), axis=axis, keepdims=keepdims), expected, 2e-6)
    same(xp.prod(on(place, Z[:, :0]), axis=1), np.prod(Z[:, :0], axis=1))
    same(xp.sum(on(place, np.array(Z[0, 0, 0]))), Z[0, 0, 0])
    same(xp.prod(on(place, np.array(Z[0, 0, 0]))), Z[0, 0, 0])
    same(xp.cumulative_sum(on(place, Z), axis=1), np.cumulative_sum(Z, axis=1), 1e-6)
    for initial in (False, True):
        found = xp.cumulative_prod(on(place, Z), axis=1, include_initial=initial)
        same(found, np.cumulative_prod(Z, axis=1, include_initial=initial), 1e-6)
    sparse = np.complex64([[0, 1j, 0], [0, 0, -0.0]])
    for name in ("any", "all", "count_nonzero"):
        same(getattr(xp, name)(on(place, sparse), axis=1), getattr(np, name)(sparse, axis=1))
    same(xp.nonzero(on(place, sparse))[1], np.nonzero(sparse)[1])
    twins = np.array([1 + 1j, 2, 1 + 1j, complex(-0.0, 1), 1j, 1 - 1j, complex(-0.0, 2), np.nan, np.nan], np.complex64)
    found = xp.unique_all(on(place, twins))
    assert found.counts.tolist() == [2, 1, 1, 2, 1, 1, 1]
    same(found.values[:5], np.complex64([1j, 2j, 1 - 1j, 1 + 1j, 2]))
    assert (found.indices.tolist()[:5], found.inverse_indices.tolist()[:7]) == ([3, 6, 5, 0, 1], [3, 4, 3, 0, 0, 2, 1])


def test_products(place):
    x, w = on(place, Z), on(place, W)
    for a, b in ((Z, W.T), (W.T, W), (Z[0, 0], W.T), (Z, W[0]), (W[0], W[1]), (Z[:0], W.T), (Z[:, :, :0], W.T[:0])):
        same(on(place, a) @ on(place, b), a @ b, 1e-6)
    same(x @ xp.real(w).T, Z @ W.real.T, 1e-6)
    same(xp.tensordot(x, w, axes=([1, 2], [0, 1])), np.tensordot(Z, W, axes=([1, 2], [0, 1])), 1e-6)
    same(xp.vecdot(x, w, axis=-2), np.vecdot(Z, W, axis=-2), 1e-6)
    same(xp.vecdot(xp.real(x), w), np.vecdot(Z.real, W), 1e-6)
    same(xp.linalg.outer(x[0, 0], w[:, 0]), np.outer(Z[0, 0], W[:, 0]), 1e-6)
    same(xp.linalg.trace(x, offset=1), np.trace(Z, 1, -2, -1), 1e-6)
    same(xp.linalg.diagonal(x, offset=-1), np.diagonal(Z, -1, -2, -1))
    same(xp.linalg.cross(x[:, :3], w[:3], axis=-2), np.cross(Z[:, :3], W[:3], axis=-2), 1e-6)
    same(xp.linalg.vector_norm(x, axis=1), np.linalg.norm(Z, axis=1), 1e-6)
    with pytest.raises(BadTensorShape, match="as many columns as rows"):
        x @ x


def test_what_is_refused(place):
    x = on(place, Z)
    for call in (
        lambda: xp.sort(x),
        lambda: xp.argmax(x),
        lambda: xp.max(x),
        lambda: xp.var(x),
        lambda: xp.floor(x),
        lambda: x // 2,
        lambda: x < x,
        lambda: xp.clip(x, 0, 1),
        lambda: xp.atan2(x, x),
        lambda: xp.searchsorted(x[0, 0], x[0, 0]),
        lambda: isokern.add(x, x),
        lambda: isokern.cast(x, dtype="F32"),
        lambda: isokern.zeros((2,), "F32", device=place).copy_from(Z[0, 0]),
        lambda: isokern.zeros((32,), "Q8_0", device=place).copy_from(np.ones(32, np.complex64)),
        lambda: xp.asarray(x, dtype="I32"),
    ):
        with pytest.raises(BadTensorDtype):
            call()
    with pytest.raises(InvalidArgument):
        xp.cumulative_sum(x)


def test_no_operator_has_complex_types():
    for operator in isokern.ops.all_operators():
        assert not {isokern.C64, isokern.C128} & {d for types in operator.signature.types.values() for d in types}
