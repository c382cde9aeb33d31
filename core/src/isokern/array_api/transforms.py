"""Fourier transforms along the last dim of matrices, of operators: mixed radix (Cooley & Tukey 1965) and Bluestein's.

A length is a product of small ones. Each stage is one matrix product, with the real and imaginary parts beside each
other in a row, and then a product with twiddle factors, which also brings the elements into the order that the next
stage reads. Lengths with a large prime factor become a convolution of a length that has none (Bluestein 1970). Cosines
and sines are computed on the host in float64, of angles in the first eighth of a circle, and kept for each length.
"""

from __future__ import annotations

import atexit
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..backend import Device
from ..dtypes import DType
from ..tensors import Tensor, tensor
from .complex_parts import PART, WHOLE, evaluate, is_complex, make_empty, view_complex, view_floats, view_part
from .operators import function

RADIX = 64  # most terms of a stage, but for a prime
PRIME = 127  # the largest prime factor that is a stage
KEPT = 32  # lengths whose factors are kept


def find_roots(places: Any, n: int) -> tuple[Any, Any]:
    """Return the cosines and sines of 2π · places / n, exact where they are 0 or ±1."""
    quarter, rest = np.divmod(4 * (np.asarray(places) % n), n)
    mirrored = 2 * rest > n
    angle = np.pi / 2 * np.where(mirrored, n - rest, rest) / n
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where(mirrored, s, c), np.where(mirrored, c, s)
    return np.choose(quarter, [c, -s, -c, s]), np.choose(quarter, [s, c, -s, -c])


def find_radices(n: int) -> list[int]:
    """Return factors of a length, as few as can be and about equal, up to RADIX each but for primes; largest first."""
    primes, left, p = [], n, 2
    while p * p <= left:
        while left % p == 0:
            primes.append(p)
            left //= p
        p += 1
    if left > 1:
        primes.append(left)
    limit = max([RADIX, *primes])
    for count in range(1, len(primes) + 1):
        radices = [1] * count
        for prime in reversed(primes):
            radices[radices.index(min(radices))] *= prime
        if max(radices) <= limit:
            return sorted(radices, reverse=True)
    return [1]


@dataclass(frozen=True)
class Butterfly:
    """A transform of `radix` terms as a real matrix, and the twiddle factors after it, but for the last one."""

    radix: int
    matrix: Tensor
    twiddles: tuple[Tensor, Tensor] | None


@lru_cache(maxsize=KEPT)
def list_butterflies(n: int, inverse: bool, dtype: DType, device: Device) -> list[Butterfly]:
    """Return the butterflies of a length."""
    made, sign = [], -1 if inverse else 1
    for r in find_radices(n):
        terms = np.arange(r)
        c, s = find_roots(np.outer(terms, terms), r)
        matrix = tensor(np.block([[c, sign * s], [-sign * s, c]]), dtype, device=device)
        c, s = find_roots(np.outer(terms, np.arange(n // r)), n)
        twiddles = (tensor(c, dtype, device=device), tensor(-sign * s, dtype, device=device))
        n //= r
        made.append(Butterfly(r, matrix, twiddles if n > 1 else None))
    return made


def transform(x: Tensor, inverse: bool) -> Tensor:
    """Return Σ x[…, j] e^(∓2πi jk/n) of rows of complex or real numbers; + for the inverse, without its factor.

    A butterfly works on [rows, done, part, digit, left]: what the digits that were transformed count, and those that
    follow. What it makes of its digit is the slowest of the next `done`, so that the digits end in reverse, as they
    have to.
    """
    rows, n = x.shape
    if not rows:
        return make_empty(x, x.shape, WHOLE.get(x.dtype, x.dtype))
    if max(find_radices(n)) > PRIME:
        return _transform_by_convolution(x, inverse)
    copy, matmul = function("copy"), function("matmul")
    parts = 2 if is_complex(x) else 1
    planes = copy(view_floats(x).permute(0, 2, 1)) if is_complex(x) else copy(x)
    done, left = 1, n
    for butterfly in list_butterflies(n, inverse, PART.get(x.dtype, x.dtype), x.device):
        r, matrix = butterfly.radix, butterfly.matrix[:, : parts * butterfly.radix]
        left //= r
        if butterfly.twiddles is None:
            break
        made = matmul(matrix, planes.reshape(rows * done, parts * r, left)).reshape(rows, done, 2, r, left)
        real, imag = (made[:, :, part].permute(0, 2, 1, 3) for part in range(2))
        target = function("fill")(shape=(rows, r, done, 2, left), dtype=made.dtype, device=made.device)
        factors = [w.reshape(1, r, 1, left) for w in butterfly.twiddles]
        for part, body in enumerate(("x * u - y * v", "x * v + y * u")):
            evaluate(body, real, imag, *factors, out=target[:, :, :, part])
        planes, parts, done = target, 2, done * r
    terms = planes.reshape(rows, done, parts * r)
    # A transposed operand brings the last digit to the front; with none before it, rows make one large product
    made = matmul(matrix, terms.permute(0, 2, 1)) if done > 1 else matmul(terms[:, 0], matrix.T)
    return view_complex(copy(made.reshape(rows, 2, n).permute(0, 2, 1)))


@lru_cache(maxsize=KEPT)
def _find_chirp(n: int, inverse: bool, dtype: DType, device: Device) -> tuple[int, Tensor, Tensor]:
    """Return a length without large primes, e^(∓πi j²/n), and the transform of its conjugate, of that length."""
    size = next(s for s in range(2 * n - 1, 4 * n) if max(find_radices(s)) <= 5 or s & (s - 1) == 0)
    places = np.arange(n)
    c, s = find_roots(np.array([int(j) * int(j) % (2 * n) for j in places]), 2 * n)
    chirp = c + (1j if inverse else -1j) * s
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1 :] = chirp.conj()[1:][::-1]
    whole = WHOLE[dtype]
    return size, tensor(chirp, whole, device=device), tensor(np.fft.fft(kernel) / size, whole, device=device)


def _transform_by_convolution(x: Tensor, inverse: bool) -> Tensor:
    """Return the transform as jk = (j² + k² - (k - j)²) / 2 makes it: a convolution with a chirp."""
    rows, n = x.shape
    size, chirp, kernel = _find_chirp(n, inverse, PART.get(x.dtype, x.dtype), x.device)
    mul = function("mul")
    padded = function("fill")(shape=(rows, size), dtype=chirp.dtype, device=x.device)
    function("copy")(mul(chirp, x), out=padded[:, :n])
    found = transform(mul(transform(padded, False), kernel), True)
    made: Tensor = mul(found[:, :n], chirp)
    return made


def take_real(x: Tensor) -> Tensor:
    """Return the real parts in memory of their own."""
    copied: Tensor = function("copy")(view_part(x, 0))
    return copied


def scale(x: Tensor, factor: float) -> Tensor:
    """Multiply what was made here, in place."""
    if factor != 1 and x.desc.numel:
        floats = view_floats(x) if is_complex(x) else x
        function("scale")(floats, value=factor, out=floats)
    return x


for _kept in (list_butterflies, _find_chirp):
    atexit.register(_kept.cache_clear)  # device memory is freed while the backends' modules are whole
