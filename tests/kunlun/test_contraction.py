"""Test matrix products and convolutions in each way they are split: over clusters, over cores, and along the sum."""

from __future__ import annotations

from typing import Any

import pytest
from needs import judge

from isokern.declare.operator import Sample
from isokern.dtypes import BF16, F16, F32, I8, I16, I64, U32, DType

# (m, k, n): a square of many tiles; long sums with one row, one column, or one result; skinny products; sums of a block
# and one more
PRODUCTS = [
    (260, 150, 280),
    (1, 3000, 70),
    (70, 3000, 1),
    (1, 20000, 1),
    (5, 40, 1100),
    (1100, 40, 5),
    (64, 257, 64),
    (33, 1025, 17),
]
LAYOUTS = ("contiguous", "permuted_in", "permuted", "gaps", "negative")

# x, w, attributes: rows of pixels longer and shorter than a tile, windows that extend past every side, taps that never
# meet x, one channel per group, pixels as one long row, strides too wide to copy the gaps along, more channels than a
# block of the sum
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 5, 700), (4, 3, 3, 3), {"padding": (1, 1)}),
    ((2, 6, 9, 8), (10, 3, 3, 5), {"groups": 2, "padding": (2, 4), "dilation": (2, 3)}),
    ((1, 2, 3, 3), (3, 2, 3, 3), {"padding": (7, 6, 5, 8), "stride": (2, 3)}),
    ((2, 40, 20, 19), (40, 1, 3, 3), {"groups": 40, "padding": (1,)}),
    ((2, 90, 17, 16), (70, 90, 1, 1), {}),
    ((1, 2, 4, 300), (3, 2, 2, 2), {"stride": (1, 17)}),
    ((1, 130, 7, 7), (20, 130, 3, 3), {"padding": (1, 1)}),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [F32, F16, BF16, I8, I16, U32, I64], ids=lambda d: d.name)
def test_products_of_every_shape(dtype: DType, layout: str) -> None:
    for m, k, n in PRODUCTS:
        judge("matmul", dtype, Sample({"a": (m, k), "b": (k, n)}), layout)


@pytest.mark.parametrize("layout", ["contiguous", "permuted"])
def test_a_batch_over_the_clusters(layout: str) -> None:
    judge("matmul", F32, Sample({"a": (7, 3, 20, 33), "b": (3, 33, 18)}), layout)


@pytest.mark.parametrize(("m", "n"), [(1, 90), (90, 1), (40, 300)])
@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda d: d.name)
def test_the_epilogue_of_shared_sums(dtype: DType, m: int, n: int) -> None:
    sample = Sample(
        {"a": (m, 1500), "b": (1500, n), "bias": (n,), "c": (m, n)}, {"alpha": 0.5, "beta": -1.5, "activation": "silu"}
    )
    judge("gemm", dtype, sample, "gaps")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda d: d.name)
def test_convolutions_of_every_shape(dtype: DType, layout: str) -> None:
    for x, w, attrs in CONVOLUTIONS:
        judge("conv2d", dtype, Sample({"x": x, "w": w, "bias": w[:1]}, attrs), layout)
