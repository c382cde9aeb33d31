"""Test the references of the linear solvers against NumPy's LAPACK, and that their bounds are not too small or wide."""

import numpy as np
import pytest

from isokern.dtypes import F32, F64
from isokern.ops import find
from isokern.ops.lu_factor import factor
from isokern.ops.solve_triangular import substitute
from isokern.oracle.values import draw

RNG = np.random.default_rng(11)
MATRICES = [("any", 5), ("unit", 17), ("unit", 33), ("peaks", 11), ("hilbert", 4)]


@pytest.mark.parametrize(("domain", "n"), MATRICES)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_factors_multiply_to_the_matrix(domain, n, dtype):
    """|x[permutation] - L U| is at most gamma |L| |U| (Higham 2002, theorem 9.3), and |L| at most 1."""
    x = draw(domain, dtype, (3, n, n), RNG)
    lu, pivots, order = factor(x)
    assert lu.dtype == x.dtype
    wide = lu.astype(np.longdouble)
    lower, upper = np.tril(wide, -1) + np.eye(n), np.triu(wide)
    off = np.abs(np.take_along_axis(x.astype(np.longdouble), order[..., None], -2) - lower @ upper)
    assert (off <= n * np.finfo(x.dtype).eps / 2 * (np.abs(lower) @ np.abs(upper))).all()
    assert (np.abs(np.tril(wide, -1)) <= 1).all()
    for matrix in range(3):
        rows = np.arange(n)
        for k, at in enumerate(pivots[matrix]):
            rows[[k, at]] = rows[[at, k]]
        assert (rows == order[matrix]).all()


def test_of_equal_pivots_the_first_counts_and_nan_is_largest():
    x = np.array([[1, 2], [-1, 3]], np.float32)
    assert factor(x)[1].tolist() == [0, 1]
    x = np.array([[1, 2, 0], [np.inf, 3, 0], [np.nan, 3, 0]], np.float32)
    assert factor(x)[1][0] == 2
    assert np.isnan(factor(x)[0][-1, -1])


def test_a_singular_matrix_has_a_pivot_of_zero():
    lu, _, _ = factor(np.full((3, 3), 1.5, np.float32))
    assert np.diagonal(lu).tolist() == [1.5, 0, 0]
    with np.errstate(all="ignore"):
        assert find("det").reference(np.full((3, 3), 1.5)) == 0
        sign, log = find("slogdet").reference(np.full((3, 3), 1.5))
        assert (sign, log) == (0, -np.inf)
        assert not np.isfinite(find("inverse").reference(np.full((3, 3), 1.5))).all()


@pytest.mark.parametrize(("domain", "n"), MATRICES)
def test_references_are_those_of_numpy(domain, n):
    x, b = draw(domain, F64, (2, n, n), RNG), draw("any", F64, (2, n, 3), RNG)
    np.testing.assert_allclose(find("det").reference(x), np.linalg.det(x), rtol=1e-9)
    np.testing.assert_allclose(find("slogdet").reference(x)[1], np.linalg.slogdet(x)[1], rtol=1e-9)
    np.testing.assert_allclose(find("slogdet").reference(x)[0], np.linalg.slogdet(x)[0])
    np.testing.assert_allclose(find("inverse").reference(x), np.linalg.inv(x), rtol=1e-8)
    np.testing.assert_allclose(find("solve").reference(x, b), np.linalg.solve(x, b), rtol=1e-8)
    for lower in (False, True):
        triangle = np.tril(x) if lower else np.triu(x)
        y, turned = substitute(x, b, lower), np.swapaxes(b, -1, -2)
        assert (np.abs(triangle @ y - b) <= 1e-14 * n * (np.abs(triangle) @ np.abs(y))).all()
        y = substitute(x, turned, lower, left=False)
        assert (np.abs(y @ triangle - turned) <= 1e-14 * n * (np.abs(y) @ np.abs(triangle))).all()


@pytest.mark.parametrize(("domain", "n"), MATRICES)
def test_bounds_hold_and_follow_the_condition(domain, n):
    """What F32 gives is within the bound of each, which is below the result itself by far."""
    x = draw(domain, F32, (4, n, n), RNG)
    wide, eps = x.astype(np.float64), np.finfo(np.float32).eps
    lu, pivots, order = factor(x)
    rows = (order[..., None] == np.arange(n)).astype(np.float32)
    found = substitute(lu, substitute(lu, rows, True, unit_diagonal=True), False)
    inverse = find("inverse")
    bound = eps * inverse.tolerance.scale(wide, compute=F32)
    assert (np.abs(found - inverse.reference(wide)) <= bound).all()
    norms = [np.abs(a).max((-1, -2)) for a in (bound, inverse.reference(wide))]
    assert (norms[0] <= 0.5 * norms[1]).all()
    det, product = find("det"), np.prod(np.diagonal(lu, 0, -2, -1), -1)
    product = product * np.prod(np.where(pivots == np.arange(n), 1, -1), -1)
    assert (np.abs(product - det.reference(wide)) <= eps * det.tolerance.scale(wide, compute=F32)).all()


def test_a_wrong_inverse_is_beyond_the_bound():
    x = draw("unit", F32, (1, 9, 9), RNG).astype(np.float64)
    y = find("inverse").reference(x)
    bound = np.finfo(np.float32).eps * find("inverse").tolerance.scale(x, compute=F32)
    assert (np.abs(np.swapaxes(y, -1, -2) - y) > bound).any()
    assert bound.max() < 1e-2 * np.abs(y).max()
