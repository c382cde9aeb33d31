"""Test the operators of language models in each way they are split.

That is: pieces of heads and rows, keys and rows split over cores, and parts of a sorted order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import judge, kunlun

import isokern
from isokern.blocks import quantize
from isokern.declare.operator import Sample
from isokern.dtypes import BF16, BLOCKS, F16, F32, I64, Q4_0, Q8_0, DType
from isokern.ops import find

LAYOUTS = ("contiguous", "permuted", "gaps", "negative")

# (b, queries, keys, heads, heads of k, d, e), attributes, whether lengths and a mask are given: one query over many
# keys; many queries; heads longer than a chunk, and shorter than a line; more tasks than cores, and more than clusters
ATTENTION: list[tuple[tuple[int, ...], dict[str, Any], bool]] = [
    ((1, 1, 3000, 4, 1, 64, 64), {"causal": True}, False),
    ((3, 2, 500, 2, 1, 128, 128), {"causal": True, "window": 33}, True),
    ((1, 200, 200, 4, 2, 32, 32), {"causal": True, "window": 17}, False),
    ((2, 3, 70, 4, 2, 288, 160), {"softcap": 3.0}, True),
    ((1, 300, 64, 4, 4, 32, 32), {"causal": True}, False),
]


def attention_sample(shape: tuple[int, ...], attrs: dict[str, Any], more: bool) -> Sample:
    b, m, s, h, g, d, e = shape
    extra = {"mask": (b, 1, m, s), "lengths": (b,)} if more else {}
    return Sample({"q": (b, m, h, d), "k": (b, s, g, d), "v": (b, s, g, e), **extra}, attrs, {"lengths": f"length:{s}"})


@pytest.mark.quick("(F32, F32)-contiguous", "(Q8_0, F32)-gaps")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("types", [(F32, F32), (F16, BF16), (Q8_0, F32), (Q4_0, F16)], ids=str)
def test_attention_of_every_shape(types: tuple[DType, DType], layout: str) -> None:
    for shape, attrs, more in ATTENTION:
        judge("attention_lse", types, attention_sample(shape, attrs, more), layout)


@pytest.mark.quick("special")
@pytest.mark.parametrize("values", ["special", "out_of_range"])
def test_odd_values_of_attention(values: str) -> None:
    judge("attention_lse", (F32, F32), attention_sample(*ATTENTION[1]), "contiguous", values)


def test_keys_of_split_cores_that_add_nothing() -> None:
    """Keys with a score of -inf and hidden keys change no result of other cores; a score of +inf does."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 1, 32), (1, 2000, 1, 32), (1, 2000, 1, 32)))
    mask = np.full((1, 2000), -np.inf, np.float32)
    mask[0, 1234] = 0
    y = np.asarray(isokern.attention(q, k, v, mask, device=kunlun()).numpy())
    assert np.allclose(y[0, 0, 0], v[0, 1234, 0], rtol=1e-6)
    mask[0, 1234] = -np.inf
    assert not np.asarray(isokern.attention(q, k, v, mask, device=kunlun()).numpy()).any()
    mask[0, 77] = np.inf
    assert np.isnan(np.asarray(isokern.attention(q, k, v, mask, device=kunlun()).numpy())).all()


# (rows of x, k, rows of w): one row over many; more rows than a cluster takes; sums of several stretches of blocks, and
# of one block
PRODUCTS = [(1, 1024, 900), (40, 8224, 70), (17, 64, 3100), (5, 160, 5), (2, 32, 70)]


@pytest.mark.quick("Q4_0-contiguous", "Q8_0-negative")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", BLOCKS, ids=str)
def test_products_with_blocks(dtype: DType, layout: str) -> None:
    for n, (m, k, rows) in enumerate(PRODUCTS):
        for quantization in ("float", "q8_0"):
            sample = Sample({"x": (m, k), "w": (rows, k)}, {"lhs_quantization": quantization})
            judge("matmul_transposed", (dtype, (F32, F16, BF16)[n % 3]), sample, layout)
        judge("matmul_mixed", (dtype, F32), Sample({"x": (m, rows), "w": (rows, k)}), layout)


