"""Run the standard's own suite: array-api-tests, which is on no index, so a checkout of it is named."""

from __future__ import annotations

import pytest
import standard_suite
from standard_suite import FOLDER, compare, find_suite, read_list, run_suite

import isokern


@pytest.mark.full  # minutes a device
@pytest.mark.parametrize("name", [d.name for d in isokern.devices()])
def test_the_suite_passes_but_for_the_list(name, tmp_path):
    suite = find_suite()
    if suite is None:
        pytest.skip(f"{FOLDER} names no checkout of github.com/data-apis/array-api-tests with its submodule")
    outcomes = run_suite(suite, name, tmp_path / "suite", examples=10 if name.startswith("cpu") else 5)
    assert compare(outcomes, name) == []
    assert list(outcomes.values()).count("passed") > 1100


def test_the_list_is_strict(monkeypatch):
    vecdot = "test_linalg::test_vecdot_conj"
    names = ["test_special_cases::test_unary[exp(imag(x_i) is NaN)]", "test_has_names::test_has_names[fft-fft]", vecdot]
    outcomes = dict.fromkeys(names, "failed")
    assert compare(outcomes, "cpu:0") == []
    more = {"test_linalg::test_svd": "failed", "test_linalg::test_qr": "passed"}
    assert compare({**outcomes, **more}, "cpu:0") == ["test_linalg::test_svd fails"]
    assert compare({**outcomes, vecdot: "passed"}, "cpu:0") == [f"{vecdot}: no such test fails"]
    assert len(compare(outcomes, "cuda_sim:0")) == 2
    monkeypatch.setattr(standard_suite, "read_list", lambda device: {})
    assert len(compare(outcomes, "cpu:0")) == 3


def test_without_a_checkout_there_is_no_suite(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert find_suite() is None
    (tmp_path / "array-api" / "spec").mkdir(parents=True)
    assert find_suite() == tmp_path
    monkeypatch.delenv(FOLDER)
    assert find_suite() is None


def test_the_list_has_sentences():
    assert all(s.endswith(".") and len(s) > 20 for d in ("cpu:0", "cuda_sim:0") for s in read_list(d).values())
