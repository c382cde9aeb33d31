"""Test attention of few queries over heads that lie side by side, in a cache that is larger than a processor's caches.

Kernels may read the keys of such heads together, which they do not where the cache is small; both give the same.
"""

import itertools

import numpy as np
import pytest

import isokern
from isokern import TensorDesc

ROOM = 1 << 14  # elements from a position to the next, so that few positions are a large cache
FORMS = [  # queries, heads of q, heads of k, width of k, of v, keys
    (1, 8, 8, 64, 64, 40),
    (1, 12, 3, 40, 24, 37),
    (2, 6, 2, 33, 17, 133),
    (2, 4, 4, 16, 48, 300),
    (1, 40, 20, 8, 8, 520),
    (8, 5, 5, 32, 32, 64),
]
WAYS = {
    "plain": {},
    "causal": {"causal": True, "lengths": True},
    "window": {"causal": True, "window": 9, "mask": True},
    "seen": {"seen": True, "sinks": True, "softcap": 2.5},
    "alibi": {"alibi": True, "lengths": True},
}


def far(array, device):
    """Return the array on the device, in rows of positions that are ROOM elements apart."""
    b, s, _, d = array.shape
    room = isokern.tensor(np.full((b, s, ROOM), np.nan, array.dtype), device=device)
    desc = TensorDesc(room.dtype, array.shape, (s * ROOM, ROOM, d, 1), offset=d)
    found = isokern.Tensor(desc, room.buffer)
    isokern.copy(isokern.tensor(array, device=device), out=found)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_heads_that_are_read_together_give_what_each_alone_gives(device, dtype, form, way):
    m, h, g, d, e, s = form
    b, rng = 2, np.random.default_rng(7)
    options = dict(WAYS[way])
    q, k, v = (rng.normal(size=n).astype(dtype) for n in ((b, m, h, d), (b, s, g, d), (b, s, g, e)))
    v[0, -1, 0, 0] = np.inf if options.get("causal") else 1
    given = {
        "mask": lambda: rng.normal(size=(b, h, m, s)).astype(dtype),
        "lengths": lambda: np.array([s - 1, max(1, s // 2)], np.int32),
        "seen": lambda: rng.random((b, h, m, s)) < 0.6,
        "sinks": lambda: rng.normal(size=h).astype(dtype),
        "alibi": lambda: rng.random(h).astype(np.float32),
    }
    more = [isokern.tensor(make(), device=device) if options.pop(name, False) else None for name, make in given.items()]
    x = isokern.tensor(q, device=device)
    near = isokern.attention(x, *(isokern.tensor(a, device=device) for a in (k, v)), *more, **options).numpy()
    apart = isokern.attention(x, far(k, device), far(v, device), *more, **options).numpy()
    assert np.isfinite(near).sum() > near.size / 2
    np.testing.assert_allclose(apart, near, rtol=2e-5 if dtype == "float32" else 2e-3, atol=1e-6)


@pytest.mark.parametrize("page", [1, 16, 40])
@pytest.mark.parametrize("queries", [1, 2])
def test_heads_of_pages_are_read_together(device, page, queries):
    rng, pages = np.random.default_rng(5), -(-90 // page)
    q = rng.normal(size=(2, queries, 6, 24)).astype(np.float32)
    k, v = (rng.normal(size=(2 * pages, page, 3, n)).astype(np.float32) for n in (24, 40))
    table = rng.permutation(2 * pages).reshape(2, pages).astype(np.int32)
    last = [isokern.tensor(a, device=device) for a in (table, np.array([90, 33], np.int32))]
    x = isokern.tensor(q, device=device)
    near = isokern.paged_attention(x, *(isokern.tensor(a, device=device) for a in (k, v)), *last).numpy()
    apart = isokern.paged_attention(x, far(k, device), far(v, device), *last).numpy()
    np.testing.assert_allclose(apart, near, rtol=2e-5, atol=1e-6)


def test_a_result_does_not_depend_on_heads_beside_it(device):
    """A head with NaN, or without a key that it sees, leaves those that are read with it alone."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=n).astype(np.float32) for n in ((1, 1, 8, 32), (1, 70, 4, 32), (1, 70, 4, 32)))
    x, whole = isokern.tensor(q, device=device), far(k, device)
    wanted = isokern.attention(x, whole, far(v, device)).numpy()
    for bad, head in itertools.product((np.nan, np.inf), (0, 3)):
        other = v.copy()
        other[:, 5, head] = bad
        found = isokern.attention(x, whole, far(other, device)).numpy()
        rest = [h for h in range(8) if h // 2 != head]
        np.testing.assert_array_equal(found[:, :, rest], wanted[:, :, rest])
