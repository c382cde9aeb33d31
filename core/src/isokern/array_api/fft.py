"""The fft extension of the array API standard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..dtypes import COMPLEX, F32, F64, dtype as dtype_of
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor, tensor
from .complex_parts import WHOLE, is_complex, to_complex
from .dtypes import DEFAULT_FLOAT
from .elementwise import conj
from .manipulation import roll
from .operands import as_array, axes_of, axis_of, change_shape
from .operators import function
from .transforms import scale, take_real, transform

NORMS = ("backward", "ortho", "forward")


def _floating(where: str, x: Any, real: bool = False) -> Tensor:
    held = as_array(where, x)
    allowed = (F32, F64) if real else (F32, F64, *COMPLEX)
    if held.dtype not in allowed:
        names = ", ".join(d.name for d in allowed)
        raise BadTensorDtype(where, f"an array of {held.dtype}", allowed=names, hint="tensor.astype(…)")
    if not held.ndim:
        raise BadTensorShape(where, f"{held.desc}", allowed="rank 1 or more")
    return held


def _find_factor(where: str, norm: str, n: int, inverse: bool) -> float:
    """Return the factor of a transform, by the convention for which direction has 1/n."""
    if norm not in NORMS:
        raise InvalidArgument(where, f"norm={quote(norm)}", allowed=", ".join(map(repr, NORMS)))
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "backward") == inverse else 1.0


def _check_length(where: str, n: Any) -> int:
    if not is_integer(n) or n < 1:
        raise InvalidArgument(where, f"a transform of length {quote(n)}", allowed="integers from 1")
    return int(n)


def _fit(x: Tensor, n: int) -> Tensor:
    """Return x with n elements along the last dim: without the last ones, or with zeros behind."""
    if x.shape[-1] >= n:
        return x[..., :n]
    padded = function("fill")(shape=(*x.shape[:-1], n), dtype=x.dtype, device=x.device)
    function("copy")(x, out=padded[..., : x.shape[-1]])
    made: Tensor = padded
    return made


def _last(x: Tensor, axis: int) -> Tensor:
    return x.permute((*(a for a in range(x.ndim) if a != axis), axis))


def _back(x: Tensor, axis: int) -> Tensor:
    """Return the view with the last dim at a place."""
    return x.permute((*range(axis), x.ndim - 1, *range(axis, x.ndim - 1)))


def _transform_rows(x: Tensor, inverse: bool, factor: float) -> Tensor:
    """Return the transforms along the last dim."""
    n = x.shape[-1]
    found = scale(transform(change_shape(x, (math.prod(x.shape[:-1]), n)), inverse), factor)
    return found.reshape(x.shape)


def _apply(where: str, x: Tensor, n: Any, axis: int, norm: str, inverse: bool) -> Tensor:
    at = axis_of(where, axis, x.ndim)
    length = _check_length(where, x.shape[at] if n is None else n)
    factor = _find_factor(where, norm, length, inverse)
    return _back(_transform_rows(_fit(_last(x, at), length), inverse, factor), at)


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the discrete Fourier transform along an axis, of n elements: cut, or with zeros behind."""
    return _apply("fft", _floating("fft", x), n, axis, norm, False)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the inverse discrete Fourier transform along an axis."""
    return _apply("ifft", _floating("ifft", x), n, axis, norm, True)


def _lengths(where: str, x: Tensor, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """Return the axes of a transform, and for each the length that is asked for."""
    if s is not None and axes is None:
        axes = tuple(range(x.ndim - len(s), x.ndim))
    found = axes_of(where, None if axes is None else tuple(axes), x.ndim)
    given = (None,) * len(found) if s is None else tuple(s)
    if len(given) != len(found) or not found:
        raise InvalidArgument(where, f"s={quote(s)}, axes={quote(axes)}", allowed="as many of each, one or more")
    return list(zip(found, given, strict=True))


def _apply_all(where: str, x: Any, s: Any, axes: Any, norm: str, inverse: bool) -> Tensor:
    held = _floating(where, x)
    for axis, n in reversed(_lengths(where, held, s, axes)):
        held = _apply(where, held, n, axis, norm, inverse)
    return held


def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the discrete Fourier transform along axes, all of them by default, of lengths `s`."""
    return _apply_all("fftn", x, s, axes, norm, False)


