"""Test `isokern explain-call`."""

import pytest


def test_a_call_is_explained(isokern_here):
    shown = isokern_here("explain-call", "softmax x=F32[2,3,4] axis=1")
    assert shown.code == 0, shown.err
    for words in ("F32[2, 4, 3] strides (12, 1, 4)", "log_softmax", "record SMX1 of 8 bytes", "along `attrs['axis']`"):
        assert words in shown.out


def test_the_document_has_the_devices_answer(isokern_here):
    shown = isokern_here("explain-call", "gemm", "a=F32[2,3]", "b=F32[3,5]", "--device", "cpu:0", "--json")
    told = shown.document
    assert [t["name"] for t in told["tensors"]] == ["y", "a", "b", "bias", "c"]
    assert told["device"]["variant"] and told["device"]["workspace"]["kind"] == "default"


def test_a_wrong_word_is_one_line(isokern_here):
    shown = isokern_here("explain-call", "softmax", "z=F32[2]")
    assert shown.code == 2
    assert shown.err.count("\n") == 1 and "it has no 'z'" in shown.err


def test_an_operator_without_attributes_is_explained(isokern_here):
    shown = isokern_here("explain-call", "add a=F32[2] b=F32[2]")
    assert shown.code == 0, shown.err
    assert "attributes: none" in shown.out


@pytest.mark.parametrize("call", ["", " ", "softmax 'x=F32[2]"])
def test_what_has_no_words_is_one_line(isokern_here, call):
    shown = isokern_here("explain-call", call)
    assert shown.code == 2
    assert shown.err.count("\n") == 1 and "allowed: OPERATOR NAME=DTYPE" in shown.err


@pytest.mark.parametrize("word", ["x=F32[2,3", "x=F32[2 3]", "x=F32[2,3]:1-2,3", "x=F32[" + "9" * 5000 + "]", "x"])
def test_a_tensor_of_another_form_is_one_line(isokern_here, word):
    shown = isokern_here("explain-call", "softmax", word)
    assert shown.code == 2
    assert shown.err.count("\n") == 1 and "allowed: NAME=DTYPE[d0,d1,…]" in shown.err and len(shown.err) < 3000
