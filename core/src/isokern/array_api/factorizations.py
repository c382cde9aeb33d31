"""Factorizations that no operator has, made of operators on the arrays' device: QR, Cholesky, and SVD by rotations.

Each step works on all matrices of a batch and on all rows at once; the number of steps follows from the shape, and for
the SVD from what the host asks once a sweep.
"""

from __future__ import annotations

from typing import Any

from ..tensors import Tensor
from .complex_parts import is_complex, square_magnitudes, view_part
from .dtypes import finfo
from .elementwise import conj
from .operators import function

SWEEPS = 30  # one-sided Jacobi needs 5 to 10, a few more for matrices that are far from full rank


def _zeros(x: Tensor, shape: Any) -> Any:
    return function("fill")(shape=shape, dtype=x.dtype, device=x.device)


def _sum(x: Any, axis: int) -> Any:
    return function("reduce_sum")(x, axes=(axis,), keepdims=True)


def turn(x: Tensor) -> Tensor:
    """Return the conjugate transposes of matrices: a view of real ones."""
    turned = x.permute((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return conj(turned) if is_complex(x) else turned


def find_phase(x: Tensor) -> Tensor:
    """Return x / |x|: the signs of real numbers; 1 for 0."""
    if not is_complex(x):
        signs: Tensor = function("copysign")(1.0, x)
        return signs
    phases: Tensor = function("where")(function("equal")(x, 0), 1.0, function("sign")(x))
    return phases


def factor_qr(x: Tensor, complete: bool) -> tuple[Tensor, Tensor]:
    """Return Q and R of matrices m × n by Householder reflections (Golub & Van Loan, Matrix Computations, 5.2).

    Q is m × m where `complete`, else m × min(m, n), and the diagonal of R has any signs or phases.
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
        first = add(head, mul(find_phase(head), call("sqrt")(_sum(square_magnitudes(v), v.ndim - 2))))
        v = call("concat")([first, v[..., 1:, :]], axis=v.ndim - 2)
        norm = _sum(square_magnitudes(v), v.ndim - 2)
        v = mul(v, call("sqrt")(div(2.0, where(call("equal")(norm, 0.0), 2.0, norm))))  # H = 1 - v vᴴ
        reflectors.append((v, call("copy")(turn(v))))
        _reflect(*reflectors[-1], r[..., k:, k:])
    eye = call("eye")(rows=m, columns=size, dtype=x.dtype, device=x.device)
    q = call("copy")(eye.broadcast_to((*lead, m, size)))
    for k in reversed(range(len(reflectors))):
        _reflect(*reflectors[k], q[..., k:, k:])
    return q, call("triu")(r[..., :size, :])


def _reflect(v: Any, turned: Any, block: Any) -> None:
    """Reflect the columns of `block` in place: block - v · (vᴴ · block)."""
    moved = function("matmul")(v, function("matmul")(turned, block))
    function("copy")(function("sub")(block, moved), out=block)


def factor_cholesky(x: Tensor) -> Tensor:
    """Return L with L · Lᴴ = x, column by column; NaN where x is not positive definite."""
    call = function
    n = x.shape[-1]
    lower = _zeros(x, x.shape)
    for j in range(n):
        column = x[..., j:, j : j + 1]
        if j:
            done = lower[..., j:, :j]
            column = call("sub")(column, call("matmul")(done, turn(done[..., :1, :])))
        head = column[..., :1, :]
        root = call("sqrt")(view_part(head, 0) if is_complex(head) else head)
        call("copy")(call("div")(column, root), out=lower[..., j:, j : j + 1])
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
    """Return x · V with orthogonal columns, and the unitary V, by one-sided Jacobi rotations (Hestenes 1958).

    The pairs of a round are rotated at once, in the order of a round-robin tournament (Brent & Luk 1985). A sweep
    meets all pairs; sweeps end when no pair's cosine was beyond the rounding of its dot product. A complex pair is
    given a real dot product first, by the phase of the second column.
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
            alpha, beta = (_sum(square_magnitudes(column), a.ndim - 2) for column in (a, b))
            gamma = _sum(mul(conj(a), b) if is_complex(a) else mul(a, b), a.ndim - 2)
            if is_complex(gamma):
                right = mul(right, conj(find_phase(gamma)))
                gamma = call("abs")(gamma)
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
