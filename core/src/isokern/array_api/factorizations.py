"""Factorizations that no operator has, made of operators on the arrays' device: QR, Cholesky, and SVD by rotations.

Each step works on all matrices of a batch and on all rows at once; the number of steps follows from the shape, and for
the SVD from what the host asks once a sweep.
"""

from __future__ import annotations

from typing import Any

from ..eager.functions import function
from ..tensors import Tensor
from .dtypes import finfo

SWEEPS = 30  # one-sided Jacobi needs 5 to 10, a few more for matrices that are far from full rank


def _zeros(x: Tensor, shape: Any) -> Any:
    return function("fill")(shape=shape, dtype=x.dtype, device=x.device)


def _sum(x: Any, axis: int) -> Any:
    return function("reduce_sum")(x, axes=(axis,), keepdims=True)


def factor_qr(x: Tensor, complete: bool) -> tuple[Tensor, Tensor]:
    """Return Q and R of matrices m × n by Householder reflections (Golub & Van Loan, Matrix Computations, 5.2).

    Q is m × m where `complete`, else m × min(m, n), and the diagonal of R has any sign.
    """
    call = function
    add, mul, div, where = call("add"), call("mul"), call("div"), call("where")
    *lead, m, n = x.shape
    steps = min(m, n)
    size = m if complete else steps
    r = call("copy")(x)
    reflectors = []
    for k in range(min(steps, m - 1)):
        column = r[..., k:, k : k + 1]
        largest = call("reduce_max")(call("abs")(column), axes=(column.ndim - 2,), keepdims=True)
        v = div(column, where(call("equal")(largest, 0.0), 1.0, largest))  # whose squares do not overflow
        head = v[..., :1, :]
        first = add(head, call("copysign")(call("sqrt")(_sum(call("square")(v), v.ndim - 2)), head))
        v = call("concat")([first, v[..., 1:, :]], axis=v.ndim - 2)
        norm = _sum(call("square")(v), v.ndim - 2)
        v = mul(v, call("sqrt")(div(2.0, where(call("equal")(norm, 0.0), 2.0, norm))))  # H = 1 - v vᵀ
        reflectors.append((v, call("copy")(v.permute((*range(v.ndim - 2), v.ndim - 1, v.ndim - 2)))))
        _reflect(*reflectors[-1], r[..., k:, k:])
    eye = call("eye")(rows=m, columns=size, dtype=x.dtype, device=x.device)
    q = call("copy")(eye.broadcast_to((*lead, m, size)))
    for k in reversed(range(len(reflectors))):
        _reflect(*reflectors[k], q[..., k:, k:])
    return q, call("triu")(r[..., :size, :])


def _reflect(v: Any, turned: Any, block: Any) -> None:
    """Reflect the columns of `block` in place: block - v · (vᵀ · block)."""
    moved = function("matmul")(v, function("matmul")(turned, block))
    function("copy")(function("sub")(block, moved), out=block)


def factor_cholesky(x: Tensor) -> Tensor:
    """Return L with L · Lᵀ = x, column by column; NaN where x is not positive definite."""
    call = function
    n = x.shape[-1]
    lower = _zeros(x, x.shape)
    for j in range(n):
        column = x[..., j:, j : j + 1]
        if j:
            done = lower[..., j:, :j]
            row = done[..., :1, :].permute((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
            column = call("sub")(column, call("matmul")(done, row))
        call("div")(column, call("sqrt")(column[..., :1, :]), out=lower[..., j:, j : j + 1])
    made: Tensor = lower
    return made


def _pair_columns(x: Any) -> tuple[Any, Any]:
    """Return the columns of matrices in two halves, which meet column by column; one of zeros is added to an odd n."""
    if x.shape[-1] % 2:
        x = function("concat")([x, _zeros(x, (*x.shape[:-1], 1))], axis=x.ndim - 1)
    half = x.shape[-1] // 2
    return function("copy")(x[..., :half]), function("copy")(x[..., half:])


def _seat_next(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the halves with other pairs: the first column stays and the others move on by one seat, round the table.

    After n - 1 rounds each column has met each other one once.
    """
    half = left.shape[-1]
    if half == 1:
        return left, right
    axis, join = left.ndim - 1, function("concat")
    next_left = join([left[..., :1], right[..., :1], left[..., 1 : half - 1]], axis=axis)
    return next_left, join([right[..., 1:], left[..., half - 1 :]], axis=axis)


def rotate_columns(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x · V with orthogonal columns, and the orthogonal V, by one-sided Jacobi rotations (Hestenes 1958).

    The pairs of a round are rotated at once, in the order of a round-robin tournament (Brent & Luk 1985). A sweep
    meets all pairs; sweeps end when no pair's cosine was beyond the rounding of its dot product.
    """
    call = function
    add, sub, mul, div, where = call("add"), call("sub"), call("mul"), call("div"), call("where")
    n = x.shape[-1]
    eye = call("eye")(rows=n, dtype=x.dtype, device=x.device)
    rows = x.shape[-2]
    # V below x, so that both are rotated by the same calls
    whole = call("concat")([x, call("copy")(eye.broadcast_to((*x.shape[:-2], n, n)))], axis=x.ndim - 2)
    left, right = _pair_columns(whole)
    limit = finfo(x.dtype).eps * max(rows, 4) ** 0.5
    for _ in range(SWEEPS if n > 1 and x.desc.numel else 0):
        worst = None
        for _ in range(2 * left.shape[-1] - 1):
            a, b = left[..., :rows, :], right[..., :rows, :]
            alpha, beta = _sum(call("square")(a), a.ndim - 2), _sum(call("square")(b), a.ndim - 2)
            gamma = _sum(mul(a, b), a.ndim - 2)
            size = mul(call("sqrt")(alpha), call("sqrt")(beta))
            turn = call("greater")(call("abs")(gamma), mul(size, limit))
            worst = turn if worst is None else call("logical_or")(worst, turn)
            zeta = div(sub(beta, alpha), mul(where(turn, gamma, 1.0), 2.0))
            t = div(call("copysign")(1.0, zeta), add(call("abs")(zeta), call("hypot")(zeta, 1.0)))
            t = where(turn, t, 0.0)
            c = div(1.0, call("sqrt")(add(call("square")(t), 1.0)))
            s = mul(c, t)
            left, right = sub(mul(left, c), mul(right, s)), add(mul(left, s), mul(right, c))
            left, right = _seat_next(left, right)
        if not bool(call("reduce_any")(worst).item()):
            break
    # After a sweep the seats are where they began, so a column that was added is the last one
    made = call("concat")([left, right], axis=x.ndim - 1)[..., :n]
    return made[..., :rows, :], made[..., rows:, :]
