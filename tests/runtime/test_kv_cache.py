"""Test the KV cache on a device: appended keys and values are there, cast or quantised.

Errors leave the cache as it was, and pruning moves within the buffer.
"""

import gc

import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorShape, InvalidArgument, blocks
from isokern.llm.kv_cache import KVCache
from isokern.ops.cast import convert

RNG = np.random.default_rng(7)
DTYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0")


def stored(array, dtype):
    """Return what a cache of that dtype stores for an array, as float32."""
    element = isokern.dtype(dtype)
    if element.block > 1:
        return blocks.dequantize(blocks.quantize(array, element), element)
    return convert(array, element.numpy).astype(np.float32)


def values(tensor):
    array = tensor.numpy()
    return blocks.dequantize(array, tensor.dtype) if tensor.dtype.block > 1 else array.astype(np.float32)


def new(n, batch=1, dim=32):
    return [RNG.standard_normal((batch, n, 2, dim)).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_appended_is_there_and_pruning_keeps_the_rest(device, dtype):
    cache = KVCache(9, 2, 32, dtype, batch=2, device=device)
    parts = [new(n, 2) for n in (3, 1, 4)]
    for k, v in parts:
        cache.update(k, v)
    k, v = (np.concatenate([p[i] for p in parts], 1) for i in (0, 1))
    assert cache.current_pos == 8
    for got, wanted in zip(cache.view(), (k, v), strict=True):
        np.testing.assert_array_equal(values(got), stored(wanted, dtype))
    np.testing.assert_array_equal(values(cache.view(2)[0]), stored(k[:, :2], dtype))
    gc.collect()
    before = cache.device.memory.allocations
    cache.prune_prefix(5)  # source and target overlap in one of the two calls
    cache.prune_prefix(1)
    assert cache.device.memory.allocations == before, "pruning allocates nothing"
    assert cache.current_pos == 2
    for got, wanted in zip(cache.view(), (k, v), strict=True):
        np.testing.assert_array_equal(values(got), stored(wanted[:, 6:], dtype))
    more = new(7, 2)
    cache.update(*more)
    np.testing.assert_array_equal(values(cache.view()[1]), stored(np.concatenate([v[:, 6:], more[1]], 1), dtype))


@pytest.mark.parametrize(
    ("dtype", "position"), [("F32", 2 * 2 * 32 * 4), ("F16", 2 * 2 * 32 * 2), ("Q4_0", 2 * 2 * 18)]
)
def test_memory_is_counted_by_stored_positions(device, dtype, position):
    cache = KVCache(5, 2, 32, dtype, device=device)
    assert (cache.memory_usage_bytes(), cache.capacity_bytes()) == (0, 5 * position)
    cache.update(*new(3))
    assert (cache.memory_usage_bytes(), cache.capacity_bytes()) == (3 * position, 5 * position)
    cache.clear()
    assert (cache.memory_usage_bytes(), cache.current_pos) == (0, 0)


def test_values_may_have_another_width(device):
    cache = KVCache(4, 2, 32, "F32", value_dim=64, device=device)
    (k, _), (_, v) = new(2), new(2, dim=64)
    cache.update(k, v)
    np.testing.assert_array_equal(cache.view()[1].numpy(), v)


def test_what_does_not_fit_leaves_the_cache_as_it_was(device):
    cache = KVCache(4, 2, 32, "F16", device=device)
    k, v = new(3)
    cache.update(k, v)
    for wrong, error in [
        (lambda: cache.update(*new(2)), InvalidArgument),
        (lambda: cache.update(k, v[:, :2]), BadTensorShape),
        (lambda: cache.update(k[..., :16], v), BadTensorShape),
        (lambda: cache.update(k[0], v[0]), BadTensorShape),
        (lambda: cache.update(k.astype(np.int32)[:, :1], v[:, :1]), BadTensorDtype),
        (lambda: cache.prune_prefix(4), InvalidArgument),
        (lambda: cache.prune_prefix(-1), InvalidArgument),
        (lambda: cache.view(4), InvalidArgument),
    ]:
        with pytest.raises(error, match=r"KVCache|cache_update"):
            wrong()
        assert cache.current_pos == 3
        np.testing.assert_array_equal(values(cache.view()[0]), stored(k, "F16"))
    cache.update(k[:, :1], v[:, :1])
    assert cache.current_pos == 4


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1.0, "1", True, [1], 10**5000], ids=type)
def test_what_is_no_integer_leaves_the_cache_as_it_was(device, wrong):
    cache = KVCache(4, 2, 32, "F16", device=device)
    cache.update(*new(2))
    for call in (cache.take, cache.view, cache.prune_prefix):
        with pytest.raises(InvalidArgument, match=r"KVCache\.\w+: "):
            call(wrong)
    for at in range(3):
        sizes = [4, 2, 32]
        sizes[at] = wrong
        with pytest.raises(BadTensorShape, match=r"KVCache|TensorDesc"):
            KVCache(*sizes, device=device)
    assert (cache.current_pos, cache.take(np.int64(2)), cache.current_pos) == (2, 2, 4)
    assert KVCache(np.int32(4), 2, 32, device=device).max_seq_len == 4


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((0, 2, 32), BadTensorShape), ((4, 2, 33, "Q4_0"), BadTensorShape), ((4, 2, 32, "I8"), BadTensorDtype)],
)
def test_sizes_and_types_that_no_cache_has(device, arguments, error):
    with pytest.raises(error):
        KVCache(*arguments, device=device)


def test_keys_of_a_query_s_past(device):
    """Attention over a cache, one position at a time, equals attention over all positions at once."""
    k, v = new(6)
    q = RNG.standard_normal((1, 6, 4, 32)).astype(np.float32)
    whole = isokern.attention(q, k, v, causal=True, device=device).numpy()
    cache = KVCache(8, 2, 32, "F32", device=device)
    for i in range(6):
        cache.update(k[:, i : i + 1], v[:, i : i + 1])
        length = isokern.tensor([cache.current_pos], "I64", device=device)
        one = isokern.tensor(q[:, i : i + 1], device=device)
        seen = isokern.attention(one, cache.keys, cache.values, None, length, causal=True)
        np.testing.assert_allclose(seen.numpy(), whole[:, i : i + 1], atol=1e-5)
