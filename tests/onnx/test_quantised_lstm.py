"""Test DynamicQuantizeLSTM and CDist of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import TensorProto
from runtime_peer import MICROSOFT, assert_same, feeds, make, ours, theirs

from isokern.status import InvalidArgument

FLOAT = TensorProto.FLOAT
STEPS, BATCH, SIZE, HIDDEN = 4, 2, 6, 8


@pytest.mark.parametrize("seed", range(12))
def test_an_lstm_of_quantised_weights(seed: int) -> None:
    draw = np.random.default_rng(seed)
    direction = str(draw.choice(["forward", "reverse", "bidirectional"]))
    d, dtype = 1 + (direction == "bidirectional"), draw.choice([np.int8, np.uint8])
    ends = (0, 256) if dtype == np.uint8 else (-64, 64)  # as symmetric weights without dot products of bytes need

    def numbers(*shape: int) -> Any:
        return draw.uniform(-1, 1, shape).astype(np.float32)

    def scales(each: bool) -> list[Any]:
        dims = (d, 4 * HIDDEN) if each else (d,)
        zero = np.full(dims, 128 if dtype == np.uint8 else 0, dtype)
        return [draw.uniform(0.005, 0.01, dims).astype(np.float32), zero]

    each = bool(draw.integers(2))
    inputs = [
        numbers(STEPS, BATCH, SIZE),
        draw.integers(*ends, (d, SIZE, 4 * HIDDEN)).astype(dtype),
        draw.integers(*ends, (d, HIDDEN, 4 * HIDDEN)).astype(dtype),
        numbers(d, 8 * HIDDEN) if draw.random() < 0.7 else None,
        np.int32([STEPS, 2]) if draw.random() < 0.4 else None,
        *([numbers(d, BATCH, HIDDEN), numbers(d, BATCH, HIDDEN)] if draw.random() < 0.6 else [None, None]),
        numbers(d, 3 * HIDDEN) if draw.random() < 0.4 else None,
        *scales(each),
        *scales(each),
    ]
    held = {1, 2, 8, 9, 10, 11}
    attrs = {"hidden_size": HIDDEN, "direction": direction}
    model = make("DynamicQuantizeLSTM", MICROSOFT, inputs, [FLOAT] * 3, held, **attrs)
    given = feeds(inputs, held)
    for y, right in zip(ours(model, given), theirs(model, given), strict=True):
        assert y.shape == right.shape
        np.testing.assert_allclose(y, right, 0, 0.01)  # a step of 1/255 more or less in what is quantised


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_of_rows(metric: str) -> None:
    draw = np.random.default_rng(2)
    a, b = (draw.standard_normal(s).astype(np.float32) + 100 for s in ((5, 3), (7, 3)))
    made = make("CDist", MICROSOFT, [a, b], [FLOAT], metric=metric)
    right = ((a[:, None].astype(np.float64) - b) ** 2).sum(-1)
    got = ours(made, feeds([a, b]))[0]
    np.testing.assert_allclose(got, np.sqrt(right) if metric == "euclidean" else right, 1e-5)
    assert_same(made, feeds([a, b]), tolerance=0.1)  # theirs is |a|² + |b|² - 2ab, which loses digits far from 0


def test_a_metric_that_is_unknown() -> None:
    x = np.ones((2, 2), np.float32)
    with pytest.raises(InvalidArgument, match="cosine"):
        ours(make("CDist", MICROSOFT, [x, x], [FLOAT], metric="cosine"), feeds([x, x]))
