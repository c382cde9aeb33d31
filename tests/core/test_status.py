"""Test errors: messages shorten a user's values, and the error keeps the whole text."""

import pickle

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument, TensorDesc
from isokern.arguments import integer as checked
from isokern.declare.attributes import attrs, integer, integers, number
from isokern.ops import find
from isokern.status import LONGEST, quote, shorten

RECORD = attrs("TST1", number("value", 0.0), integer("count", 0), integers("axes", ()))


@pytest.mark.parametrize("name", ["value", "count", "axes"])
@pytest.mark.parametrize(
    "value", ["x" * 200_000, [1.5] * 100_000, 10**5000, [10**5000], {"k": "v" * 10**6}], ids=lambda v: type(v).__name__
)
def test_a_message_is_short_whatever_was_given(name, value):
    with pytest.raises(InvalidArgument, match=rf"^op: attribute {name}=.*; allowed: ") as caught:
        RECORD.check("op", {name: value})
    assert len(str(caught.value)) < LONGEST + 200


def test_the_ends_of_what_is_long_are_shown_and_all_of_it_is_kept():
    error = InvalidArgument("op", "begin " + "x" * 10**6 + " end", allowed="a" * 10**6, hint="try again")
    text = str(error)
    assert text.startswith("op: begin xxx") and " end; allowed: aaa" in text and text.endswith("; try again")
    assert len(text) < 3 * LONGEST
    assert "998014 characters" in text
    assert len(error.problem) == len(pickle.loads(pickle.dumps(error)).problem) == 10**6 + 10
    assert shorten("x" * LONGEST) == "x" * LONGEST


def test_what_cannot_be_shown_is_named_by_its_type():
    class Odd:
        def __repr__(self):
            raise KeyError

    assert (quote(1.5), quote(10**5000)) == ("1.5", "<int that cannot be shown>")
    with pytest.raises(InvalidArgument, match="value=<Odd that cannot be shown>"):
        RECORD.check("op", {"value": Odd()})


@pytest.mark.parametrize(
    "make",
    [
        lambda: isokern.zeros((10**5000,)),
        lambda: TensorDesc("F32", (2,), (10**5000,)),
        lambda: find("softmax").resolve([TensorDesc("F32", (3,))], [TensorDesc("F32", (3,))], {"axis": 10**5000}),
        lambda: find("transpose").infer([TensorDesc("F32", (3,))], {"axes": [10**5000]}),
    ],
)
def test_an_integer_too_long_for_a_text_is_a_typed_error(make):
    with pytest.raises(isokern.IsokernError, match="cannot be shown"):
        make()


def test_integers_are_checked():
    assert checked("f", "n", np.int32(3), 0, 3) == 3
    for wrong in (1.0, float("nan"), None, True, np.True_, "1", [1], 4, -1, 10**5000):
        with pytest.raises(InvalidArgument, match=r"^f: n=.*; allowed: an integer from 0 to 3; so$"):
            checked("f", "n", wrong, 0, 3, hint="so")
