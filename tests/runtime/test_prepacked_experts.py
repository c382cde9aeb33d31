"""Test prepacked weights of experts: the results are those of weights as they are, for few and many rows of each."""

import numpy as np
import pytest
from prepacked_sizes import growth_of

import isokern
from isokern import InvalidArgument, TensorDesc, blocks
from isokern.dtypes import BLOCKS, STORED_BLOCKS, dtype
from isokern.oracle.values import draw

EXPERTS = 5


def describe(w, x, ids, device, prepacked=("w",), **attrs):
    given = [x.desc, w.desc, ids.desc]
    return isokern.create("matmul_id", given, device=device, prepacked=prepacked, **attrs)


def compute(descriptor, *given):
    y = isokern.empty(descriptor.outputs[0].shape, descriptor.outputs[0].dtype, device=descriptor.device)
    descriptor.calculate(list(given), y, workspace="auto")
    return y.numpy()


def weights(device, element, n, k):
    w = isokern.empty((EXPERTS, n, k), element, device=device)
    w.raw.copy_from(draw("normal", element, (EXPERTS, n, k), np.random.default_rng(3)))
    return w


def wanted(x, w, ids, how):
    """Return float64 products, of rows that have been Q8_0 where `how` says so."""
    rows = x.numpy().astype(np.float32)
    if how == "q8_0":
        rows = blocks.dequantize(blocks.quantize(rows, dtype("Q8_0")), dtype("Q8_0"))
    plain = blocks.dequantize(w.raw.numpy(), w.dtype).astype(np.float64)
    rows = rows if rows.ndim == 3 else np.repeat(rows[:, None], ids.shape[1], 1)
    return np.einsum("mtk,mtnk->mtn", rows, plain[ids.numpy()])


@pytest.mark.parametrize("how", ["float", "q8_0"])
@pytest.mark.parametrize("element", [*BLOCKS, *STORED_BLOCKS], ids=str)
def test_the_result_is_that_of_weights_as_they_are(device, element, how):
    random = np.random.default_rng(4)
    w = weights(device, element, 37, 256)
    # A row and few rows of an expert, many of one and few of others, rows of its own for each expert
    for shape, chosen in (
        ((1, 256), [[2, 0]]),
        ((23, 256), [[4, 1]] * 20 + [[0, 4]] * 3),
        ((2, 2, 256), [[1, 1], [3, 1]]),
    ):
        x = isokern.tensor(random.standard_normal(shape, np.float32), device=device)
        ids = isokern.tensor(np.array(chosen, np.int32), device=device)
        descriptor = describe(w, x, ids, device, lhs_quantization=how)
        held = descriptor.prepack("w", w)
        assert (held is not w) == ("w" in descriptor.packed_layouts)
        expected = wanted(x, w, ids, how)
        for given, own in ((held, descriptor), (w, describe(w, x, ids, device, (), lhs_quantization=how))):
            np.testing.assert_allclose(compute(own, x, given, ids), expected, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("element", [*BLOCKS, *STORED_BLOCKS], ids=str)
def test_they_are_not_much_larger(device, element):
    given = [TensorDesc("F32", (3, 1024)), TensorDesc(element, (EXPERTS, 64, 1024)), TensorDesc("I64", (3, 2))]
    for how in ("float", "q8_0"):
        descriptor = isokern.create("matmul_id", given, device=device, prepacked=["w"], lhs_quantization=how)
        for layout in descriptor.packed_layouts.values():
            assert layout.nbytes <= given[1].nbytes * growth_of(element)


@pytest.mark.parametrize("how", ["float", "q8_0"])
def test_more_rows_than_are_converted_at_once(device, how):
    """The last rows of an expert may be computed apart from its first ones."""
    if device.name != "cpu:0":
        pytest.skip("only the CPU's kernel converts some rows at once")
    random = np.random.default_rng(5)
    w = weights(device, dtype("Q4_0"), 5, 32)
    x = isokern.tensor(random.standard_normal((2500, 32), np.float32), device=device)
    ids = isokern.tensor(random.integers(0, EXPERTS, (2500, 2)), device=device)
    descriptor = describe(w, x, ids, device, lhs_quantization=how)
    got = compute(descriptor, x, descriptor.prepack("w", w), ids)
    np.testing.assert_allclose(got, wanted(x, w, ids, how), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("how", ["float", "q8_0"])
def test_an_id_that_names_no_expert(device, how):
    w = weights(device, dtype("Q4_0"), 20, 64)
    x = isokern.tensor(np.random.default_rng(6).standard_normal((3, 64), np.float32), device=device)
    ids = isokern.tensor(np.array([[0, EXPERTS], [1, 2], [-1, 4]], np.int32), device=device)
    descriptor = describe(w, x, ids, device, lhs_quantization=how)
    y = isokern.full((3, 2, 20), 7.0, device=device)
    held = descriptor.prepack("w", w)

    def run():
        descriptor.calculate([x, held, ids], y, workspace="auto")
        device.synchronize()

    with pytest.raises(InvalidArgument, match=f"is {EXPERTS}, out of range for the experts"):
        run()
    got = y.numpy()
    assert (got != 0).all(-1).tolist() == [[True, False], [True, True], [False, True]]


def test_activations_of_blocks_go_with_blocks_only(device):
    given = [TensorDesc("F32", (3, 64)), TensorDesc("F32", (4, 8, 64)), TensorDesc("I64", (3, 2))]
    with pytest.raises(InvalidArgument, match="lhs_quantization=q8_0 with weights of F32; allowed: Q4_0"):
        isokern.create("matmul_id", given, device=device, lhs_quantization="q8_0")