def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the inverse discrete Fourier transform along axes."""
    return _apply_all("ifftn", x, s, axes, norm, True)


def _apply_real(where: str, x: Tensor, n: Any, axis: int, norm: str) -> Tensor:
    at = axis_of(where, axis, x.ndim)
    length = _check_length(where, x.shape[at] if n is None else n)
    rows = _transform_rows(_fit(_last(x, at), length), False, _find_factor(where, norm, length, False))
    kept: Tensor = function("copy")(rows[..., : length // 2 + 1])
    return _back(kept, at)


def _invert_real(where: str, x: Tensor, n: Any, axis: int, norm: str) -> Tensor:
    """Return the real inverse transform: the other half of the terms are the conjugates of the first."""
    at = axis_of(where, axis, x.ndim)
    length = _check_length(where, 2 * (x.shape[at] - 1) if n is None else n)
    factor = _find_factor(where, norm, length, True)
    half = _fit(_last(x, at), length // 2 + 1)
    mirrored = conj(half[..., (length - 1) // 2 : 0 : -1])
    whole = function("concat")([half, mirrored], axis=half.ndim - 1)
    return _back(take_real(_transform_rows(whole, True, factor)), at)


def _to_complex(where: str, x: Any) -> Tensor:
    held = _floating(where, x)
    return held if is_complex(held) else to_complex(held, WHOLE[held.dtype])


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the first n // 2 + 1 terms of the transform of real numbers along an axis."""
    return _apply_real("rfft", _floating("rfft", x, real=True), n, axis, norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the real numbers of which `rfft` has the terms; by default an even number of them."""
    return _invert_real("irfft", _to_complex("irfft", x), n, axis, norm)


def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the transform of real numbers along axes, of which the last has its first half of terms."""
    held = _floating("rfftn", x, real=True)
    *others, (axis, n) = _lengths("rfftn", held, s, axes)
    held = _apply_real("rfftn", held, n, axis, norm)
    for other, length in reversed(others):
        held = _apply("rfftn", held, length, other, norm, False)
    return held


def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the real numbers of which `rfftn` has the terms."""
    held = _to_complex("irfftn", x)
    *others, (axis, n) = _lengths("irfftn", held, s, axes)
    for other, length in others:
        held = _apply("irfftn", held, length, other, norm, True)
    return _invert_real("irfftn", held, n, axis, norm)


def _swap_norm(where: str, norm: str) -> str:
    _find_factor(where, norm, 1, False)
    return NORMS[::-1][NORMS.index(norm)]


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the real transform of a signal with Hermitian symmetry, of which x has the first half."""
    return _invert_real("hfft", conj(_to_complex("hfft", x)), n, axis, _swap_norm("hfft", norm))


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the inverse transform of real numbers: the first half of a signal with Hermitian symmetry."""
    return conj(_apply_real("ihfft", _floating("ihfft", x, real=True), n, axis, _swap_norm("ihfft", norm)))


def _frequencies(where: str, places: Any, n: int, d: float, dtype: Any, device: Any) -> Tensor:
    wanted = DEFAULT_FLOAT if dtype is None else dtype_of(dtype)
    if wanted.kind != "f":
        raise BadTensorDtype(where, f"dtype={wanted}", allowed="floats")
    return tensor(places / (n * float(d)), wanted, device=device)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the frequencies of the terms of `fft`, for samples at distance d: from 0 up, then the negative ones."""
    length = _check_length("fftfreq", n)
    places = np.concatenate([np.arange((length + 1) // 2), np.arange(-(length // 2), 0)])
    return _frequencies("fftfreq", places, length, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the frequencies of the terms of `rfft`, for samples at distance d."""
    length = _check_length("rfftfreq", n)
    return _frequencies("rfftfreq", np.arange(length // 2 + 1), length, d, dtype, device)


def _shift(where: str, x: Any, axes: Any, sign: int) -> Tensor:
    held = as_array(where, x)
    found = axes_of(where, axes, held.ndim)
    return roll(held, tuple(sign * (held.shape[a] // 2) for a in found), axis=found)


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Return x with the term of frequency 0 in the middle of each axis."""
    return _shift("fftshift", x, axes, 1)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Return x with the term of frequency 0 first again: the inverse of `fftshift`."""
    return _shift("ifftshift", x, axes, -1)


__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]
