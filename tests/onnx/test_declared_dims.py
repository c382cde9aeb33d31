"""Test that a result has the dims that its model declares: another one is an error, not a warning as ONNX Runtime's."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from small_models import INT64, model, node, value

from isokern import BadTensorShape
from isokern.onnx import load


def full(number, size):
    return np.full(size, number, np.float32)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ([4], r"y: the result has dims \[3\]; allowed: y: FLOAT\[4\], as it is declared"),
        ([3, 1], r"y: the result has dims \[3\]; allowed: y: FLOAT\[3, 1\]"),
        (["m"], r"the result has dims \[3\]; allowed: y: FLOAT\[m\], m = 2"),
        ([], r"the result has dims \[3\]; allowed: y: FLOAT\[\]"),
    ],
)
def test_other_dims_than_declared_are_an_error(cpu, declared, message):
    inputs = [value("x", ["n"]), value("z", ["m"])]
    loaded = load(model([node("Neg", "x", "y")], inputs, [value("y", declared)]), cpu)
    with pytest.raises(BadTensorShape, match=message):
        loaded.run(full(1, 3), full(1, 2))


@pytest.mark.parametrize("declared", [None, ["n"], ["free"], [3], [None], [-1]])
def test_dims_that_say_nothing_else_are_none(cpu, declared):
    made = model([node("Neg", "x", "y")], [value("x", ["n"])], [value("y", declared)])
    assert load(made, cpu).run(full(1, 3)).shape == (3,)


def test_a_leading_dim_that_is_freed_is_free_in_results(cpu):
    made = model([node("Neg", "x", "y")], [value("x", [1, 2])], [value("y", [1, 2])])
    assert load(made, cpu, dynamic=True).run(np.zeros((5, 2), np.float32)).shape == (5, 2)
    wrong = model([node("Neg", "x", "y")], [value("x", [1, 2])], [value("y", [1, 3])])
    with pytest.raises(BadTensorShape, match=r"dims \[5, 2\]; allowed: y: FLOAT\[y.0, 3\]"):
        load(wrong, cpu, dynamic=True).run(np.zeros((5, 2), np.float32))


def test_the_known_dims_of_a_result_of_any_size_are_checked(cpu):
    for declared, fails in ((["k", "n"], False), ([1, None], False), ([2, None], True)):
        made = model([node("NonZero", "x", "y")], [value("x", [4])], [value("y", declared, INT64)])
        if fails:
            with pytest.raises(BadTensorShape, match=r"dims \[1, \?\]"):
                load(made, cpu)
        else:
            assert load(made, cpu).run(full(1, 4)).shape == (1, 4)
