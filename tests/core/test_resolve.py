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


@pytest.mark.parametrize(("name", "dtype", "y"), [("matmul", "F32", "F32"), ("matmul_integer", "I8", "I32")])
@pytest.mark.parametrize(("m", "k", "n"), [(8, 0, 3), (0, 8, 3), (4, 5, 0)])
def test_an_empty_tensor_may_be_mirrored(name, dtype, y, m, k, n):
    def mirrored(*shape):
        whole = TensorDesc(dtype, [2 * d + 1 for d in shape])
        offset = 0 if 0 in shape else sum((d - 1) * s for d, s in zip(shape, whole.strides, strict=True))
        return TensorDesc(dtype, shape, [-s for s in whole.strides], offset)

    a, b = mirrored(2, m, k), mirrored(2, k, n)
    found = find(name).resolve([a, b], [TensorDesc(y, (2, m, n))])
    assert found.inputs[:2] == (a, b)


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
