"""Conversion of arrays between element types, by the rule of `cast` and of every constant in a declaration."""

from __future__ import annotations

from typing import Any

import numpy as np


def convert(x: Any, target: Any) -> Any:
    """Return `x` in NumPy dtype `target` by the library's rule.

    Float to float rounds to nearest even; float to integer truncates, saturates, and maps NaN to 0; integer to integer
    wraps; anything to boolean is `!= 0`.
    """
    source = x.dtype
    is_float = source.kind in "fV"  # ml_dtypes' bfloat16 has kind V
    if target == np.bool_:
        return x.astype(np.float64) != 0 if is_float else x != 0
    if target.kind in "iu" and is_float:
        wide = x.astype(np.float64)
        limits = np.iinfo(target)
        inside = np.where(np.isnan(wide), 0, np.clip(np.trunc(wide), limits.min, limits.max))
        top = wide >= float(limits.max)  # the largest 64-bit integer is not a float64, so it is set separately
        with np.errstate(invalid="ignore"):
            return np.where(top, limits.max, np.where(top, 0, inside).astype(target)).astype(target)
    narrow = target.kind in "fV" and target.itemsize <= 2
    if narrow and (source == np.float64 or (not is_float and source.itemsize > 2)):
        return round_once(x, target)  # ml_dtypes and NumPy convert by way of F32, which would round twice
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(target)


def round_once(x: Any, target: Any) -> Any:
    """Convert large integers to a float of 16 bits or fewer with one rounding.

    Goes by way of F32 rounded to odd, after which the second rounding is harmless.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        near = x.astype(np.float32)
        back = near.astype(np.float64)
        exact = x.astype(np.longdouble)
        toward = np.where(np.abs(back) > np.abs(exact), np.nextafter(near, np.float32(0)), near)
        bits = toward.astype(np.float32).view(np.uint32)
        odd = np.where(toward.astype(np.longdouble) != exact, bits | 1, bits).astype(np.uint32)
        return odd.view(np.float32).astype(target)
