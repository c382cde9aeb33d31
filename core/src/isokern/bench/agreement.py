"""Checks that another library computed what Isokern did, so that the same work is timed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import dtype
from ..oracle.values import limits_of

LOOKED_AT = 1 << 20  # elements that are compared, evenly spread


class Differs(Exception):
    """Raised where two results are not of the same work; the text says how they differ."""


def check(got: np.ndarray[Any, Any], ours: np.ndarray[Any, Any]) -> None:
    """Raise `Differs` unless the results agree.

    Integers and booleans have to agree in every element. Each float may be off by the square root of its dtype's
    epsilon, relative to itself and the median magnitude: half of the digits, which is far more than two ways of
    rounding differ by, and far less than two operators do.
    """
    if got.shape != ours.shape or got.dtype != ours.dtype:
        raise Differs(f"it gives {got.dtype}{list(got.shape)}, we {ours.dtype}{list(ours.shape)}")
    step = max(1, ours.size // LOOKED_AT) | 1  # odd, so that samples fall into every column of a matrix
    a, b = got.reshape(-1)[::step], ours.reshape(-1)[::step]
    if dtype(ours.dtype).kind != "f":
        wrong = a != b
    else:
        a, b = a.astype(np.float64), b.astype(np.float64)
        sizes = np.abs(b[np.isfinite(b)])
        typical = float(np.median(sizes)) if sizes.size else 0.0
        bound = float(limits_of(dtype(ours.dtype)).eps) ** 0.5 * (np.abs(b) + typical)
        near = np.isfinite(b) & (np.abs(a - b) <= bound)
        wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise Differs(f"{int(wrong.sum())} of {wrong.size} elements differ, the first by {a[at]} for our {b[at]}")
