"""Test that no door narrows numbers in silence: an integer that would wrap, or a float that would become infinite."""

from __future__ import annotations

import numpy as np
import pytest

import isokern
from isokern import graph
from isokern.runtime import compile
from isokern.status import BadTensorDtype, InvalidArgument

BIG = 2**40 + 5
LOST = [
    ("I32", np.array([1, BIG]), "1099511627781 of I64"),
    ("I32", np.array([1, -(2**31) - 1]), "-2147483649 of I64"),
    ("I8", np.array([1, 128], np.uint8), "128 of U8"),
    ("I64", np.array([1, 2**63], np.uint64), "9223372036854775808 of U64"),
    ("U8", np.array([1, 256], np.uint16), "256 of U16"),
    ("F32", np.array([1, 1e39]), "1e\\+39 of F64"),
    ("F16", np.array([1, 70000]), "70000 of I64"),
    ("F16", np.array([-65520.0, 1], np.float32), "-65520.0 of F32"),
    ("BF16", np.array([3.4e38, np.inf], np.float32), "3.39.*e\\+38 of F32"),
]
KEPT = [
    ("I32", np.array([2**31 - 1, -(2**31)]), [2**31 - 1, -(2**31)]),
    ("U8", np.array([255, 0], np.uint32), [255, 0]),
    ("F32", np.array([np.inf, 0.1]), [np.inf, np.float32(0.1)]),
    ("F32", np.array([2**24 + 1, 1]), [2**24, 1]),  # a float may round
    ("F16", np.array([65519.0, np.nan], np.float32), [65504, np.nan]),
]


@pytest.fixture(scope="module")
def make(device):
    """Return a function that compiles a graph which returns its input."""

    def compiled(element):
        builder = graph.Builder("doubled")
        always, x = builder.input("c", (2,), "BOOL"), builder.input("x", (2,), element)
        builder.output(builder.emit("where", [always, x, x])[0])
        return compile(builder.graph, device)

    return compiled


def feed_everywhere(program, given, device):
    """Yield a function for each way to feed an array."""
    always = np.ones(2, bool)
    yield lambda: program.run({"c": always, "x": given})
    yield lambda: program.run({"c": always, "x": isokern.tensor(given, device=device)})
    yield lambda: program.run_direct({"c": always, "x": given})


@pytest.mark.parametrize(("element", "given", "words"), LOST)
def test_a_number_that_an_input_lacks_is_an_error_with_its_name(make, device, element, given, words):
    program = make(element)
    for run in feed_everywhere(program, given, device):
        with pytest.raises(BadTensorDtype, match=f"doubled, input x: {words}; allowed: {element}"):
            run()
    with pytest.raises(BadTensorDtype, match="input x"):
        program.feed({"c": np.ones(2, bool), "x": given})


@pytest.mark.parametrize(("element", "given", "wanted"), KEPT)
def test_numbers_that_an_input_has_are_fed(make, device, element, given, wanted):
    for run in feed_everywhere(make(element), given, device):
        assert np.array_equal(run().astype(np.float64), np.array(wanted, np.float64), equal_nan=True)


def test_eager_calls_do_not_narrow(device):
    x = isokern.tensor(np.array([1, 2], np.int32), device=device)
    for call in (
        lambda: x + BIG,
        lambda: isokern.add(x, BIG),
        lambda: isokern.add(x, np.array([BIG, 1])),
        lambda: x.__setitem__(0, BIG),
        lambda: isokern.tensor([BIG], "I32", device=device),
        lambda: isokern.tensor(np.array([BIG]), "I32", device=device),
        lambda: isokern.full((2,), BIG, "I32", device=device),
        lambda: isokern.full((2,), -1, "U8", device=device),
    ):
        with pytest.raises((InvalidArgument, BadTensorDtype), match=r"I32|U8"):
            call()
    assert isokern.full((2,), 255, "U8", device=device).numpy().tolist() == [255, 255]


def test_integers_divide_to_the_default_float(device):
    array = np.array([1, 2], np.int32)
    x = isokern.tensor(array, device=device)
    div = isokern.div
    for y in (div(x, x), div(x, 2), div(4, x), div(array, array, device=device), div([4, 2], x), x / x, 2 / x):
        assert y.dtype is isokern.F32
    assert div(x, 4).numpy().tolist() == [0.25, 0.5]
    assert div(np.array([1.0, 3.0]), 2, device=device).dtype is isokern.F64
    with pytest.raises(BadTensorDtype, match="div"):
        div(x, isokern.tensor([1.0, 2.0], device=device))