def test_a_batch_of_products() -> None:
    for quantization in ("float", "q8_0"):
        sample = Sample({"x": (3, 5, 7, 96), "w": (70, 96)}, {"lhs_quantization": quantization})
        judge("matmul_transposed", (Q8_0, F32), sample, "permuted")


@pytest.mark.quick("gaps")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_of_many_rows(layout: str) -> None:
    for dtype in BLOCKS:
        for shape in ((3000, 96), (5, 2240), (70, 3, 32)):
            judge("quantize", (dtype, F16), Sample({"x": shape}), layout)
            judge("dequantize", (dtype, BF16), Sample({"x": shape}), layout)
        table = Sample({"table": (50, 2016), "indices": (30, 11)}, {}, {"indices": "index:50"})
        judge("embedding", (dtype, F16), table, layout)
    judge("embedding", (F32, F16), Sample({"table": (9, 1), "indices": (300000,)}, {}, {"indices": "index:9"}), layout)


def test_zeros_of_both_signs_in_a_block() -> None:
    x = np.zeros((64, 32), np.float32)
    x[:, 1::3] = -0.0
    x[32:, 5] = np.arange(32)
    for dtype in BLOCKS:
        raw = isokern.quantize(x, dtype=dtype, device=kunlun()).raw
        assert np.array_equal(raw, quantize(x, dtype)), dtype


@pytest.mark.quick("F16-permuted", "Q4_0-contiguous")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [F32, F16, Q8_0, Q4_0], ids=str)
def test_positions_of_a_cache(dtype: DType, layout: str) -> None:
    for x, keys in [((3, 50, 4, 96), 70), ((1, 1, 8, 128), 900), ((700, 1, 32), 9), ((2, 3000, 32), 3000)]:
        values = {"positions": f"length:{keys - x[1]}"}
        sample = Sample({"x": x, "positions": x[:1]}, {}, values, {"y": (x[0], keys, *x[2:])})
        judge("cache_update", (dtype, F32), sample, layout)
        judge("cache_update", (dtype, BF16), sample, layout, "out_of_range")


# x and attributes: pairs and copied elements longer than a piece, heads longer than a task, one head of one step,
# several pieces of a step per core
TURNED: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((3, 2, 900), {"dims": 600}),
    ((40, 33, 64), {}),
    ((2000, 1, 6), {"dims": 4, "start_pos": 100000}),
    ((1, 1, 128), {"magnitude": 1.5}),
    ((1, 999, 514), {}),
]


