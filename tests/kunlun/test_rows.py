"""Test the row kernels in each way they split rows, along memory and across it.

A core takes whole rows, a cluster takes a row, or clusters take parts of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import assert_same_on_clusters, judge, kunlun
from row_samples import SEVERAL_AXES, case

import isokern
from isokern.dtypes import BF16, F16, F32, I32, U64

# (shape, axis): many short rows, some long, few long, one very long; then across memory in the same order
ALONG = [((5000, 3), 1), ((700, 130), 1), ((300, 2100), 1), ((3, 5000), 1), ((2, 70001), 1), ((1, 300007), 1)]
ACROSS = [((3, 5000), 0), ((1500, 70), 0), ((64, 1000), 0), ((3000, 40), 0), ((4099, 33), 0), ((40000, 3), 0)]
SHAPES = [*ALONG, *ACROSS, ((3, 130, 70), 1), ((2, 7, 5, 600), 2)]
LAYOUTS = ("contiguous", "permuted_in", "gaps")


def computed(op: str, x: np.ndarray[Any, Any], **attrs: Any) -> np.ndarray[Any, Any]:
    return np.asarray(getattr(isokern, op)(x, device=kunlun(), **attrs).numpy())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "op", ["softmax", "log_softmax", "rms_norm", "layer_norm", "reduce_sum", "reduce_mean", "reduce_max", "argmax"]
)
def test_rows_of_every_length(op: str, layout: str) -> None:
    for n, (shape, axis) in enumerate(SHAPES):
        sample = case(op, shape, axis)
        if sample is not None:
            judge(op, (F32, F16, BF16)[n % 3] if layout == "gaps" else F32, sample, layout)


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_min", "argmax"])
def test_integers(op: str) -> None:
    for dtype in (I32, U64):
        for shape, axis in SHAPES:
            sample = case(op, shape, axis)
            assert sample is not None
            judge(op, dtype, sample, "contiguous")


@pytest.mark.parametrize("op", ["softmax", "reduce_sum", "reduce_mean", "reduce_max", "argmax"])
def test_special_values_in_long_rows(op: str) -> None:
    for shape, axis in [((3, 5000), 1), ((1, 300007), 1), ((4099, 33), 0)]:
        sample = case(op, shape, axis)
        assert sample is not None
        judge(op, F32, sample, "contiguous", "special")


def test_several_axes() -> None:
    for sample in SEVERAL_AXES:
        for op in ("reduce_sum", "reduce_max"):
            for layout in LAYOUTS:
                judge(op, F32, sample, layout)


@pytest.mark.parametrize("length", [7, 3000, 70001])
def test_pieces_of_infinities(length: int) -> None:
    """A slice of only -inf contributes nothing to a softmax; an infinity affects the slices of other cores."""
    x = np.full((2, length), -np.inf, np.float32)
    x[0, length // 3] = 1
    y = computed("softmax", x)
    assert y[0, length // 3] == 1 and y[0].sum() == 1 and np.isnan(y[1]).all()
    x = np.zeros((2, length), np.float32)
    x[0, length // 2] = np.inf
    y = computed("softmax", x)
    assert np.isnan(y[0]).all() and np.isfinite(y[1]).all()


@pytest.mark.parametrize("length", [7, 3000, 70001])
def test_sums_beyond_the_range_on_the_way(length: int) -> None:
    x = np.full((2, length), 3e38, np.float32)
    x[0, 1::2] *= -1
    assert computed("reduce_sum", x, axes=(1,)).tolist() == [x[0, 0] * (length % 2), np.inf]
    assert computed("reduce_mean", x, axes=(1,))[1] == pytest.approx(3e38, rel=3e-7)


DIGEST = """
import hashlib, numpy as np, isokern
found = hashlib.sha256()
for shape in ((300, 2100), (3, 5000), (2, 70001), (4099, 33)):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for op in ("softmax", "rms_norm", "layer_norm", "reduce_sum"):
        found.update(np.asarray(getattr(isokern, op)(x, device="kunlun_sim:0").numpy()).tobytes())
print(found.hexdigest())
"""


def test_the_same_bits_on_any_number_of_clusters() -> None:
    assert_same_on_clusters(DIGEST)
