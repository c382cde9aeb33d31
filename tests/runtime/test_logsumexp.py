"""Test logsumexp of long rows and columns whose maximum changes on the way, or is no number."""

from __future__ import annotations

import numpy as np
import pytest

import isokern
from isokern.ops import find

COUNT = 20_000
RISING = np.linspace(-30, 30, COUNT)
BEHIND = np.arange(COUNT) >= COUNT // 2

ROWS = {
    "rising": RISING,
    "rising by less than a shift": RISING / 100,
    "falling": -RISING,
    "nothing at first": np.where(BEHIND, RISING, -np.inf),
    "nothing later": np.where(BEHIND, -np.inf, RISING),
    "nothing": np.full(COUNT, -np.inf),
    "an infinity": np.where(np.arange(COUNT) == 9_000, np.inf, RISING),
    "an infinity at last": np.where(np.arange(COUNT) == COUNT - 1, np.inf, RISING),
    "no number, and an infinity behind it": np.where(BEHIND, np.inf, np.where(np.arange(COUNT) == 7, np.nan, RISING)),
    "an infinity, and no number behind it": np.where(BEHIND, np.nan, np.where(np.arange(COUNT) == 7, np.inf, RISING)),
}


@pytest.mark.parametrize("across", [False, True], ids=["rows", "columns"])
def test_a_maximum_that_changes(devices, across):
    x = np.stack(list(ROWS.values()) * 2).astype(np.float32)  # twice: columns enough for vectors
    given, axis = (np.ascontiguousarray(x.T), 0) if across else (x, 1)
    with np.errstate(all="ignore"):
        expected = find("logsumexp").reference(x.astype(np.float64), (1,), False)
    for device in devices:
        found = isokern.logsumexp(isokern.tensor(given, device=device), axes=(axis,)).numpy()
        for name, y, wanted in zip([*ROWS] * 2, found, expected, strict=True):
            assert np.allclose(y, wanted, rtol=1e-6, atol=1e-6, equal_nan=True), (device.name, name, y, wanted)


def test_losses_of_scores_that_are_no_numbers(devices):
    """Where log_softmax is NaN, a loss is, but where a label does not count."""
    x = np.zeros((6, 5), np.float32)
    x[1, 2], x[2, 0], x[3] = np.inf, np.nan, -np.inf
    x[4, 1] = x[5, 2] = -np.inf
    labels = np.array([1, 1, 1, 1, 1, 1])
    wanted = [False, True, True, True, False, False]
    for device in devices:
        tensors = [isokern.tensor(a, device=device) for a in (x, labels)]
        for smoothing in (0.0, 0.3):
            y = isokern.cross_entropy(*tensors, reduction="none", label_smoothing=smoothing).numpy()
            assert np.isnan(y).tolist() == wanted
            assert np.isinf(y).tolist() == [False, False, False, False, True, smoothing > 0]
        ignored = isokern.cross_entropy(*tensors, reduction="none", ignore_index=1).numpy()
        assert ignored.tolist() == [0] * 6
