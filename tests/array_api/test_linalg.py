"""Test the linalg extension beside NumPy's, and what must hold of each factorization, on every device."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import isokern
import isokern.array_api as xp
from isokern import BadTensorDtype, BadTensorShape, InvalidArgument

linalg = xp.linalg
SHAPES = [(5, 3), (3, 5), (4, 4), (1, 3), (3, 1), (2, 6, 6), (2, 1, 1)]

KINDS = [pytest.param(False, id="real"), pytest.param(True, id="complex", marks=pytest.mark.full)]


def has_double(place):
    """Return whether the device computes in F64; else the tests are in F32."""
    return "float64" in xp.__array_namespace_info__().dtypes(device=place)


def put(place, x):
    """Return an array in the widest float of the device."""
    single, double = ("C64", "C128") if np.iscomplexobj(x) else ("F32", "F64")
    return isokern.tensor(x, double if has_double(place) else single, device=place)


def draw(shape, seed=0, of_complex=False):
    random = np.random.default_rng(seed)
    real = random.standard_normal(shape)
    return real + 1j * random.standard_normal(shape) if of_complex else real


def turned(x):
    """Return the conjugate transposes."""
    return np.swapaxes(x, -1, -2).conj()


def near(found, expected, atol=1e-11):
    """Compare with a float64 result; F32 is compared as matrices of a condition up to 1000 allow."""
    array = found.numpy() if isinstance(found, isokern.Tensor) else found
    assert array.shape == np.shape(expected)
    single = {np.dtype(np.float32), np.dtype(np.complex64)} & {array.dtype, np.asarray(expected).dtype}
    np.testing.assert_allclose(array, expected, rtol=1e-3 if single else 1e-10, atol=1e-4 if single else atol)


def orthonormal(q):
    near(turned(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])))


@pytest.mark.parametrize("of_complex", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_qr(place, shape, of_complex):
    x = draw(shape, of_complex=of_complex)
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(put(place, x), mode=mode)
        near(q @ r, x)
        orthonormal(q.numpy())
        near(np.tril(r.numpy(), -1), np.zeros(r.shape))
        assert (q.shape, r.shape) == tuple(a.shape for a in np.linalg.qr(x, mode))


def test_qr_of_large_and_small_numbers(place):
    """Numbers whose squares overflow, or vanish."""
    for size in (1e30, 1e-30):
        x = draw((4, 3))
        q, r = linalg.qr(put(place, x * size).astype("F32"))
        orthonormal(q.numpy())
        near(q.numpy() @ (r.numpy() / np.float32(size)), x)


@pytest.mark.parametrize("of_complex", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_svd(place, shape, of_complex):
    x = draw(shape, of_complex=of_complex)
    for full in (True, False):
        u, s, vh = linalg.svd(put(place, x), full_matrices=full)
        expected = np.linalg.svd(x, full_matrices=full)
        assert (u.shape, vh.shape) == (expected[0].shape, expected[2].shape)
        near(s, expected[1])
        k = s.shape[-1]
        near((u.numpy()[..., :k] * s.numpy()[..., None, :]) @ vh.numpy()[..., :k, :], x)
        orthonormal(u.numpy())
        orthonormal(turned(vh.numpy()))
    near(linalg.svdvals(put(place, x)), expected[1])


def test_svd_of_matrices_that_are_far_from_full_rank(place):
    """Rank 1, zeros, equal singular values, values from 1e-30 to 1e30: U and V stay orthonormal."""
    ramp = np.arange(1.0, 6)
    for x in (
        np.outer(ramp, ramp[:4]),
        np.zeros((4, 3)),
        np.eye(4)[:, ::-1],
        np.diag([1e30, 1.0, 1e-30]),
        1e200 * draw((4, 3)),
        np.ones((6, 6)) + 1e-14 * draw((6, 6)),
    ):
        if np.abs(x).max() > 1e38 and not has_double(place):
            continue
        u, s, vh = (a.numpy() for a in linalg.svd(put(place, x), full_matrices=False))
        size = float(np.abs(x).max()) or 1.0
        near((u * s) @ (vh / size), x / size)
        orthonormal(u)
        orthonormal(vh.T)
        near(s / size, np.linalg.svd(x, compute_uv=False) / size)
    single = draw((9, 5)).astype(np.float32)
    u, s, vh = linalg.svd(isokern.tensor(single, device=place), full_matrices=False)
    assert u.dtype is s.dtype is vh.dtype is isokern.F32
    np.testing.assert_allclose(((u * s) @ vh).numpy(), single, atol=3e-6)


@pytest.mark.parametrize("of_complex", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_eigh(place, n, of_complex):
    x = draw((2, n, n), n, of_complex)
    x = x + turned(x)
    values, vectors = linalg.eigh(put(place, x))
    near(values, np.linalg.eigvalsh(x))
    near(x @ vectors.numpy(), vectors.numpy() * values.numpy()[..., None, :])
    orthonormal(vectors.numpy())
    near(linalg.eigvalsh(put(place, x)), np.linalg.eigvalsh(x))
    zero = linalg.eigh(put(place, np.zeros((n, n), x.dtype)))
    near(zero.eigenvalues, np.zeros(n))
    orthonormal(zero.eigenvectors.numpy())


def test_matrices_without_elements(place):
    for shape, dtype in product([(0, 0), (0, 3), (3, 0), (2, 0, 2)], (np.float32, np.complex64)):
        x = put(place, np.zeros(shape, dtype))
        u, s, vh = linalg.svd(x, full_matrices=True)
        expected = np.linalg.svd(np.zeros(shape))
        assert [a.shape for a in (u, s, vh)] == [a.shape for a in expected]
        assert (u.dtype, vh.dtype, s.dtype.kind) == (x.dtype, x.dtype, "f")
    none = isokern.zeros((2, 0, 0), "C64", device=place)
    assert linalg.det(none).tolist() == [1, 1]
    assert linalg.inv(none).shape == (2, 0, 0)
    assert linalg.eigh(isokern.zeros((0, 0), device=place)).eigenvalues.shape == (0,)


@pytest.mark.parametrize("of_complex", KINDS)
def test_what_operators_compute(place, of_complex):
    x = draw((2, 4, 4), of_complex=of_complex)
    t = put(place, x)
    definite = x @ turned(x)
    d = put(place, definite)
    near(linalg.cholesky(d), np.linalg.cholesky(definite))
    near(linalg.cholesky(d, upper=True), turned(np.linalg.cholesky(definite)))
    near(linalg.det(t), np.linalg.det(x))
    near(linalg.inv(t), np.linalg.inv(x))
    for found, expected in zip(linalg.slogdet(t), np.linalg.slogdet(x), strict=True):
        near(found, expected)
    near(linalg.det(t[:, :3, :3]), np.linalg.det(x[:, :3, :3]))
    assert linalg.det(put(place, np.zeros((3, 3), x.dtype))).item() == 0
    b = draw((4, 3), 1, of_complex)
    near(linalg.solve(t, put(place, b)), np.linalg.solve(x, b))
    near(linalg.solve(t[0], put(place, b[:, 0])), np.linalg.solve(x[0], b[:, 0]))
    for n in (-2, 0, 1, 5):
        near(linalg.matrix_power(t, n), np.linalg.matrix_power(x, n), atol=1e-9)
    tall = draw((5, 3), 2, of_complex)
    near(linalg.pinv(put(place, tall)), np.linalg.pinv(tall))
    low = np.outer(tall[:, 0], tall[0])
    assert linalg.matrix_rank(put(place, low)).item() == 1
    assert linalg.matrix_rank(t).numpy().tolist() == [4, 4]
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        near(linalg.matrix_norm(t, ord=order), np.linalg.norm(x, order, axis=(-2, -1)))
        assert linalg.matrix_norm(t, ord=order, keepdims=True).shape == (2, 1, 1)
    for order in (0, 1, 2, 3.5, np.inf, -np.inf):
        near(linalg.vector_norm(t, ord=order, axis=1), np.linalg.norm(x, order, axis=1))
    near(linalg.vector_norm(t), np.linalg.norm(x.ravel()))
    near(linalg.vector_norm(t, axis=()), np.abs(x))
    near(linalg.trace(t, offset=1), np.trace(x, 1, -2, -1))
    near(linalg.diagonal(t, offset=-1), np.diagonal(x, -1, -2, -1))
    near(linalg.outer(t[0, 0], t[0, 1]), np.outer(x[0, 0], x[0, 1]))
    vectors = draw((2, 3, 4), 3, of_complex)
    near(linalg.cross(put(place, vectors), t[:, :3, :], axis=-2), np.cross(vectors, x[:, :3], axis=-2))


def test_complex_matrices(place):
    """One of each; all shapes are in full runs."""
    x = draw((3, 3), of_complex=True)
    t, hermitian = put(place, x), x @ turned(x)
    u, s, vh = linalg.svd(put(place, x[:, :2]))
    near((u.numpy()[:, :2] * s.numpy()) @ vh.numpy(), x[:, :2])
    orthonormal(u.numpy())
    near(linalg.eigvalsh(put(place, hermitian)), np.linalg.eigvalsh(hermitian))
    near(linalg.cholesky(put(place, hermitian), upper=True), turned(np.linalg.cholesky(hermitian)))
    near(linalg.inv(t), np.linalg.inv(x))
    for found, expected in zip(linalg.slogdet(t), np.linalg.slogdet(x), strict=True):
        near(found, expected)


def test_what_is_refused(place):
    x = isokern.ones((2, 3), device=place)
    for call, error in [
        (lambda: linalg.det(x), BadTensorShape),
        (lambda: linalg.cholesky(x), BadTensorShape),
        (lambda: linalg.svd(x.astype("I32")), BadTensorDtype),
        (lambda: linalg.svd(x[0]), BadTensorShape),
        (lambda: linalg.solve(x[:, :2], x.T), BadTensorShape),
        (lambda: linalg.qr(x, mode="raw"), InvalidArgument),
        (lambda: linalg.matrix_norm(x, ord=3), InvalidArgument),
        (lambda: linalg.cross(x[:, :2], x[:, :2]), BadTensorShape),
        (lambda: linalg.vecdot(x, x, axis=0), InvalidArgument),
        (lambda: linalg.tensordot(x, x.T), BadTensorShape),
    ]:
        with pytest.raises(error):
            call()


def test_a_matrix_that_is_not_definite_has_no_cholesky(place):
    assert xp.any(xp.isnan(linalg.cholesky(isokern.tensor([[1.0, 2.0], [2.0, 1.0]], device=place))))
