"""Test maxima of windows that have a NaN, at each place of a window and of an image."""

from __future__ import annotations

import numpy as np
import pytest

import isokern
from isokern.ops import find

HEIGHT, WIDTH = 7, 36


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [(1, 3), (2, 2), (3, 3), (4, 5), (5, 4)])
def test_a_maximum_with_nan_is_nan(devices, kernel, stride):
    """Each plane has one NaN, at a place of its own; other elements fall, or rise, along a row."""
    places = HEIGHT * WIDTH
    x = np.tile(-np.arange(places, dtype=np.float32), (1, places, 1)).reshape(1, places, HEIGHT, WIDTH)
    x.reshape(places, places)[np.arange(places), np.arange(places)] = np.nan
    attrs = {"kernel": kernel, "stride": (stride, stride)}
    op = find("max_pool2d")
    for given in (x, x[..., ::-1].copy()):
        wanted = op.reference(given.astype(np.float64), **op.attrs.check(op.name, attrs))
        for device in devices:
            y = isokern.max_pool2d(isokern.tensor(given, device=device), **attrs).numpy()
            assert np.array_equal(y, wanted, equal_nan=True), device.name
