"""Test isokern demo: real images, the accuracy that training reached, and exit codes."""

from pathlib import Path

import pytest

import isokern
from isokern.demo import digits, network

KEYS = {"device", "accuracy", "images", "ms_per_image", "max_abs_diff"}


NUMPY = (Path(__file__).parent / "numpy_backend.py").read_text()


@pytest.fixture
def able(device):
    """Return the default device; skip the test unless it has all the operators of the network."""
    try:
        network.DigitsNetwork(device, 1)
    except isokern.NotImplementedOnDevice as error:
        pytest.skip(str(error))
    return device


@pytest.mark.full  # all of this is seen when all devices are compared
def test_a_device_of_a_plugin(isokern_there):
    done = isokern_there("demo", "--device", "numpy", "--batch", "100", "--json", numpy=NUMPY)
    assert done.code == 0, done.err
    (row,) = done.document
    assert row["device"] == "numpy:0"
    assert row["accuracy"] == pytest.approx(float(digits.load_weights()["accuracy"]))
    assert row["max_abs_diff"] < 1e-5
    assert row["differences"] == {}


def test_all_devices_are_compared(isokern_there, able):
    done = isokern_there("demo", "--json", numpy=NUMPY)
    rows = {r["device"]: r for r in done.document}
    assert {able.name, "numpy:0"} <= rows.keys()
    assert rows[able.name]["differences"]["numpy:0"] == rows["numpy:0"]["differences"][able.name]
    assert 0 < rows[able.name]["differences"]["numpy:0"] < 1e-4
    assert rows["numpy:0"]["accuracy"] == pytest.approx(float(digits.load_weights()["accuracy"]))


@pytest.mark.full
def test_the_table_compares_devices(isokern_there, able):
    done = isokern_there("demo", env={"COLUMNS": "200"}, numpy=NUMPY)
    assert "off other devices by" in done.out


def test_a_device_without_the_operators_is_left_out(isokern_there):
    done = isokern_there(
        "demo",
        "--json",
        numpy=NUMPY,
        bare=NUMPY.replace("numpy:0", "bare:0")
        .replace('"numpy", _open', '"bare", _open')
        .replace("STEMS = (", "STEMS = () and ("),
    )
    assert done.code == 0
    assert "bare:0" not in {r["device"] for r in done.document}
    assert "bare:0 is left out: conv2d" in done.err
    alone = isokern_there("demo", "--device", "bare", "--json")
    assert (alone.code, alone.out) == (2, "")
    assert "conv2d" in alone.err


def test_json(isokern_here, able):
    done = isokern_here("demo", "--json")
    assert done.code == 0
    (row,) = [r for r in done.document if r["device"] == able.name]
    assert row.keys() >= KEYS
    assert row["images"] == 450
    assert row["accuracy"] == pytest.approx(float(digits.load_weights()["accuracy"]))
    assert 0 < row["max_abs_diff"] < 1e-4
    assert row["ms_per_image"] > 0


@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_batches_agree(able, batch):
    whole, parts = network.classify(able, passes=1), network.classify(able, batch, passes=1)
    assert parts.accuracy == whole.accuracy
    assert network.difference(parts.logits, whole.logits) < 1e-4


def test_table(isokern_here, able):
    done = isokern_here("demo", "--device", able.name, "--batch", "50")
    assert done.code == 0
    assert "448 of 450" in done.out
    assert "the training run reached 99.56%" in done.out


@pytest.mark.parametrize(
    ("wrong", "difference"), [pytest.param("-result", None, marks=pytest.mark.full), ("result * np.nan", "nan")]
)
def test_a_device_that_computes_something_else_fails(isokern_there, wrong, difference):
    done = isokern_there(
        "demo", "--device", "numpy", "--json", numpy=NUMPY.replace("y[...] = result", f"y[...] = {wrong}")
    )
    assert done.code == 1
    (row,) = done.document
    assert row["accuracy"] < 0.96
    assert difference in (None, row["max_abs_diff"])
    assert "at least 96%" in done.err


@pytest.mark.parametrize(("arguments", "code"), [(["--device", "nowhere"], 3), (["--batch", "0"], 2)])
def test_refusals(isokern_here, arguments, code):
    done = isokern_here("demo", *arguments, "--json")
    assert (done.code, done.out) == (code, "")
