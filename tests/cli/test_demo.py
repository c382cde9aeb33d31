"""isokern demo: real images, the accuracy of the training run, and exit codes."""

import numpy as np
import pytest

import isokern
from isokern.demo import digits, network

KEYS = {"device", "accuracy", "images", "ms_per_image", "max_abs_diff"}


@pytest.fixture(autouse=True)
def _able(device):
    try:
        network.DigitsNetwork(device, 1)
    except isokern.NotImplementedOnDevice as error:
        pytest.skip(str(error))


def test_json(isokern_here, device):
    done = isokern_here("demo", "--json")
    assert done.code == 0
    (row,) = [r for r in done.document if r["device"] == device.name]
    assert row.keys() >= KEYS
    assert row["images"] == 450
    assert row["accuracy"] == pytest.approx(float(digits.load_weights()["accuracy"]))
    assert 0 < row["max_abs_diff"] < 1e-4
    assert row["ms_per_image"] > 0


@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_batches_agree(device, batch):
    whole, parts = network.classify(device, passes=1), network.classify(device, batch, passes=1)
    assert parts.accuracy == whole.accuracy
    assert network.difference(parts.logits, whole.logits) < 1e-4


def test_table(isokern_here, device):
    done = isokern_here("demo", "--device", device.name, "--batch", "50")
    assert done.code == 0
    assert "448 of 450" in done.out
    assert "the training run reached 99.56%" in done.out


def test_a_device_that_computes_something_else_fails(isokern_here, monkeypatch):
    weights = {k: v if k != "conv2.weight" else -v for k, v in digits.load_weights().items()}
    monkeypatch.setattr(network, "load_weights", lambda: weights)
    done = isokern_here("demo", "--json")
    assert done.code == 1
    assert done.document[0]["accuracy"] < 0.96
    assert "at least 96%" in done.err


def test_nan_logits_fail(isokern_here, monkeypatch):
    weights = {k: v if k != "linear.bias" else v * np.float32("nan") for k, v in digits.load_weights().items()}
    monkeypatch.setattr(network, "load_weights", lambda: weights)
    done = isokern_here("demo", "--json")
    assert done.code == 1
    assert done.document[0]["max_abs_diff"] == "nan"


@pytest.mark.parametrize(("arguments", "code"), [(["--device", "nowhere"], 3), (["--batch", "0"], 2)])
def test_refusals(isokern_here, arguments, code):
    done = isokern_here("demo", *arguments, "--json")
    assert (done.code, done.out) == (code, "")
