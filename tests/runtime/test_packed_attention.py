"""Test what attention of packed sequences and of pages makes of offsets and queries that conformance cases do not have.

There, offsets are as a caller means them. Those that do not rise, or leave the tensors, are taken as the declarations
say, and kernels sort what decompositions count.
"""

from __future__ import annotations

import numpy as np
import pytest

import isokern
from isokern.ops import find

TOKENS, KEYS, HEADS, GROUPS, WIDTH, PAGES, ROWS = 40, 75, 4, 2, 32, 6, 16

OFFSETS = {  # of queries and of keys
    "rising": ([0, 3, 3, 20, 40], [0, 30, 31, 60, 75]),
    "no sequence of some tokens": ([0, 5, 5, 9, 12], [0, 9, 9, 20, 30]),
    "beginning later": ([7, 9, 20, 30, 40], [11, 20, 33, 44, 75]),
    "not rising": ([0, 30, 10, 40, 20], [0, 50, 20, 75, 10]),
    "falling": ([40, 30, 20, 10, 0], [75, 60, 31, 30, 0]),
    "beyond the tensors": ([-4, -1, 12, 50, 60], [-9, 15, -2, 90, 80]),
}


def compare(device, name, inputs, attrs):
    op = find(name)
    wide = [x if x is None or x.dtype.kind == "i" else x.astype(np.float64) for x in inputs]
    with np.errstate(divide="ignore"):
        expected = op.reference(*wide, **op.attrs.check(op, attrs))
    got = getattr(isokern, name)(*(x if x is None else isokern.tensor(x, device=device) for x in inputs), **attrs)
    assert np.allclose(got.numpy(), expected, rtol=2e-5, atol=2e-5), device.name


@pytest.mark.parametrize("attrs", [{}, {"causal": False, "window": 9}], ids=["causal", "window"])
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS)
def test_offsets_mean_what_the_declarations_say(devices, offsets, attrs):
    rng = np.random.default_rng(0)
    of_queries, of_keys = (np.array(x, np.int64) for x in offsets)
    q = rng.standard_normal((TOKENS, HEADS, WIDTH)).astype(np.float32)
    k, v = rng.standard_normal((2, KEYS, GROUPS, WIDTH)).astype(np.float32)
    pages = rng.standard_normal((2, PAGES, ROWS, GROUPS, WIDTH)).astype(np.float32)
    table = rng.integers(0, PAGES, (4, 3))
    lengths = np.array([48, 0, 17, 33])
    for device in devices:
        compare(device, "varlen_attention", [q, k, v, of_queries, of_keys, None], attrs)
        compare(device, "paged_attention_prefill", [q, *pages, table, lengths, of_queries, None], attrs)


def test_a_length_is_reported_of_a_sequence_without_queries(devices):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((3, HEADS, WIDTH)).astype(np.float32)
    pages = rng.standard_normal((2, PAGES, ROWS, GROUPS, WIDTH)).astype(np.float32)
    given = [q, *pages, np.zeros((2, 3), np.int64), np.array([5, 49]), np.array([0, 3, 3])]
    for device in devices:
        tensors = [isokern.tensor(x, device=device) for x in given]
        with pytest.raises(isokern.InvalidArgument, match=r"49, out of range"):
            isokern.paged_attention_prefill(*tensors).numpy()


@pytest.mark.parametrize("rows", [5, 7, 16])
def test_a_query_of_nan_leaves_the_other_heads_alone(devices, rows):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 1, 3, WIDTH)).astype(np.float32)
    pages = rng.standard_normal((2, 20, rows, 1, WIDTH)).astype(np.float32)
    q[0, 0, 1] = np.nan
    table, lengths = np.arange(20)[None, ::-1].copy(), np.array([20 * rows - 1])
    for device in devices:
        given = [isokern.tensor(x, device=device) for x in (q, *pages, table, lengths)]
        y = isokern.paged_attention(*given).numpy()
        assert (np.isnan(y[0, 0]).all(-1) == [False, True, False]).all(), device.name
