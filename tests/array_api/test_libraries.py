"""Test that libraries find the namespace: array-api-compat, and what they compute by it."""

from __future__ import annotations

import numpy as np
import pytest

import isokern
import isokern.array_api as xp


def test_array_api_compat_finds_the_namespace(devices):
    compat = pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
    for device in devices:
        x = isokern.ones((2, 3), device=device)
        assert compat.array_namespace(x, 1.0) is xp
        assert compat.is_array_api_obj(x)
        assert compat.device(x) is device
        assert compat.size(x) == 6
        assert compat.to_device(x, devices[0]).device is devices[0]
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, np.ones(2))
