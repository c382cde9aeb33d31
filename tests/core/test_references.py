"""Test references on empty tensors: NumPy has no maximum of no elements, but none is needed without results."""

import numpy as np
import pytest

from isokern.ops import find


@pytest.mark.parametrize(
    ("name", "attrs"),
    [("reduce_max", {"axes": (1,)}), ("reduce_min", {"axes": (1,)}), ("argmax", {"axis": 1})],
)
def test_no_results_of_no_elements(name, attrs):
    assert find(name).reference(np.zeros((0, 0, 4)), keepdims=True, **attrs).shape == (0, 1, 4)
