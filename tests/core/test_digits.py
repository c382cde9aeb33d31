"""Test that the split of the digits demo's data is fixed, and that its weights reach their stored accuracy."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from isokern.demo.digits import load_digits, load_weights, reference_logits, split

DATA = Path(__file__).parents[2] / "core" / "src" / "isokern" / "demo" / "data"

SHAPES = {
    "conv1.weight": (16, 1, 3, 3),
    "conv1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3),
    "conv2.bias": (32,),
    "linear.weight": (10, 128),
    "linear.bias": (10,),
}


def test_split_is_the_one_the_weights_were_trained_on() -> None:
    train, heldout = split()
    assert train.dtype == heldout.dtype == np.int64
    digest = hashlib.sha256(np.concatenate([train, heldout]).astype("<i8").tobytes()).hexdigest()
    assert digest == "4cc6508e7c7f380022070b682ba26d906b2d89a5772ef49c8c4741c4d74d809a"


def test_split_is_disjoint_and_complete() -> None:
    train, heldout = split()
    assert (len(train), len(heldout)) == (1347, 450)
    assert sorted([*train, *heldout]) == list(range(1797))


def test_digits_have_their_shapes_and_ranges() -> None:
    images, labels = load_digits()
    assert images.dtype == np.float32
    assert images.shape == (1797, 1, 8, 8)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert labels.dtype == np.int64
    assert labels.shape == (1797,)
    # Images per digit in optdigits.tes, from UCI's description of the data.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_weights_are_finite_float32_of_the_stated_shapes() -> None:
    weights = load_weights()
    assert weights.pop("accuracy").shape == ()
    assert {name: array.shape for name, array in weights.items()} == SHAPES
    for name, array in weights.items():
        assert array.dtype == np.float32, name
        assert np.isfinite(array).all(), name


def test_oracle_reaches_the_stored_accuracy_on_the_heldout_part() -> None:
    images, labels = load_digits()
    _, heldout = split()
    logits = reference_logits(images[heldout])
    assert logits.dtype == np.float64
    assert logits.shape == (450, 10)
    accuracy = (logits.argmax(axis=1) == labels[heldout]).mean()
    assert accuracy == load_weights()["accuracy"]
    assert accuracy >= 0.96
    assert f"{accuracy:.2%}".replace("%", " %") in (DATA / "README.md").read_text(encoding="utf-8")


def test_oracle_refuses_images_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"shape \[2, 8, 8\]; give it as \[n, 1, 8, 8\]"):
        reference_logits(np.zeros((2, 8, 8)))
