"""Test the cache of resolved calls: equal calls are found again, and different ones are never confused."""

import numpy as np
import pytest

from isokern import BadTensorShape, TensorDesc
from isokern.ops import find


def test_a_call_that_is_found_again_is_as_it_was():
    op, x = find("softmax"), TensorDesc("F32", (2, 3))
    first = op.resolve([x], [x], {"axis": -1})
    with pytest.raises(TypeError, match="cannot be changed"):
        first.attrs["axis"] = 7
    again = op.resolve([x], [x], {"axis": -1})
    assert dict(again.attrs) == {"axis": -1} and again.table == first.table
    assert op.resolve([x], [x], {"axis": 0}).table != again.table
    y = TensorDesc("F32", (2, 3), (1, 2))
    assert op.resolve([x], [y], {"axis": -1}).outputs == (y,)
    for _ in range(2):
        with pytest.raises(BadTensorShape):
            op.resolve([x], [TensorDesc("F32", (2, 4))], {"axis": -1})


def test_attributes_that_only_compare_equal_are_others():
    op, y = find("fill"), TensorDesc("F32", (2,))
    for value in (0.0, -0.0, True, 1, np.float64(2), np.float32(2)):
        for _ in range(2):
            found = op.resolve([], [y], {"value": value}).attrs["value"]
            assert repr(found) == repr(float(value))
    shaped = find("slice")
    x, part = TensorDesc("I64", (9,)), TensorDesc("I64", (3,))
    for start in (0, 1):
        for given in ((start,), [start], np.array([start])):
            table = shaped.resolve([x], [part], {"starts": given, "ends": (start + 3,)}).table
            assert table[1].offset == start
