"""Test pooling and batch_norm where their kernels branch.

Windows are wide, tall or dilated, and channels are many or side by side.
"""

from __future__ import annotations

from typing import Any

import pytest
from needs import judge

from isokern.declare.operator import Sample
from isokern.dtypes import BF16, F16, F32

WINDOWS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 3, 700), {"kernel": (2, 300), "stride": (1, 7)}),  # wider than a tile
    ((1, 2, 3, 700), {"kernel": (1, 4), "stride": (1, 1), "dilation": (1, 200)}),  # far apart
    ((1, 1, 2, 900), {"kernel": (1, 3), "stride": (1, 1), "dilation": (1, 300), "padding": (0, 299)}),
    ((2, 1, 900, 2), {"kernel": (800, 2), "stride": (50, 1)}),  # more rows than are copied at once
    ((1, 3, 12, 13), {"kernel": (3, 3), "stride": (1, 1), "dilation": (2, 3), "padding": (3, 5)}),
    # every tap is in the padding
    ((1, 2, 1, 1), {"kernel": (2, 2), "stride": (1, 1), "dilation": (2, 2), "padding": (1, 1)}),
    ((1, 300, 9, 8), {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 1)}),
    ((1, 2, 600, 600), {"kernel": (3, 3), "stride": (2, 2)}),
]
BINS = [
    ((1, 2, 5, 900), (2, 1)),
    ((1, 2, 900, 5), (1, 2)),
    ((1, 300, 9, 8), (2, 3)),
    ((2, 3, 40, 50), (1, 1)),
    ((1, 1, 7, 3), (20, 600)),
]
NORMS = [(1, 400, 5, 7), (3, 400, 5, 7), (70, 333), (2, 3, 50, 51), (1, 161, 900)]
LAYOUTS = ("contiguous", "permuted", "permuted_in", "gaps", "negative")


def judge_layouts(op: str, sample: Sample) -> None:
    for n, layout in enumerate(LAYOUTS):
        judge(op, (F32, F16, BF16)[n % 3], sample, layout)


@pytest.mark.parametrize("op", ["max_pool2d", "avg_pool2d"])
def test_windows(op: str) -> None:
    for shape, window in WINDOWS:
        judge_layouts(op, Sample({"x": shape}, window))


def test_bins() -> None:
    for shape, bins in BINS:
        judge_layouts("adaptive_avg_pool2d", Sample({"x": shape}, {"output_size": bins}))


def test_channels() -> None:
    for shape in NORMS:
        c = shape[1:2]
        judge_layouts("batch_norm", Sample({"x": shape, "mean": c, "var": c, "w": c, "bias": c}))