@pytest.mark.quick("adjacent-contiguous", "half-gaps")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pairing", ["adjacent", "half"])
def test_turns_of_every_shape(pairing: str, layout: str) -> None:
    for n, (x, attrs) in enumerate(TURNED):
        dtype = (F32, F16)[n % 2]
        judge("rope", dtype, Sample({"x": x}, {**attrs, "pairing": pairing}), layout)
        given = {"x": x, "positions": x[:1], "freqs": ((attrs.get("dims") or x[-1]) // 2,)}
        sample = Sample(given, {**attrs, "pairing": pairing}, {"positions": "length:100000"})
        judge("rope", dtype, sample, layout)


@pytest.mark.quick("permuted")
@pytest.mark.parametrize("layout", ["contiguous", "permuted_in", "permuted", "gaps"])
def test_rows_with_something_of_their_own(layout: str) -> None:
    for n, shape in enumerate([(3, 5000), (2, 70001), (1, 300007), (700, 130), (6, 40, 33), (40, 3, 2100)]):
        dtype = (F32, F16, BF16)[n % 3] if layout == "gaps" else F32
        judge("causal_softmax", dtype, Sample({"x": shape}), layout)
        judge("add_rms_norm", dtype, Sample({"x": shape, "residual": shape, "w": shape[-1:]}), layout)


@pytest.mark.quick("contiguous")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_largest_of_every_length(layout: str) -> None:
    for shape, k, axis in [
        ((3, 1000), 200, 1),
        ((2, 70001), 100, 1),
        ((300, 9), 9, 1),
        ((5000, 3), 65, 0),
        ((1, 300), 300, 1),
        ((900, 40), 3, -1),
    ]:
        for dtype in (F32, F16, I64):
            judge("topk", dtype, Sample({"x": shape}, {"k": k, "axis": axis}), layout)


@pytest.mark.quick("F32")
@pytest.mark.parametrize("dtype", [F32, F16, BF16, I64], ids=str)
def test_equal_elements_come_by_index(dtype: DType) -> None:
    x = np.random.default_rng(2).integers(-1, 2, (4, 3000)).astype(dtype.numpy)
    x[:, ::7] *= -1  # zeros of both signs are equal
    y, indices = (np.asarray(t.numpy()) for t in isokern.topk(x, k=1500, device=kunlun()))
    order = np.argsort(-x.astype(np.float64), -1, kind="stable")[:, :1500]
    assert np.array_equal(indices, order)
    assert np.array_equal(y.view(f"u{y.itemsize}"), np.take_along_axis(x, order, -1).view(f"u{y.itemsize}"))


# tokens, attributes: a slice that stays in local memory, and one that does not; each limit on the choice, and all of
# them together
SAMPLED: list[tuple[int, dict[str, Any]]] = [
    (3000, {}),
    (3000, {"top_k": 2999, "temperature": 3.0}),
    (3000, {"top_p": 0.3}),
    (3000, {"top_k": 100, "top_p": 0.999999, "min_p": 0.001}),
    (70000, {"top_k": 50, "top_p": 0.95, "penalty": 1.2}),
    (70000, {"min_p": 0.5, "penalty": 0.7}),
    (70000, {"temperature": 0.0}),
]


@pytest.mark.quick("F32-contiguous")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_tokens_of_every_cut(dtype: DType, layout: str) -> None:
    for seed, (tokens, attrs) in enumerate(SAMPLED):
        shapes = {"logits": (2, 3, tokens), "history": (2, 3, 150), "steps": (2, 3)}
        sample = Sample(shapes, {"seed": seed - 3, **attrs}, {"history": f"index:{tokens + 1}", "steps": "any"})
        judge("random_sample", dtype, sample, layout)


@pytest.mark.parametrize(
    "attrs",
    [{"top_p": 0.5}, {"top_k": 11}, {"top_k": 30, "top_p": 0.75, "min_p": 0.3}, {"penalty": 3.0}],
    ids=lambda attrs: "+".join(attrs),
)
def test_cuts_amid_equal_tokens(attrs: dict[str, Any]) -> None:
    """Half of the weight ends between equal tokens, and tokens that occur twice in the history are penalised once."""
    rng = np.random.default_rng(5)
    logits, history = rng.integers(0, 3, (300, 32)).astype(np.float32), rng.integers(0, 32, (300, 40))
    logits[:100] = 0
    y = isokern.random_sample(logits, history, device=kunlun(), **attrs)
    operator = find("random_sample")
    wanted = operator.reference(logits, history, None, **operator.attrs.check("random_sample", attrs))
    assert np.array_equal(np.asarray(y.numpy()), wanted)


def test_tokens_are_drawn_by_their_weight() -> None:
    logits = np.log(np.array([1, 2, 4, 8, 1], np.float32) / 16)
    steps = np.arange(4000)
    y = isokern.random_sample(np.broadcast_to(logits, (4000, 5)).copy(), steps=steps, device=kunlun())
    shares = np.bincount(np.asarray(y.numpy()), minlength=5) / 4000
    assert np.allclose(shares, [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1 / 16], atol=0.03)
