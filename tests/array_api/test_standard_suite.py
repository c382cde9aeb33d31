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
    assert list(outcomes.values()).count("passed") > 1300


def test_the_list_is_strict(monkeypatch):
    device = "test_dlpack::test_dlpack_device"
    names = [device, "test_dlpack::test_dunder_dlpack"]
    outcomes = dict.fromkeys(names, "failed")
    assert compare(outcomes, "cuda_sim:0") == []
    more = {"test_linalg::test_svd": "failed", "test_linalg::test_qr": "passed"}
    assert compare({**outcomes, **more}, "cuda_sim:0") == ["test_linalg::test_svd fails"]
    assert compare({**outcomes, device: "passed"}, "cuda_sim:0") == [f"{device}: no such test fails"]
    assert len(compare(outcomes, "cpu:0")) == 2
    drawn = {
        f"test_special_cases::test_unary[{name}(x_i.is_integer()) -> x_i]": "failed" for name in ("floor", "round")
    }
    for outcome in ("failed", "passed"):
        assert compare({**outcomes, **dict.fromkeys(drawn, outcome)}, "kunlun_sim:0") == []
    assert len(compare(outcomes, "kunlun_sim:0")) == 1  # without such tests the line is idle
    assert len(compare({**outcomes, **drawn}, "cuda_sim:0")) == 2
    monkeypatch.setattr(standard_suite, "read_list", lambda device: {})
    assert len(compare(outcomes, "cuda_sim:0")) == 2


def test_without_a_checkout_there_is_no_suite(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert find_suite() is None
    (tmp_path / "array-api" / "spec").mkdir(parents=True)
    assert find_suite() == tmp_path
    monkeypatch.delenv(FOLDER)
    assert find_suite() is None


def test_the_list_has_sentences():
    assert all(s.endswith(".") and len(s) > 20 for d in ("cuda_sim:0", "kunlun_sim:0") for s in read_list(d).values())
